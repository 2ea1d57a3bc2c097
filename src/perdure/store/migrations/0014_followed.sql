-- An edit or a deletion has a message id of its own, which no journal holds. By this it is found with
-- the turn that it speaks of. Messages, of which there are many more, are found by the journal.
CREATE INDEX inbox_changes ON inbox (turn_id) WHERE kind IN ('edit', 'delete');

-- What was left behind by turns that have moved to another session follows them.
UPDATE inbox SET session_id = (SELECT t.session_id FROM turns t WHERE t.id = inbox.turn_id)
WHERE turn_id IN (SELECT j.turn_id FROM journal j WHERE j.kind = 'turn_moved');
UPDATE outbox SET session_id = (SELECT t.session_id FROM turns t WHERE t.id = outbox.turn_id)
WHERE turn_id IN (SELECT j.turn_id FROM journal j WHERE j.kind = 'turn_moved');

-- What is said as it is waits for no interrupted turn. It did where it came while the turn still ran.
UPDATE sessions SET ready_at = active_at, wait_until = NULL,
    ready_seq = (SELECT COALESCE(MAX(r.ready_seq), 0) + 1 FROM sessions r
                 WHERE r.ready_at IS NOT NULL)
WHERE ready_at IS NULL AND state = 'open'
  AND id IN (SELECT t.session_id FROM turns t WHERE t.state = 'interrupted')
  AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = sessions.id AND t.outcome IS NULL
                  AND (t.state IN ('running', 'waiting')
                       OR (t.state = 'interrupted' AND t.kind IN ('result', 'sent'))))
  AND (SELECT t.kind FROM turns t WHERE t.session_id = sessions.id AND t.outcome IS NULL
       AND t.state = 'queued' ORDER BY t.queued_seq LIMIT 1) IN ('result', 'sent');
