-- The windows of models, in tokens, as their servers named them when they refused a request that was
-- too long. An agent uses this number instead of the one that is assumed.
CREATE TABLE model_windows (
    agent TEXT NOT NULL,
    model TEXT NOT NULL,
    tokens BIGINT NOT NULL,
    learned_at BIGINT NOT NULL,
    PRIMARY KEY (agent, model)
) /* keyed */;
