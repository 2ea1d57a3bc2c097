-- A turn that waits for an answer has no owner: only one that runs names its node.
CREATE TABLE turns_with_owners (
    id TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    parent_id TEXT,
    message_id TEXT NOT NULL,
    -- `message`: a person waits for it; anything else is always resumed.
    kind TEXT NOT NULL,
    -- Its sender, and the conversation to answer in where that is another one, linked to this.
    principal_id TEXT NOT NULL REFERENCES principals (id),
    via_id TEXT,
    state TEXT NOT NULL
        CHECK (state IN ('queued', 'running', 'waiting', 'interrupted', 'settled')),
    outcome TEXT
        CHECK (outcome IN ('done', 'failed', 'refused', 'stopped', 'superseded', 'interrupted',
                           'suspended')),
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    node_id TEXT,
    queued_seq INTEGER NOT NULL,
    queued_at INTEGER NOT NULL,
    started_at INTEGER,
    settled_at INTEGER,
    -- When its owner was last known to be at work; when its people were asked what to do with it.
    alive_at INTEGER NOT NULL,
    asked_at INTEGER,
    -- How many tokens the model reads to know everything up to this turn.
    context_tokens INTEGER NOT NULL DEFAULT 0,
    -- The compaction that represents this turn and all before it.
    summary_id TEXT,
    -- What the request began with, to tell why the next one does not.
    prefix TEXT NOT NULL DEFAULT '',
    -- The turn whose message it asks again, or the errand whose result it brings.
    origin_id TEXT,
    -- It waits for so many files, and until then for what was sent as one with it: its album.
    fetching INTEGER NOT NULL DEFAULT 0 CHECK (fetching >= 0),
    not_before INTEGER NOT NULL DEFAULT 0,
    album TEXT NOT NULL DEFAULT '',
    -- The newest interruption of the turn that the model has been told of; 0 if there is none.
    told_seq INTEGER NOT NULL DEFAULT 0,
    -- When the present attempt began, or the last one did, and how long the longest one lasted.
    attempt_at INTEGER NOT NULL DEFAULT 0,
    longest_ms INTEGER NOT NULL DEFAULT 0,
    -- When its people were told that it is too old to go on by itself.
    told_at INTEGER,
    CHECK (fetching = 0 OR attempts = 0),
    CHECK ((state = 'settled') = (outcome IS NOT NULL)),
    CHECK ((state = 'running') = (node_id IS NOT NULL))
) STRICT, WITHOUT ROWID;
INSERT INTO turns_with_owners
    SELECT id, session_id, parent_id, message_id, kind, principal_id, via_id, state, outcome, reason,
           detail, attempts, CASE WHEN state = 'running' THEN node_id END, queued_seq, queued_at,
           started_at, settled_at, alive_at, asked_at, context_tokens, summary_id, prefix, origin_id,
           fetching, not_before, album, told_seq, attempt_at, longest_ms, told_at
    FROM turns;
DROP TABLE turns;
ALTER TABLE turns_with_owners RENAME TO turns;
CREATE UNIQUE INDEX turns_one_at_work ON turns (session_id) WHERE state IN ('running', 'waiting');
-- `outcome` stands in it so that it fits better than turns_of, which holds every turn there ever was.
CREATE INDEX turns_open ON turns (session_id, outcome, queued_seq) WHERE outcome IS NULL;
CREATE INDEX turns_interrupted ON turns (queued_at) WHERE state = 'interrupted';
CREATE INDEX turns_of ON turns (session_id, queued_seq);
CREATE INDEX turns_again ON turns (origin_id) WHERE origin_id IS NOT NULL;
CREATE INDEX turns_open_of ON turns (principal_id, kind) WHERE outcome IS NULL;
