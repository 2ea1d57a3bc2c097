-- What is ready is ready whatever the clock says, and is served by its number, never by an instant.
-- `wait_until` is set only where something must really wait; `ready_at` is when that was written.
ALTER TABLE sessions ADD COLUMN ready_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN wait_until BIGINT;
-- When `hold_until` was written.
ALTER TABLE sessions ADD COLUMN held_at BIGINT;
UPDATE sessions SET ready_seq = ready_at WHERE ready_at IS NOT NULL;
DROP INDEX sessions_ready;
CREATE INDEX sessions_ready ON sessions (ready_seq) WHERE ready_at IS NOT NULL;

-- Waits of less than a minute, from before this start: they are over.
UPDATE sessions SET hold_until = NULL WHERE hold_until IS NOT NULL;
UPDATE turns SET not_before = 0 WHERE outcome IS NULL AND not_before > 0;

-- The order among the parts and among the files of one adapter. `due_at` is 0 where nothing is waited
-- for, else an instant that was written at `changed_at`.
ALTER TABLE outbox ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
UPDATE outbox SET seq = due_at WHERE state = 'pending';
DROP INDEX outbox_due;
CREATE INDEX outbox_due ON outbox (adapter, seq, due_at, changed_at) WHERE state = 'pending';
ALTER TABLE fetches ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
UPDATE fetches SET seq = due_at WHERE state = 'pending';
DROP INDEX fetches_due;
CREATE INDEX fetches_due ON fetches (adapter, seq, due_at, changed_at) WHERE state = 'pending';
