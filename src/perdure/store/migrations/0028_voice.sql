-- Whether answers in a conversation are spoken too, as /voice chose.
ALTER TABLE conversations ADD COLUMN is_spoken BIGINT NOT NULL DEFAULT 0;
