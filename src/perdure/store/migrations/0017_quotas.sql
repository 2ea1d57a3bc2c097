-- How much each person has stored: their files, and where they are no operators also their messages.
-- `files` counts those of their files that no message has named yet.
CREATE TABLE holdings (
    principal_id TEXT NOT NULL PRIMARY KEY REFERENCES principals (id),
    bytes BIGINT NOT NULL,
    files BIGINT NOT NULL
) /* keyed */;
INSERT INTO holdings (principal_id, bytes, files)
    SELECT p.id,
           COALESCE((SELECT SUM(m.size) FROM media m WHERE m.principal_id = p.id), 0)
           + COALESCE((SELECT SUM(OCTET_LENGTH(j.body)) FROM turns t
                       JOIN journal j ON j.turn_id = t.id
                       WHERE t.principal_id = p.id AND p.role = 'member'
                         AND j.kind IN ('turn_queued', 'message_joined', 'steer_accepted',
                                        'turn_amended')), 0),
           0
    FROM principals p;

-- A file that no message has named yet; after a day it is removed. Older ones are left alone.
ALTER TABLE media ADD COLUMN is_loose BIGINT NOT NULL DEFAULT 0;
CREATE INDEX media_loose ON media (created_at) WHERE is_loose = 1;

-- The turns of a person that wait or are at work.
CREATE INDEX turns_open_of ON turns (principal_id, kind) WHERE outcome IS NULL;
