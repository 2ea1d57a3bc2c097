-- Full text over messages, newest first; a hit's text is read from the journal.

CREATE TABLE searchable (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    message_id TEXT NOT NULL,
    role TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    words TSVECTOR NOT NULL
);
CREATE INDEX searchable_words ON searchable USING gin (words);
CREATE INDEX searchable_of ON searchable (principal_id, id);

-- Turns that are over and not yet in the index.
CREATE TABLE unindexed (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    turn_id TEXT NOT NULL
);
