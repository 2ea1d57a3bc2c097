-- Work that one agent has given to another: which errand does it, and whether its turn still waits.
CREATE TABLE delegations (
    -- The turn of the errand.
    errand_id TEXT NOT NULL PRIMARY KEY REFERENCES turns (id),
    -- The turn that waits, and its call.
    turn_id TEXT NOT NULL REFERENCES turns (id),
    call_id TEXT NOT NULL,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    agent TEXT NOT NULL,
    delegated_at BIGINT NOT NULL,
    deadline BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'returned', 'expired', 'withdrawn')),
    -- 1 until the errand is over. One for which nobody waits any more is stopped.
    is_live BIGINT NOT NULL,
    CHECK (state <> 'open' OR is_live = 1),
    CHECK (state <> 'returned' OR is_live = 0)
) /* keyed */;
CREATE INDEX delegations_of ON delegations (turn_id);
CREATE INDEX delegations_due ON delegations (deadline) WHERE state = 'open' AND deadline > 0;
CREATE INDEX delegations_live ON delegations (principal_id) WHERE is_live = 1;
CREATE INDEX delegations_unwanted ON delegations (errand_id) WHERE is_live = 1 AND state <> 'open';
