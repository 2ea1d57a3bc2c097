-- Places that have another id on their platform now, by the id that they had before.
CREATE TABLE relocations (
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    place TEXT NOT NULL,
    moved_to TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (adapter, account, place),
    CHECK (place <> moved_to)
) /* keyed */;
CREATE INDEX relocations_to ON relocations (adapter, account, moved_to, at);
