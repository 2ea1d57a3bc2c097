-- What a node was asked for when it left: `restart` or `stop`. Empty while it lives, and if it died.
ALTER TABLE nodes ADD COLUMN left_for TEXT NOT NULL DEFAULT '';
UPDATE nodes SET left_for = 'stop' WHERE left_at IS NOT NULL;
-- When this node has told the operators' homes that it ends, and that it is back.
ALTER TABLE nodes ADD COLUMN stopping_told_at BIGINT;
ALTER TABLE nodes ADD COLUMN back_told_at BIGINT;
