-- Whether the people of the turn were told that this file takes long: once, also over restarts.
ALTER TABLE fetches ADD COLUMN is_told BIGINT NOT NULL DEFAULT 0;
