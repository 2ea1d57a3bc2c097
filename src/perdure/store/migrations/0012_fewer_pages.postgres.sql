-- In which span of ten minutes something was said last. Lists are read by it and sorted within:
-- an index on the instant itself would move with every message.
ALTER TABLE conversations ADD COLUMN active_span BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN active_span BIGINT NOT NULL DEFAULT 0;
DROP INDEX conversations_of;
DROP INDEX conversations_recent;
DROP INDEX sessions_recent;
UPDATE conversations SET active_span = active_at / 600000;
UPDATE sessions SET active_span = active_at / 600000;
CREATE INDEX conversations_of ON conversations (principal_id, active_span);
CREATE INDEX conversations_recent ON conversations (active_span) WHERE is_listed = 1;
CREATE INDEX sessions_recent ON sessions (active_span);
