"""Posts what the gateway itself tells people."""

from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.events import NoticePosted, Recorded
from perdure.domain.sayings.saying import ReaderLanguage, in_language, language_of
from perdure.store.operations import journal
from perdure.store.operations.delivery import outbox
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, one

# Reads in which language people are spoken to where a session is.
_LANGUAGE = """
    SELECT c.language FROM sessions s JOIN conversations c ON c.id = s.conversation_id
    WHERE s.id = $1"""


def language_in(session: SessionId) -> Op[ReaderLanguage]:
    """Return the language in which people are spoken to in a session's conversation."""
    return language_of((yield from one(str, _LANGUAGE, session)) or "")


def notice(
    session: SessionId,
    turn: TurnId | None,
    text: str,
    stamp: Stamp,
    *,
    choices: tuple[str, ...] = (),
    message: MessageId | None = None,
) -> Op[list[Recorded]]:
    """Post a notice in a conversation, in the language of its people: in the journal, and on a
    platform as a part of the outbox too. It gets a new id, unless one is given."""
    text = in_language(text, (yield from language_in(session)))
    message = message or MessageId(stamp.mint("msg"))
    posted = NoticePosted(message=message, text=text, about=turn, choices=choices)
    recorded = yield from journal.append(session, [posted], at=stamp.at)
    words = outbox.PartText(text, choices=choices)
    yield from outbox.put_unless_read(session, turn, message, words, stamp)
    return recorded
