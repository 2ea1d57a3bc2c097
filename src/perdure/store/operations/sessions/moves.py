"""Records to which session a conversation moved, in the transaction that moves it.

A watcher's position names a generation, not a session; these rows lead from one session to the
next, also after a restart. A conversation that is linked to another one shows what happens there,
so it moves with it: its generation is its own plus that of the other. A move is recorded before the
conversation's row is changed, with the last seq of both journals at that moment.
"""

from perdure.domain.ids import ConversationId, SessionId
from perdure.domain.turn.watching import Move
from perdure.store.statement import Op, many, run

# Records a move; the caller appends from where to where.
_NOTE = """
    INSERT INTO moves (conversation_id, generation, left_id, left_seq, session_id, seq) """
# Records that a conversation, and all linked to it, continue in another of its sessions. If the
# conversation is itself linked elsewhere, its own sessions are not seen, so it has no move.
_ROTATED = (
    _NOTE
    + """
    SELECT c.id, t.generation + 1 + CASE WHEN c.id = t.id THEN 0 ELSE c.generation END,
           l.id, l.last_seq, s.id, s.last_seq
    FROM conversations t
    JOIN conversations c ON (c.id = $1 AND c.linked_id IS NULL) OR c.linked_id = $1
    JOIN sessions l ON l.id = t.session_id JOIN sessions s ON s.id = $2
    WHERE t.id = $1"""
)
# Records that a conversation continues in the session of another.
_LINKED = (
    _NOTE
    + """
    SELECT c.id, c.generation + 1 + t.generation, l.id, l.last_seq, s.id, s.last_seq
    FROM conversations c JOIN conversations t ON t.id = $1
    JOIN sessions l ON l.id = c.session_id JOIN sessions s ON s.id = t.session_id
    WHERE c.id = $2"""
)
# Records that a conversation continues in its own session again.
_UNLINKED = (
    _NOTE
    + """
    SELECT c.id, c.generation + 1 + t.generation, l.id, l.last_seq, s.id, s.last_seq
    FROM conversations c JOIN conversations t ON t.id = c.linked_id
    JOIN sessions l ON l.id = t.session_id JOIN sessions s ON s.id = c.session_id
    WHERE c.id = $1"""
)
# Reads the moves of a conversation that led to a range of generations.
_SINCE = """
    SELECT generation, left_id, left_seq, session_id, seq FROM moves
    WHERE conversation_id = $1 AND generation > $2 AND generation <= $3
    ORDER BY generation LIMIT $4"""


def rotated(conversation: ConversationId, session: SessionId) -> Op[None]:
    """Record that a conversation continues in another session of its own."""
    yield from run(_ROTATED, conversation, session)


def linked(conversation: ConversationId, to: ConversationId) -> Op[None]:
    """Record that a conversation continues where another is."""
    yield from run(_LINKED, to, conversation)


def unlinked(conversation: ConversationId) -> Op[None]:
    """Record that a conversation continues in its own session again."""
    yield from run(_UNLINKED, conversation)


def since(conversation: ConversationId, *, after: int, upto: int, limit: int) -> Op[list[Move]]:
    """Return the moves to generations after `after`, up to `upto`, in order."""
    return (yield from many(Move, _SINCE, conversation, after, upto, limit))
