-- What agents have asked people: whether a call may run, or something that they want to know. The
-- question is told by the message of a notice, in the conversation in which its turn is answered.
CREATE TABLE questions (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('approval', 'question')),
    turn_id TEXT NOT NULL REFERENCES turns (id),
    session_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    -- Who may answer it, besides operators.
    principal_id TEXT NOT NULL REFERENCES principals (id),
    call_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    text TEXT NOT NULL,
    choices TEXT NOT NULL,
    offer TEXT NOT NULL,
    is_once BIGINT NOT NULL,
    message_id TEXT NOT NULL,
    asked_at BIGINT NOT NULL,
    deadline BIGINT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('pending', 'allowed', 'denied', 'answered', 'expired', 'undeliverable',
                         'withdrawn')),
    answer TEXT NOT NULL DEFAULT '',
    scope TEXT NOT NULL DEFAULT '',
    answered_by TEXT,
    answered_at BIGINT,
    CHECK ((state = 'pending') = (answered_at IS NULL))
) /* keyed */;
CREATE INDEX questions_due ON questions (deadline) WHERE state = 'pending' AND deadline > 0;
CREATE INDEX questions_here ON questions (conversation_id) WHERE state = 'pending';
CREATE INDEX questions_of ON questions (turn_id);
CREATE INDEX questions_told ON questions (message_id);
CREATE INDEX questions_to ON questions (principal_id, id) WHERE state = 'pending';

-- What people have granted agents beyond one call.
CREATE TABLE grants (
    id TEXT NOT NULL PRIMARY KEY,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    agent TEXT NOT NULL,
    act TEXT NOT NULL,
    definition TEXT NOT NULL,
    pattern TEXT NOT NULL,
    words TEXT NOT NULL,
    scope TEXT NOT NULL CHECK (scope IN ('session', 'forever', 'time')),
    session_id TEXT,
    until_at BIGINT NOT NULL DEFAULT 0,
    question_id TEXT NOT NULL,
    granted_at BIGINT NOT NULL,
    revoked_at BIGINT,
    CHECK ((scope = 'session') = (session_id IS NOT NULL)),
    CHECK ((scope = 'time') = (until_at > 0))
) /* keyed */;
CREATE INDEX grants_of ON grants (principal_id, id) WHERE revoked_at IS NULL;

-- Calls that must not be repeated and whose fate was unknown when they were cut short, and results
-- that came after their turn was over.
CREATE TABLE effects (
    call_id TEXT NOT NULL PRIMARY KEY,
    turn_id TEXT NOT NULL REFERENCES turns (id),
    session_id TEXT NOT NULL,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    at BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('unknown', 'happened', 'not_happened')),
    late_ending TEXT NOT NULL DEFAULT '',
    late_result TEXT NOT NULL DEFAULT '',
    marked_by TEXT,
    marked_at BIGINT,
    -- The turn in which the agent was told what a person has found out.
    told_turn_id TEXT,
    CHECK ((state = 'unknown') = (marked_at IS NULL))
) /* keyed */;
CREATE INDEX effects_of ON effects (principal_id, call_id);
CREATE INDEX effects_of_turn ON effects (turn_id);
CREATE INDEX effects_untold ON effects (session_id)
    WHERE marked_at IS NOT NULL AND told_turn_id IS NULL;

-- The question that the buttons of a part answer.
ALTER TABLE outbox ADD COLUMN question_id TEXT;

-- What an agent still has to do in a session, and the message that shows it.
CREATE TABLE todos (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (id),
    items TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    revision BIGINT NOT NULL
) /* keyed */;
