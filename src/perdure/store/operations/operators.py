"""Telling those who run the gateway, in the conversations they have chosen for it."""

from perdure.domain.events import NoticePosted, Recorded
from perdure.domain.ids import ConversationId, MessageId, PrincipalId
from perdure.store.dialect import Dialect
from perdure.store.operations import journal
from perdure.store.operations.outbox import Words, put_unless_read
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, row, rows

_ROLE = "SELECT role FROM principals WHERE id = $1"
# What is linked goes on in the session of another conversation.
_HOMES = """
    SELECT DISTINCT c.id, COALESCE(l.session_id, c.session_id)
    FROM principals p JOIN conversations c ON c.id = p.home_conversation_id
    LEFT JOIN conversations l ON l.id = c.linked_id
    WHERE p.role = 'operator' ORDER BY c.id LIMIT 10"""


def is_operator(principal: PrincipalId) -> Op[bool]:
    found = yield from row(_ROLE, principal)
    return found is not None and found[0] == "operator"


def tell(
    dialect: Dialect, text: str, stamp: Stamp, *, but: ConversationId | None
) -> Op[list[Recorded]]:
    recorded: list[Recorded] = []
    for home, session in (yield from rows(_HOMES)):
        if home == but:
            continue
        message = MessageId(stamp.mint("msg"))
        posted = NoticePosted(message=message, text=text)
        recorded += yield from journal.append(dialect, session, [posted], at=stamp.at)
        yield from put_unless_read(session, None, message, Words(text), stamp, to=home)
    return recorded
