-- Full text over messages. The index holds no text of its own: a hit is read from the journal.
-- `scope` carries the principal's id as a word, so that a search stays inside one person's rows.

CREATE TABLE searchable (
    id INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    role TEXT NOT NULL
) STRICT;

CREATE VIRTUAL TABLE search_index USING fts5 (
    scope, text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);

-- Turns that are over and not yet in the index.
CREATE TABLE unindexed (
    id INTEGER NOT NULL PRIMARY KEY,
    turn_id TEXT NOT NULL
) STRICT;
