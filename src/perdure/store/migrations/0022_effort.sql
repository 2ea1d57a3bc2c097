-- How much a model is to reason in a conversation, as /think chose; empty for the agent's own.
ALTER TABLE conversations ADD COLUMN effort TEXT NOT NULL DEFAULT '';
