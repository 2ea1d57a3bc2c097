-- The newest interruption of the turn that the model has been told of, by its number in the journal;
-- 0 if there is none. It is known where the interruption is, for whoever tells may be left behind.
ALTER TABLE turns ADD COLUMN told_seq BIGINT NOT NULL DEFAULT 0;

-- Of older journals: an acknowledgement speaks of everything before it that was not told yet.
UPDATE turns SET told_seq = COALESCE((
    SELECT MAX(happened.seq) FROM journal happened
    WHERE happened.turn_id = turns.id AND happened.kind = 'attempt_interrupted'
      AND EXISTS (SELECT 1 FROM journal told
                  WHERE told.session_id = happened.session_id AND told.seq > happened.seq
                    AND told.kind = 'interruption_acknowledged')), 0)
WHERE id IN (SELECT turn_id FROM journal WHERE kind = 'attempt_interrupted');
