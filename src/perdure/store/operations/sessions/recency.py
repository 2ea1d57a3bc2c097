"""Records when conversations and sessions were last active, and orders lists by it.

`active_at` is the instant; `active_span` is the span of ten minutes it lies in. Only the span is
indexed, so a message changes an index only when it opens a new span; an index on the instant would
be rewritten in two places by every message. A list is read span by span, newest first, and each
span is sorted by the instant.
"""

from typing import Final

from perdure.domain.ids import ConversationId, SessionId
from perdure.store.statement import Op, run

SPAN_MS: Final = 600_000

# Records when something was said in a conversation, what the platform calls it now, and in which
# language people use it; a group keeps the language of whoever came first.
_TOUCH_CONVERSATION = """
    UPDATE conversations SET active_at = $1,
                             label = CASE WHEN $2 = '' THEN label ELSE $2 END,
                             kind = CASE WHEN $3 = '' THEN kind ELSE $3 END,
                             language = CASE WHEN $4 = '' OR (kind = 'group' AND language <> '')
                                        THEN language ELSE $4 END
    WHERE id = $5"""
# Moves a conversation in the lists, and brings back one that was put away or hidden. A statement of
# its own, because SQLite rewrites an index whenever one of its columns is set, even to the same
# value.
_LIST_CONVERSATION = """
    UPDATE conversations SET active_span = $1,
                             is_listed = CASE WHEN is_listed < $2 THEN $2 ELSE is_listed END,
                             archived_at = NULL, hidden_at = NULL
    WHERE id = $3 AND (active_span <> $1 OR is_listed < $2
                       OR archived_at IS NOT NULL OR hidden_at IS NOT NULL)"""
# Records when something was said in a session.
_TOUCH_SESSION = "UPDATE sessions SET active_at = $1 WHERE id = $2"
# Moves a session in the lists.
_LIST_SESSION = "UPDATE sessions SET active_span = $1 WHERE id = $2 AND active_span <> $1"


def span_of(at: int) -> int:
    """Return the span that an instant lies in."""
    return at // SPAN_MS


def newest_first(table: str) -> str:
    """Return the order of a list as SQL, for rows that are called `table` in the query."""
    return f"{table}.active_span DESC, {table}.active_at DESC, {table}.id DESC"


def follows(table: str, at: str, row_id: str) -> str:
    """Return the SQL condition for rows after a given row of such a list; `at` and `row_id` are the
    placeholders of that row's instant and id."""
    return f"""
      {table}.active_span <= CAST({at} AS BIGINT) / {SPAN_MS}
      AND ({table}.active_at < {at} OR ({table}.active_at = {at} AND {table}.id < {row_id}))"""


def touch_conversation(
    conversation: ConversationId,
    *,
    at: int,
    is_listed: bool,
    label: str = "",
    kind: str = "",
    language: str = "",
) -> Op[None]:
    """Record that something was said in a conversation. An empty label, kind or language leaves the
    stored one."""
    yield from run(_TOUCH_CONVERSATION, at, label, kind, language, conversation)
    yield from run(_LIST_CONVERSATION, span_of(at), int(is_listed), conversation)


def touch_session(session: SessionId, *, at: int) -> Op[None]:
    """Record that something was said in a session."""
    yield from run(_TOUCH_SESSION, at, session)
    yield from list_session(session, at=at)


def list_session(session: SessionId, *, at: int) -> Op[None]:
    """Move a session in the lists to its new `active_at`, which the caller has written."""
    yield from run(_LIST_SESSION, span_of(at), session)
