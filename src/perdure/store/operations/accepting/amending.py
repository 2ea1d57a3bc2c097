"""Applies what people do to messages they have sent: edit or delete them.

An edit is appended to the turn that the message came to, and to every turn that asks it again, so a
turn always has its author's last words. The rest depends on how far the answer is: a waiting
message simply has other words, the last message is asked again, and the answer to an older one
stays. Nothing is removed from the journal.
"""

from typing import Final, NamedTuple

from perdure.domain.content.forwards import ForwardedText
from perdure.domain.ids import MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Accepted, UpdateEffect
from perdure.domain.journal.events import (
    MessageJoined,
    Recorded,
    SteerAccepted,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.journal.spoken import said_in
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Outcome
from perdure.domain.sayings.saying import worded
from perdure.domain.turn.turn import State
from perdure.store.operations import journal
from perdure.store.operations.commands.command_result import end, started
from perdure.store.operations.commands.heads import ask_again
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.reading import search
from perdure.store.operations.turn_context import TurnContext
from perdure.store.operations.turn_locks import locked
from perdure.store.operations.turns import queueing
from perdure.store.operations.turns.endings import Closing, end_turn
from perdure.store.statement import Op, many, one, run

# Finds the message that an update changes, in the same conversation.
_ORIGINAL = """
    SELECT turn_id, message_id, principal_id FROM inbox
    WHERE external_id = $1 AND adapter = $2 AND account = $3 AND kind = $4
      AND conversation_id = $5"""
# Finds the turn that a message came to, and all turns that ask it again.
_ASKED = """
    WITH RECURSIVE asked (id, nth) AS (
        SELECT CAST($1 AS TEXT), 0
        UNION ALL SELECT t.id, asked.nth + 1 FROM asked JOIN turns t ON t.origin_id = asked.id)
    SELECT t.id, t.session_id, t.message_id, t.state, t.attempts
    FROM asked JOIN turns t ON t.id = asked.id ORDER BY asked.nth, t.queued_at, t.id"""
# Changes the view of all sessions of a conversation except one: they share turns, so each of them
# may tell the model this message.
_RETELL = """
    UPDATE sessions SET view = $1 WHERE conversation_id = $2 AND kind = '' AND id <> $3"""

DELETED: Final = Closing(Outcome.STOPPED, "deleted by its author")
REPLACED: Final = Closing(Outcome.INTERRUPTED, "its message was edited")
UNKNOWN: Final = worded("That message never came here, so nothing was changed.")
FOREIGN: Final = worded("Only its author can change a message.")
COMMAND: Final = worded("A command cannot be changed once it was taken; give another one.")
NOT_A_COMMAND: Final = worded("An edit gives no command; send it as a message of its own.")
BLANK: Final = worded("A message needs text; what it said before stays. /undo takes a turn back.")
CHANGED: Final = worded(
    "Changed in the history. The answer given then stays; /undo or /retry if it should change."
)
RUNS: Final = worded("It is being answered already: /stop ends that, /undo takes it back.")
RAN: Final = worded("It was answered already: /undo takes the last turn back.")
ONE_OF_MANY: Final = worded(
    "It was sent as one with others, which wait with it: /stop removes them all."
)
NEVER_RUNS: Final = worded("It was not going to be answered any more.")


class _Sent(NamedTuple):
    turn: TurnId | None
    message: MessageId
    author: PrincipalId


class _AskingTurn(NamedTuple):
    """Holds a turn that asks the message."""

    turn: TurnId
    session: SessionId
    message: MessageId
    state: str
    attempts: int

    @property
    def waits(self) -> bool:
        """Tell whether the turn has not begun."""
        return self.state == State.QUEUED and not self.attempts


class Original(NamedTuple):
    """Holds the message that an edit or deletion is about: the turn it came to, its events (oldest
    first), and the turns that ask it."""

    turn: TurnId
    message: MessageId
    events: list[Recorded]
    asked: list[_AskingTurn]

    @property
    def text(self) -> str:
        """Return the message's words as they are now."""
        spoken = TurnQueued | MessageJoined | SteerAccepted | SteerTaken | TurnAmended
        return [r.event.text for r in self.events if isinstance(r.event, spoken)][-1]

    @property
    def has_attachments(self) -> bool:
        """Tell whether the message came with files."""
        spoken = TurnQueued | MessageJoined | SteerAccepted
        return any(isinstance(r.event, spoken) and r.event.attachments for r in self.events)

    @property
    def session(self) -> SessionId:
        """Return the session that the message is in."""
        return self.events[-1].session

    @property
    def is_steer(self) -> bool:
        """Tell whether the message was sent to a running turn."""
        return not any(isinstance(r.event, TurnQueued | MessageJoined) for r in self.events)

    @property
    def is_waiting_steer(self) -> bool:
        """Tell whether the message was sent to a running turn that has not taken it yet."""
        return self.is_steer and not any(isinstance(r.event, SteerTaken) for r in self.events)

    @property
    def waiting(self) -> _AskingTurn | None:
        """Return the turn that asks this message and has not begun, or None."""
        return next((each for each in self.asked if each.waits), None)

    def is_asked_by(self, turn: TurnId) -> bool:
        """Tell whether this turn asks the message."""
        return any(each.turn == turn for each in self.asked)


def take(context: TurnContext) -> Op[Accepted]:
    """Apply an edit or a deletion of a message."""
    original = yield from _find(context)
    if isinstance(original, str):
        return (yield from _refused(context, original, None))
    if context.update.kind == UpdateKind.DELETE:
        return (yield from _delete(context, original))
    return (yield from _edit(context, original))


def _find(context: TurnContext) -> Op[Original | str]:
    """Return the message, or the reason why it cannot be changed."""
    update, address, here = context.update, context.update.address, context.conversation
    sent = yield from one(
        _Sent, _ORIGINAL, update.target, address.adapter, address.account, TurnKind.MESSAGE, here
    )
    if sent is None:
        return UNKNOWN
    if sent.author != update.principal:
        return FOREIGN
    events = yield from journal.of_message(sent.message)
    if sent.turn is None or any(isinstance(r.event, CommandTaken) for r in events):
        return COMMAND
    asked = yield from many(_AskingTurn, _ASKED, sent.turn)
    home = next(each.session for each in asked if each.turn == sent.turn)
    # If its turn was moved, the message is in other journals too; use the one it is in now.
    its_own = [recorded for recorded in events if recorded.session == home]
    return Original(sent.turn, sent.message, its_own, asked)


def _refused(context: TurnContext, why: str, turn: TurnId | None) -> Op[Accepted]:
    """Tell the sender why nothing has changed."""
    told = yield from notice(context.session, turn, why, context.stamp)
    return queueing.accepted(context, turn, UpdateEffect.IGNORED, told)


def _delete(context: TurnContext, original: Original) -> Op[Accepted]:
    """Cancel a message whose turn has not begun. If it has begun, tell the sender what to do
    instead."""
    waiting = original.waiting
    if waiting is not None and (yield from _is_one_of_many(waiting)):
        return (yield from _refused(context, ONE_OF_MANY, _here(context, waiting)))
    if waiting is not None:
        found = yield from locked(waiting.turn)
        assert found is not None
        recorded = yield from end_turn(waiting.turn, found, DELETED, context.stamp)
        here = _here(context, waiting)
        return queueing.accepted(
            context, here, UpdateEffect.CANCELLED, recorded, ended=(waiting.turn,)
        )
    newest = original.asked[-1]
    if any(original.is_asked_by(turn) for turn in started(context)):
        why = RUNS
    else:
        why = RAN if newest.attempts else NEVER_RUNS
    return (yield from _refused(context, why, _here(context, newest)))


def _is_one_of_many(asked: _AskingTurn) -> Op[bool]:
    """Tell whether the turn also holds other messages of an album, which would be cancelled too."""
    events = yield from journal.of_turn(asked.turn)
    return any(isinstance(recorded.event, MessageJoined) for recorded in events)


def _here(context: TurnContext, asked: _AskingTurn) -> TurnId | None:
    """Return the turn if it is in this session, else None."""
    return asked.turn if asked.session == context.session else None


def _edit(context: TurnContext, original: Original) -> Op[Accepted]:
    """Change the words of a message, and ask it again if it is the last one."""
    text, newest = context.update.text, original.asked[-1]
    if text == original.text:
        return queueing.accepted(context, _here(context, newest), UpdateEffect.IGNORED, [])
    if not context.update.is_forwarded and context.agent.command_in(text) is not None:
        return (yield from _refused(context, NOT_A_COMMAND, _here(context, newest)))
    if not text.strip() and not original.has_attachments:
        return (yield from _refused(context, BLANK, _here(context, newest)))
    recorded = yield from _reword(context, original)
    if original.waiting is not None or original.is_waiting_steer:
        asked = original.waiting or newest
        return queueing.accepted(context, _here(context, asked), UpdateEffect.AMENDED, recorded)
    tip = next(iter(started(context)), context.place.head)
    if tip is not None and original.is_asked_by(tip) and not original.is_steer:
        return (yield from _ask_again(context, original, tip, recorded))
    yield from _retell(context, but=None)
    here = _here(context, newest)
    recorded += yield from notice(context.session, here, CHANGED, context.stamp)
    return queueing.accepted(context, here, UpdateEffect.AMENDED, recorded)


def _reword(context: TurnContext, original: Original) -> Op[list[Recorded]]:
    """Append the new words to the turn that the message came to, and to the turns that ask it
    again. Those hold everything said in the first turn as one message."""
    at, update = context.stamp.at, context.update
    changed = _amended(
        original.turn, original.message, ForwardedText(update.text, update.passed_on)
    )
    recorded = yield from journal.append(original.session, [changed], at=at)
    words = yield from _words(original)
    for asked in original.asked:
        if asked.turn != original.turn:
            again = _amended(asked.turn, asked.message, words)
            recorded += yield from journal.append(asked.session, [again], at=at)
    # A turn that is not over will be indexed with its new words anyway.
    over = {asked.turn for asked in original.asked if asked.state == State.SETTLED}
    for each in recorded:
        if each.turn in over:
            yield from search.wait_again(each)
    return recorded


def _retell(context: TurnContext, *, but: SessionId | None) -> Op[None]:
    """Let the model be told the new words in all sessions of the conversation, except `but`."""
    yield from run(_RETELL, context.fresh.message, context.conversation, but or "")


def _amended(turn: TurnId, message: MessageId, words: ForwardedText) -> TurnAmended:
    """Return the event that changes a message's words."""
    return TurnAmended(turn=turn, message=message, text=words.text, passed_on=words.passed_on)


def _words(original: Original) -> Op[ForwardedText]:
    """Return everything that was said in the message's turn, as it is now."""
    return said_in((yield from journal.of_turn(original.turn)))


def _ask_again(
    context: TurnContext, original: Original, tip: TurnId, recorded: list[Recorded]
) -> Op[Accepted]:
    """Ask the last message again: its words are different, so it needs another answer."""
    at_work = started(context)
    recorded += yield from end(context, at_work, cut=REPLACED)
    words = yield from _words(original)
    recorded += yield from ask_again(context, tip, "edit", words=words)
    yield from _retell(context, but=context.session)
    return queueing.accepted(
        context, context.fresh.turn, UpdateEffect.AMENDED, recorded, ended=at_work
    )
