-- The tables of the durable core. BIGINT and /* keyed */ are put into SQLite's words by the driver.

CREATE TABLE nodes (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    beat_at BIGINT NOT NULL,
    left_at BIGINT,
    -- The session whose people asked for the restart that this node left for; they are told there.
    restart_session_id TEXT
) /* keyed */;

CREATE TABLE principals (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL CHECK (role IN ('operator', 'member')),
    home_conversation_id TEXT,
    created_at BIGINT NOT NULL
) /* keyed */;

-- A token is known by its digest only.
CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
) /* keyed */;

CREATE TABLE conversations (
    id TEXT NOT NULL PRIMARY KEY,
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    place TEXT NOT NULL,
    thread TEXT NOT NULL,
    person TEXT NOT NULL,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    session_id TEXT NOT NULL,
    -- Grows each time another session becomes the live one; orders the conversation's events.
    generation BIGINT NOT NULL,
    is_listed BIGINT NOT NULL CHECK (is_listed IN (0, 1)),
    -- What the platform calls the place, and whether others read along there: `group`.
    label TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL DEFAULT '',
    -- The conversation that is continued from here, if its person has linked the two.
    linked_id TEXT,
    -- What /agent and /persona chose here; empty for the default.
    agent TEXT NOT NULL DEFAULT '',
    persona TEXT NOT NULL DEFAULT '',
    created_at BIGINT NOT NULL,
    active_at BIGINT NOT NULL,
    UNIQUE (adapter, account, place, thread, person)
) /* keyed */;
CREATE INDEX conversations_of ON conversations (principal_id, active_at);
CREATE INDEX conversations_recent ON conversations (active_at) WHERE is_listed = 1;
CREATE INDEX conversations_linked ON conversations (linked_id) WHERE linked_id IS NOT NULL;

-- Codes that link another place to a conversation, each for one use. Known by their digest only.
CREATE TABLE links (
    digest TEXT NOT NULL PRIMARY KEY,
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    principal_id TEXT NOT NULL REFERENCES principals (id),
    expires_at BIGINT NOT NULL
) /* keyed */;
CREATE INDEX links_of ON links (conversation_id);

-- Codes that did not fit, so that nobody guesses on: what they were for, and by whom.
CREATE TABLE wrong_codes (
    id TEXT NOT NULL PRIMARY KEY,
    purpose TEXT NOT NULL CHECK (purpose IN ('link', 'pairing')),
    who TEXT NOT NULL,
    at BIGINT NOT NULL
) /* keyed */;
CREATE INDEX wrong_codes_of ON wrong_codes (purpose, who, at);

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    principal_id TEXT NOT NULL REFERENCES principals (id),
    state TEXT NOT NULL CHECK (state IN ('open', 'suspended', 'closed')),
    epoch BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    head_turn TEXT,
    -- The errand it was opened for, in the service of its parent; empty where people talk.
    kind TEXT NOT NULL,
    -- Changes whenever the same turns are to be told to the model in another way.
    view TEXT NOT NULL DEFAULT '',
    -- A first turn waits until then, at most, for the memories of the session before.
    hold_until BIGINT,
    -- When compaction may be tried again by itself, and how often in a row it has failed.
    compact_after BIGINT NOT NULL DEFAULT 0,
    compact_failures BIGINT NOT NULL DEFAULT 0,
    -- Set while a queued turn could be claimed: since when. The checker proves it from the turns.
    ready_at BIGINT,
    -- Interruptions that nobody planned, since the last turn that was done.
    strikes BIGINT NOT NULL,
    title TEXT NOT NULL,
    parent_id TEXT,
    opened_at BIGINT NOT NULL,
    active_at BIGINT NOT NULL,
    closed_at BIGINT
) /* keyed */;
CREATE INDEX sessions_ready ON sessions (ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX sessions_of ON sessions (conversation_id, kind, opened_at);
CREATE INDEX sessions_recent ON sessions (active_at);
CREATE INDEX sessions_errands ON sessions (parent_id, kind, opened_at) WHERE kind <> '';

CREATE TABLE turns (
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
    attempts BIGINT NOT NULL,
    node_id TEXT,
    queued_seq BIGINT NOT NULL,
    queued_at BIGINT NOT NULL,
    started_at BIGINT,
    settled_at BIGINT,
    -- When its owner was last known to be at work; when its people were asked what to do with it.
    alive_at BIGINT NOT NULL,
    asked_at BIGINT,
    -- How many tokens the model reads to know everything up to this turn.
    context_tokens BIGINT NOT NULL DEFAULT 0,
    -- The compaction that represents this turn and all before it.
    summary_id TEXT,
    -- What the request began with, to tell why the next one does not.
    prefix TEXT NOT NULL DEFAULT '',
    -- The turn whose message it asks again, or the errand whose result it brings.
    origin_id TEXT,
    -- It waits for so many files, and until then for what was sent as one with it: its album.
    fetching BIGINT NOT NULL DEFAULT 0 CHECK (fetching >= 0),
    not_before BIGINT NOT NULL DEFAULT 0,
    album TEXT NOT NULL DEFAULT '',
    CHECK (fetching = 0 OR attempts = 0),
    CHECK ((state = 'settled') = (outcome IS NOT NULL)),
    CHECK (state NOT IN ('running', 'waiting') OR node_id IS NOT NULL)
) /* keyed */;
CREATE UNIQUE INDEX turns_one_at_work ON turns (session_id) WHERE state IN ('running', 'waiting');
-- `outcome` stands in it so that it fits better than turns_of, which holds every turn there ever was.
CREATE INDEX turns_open ON turns (session_id, outcome, queued_seq) WHERE outcome IS NULL;
CREATE INDEX turns_interrupted ON turns (queued_at) WHERE state = 'interrupted';
CREATE INDEX turns_of ON turns (session_id, queued_seq);
CREATE INDEX turns_again ON turns (origin_id) WHERE origin_id IS NOT NULL;

CREATE TABLE journal (
    session_id TEXT NOT NULL REFERENCES sessions (id),
    seq BIGINT NOT NULL CHECK (seq > 0),
    turn_id TEXT,
    message_id TEXT,
    kind TEXT NOT NULL,
    at BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session_id, seq)
) /* keyed */;
CREATE INDEX journal_turn ON journal (turn_id, seq);
CREATE INDEX journal_message ON journal (message_id) WHERE message_id IS NOT NULL;

-- Text that was shown and is not yet an assistant message in the journal.
CREATE TABLE partials (
    turn_id TEXT NOT NULL REFERENCES turns (id),
    attempt BIGINT NOT NULL,
    message_id TEXT NOT NULL,
    start BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (turn_id, attempt, message_id, start)
) /* keyed */;

CREATE TABLE inbox (
    external_id TEXT NOT NULL,
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    session_id TEXT NOT NULL REFERENCES sessions (id),
    turn_id TEXT,
    message_id TEXT NOT NULL,
    -- Its sender, who alone may change it later.
    principal_id TEXT NOT NULL REFERENCES principals (id),
    at BIGINT NOT NULL,
    PRIMARY KEY (external_id, adapter, account, kind)
) /* keyed */;
CREATE INDEX inbox_message ON inbox (message_id);

CREATE TABLE outbox (
    id TEXT NOT NULL PRIMARY KEY,
    message_id TEXT NOT NULL,
    part BIGINT NOT NULL,
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    session_id TEXT NOT NULL REFERENCES sessions (id),
    -- None for what answers a command.
    turn_id TEXT REFERENCES turns (id),
    adapter TEXT NOT NULL,
    -- Order within the conversation: a part waits for those before it.
    place_in_line BIGINT NOT NULL,
    step TEXT NOT NULL
        CHECK (step IN ('post', 'bubble', 'edit', 'delete', 'upload', 'react')),
    -- The part whose receipt an edit or a deletion needs.
    target TEXT,
    text TEXT NOT NULL,
    -- Words offered as buttons, as JSON; the file of an upload.
    choices TEXT NOT NULL DEFAULT '',
    media_id TEXT,
    state TEXT NOT NULL
        CHECK (state IN ('pending', 'attempting', 'sent', 'unknown', 'failed', 'expired')),
    attempts BIGINT NOT NULL,
    node_id TEXT,
    due_at BIGINT NOT NULL,
    receipt TEXT NOT NULL,
    error TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    -- When a person last had it sent after all, or decided that it never will be.
    replayed_at BIGINT,
    dropped_at BIGINT,
    UNIQUE (message_id, part),
    UNIQUE (conversation_id, place_in_line),
    CHECK (state <> 'sent' OR receipt <> '')
) /* keyed */;
CREATE INDEX outbox_due ON outbox (adapter, due_at) WHERE state = 'pending';
CREATE INDEX outbox_open ON outbox (conversation_id, place_in_line)
    WHERE state IN ('pending', 'attempting');
CREATE INDEX outbox_attempting ON outbox (adapter) WHERE state = 'attempting';
CREATE INDEX outbox_turn ON outbox (turn_id);
-- What could not be delivered and waits for a person. A preview that failed was never seen, and
-- its words came by the reply.
CREATE INDEX outbox_parked ON outbox (changed_at)
    WHERE state IN ('unknown', 'failed', 'expired') AND error <> 'withdrawn'
      AND dropped_at IS NULL AND (step <> 'bubble' OR state = 'unknown');
CREATE INDEX outbox_target ON outbox (target) WHERE target IS NOT NULL;

-- What strangers sent and nobody answered: that it came, not what it said.
CREATE TABLE refusals (
    external_id TEXT NOT NULL,
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    kind TEXT NOT NULL,
    sender TEXT NOT NULL,
    place TEXT NOT NULL,
    reason TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (external_id, adapter, account, kind)
) /* keyed */;
CREATE INDEX refusals_at ON refusals (adapter, account, at);

-- What came in and broke us: kept whole, so that it can be taken again once we are mended.
CREATE TABLE letters (
    id TEXT NOT NULL PRIMARY KEY,
    external_id TEXT NOT NULL,
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    error TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('parked', 'replayed', 'dropped')),
    at BIGINT NOT NULL,
    UNIQUE (external_id, adapter, account, kind)
) /* keyed */;
CREATE INDEX letters_of ON letters (adapter, account, at);
CREATE INDEX letters_parked ON letters (at) WHERE state = 'parked';

-- People who asked to be let in, and those who were. A code is known by its digest only.
CREATE TABLE pairings (
    id TEXT NOT NULL PRIMARY KEY,
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    sender TEXT NOT NULL,
    name TEXT NOT NULL,
    place TEXT NOT NULL,
    digest TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('asked', 'approved', 'revoked')),
    asked_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    decided_at BIGINT,
    decided_by TEXT
) /* keyed */;
CREATE INDEX pairings_of ON pairings (adapter, account, sender, asked_at);
CREATE INDEX pairings_asked ON pairings (digest) WHERE state = 'asked';

CREATE TABLE media (
    id TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL,
    mime TEXT NOT NULL,
    name TEXT NOT NULL,
    size BIGINT NOT NULL,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    created_at BIGINT NOT NULL
) /* keyed */;
CREATE INDEX media_digest ON media (digest);

-- Files of messages that are still elsewhere, or not yet read. `adapter` is where one is fetched
-- from; empty: the gateway does it itself, from `url`, or from the bytes of `media_id`.
CREATE TABLE fetches (
    id TEXT NOT NULL PRIMARY KEY,
    turn_id TEXT NOT NULL REFERENCES turns (id),
    message_id TEXT NOT NULL,
    place BIGINT NOT NULL,
    adapter TEXT NOT NULL,
    reference TEXT NOT NULL,
    url TEXT NOT NULL,
    mime TEXT NOT NULL,
    name TEXT NOT NULL,
    size BIGINT NOT NULL,
    is_voice BIGINT NOT NULL CHECK (is_voice IN (0, 1)),
    state TEXT NOT NULL CHECK (state IN ('pending', 'attempting', 'done', 'lost')),
    attempts BIGINT NOT NULL,
    node_id TEXT,
    due_at BIGINT NOT NULL,
    media_id TEXT,
    error TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    UNIQUE (turn_id, message_id, place),
    CHECK (state <> 'done' OR media_id IS NOT NULL),
    CHECK ((state = 'attempting') = (node_id IS NOT NULL))
) /* keyed */;
CREATE INDEX fetches_due ON fetches (adapter, due_at) WHERE state = 'pending';
CREATE INDEX fetches_attempting ON fetches (changed_at) WHERE state = 'attempting';

-- What agents keep about people; `conversation_id` where it is meant for one conversation only.
CREATE TABLE memories (
    id TEXT NOT NULL PRIMARY KEY,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    conversation_id TEXT REFERENCES conversations (id),
    text TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
) /* keyed */;
CREATE INDEX memories_of ON memories (principal_id, created_at);
CREATE INDEX memories_in ON memories (conversation_id) WHERE conversation_id IS NOT NULL;

-- What was spent, by day (UTC, as 20261231). `money` is in millionths.
CREATE TABLE spending (
    day BIGINT NOT NULL,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    agent TEXT NOT NULL,
    turns BIGINT NOT NULL,
    model_calls BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    money BIGINT NOT NULL,
    PRIMARY KEY (day, principal_id, conversation_id, agent)
) /* keyed */;
CREATE INDEX spending_in ON spending (conversation_id, day);
CREATE INDEX spending_by ON spending (agent, day);

-- What turns under way may still spend, within the budgets of that day.
CREATE TABLE reservations (
    turn_id TEXT NOT NULL PRIMARY KEY REFERENCES turns (id),
    day BIGINT NOT NULL,
    principal_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    tokens BIGINT NOT NULL,
    money BIGINT NOT NULL
) /* keyed */;
