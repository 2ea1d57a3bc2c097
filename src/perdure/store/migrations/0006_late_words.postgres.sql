-- Words that come late, by an edit, wait for the index like all others: from `from_seq` on.
ALTER TABLE unindexed ADD COLUMN from_seq BIGINT NOT NULL DEFAULT 0;

-- Late edits in groups were indexed as one person's own words.
UPDATE searchable SET principal_id = c.id
FROM sessions s JOIN conversations c ON c.id = s.conversation_id
WHERE s.id = searchable.session_id AND c.kind = 'group' AND c.person = ''
  AND searchable.principal_id <> c.id;
