-- What people have ordered to be done later, or again and again.
CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    -- Where its results go.
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('prompt', 'reminder', 'heartbeat')),
    prompt TEXT NOT NULL,
    -- Empty for the agent that answers in the conversation.
    agent TEXT NOT NULL,
    -- A cron expression, an interval or one instant, as JSON; the zone in which it is read, and the
    -- instant from which an interval counts.
    rule TEXT NOT NULL,
    zone TEXT NOT NULL,
    anchor BIGINT NOT NULL,
    policy TEXT NOT NULL,
    -- What the person was on their platform when they ordered it.
    traits TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('active', 'paused', 'done', 'removed')),
    why TEXT NOT NULL DEFAULT '',
    -- Failed runs in a row.
    failures BIGINT NOT NULL DEFAULT 0,
    -- The next occurrence, when something is to be done for the job, and the last occurrence that
    -- was dealt with.
    next_at BIGINT,
    fire_at BIGINT,
    last_at BIGINT NOT NULL DEFAULT 0,
    -- The session that its runs share, and how many of them that has told.
    session_id TEXT,
    session_runs BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    CHECK (next_at IS NULL OR state = 'active')
) /* keyed */;
CREATE INDEX jobs_due ON jobs (fire_at, id) WHERE fire_at IS NOT NULL;
CREATE INDEX jobs_of ON jobs (principal_id, created_at, id) WHERE state <> 'removed';
CREATE INDEX jobs_in ON jobs (conversation_id, created_at, id) WHERE state <> 'removed';
CREATE INDEX jobs_listed ON jobs (created_at, id) WHERE state <> 'removed';

-- The occurrences of jobs. Each has one row, whoever finds it due and how often.
CREATE TABLE runs (
    job_id TEXT NOT NULL REFERENCES jobs (id),
    due_at BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('claimed', 'queued', 'skipped', 'missed', 'settled')),
    turn_id TEXT REFERENCES turns (id),
    outcome TEXT,
    reason TEXT NOT NULL DEFAULT '',
    -- The turn that brings its result into the conversation.
    result_turn_id TEXT,
    is_silent BIGINT NOT NULL DEFAULT 0 CHECK (is_silent IN (0, 1)),
    tokens BIGINT NOT NULL DEFAULT 0,
    at BIGINT NOT NULL,
    settled_at BIGINT,
    PRIMARY KEY (job_id, due_at),
    CHECK ((state IN ('queued', 'settled')) = (turn_id IS NOT NULL)),
    CHECK ((state = 'settled') = (outcome IS NOT NULL))
) /* keyed */;
CREATE UNIQUE INDEX runs_turn ON runs (turn_id) WHERE turn_id IS NOT NULL;
-- One run of a job at a time.
CREATE UNIQUE INDEX runs_at_work ON runs (job_id) WHERE state = 'queued';
CREATE INDEX runs_waiting ON runs (job_id, due_at) WHERE state = 'claimed';

-- The zone in which a person's times are read; empty for the gateway's.
ALTER TABLE principals ADD COLUMN zone TEXT NOT NULL DEFAULT '';
