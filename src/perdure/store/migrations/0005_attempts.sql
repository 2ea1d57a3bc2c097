-- When the present attempt of a turn began, or the last one did, and how long its longest earlier
-- attempt lasted: a turn that has lived longer than that is no longer held responsible for crashes.
ALTER TABLE turns ADD COLUMN attempt_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN longest_ms BIGINT NOT NULL DEFAULT 0;
-- When its people were told that it is too old to go on by itself.
ALTER TABLE turns ADD COLUMN told_at BIGINT;
