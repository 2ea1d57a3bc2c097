-- What people did with a conversation in their list: when they saw it last, and since when it is
-- pinned, put away, or hidden. What is known when this is applied counts as seen.
ALTER TABLE conversations ADD COLUMN seen_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN pinned_at BIGINT;
ALTER TABLE conversations ADD COLUMN archived_at BIGINT;
ALTER TABLE conversations ADD COLUMN hidden_at BIGINT;
UPDATE conversations SET seen_at = COALESCE(
    (SELECT h.settled_at FROM sessions s JOIN turns h ON h.id = s.head_turn
     WHERE s.id = conversations.session_id), active_at);
CREATE INDEX conversations_pinned ON conversations (principal_id) WHERE pinned_at IS NOT NULL;
CREATE INDEX conversations_archived ON conversations (principal_id) WHERE archived_at IS NOT NULL;
