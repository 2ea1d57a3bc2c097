-- What models are shown instead of a picture that they do not take as it is: the digest of the bytes
-- and their number. It belongs to the row of the picture, and is deleted with it.
ALTER TABLE media ADD COLUMN shown TEXT NOT NULL DEFAULT '';
ALTER TABLE media ADD COLUMN shown_size BIGINT NOT NULL DEFAULT 0;
CREATE INDEX media_shown ON media (shown) WHERE shown <> '';
