"""Posts what the gateway itself tells people."""

from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.events import NoticePosted, Recorded
from perdure.store.operations import journal
from perdure.store.operations.delivery import outbox
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op


def notice(
    session: SessionId,
    turn: TurnId | None,
    text: str,
    stamp: Stamp,
    *,
    choices: tuple[str, ...] = (),
) -> Op[list[Recorded]]:
    """Post a notice in a conversation: in the journal, and on a platform as a part of the outbox
    too."""
    message = MessageId(stamp.mint("msg"))
    posted = NoticePosted(message=message, text=text, about=turn, choices=choices)
    recorded = yield from journal.append(session, [posted], at=stamp.at)
    words = outbox.PartText(text, choices=choices)
    yield from outbox.put_unless_read(session, turn, message, words, stamp)
    return recorded
