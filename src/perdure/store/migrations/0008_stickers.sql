-- What stickers show, by the platform's stable id. The turn `errand_id` describes it or has tried to,
-- at `tried_at`; `words` is empty where it has not, or could not.
CREATE TABLE stickers (
    adapter TEXT NOT NULL,
    id TEXT NOT NULL,
    words TEXT NOT NULL,
    errand_id TEXT NOT NULL UNIQUE REFERENCES turns (id),
    tried_at BIGINT NOT NULL,
    PRIMARY KEY (adapter, id)
) /* keyed */;

-- Of a file that is a sticker, the platform's id and what else it says of it, as JSON.
ALTER TABLE fetches ADD COLUMN sticker_id TEXT NOT NULL DEFAULT '';
ALTER TABLE fetches ADD COLUMN sticker TEXT NOT NULL DEFAULT '';
CREATE INDEX fetches_stickers ON fetches (adapter, sticker_id)
    WHERE state = 'pending' AND sticker_id <> '';
