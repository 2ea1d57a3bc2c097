-- What is being handled after a death, and how often that was begun: what stays here is what a
-- process died over.
CREATE TABLE handling (
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    external_id TEXT NOT NULL,
    tries BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (adapter, account, external_id)
) /* keyed */;
CREATE INDEX handling_at ON handling (at);
