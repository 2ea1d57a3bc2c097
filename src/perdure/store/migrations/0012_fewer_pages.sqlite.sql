-- A commit writes whole pages, so a turn costs what it touches, however little it changes there.

-- Rows in the order in which they are written: new ones go to the last page. Sorted by session they
-- went into the middle of the table, where pages are full and are divided again and again.
CREATE TABLE journal_in_order (
    id INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    seq INTEGER NOT NULL CHECK (seq > 0),
    turn_id TEXT,
    message_id TEXT,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (session_id, seq)
) STRICT;
INSERT INTO journal_in_order (session_id, seq, turn_id, message_id, kind, at, body)
    SELECT session_id, seq, turn_id, message_id, kind, at, body FROM journal
    ORDER BY session_id, seq;
DROP TABLE journal;
ALTER TABLE journal_in_order RENAME TO journal;
CREATE INDEX journal_turn ON journal (turn_id, seq);
CREATE INDEX journal_message ON journal (message_id) WHERE message_id IS NOT NULL;

-- Our own ids grow, those of others do not: rows stand in the order of ours, which are looked up as
-- often. The rest of the key only makes it unique where one message came by several updates.
CREATE TABLE inbox_in_order (
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
    at INTEGER NOT NULL,
    PRIMARY KEY (message_id, external_id, adapter, account, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO inbox_in_order SELECT * FROM inbox ORDER BY message_id;
DROP TABLE inbox;
ALTER TABLE inbox_in_order RENAME TO inbox;
CREATE UNIQUE INDEX inbox_update ON inbox (external_id, adapter, account, kind);

-- In which span of ten minutes something was said last. Lists are read by it and sorted within:
-- an index on the instant itself would move with every message.
ALTER TABLE conversations ADD COLUMN active_span INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN active_span INTEGER NOT NULL DEFAULT 0;
DROP INDEX conversations_of;
DROP INDEX conversations_recent;
DROP INDEX sessions_recent;
UPDATE conversations SET active_span = active_at / 600000;
UPDATE sessions SET active_span = active_at / 600000;
CREATE INDEX conversations_of ON conversations (principal_id, active_span);
CREATE INDEX conversations_recent ON conversations (active_span) WHERE is_listed = 1;
CREATE INDEX sessions_recent ON sessions (active_span);
