-- The occasions for which nodes have hooks. Without a row here nothing is written below.
CREATE TABLE hooked (
    event TEXT NOT NULL PRIMARY KEY
) /* keyed */;

-- What hooks have not heard of yet. A row is written with the fact that it is about, and deleted
-- when its hooks have ended.
CREATE TABLE occasions (
    event TEXT NOT NULL,
    -- The turn or the part that it is about.
    subject_id TEXT NOT NULL,
    outcome TEXT NOT NULL,
    session_id TEXT NOT NULL,
    turn_id TEXT,
    adapter TEXT NOT NULL,
    reason TEXT NOT NULL,
    at BIGINT NOT NULL,
    -- The node that is telling its hooks.
    node_id TEXT,
    PRIMARY KEY (event, subject_id, outcome)
) /* keyed */;
CREATE INDEX occasions_in_order ON occasions (at, subject_id);
