-- Whether a live token stands for a person is asked whenever a turn begins.
CREATE INDEX tokens_of ON tokens (principal_id) WHERE revoked_at IS NULL;
