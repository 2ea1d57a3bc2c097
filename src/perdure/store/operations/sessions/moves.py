"""Where a conversation went, noted by the transaction that moves it.

A watcher's position names a generation and not a session; these rows lead from one to the next. A
place that is linked to a conversation shows what goes on there, so it moves along: its generation
is its own and, on top of that, the other's. Each note is taken before the conversation's row is
changed, and with both journals as they are to be left and taken up.
"""

from perdure.domain.ids import ConversationId, SessionId
from perdure.domain.turn.watching import Move
from perdure.store.statement import Op, many, run

# Notes a move; what follows says from where to where.
_NOTE = """
    INSERT INTO moves (conversation_id, generation, left_id, left_seq, session_id, seq) """
# Notes that a conversation, and all that are linked to it, go on in another of its sessions. What
# happens to the sessions of a place that is linked elsewhere is not seen there.
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
# Notes that a conversation goes on in the session of another.
_LINKED = (
    _NOTE
    + """
    SELECT c.id, c.generation + 1 + t.generation, l.id, l.last_seq, s.id, s.last_seq
    FROM conversations c JOIN conversations t ON t.id = $1
    JOIN sessions l ON l.id = c.session_id JOIN sessions s ON s.id = t.session_id
    WHERE c.id = $2"""
)
# Notes that a conversation goes on in its own session again.
_UNLINKED = (
    _NOTE
    + """
    SELECT c.id, c.generation + 1 + t.generation, l.id, l.last_seq, s.id, s.last_seq
    FROM conversations c JOIN conversations t ON t.id = c.linked_id
    JOIN sessions l ON l.id = t.session_id JOIN sessions s ON s.id = c.session_id
    WHERE c.id = $1"""
)
# Reads the moves of a conversation that led to some generations.
_SINCE = """
    SELECT generation, left_id, left_seq, session_id, seq FROM moves
    WHERE conversation_id = $1 AND generation > $2 AND generation <= $3
    ORDER BY generation LIMIT $4"""


def rotated(conversation: ConversationId, session: SessionId) -> Op[None]:
    """Note that a conversation goes on in another session of its own."""
    yield from run(_ROTATED, conversation, session)


def linked(conversation: ConversationId, to: ConversationId) -> Op[None]:
    """Note that a conversation goes on where another is."""
    yield from run(_LINKED, to, conversation)


def unlinked(conversation: ConversationId) -> Op[None]:
    """Note that a conversation goes on by itself again."""
    yield from run(_UNLINKED, conversation)


def since(conversation: ConversationId, *, after: int, upto: int, limit: int) -> Op[list[Move]]:
    """Return the moves that led to a generation behind `after`, up to `upto`, in order."""
    return (yield from many(Move, _SINCE, conversation, after, upto, limit))
