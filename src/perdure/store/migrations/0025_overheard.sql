-- What people said in groups, not to the bot, until it is told with the next message that is. A row
-- that was told, or that is beyond the bounds, stays for a while without its words: if the platform
-- offers the same message again, it is not told twice.
CREATE TABLE overheard (
    id TEXT NOT NULL PRIMARY KEY,
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    place TEXT NOT NULL,
    thread TEXT NOT NULL,
    external_id TEXT NOT NULL,
    -- The id of the person on the platform, and the line that names them.
    person TEXT NOT NULL,
    sender TEXT NOT NULL,
    text TEXT NOT NULL,
    size BIGINT NOT NULL,
    -- The order within the thread.
    nth BIGINT NOT NULL,
    is_told BIGINT NOT NULL DEFAULT 0 CHECK (is_told IN (0, 1)),
    at BIGINT NOT NULL,
    CHECK (is_told = 0 OR (text = '' AND size = 0))
) /* keyed */;
CREATE UNIQUE INDEX overheard_once ON overheard (adapter, account, external_id);
CREATE INDEX overheard_in ON overheard (adapter, account, place, thread, nth, id);
CREATE INDEX overheard_at ON overheard (at);
