-- Where a conversation went, seen from each place that shows it: whoever watches follows by these.
-- At `generation` the session that was live until then was left behind `left_seq`, and the next one
-- was taken up behind `seq`. What was written before that is no news of the conversation's.
CREATE TABLE moves (
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    generation BIGINT NOT NULL CHECK (generation > 1),
    left_id TEXT NOT NULL REFERENCES sessions (id),
    left_seq BIGINT NOT NULL CHECK (left_seq > 0),
    session_id TEXT NOT NULL REFERENCES sessions (id),
    seq BIGINT NOT NULL CHECK (seq > 0),
    PRIMARY KEY (conversation_id, generation)
) /* keyed */;
