-- The tag of the language in which people use a conversation, such as `de`; empty if it is not known.
ALTER TABLE conversations ADD COLUMN language TEXT NOT NULL DEFAULT '';
