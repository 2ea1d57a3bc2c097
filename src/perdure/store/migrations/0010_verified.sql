-- Sessions that the checker has found sound, and where they stood then: the last event and the epoch.
-- What has moved on since is looked at again.
CREATE TABLE verified (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (id),
    seq BIGINT NOT NULL,
    epoch BIGINT NOT NULL
) /* keyed */;
