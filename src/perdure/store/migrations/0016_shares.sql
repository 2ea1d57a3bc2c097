-- Whose turn is the next of a session that is ready, and its place in that person's own line: ranks of
-- one person grow one by one, and a person who has none waiting begins where the first in line stands.
-- In the order of ranks everybody so comes in turn, however much somebody else has waiting.
ALTER TABLE sessions ADD COLUMN ready_by TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN ready_rank BIGINT NOT NULL DEFAULT 0;
UPDATE sessions SET ready_by = COALESCE(
    (SELECT t.principal_id FROM turns t
     WHERE t.session_id = sessions.id AND t.outcome IS NULL AND t.state = 'queued'
     ORDER BY t.queued_seq LIMIT 1), principal_id)
WHERE ready_at IS NOT NULL;
CREATE INDEX sessions_in_line ON sessions (ready_rank, ready_seq) WHERE ready_at IS NOT NULL;
CREATE INDEX sessions_in_line_of ON sessions (ready_by, ready_rank) WHERE ready_at IS NOT NULL;

-- The same for the files of one adapter.
ALTER TABLE fetches ADD COLUMN principal_id TEXT NOT NULL DEFAULT '';
ALTER TABLE fetches ADD COLUMN rank BIGINT NOT NULL DEFAULT 0;
UPDATE fetches SET principal_id = (SELECT t.principal_id FROM turns t WHERE t.id = fetches.turn_id)
WHERE state IN ('pending', 'attempting');
CREATE INDEX fetches_in_line ON fetches (adapter, rank, seq) WHERE state = 'pending';
CREATE INDEX fetches_in_line_of ON fetches (adapter, principal_id, rank) WHERE state = 'pending';
