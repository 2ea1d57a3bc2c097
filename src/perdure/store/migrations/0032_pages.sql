-- The key that notifications are signed with. Browsers take them only from the key that they were
-- given, so all nodes on a store have the same one.
CREATE TABLE push_keys (
    purpose TEXT NOT NULL PRIMARY KEY,
    secret TEXT NOT NULL
) /* keyed */;

-- The browsers that a person wants to be notified on.
CREATE TABLE push_subscriptions (
    id TEXT NOT NULL PRIMARY KEY,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    endpoint TEXT NOT NULL UNIQUE,
    p256dh TEXT NOT NULL,
    auth TEXT NOT NULL,
    made_at BIGINT NOT NULL,
    -- How often in a row its push service could not be asked, and until when it is left alone.
    failures BIGINT NOT NULL,
    rests_until BIGINT NOT NULL
) /* keyed */;
CREATE INDEX push_subscriptions_of ON push_subscriptions (principal_id, made_at);

-- What is still to be told, at most one thing for each browser and conversation: the newest. A row
-- is written with the fact that it is about, and deleted when the push service has taken it.
CREATE TABLE pushes (
    subscription_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    -- The turn or the question that it is about.
    subject_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    -- The node that is sending it.
    node_id TEXT,
    PRIMARY KEY (subscription_id, conversation_id)
) /* keyed */;
CREATE INDEX pushes_due ON pushes (due_at);

-- Each shelf of a person's list has an index in the order of the list, so that a page of it costs
-- the same however many conversations there are, and on whichever shelf.
DROP INDEX conversations_pinned;
DROP INDEX conversations_archived;
CREATE INDEX conversations_shown ON conversations (principal_id, active_span)
    WHERE is_listed = 1 AND archived_at IS NULL AND hidden_at IS NULL;
CREATE INDEX conversations_pinned ON conversations (principal_id, active_span)
    WHERE pinned_at IS NOT NULL;
CREATE INDEX conversations_archived ON conversations (principal_id, active_span)
    WHERE archived_at IS NOT NULL;
