"""Tells operators things, in the conversations they have chosen as their home."""

from typing import NamedTuple

from perdure.domain.ids import ConversationId, MessageId, PrincipalId, SessionId
from perdure.domain.journal.events import NoticePosted, Recorded
from perdure.domain.sayings.saying import in_language
from perdure.store.operations import journal
from perdure.store.operations.delivery.notices import language_in
from perdure.store.operations.delivery.outbox import PartText, put_unless_read
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, many, one

# Finds the role of a person.
_ROLE = "SELECT role FROM principals WHERE id = $1"
# Finds the operators' home conversations. A linked conversation continues in the session of another
# one.
_HOMES = """
    SELECT DISTINCT c.id, COALESCE(l.session_id, c.session_id)
    FROM principals p JOIN conversations c ON c.id = p.home_conversation_id
    LEFT JOIN conversations l ON l.id = c.linked_id
    WHERE p.role = 'operator' ORDER BY c.id LIMIT 10"""
# Finds the first operator who has chosen a home conversation. A linked one stands for the one that
# it continues.
_FIRST_HOME = """
    SELECT p.id, COALESCE(c.linked_id, c.id)
    FROM principals p JOIN conversations c ON c.id = p.home_conversation_id
    WHERE p.role = 'operator' ORDER BY p.created_at, p.id LIMIT 1"""


class FirstHome(NamedTuple):
    """Holds an operator, and the conversation in which they are told what the node does by
    itself."""

    principal: PrincipalId
    conversation: ConversationId


class Home(NamedTuple):
    """Holds a conversation in which an operator is told things, and its live session."""

    conversation: ConversationId
    session: SessionId


def is_operator(principal: PrincipalId) -> Op[bool]:
    """Tell whether this person is an operator."""
    return (yield from one(str, _ROLE, principal)) == "operator"


def first_home() -> Op[FirstHome | None]:
    """Return the home conversation in which the node works by itself, or None if no operator has
    chosen one."""
    return (yield from one(FirstHome, _FIRST_HOME))


def homes() -> Op[list[Home]]:
    """Return the operators' home conversations."""
    return (yield from many(Home, _HOMES))


def tell(text: str, stamp: Stamp, *, but: ConversationId | None) -> Op[list[Recorded]]:
    """Post a notice to all operators, except in the conversation `but`."""
    recorded: list[Recorded] = []
    for home in (yield from homes()):
        if home.conversation == but:
            continue
        recorded += yield from post(home, MessageId(stamp.mint("msg")), text, stamp)
    return recorded


def post(home: Home, message: MessageId, text: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Post a notice with this id in a home conversation, in the language of its people."""
    text = in_language(text, (yield from language_in(home.session)))
    posted = NoticePosted(message=message, text=text)
    recorded = yield from journal.append(home.session, [posted], at=stamp.at)
    yield from put_unless_read(
        home.session, None, message, PartText(text), stamp, to=home.conversation
    )
    return recorded
