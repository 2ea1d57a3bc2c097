"""What people do to messages they have sent: change their words, or take them away.

A message is changed in the turn that it came to, so that turn always has its author's last words,
and in every turn that has asked it again. What that means depends on how far the answer is: a
message that waits simply reads differently, the last one is asked again, and of an older one the
answer stays. Nothing is taken out of the journal.
"""

from typing import Final, NamedTuple

from perdure.domain.content.forwards import Words
from perdure.domain.ids import MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.commands import given
from perdure.domain.inbound.updates import Accepted, Effect
from perdure.domain.journal.events import (
    CommandTaken,
    MessageJoined,
    Recorded,
    SteerAccepted,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.turn import State
from perdure.store.operations import journal
from perdure.store.operations.commands.given import end, started
from perdure.store.operations.commands.heads import ask_again, said_in
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.reading import search
from perdure.store.operations.setting import Setting
from perdure.store.operations.turns import queueing
from perdure.store.operations.turns.endings import Closing, end_turn, locked
from perdure.store.statement import Op, many, one, run

# Finds the message that an update changes, in the same conversation.
_ORIGINAL = """
    SELECT turn_id, message_id, principal_id FROM inbox
    WHERE external_id = $1 AND adapter = $2 AND account = $3 AND kind = $4
      AND conversation_id = $5"""
# Finds the turn that a message came to, and those that have asked it again.
_ASKED = """
    WITH RECURSIVE asked (id, nth) AS (
        SELECT CAST($1 AS TEXT), 0
        UNION ALL SELECT t.id, asked.nth + 1 FROM asked JOIN turns t ON t.origin_id = asked.id)
    SELECT t.id, t.session_id, t.message_id, t.state, t.attempts
    FROM asked JOIN turns t ON t.id = asked.id ORDER BY asked.nth, t.queued_at, t.id"""
# Changes the view of a conversation's sessions, but for one: they share turns, so any of them may
# tell the model of this one.
_RETELL = """
    UPDATE sessions SET view = $1 WHERE conversation_id = $2 AND kind = '' AND id <> $3"""

DELETED: Final = Closing(Outcome.STOPPED, "deleted by its author")
REPLACED: Final = Closing(Outcome.INTERRUPTED, "its message was edited")
UNKNOWN: Final = "That message never came here, so nothing was changed."
FOREIGN: Final = "Only its author can change a message."
COMMAND: Final = "A command cannot be changed once it was taken; give another one."
NOT_A_COMMAND: Final = "An edit gives no command; send it as a message of its own."
BLANK: Final = "A message needs text; what it said before stays. /undo takes a turn back."
CHANGED: Final = (
    "Changed in the history. The answer given then stays; /undo or /retry if it should change."
)
RUNS: Final = "It is being answered already: /stop ends that, /undo takes it back."
RAN: Final = "It was answered already: /undo takes the last turn back."
ONE_OF_MANY: Final = "It was sent as one with others, which wait with it: /stop removes them all."
NEVER_RUNS: Final = "It was not going to be answered any more."


class _Sent(NamedTuple):
    turn: TurnId | None
    message: MessageId
    author: PrincipalId


class Asked(NamedTuple):
    """A turn that asks the message."""

    turn: TurnId
    session: SessionId
    message: MessageId
    state: str
    attempts: int

    @property
    def waits(self) -> bool:
        return self.state == State.QUEUED and not self.attempts


class Original(NamedTuple):
    """The message that the update speaks of: where it came to, its events, oldest first, and the
    turns that ask it."""

    turn: TurnId
    message: MessageId
    events: list[Recorded]
    asked: list[Asked]

    @property
    def text(self) -> str:
        """Its words as they stand now."""
        spoken = TurnQueued | MessageJoined | SteerAccepted | SteerTaken | TurnAmended
        return [r.event.text for r in self.events if isinstance(r.event, spoken)][-1]

    @property
    def has_attachments(self) -> bool:
        spoken = TurnQueued | MessageJoined | SteerAccepted
        return any(isinstance(r.event, spoken) and r.event.attachments for r in self.events)

    @property
    def session(self) -> SessionId:
        return self.events[-1].session

    @property
    def is_steer(self) -> bool:
        return not any(isinstance(r.event, TurnQueued | MessageJoined) for r in self.events)

    @property
    def is_waiting_steer(self) -> bool:
        return self.is_steer and not any(isinstance(r.event, SteerTaken) for r in self.events)

    @property
    def waiting(self) -> Asked | None:
        return next((each for each in self.asked if each.waits), None)

    def is_asked_by(self, turn: TurnId) -> bool:
        return any(each.turn == turn for each in self.asked)


def take(setting: Setting) -> Op[Accepted]:
    """Take an edit or a deletion of a message."""
    original = yield from _find(setting)
    if isinstance(original, str):
        return (yield from _refused(setting, original, None))
    if setting.update.kind == UpdateKind.DELETE:
        return (yield from _delete(setting, original))
    return (yield from _edit(setting, original))


def _find(setting: Setting) -> Op[Original | str]:
    """Return the message, or why nothing can be done to it."""
    update, address, here = setting.update, setting.update.address, setting.conversation
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
    asked = yield from many(Asked, _ASKED, sent.turn)
    home = next(each.session for each in asked if each.turn == sent.turn)
    # It stands in other journals too, if its turn has moved.
    its_own = [recorded for recorded in events if recorded.session == home]
    return Original(sent.turn, sent.message, its_own, asked)


def _refused(setting: Setting, why: str, turn: TurnId | None) -> Op[Accepted]:
    """Tell the sender why nothing has changed."""
    told = yield from notice(setting.session, turn, why, setting.stamp)
    return queueing.accepted(setting, turn, Effect.IGNORED, told)


def _delete(setting: Setting, original: Original) -> Op[Accepted]:
    """Cancel a message: only what has not begun can still be as if it was never said."""
    waiting = original.waiting
    if waiting is not None and (yield from _is_one_of_many(waiting)):
        return (yield from _refused(setting, ONE_OF_MANY, _here(setting, waiting)))
    if waiting is not None:
        found = yield from locked(waiting.turn)
        assert found is not None
        recorded = yield from end_turn(waiting.turn, found, DELETED, setting.stamp)
        here = _here(setting, waiting)
        return queueing.accepted(setting, here, Effect.CANCELLED, recorded, ended=(waiting.turn,))
    newest = original.asked[-1]
    if any(original.is_asked_by(turn) for turn in started(setting)):
        why = RUNS
    else:
        why = RAN if newest.attempts else NEVER_RUNS
    return (yield from _refused(setting, why, _here(setting, newest)))


def _is_one_of_many(asked: Asked) -> Op[bool]:
    """Tell whether ending its turn would take away what was sent as one with it."""
    events = yield from journal.of_turn(asked.turn)
    return any(isinstance(recorded.event, MessageJoined) for recorded in events)


def _here(setting: Setting, asked: Asked) -> TurnId | None:
    return asked.turn if asked.session == setting.session else None


def _edit(setting: Setting, original: Original) -> Op[Accepted]:
    text, newest = setting.update.text, original.asked[-1]
    if text == original.text:
        return queueing.accepted(setting, _here(setting, newest), Effect.IGNORED, [])
    if not setting.update.is_forwarded and given(text) is not None:
        return (yield from _refused(setting, NOT_A_COMMAND, _here(setting, newest)))
    if not text.strip() and not original.has_attachments:
        return (yield from _refused(setting, BLANK, _here(setting, newest)))
    recorded = yield from _reword(setting, original)
    if original.waiting is not None or original.is_waiting_steer:
        asked = original.waiting or newest
        return queueing.accepted(setting, _here(setting, asked), Effect.AMENDED, recorded)
    tip = next(iter(started(setting)), setting.place.head)
    if tip is not None and original.is_asked_by(tip) and not original.is_steer:
        return (yield from _ask_again(setting, original, tip, recorded))
    yield from _retell(setting, but=None)
    here = _here(setting, newest)
    recorded += yield from notice(setting.session, here, CHANGED, setting.stamp)
    return queueing.accepted(setting, here, Effect.AMENDED, recorded)


def _reword(setting: Setting, original: Original) -> Op[list[Recorded]]:
    """Append the new words, in the turn that the message came to and in those that ask it again:
    these hold all that was said in the first one as one message."""
    at, update = setting.stamp.at, setting.update
    changed = _amended(original.turn, original.message, Words(update.text, update.passed_on))
    recorded = yield from journal.append(original.session, [changed], at=at)
    words = yield from _words(original)
    for asked in original.asked:
        if asked.turn != original.turn:
            again = _amended(asked.turn, asked.message, words)
            recorded += yield from journal.append(asked.session, [again], at=at)
    # A turn that is not over yet will be indexed with its new words.
    over = {asked.turn for asked in original.asked if asked.state == State.SETTLED}
    for each in recorded:
        if each.turn in over:
            yield from search.wait_again(each)
    return recorded


def _retell(setting: Setting, *, but: SessionId | None) -> Op[None]:
    """Let the model be told the new words in all sessions of the conversation, or in all but
    one."""
    yield from run(_RETELL, setting.fresh.message, setting.conversation, but or "")


def _amended(turn: TurnId, message: MessageId, words: Words) -> TurnAmended:
    return TurnAmended(turn=turn, message=message, text=words.text, passed_on=words.passed_on)


def _words(original: Original) -> Op[Words]:
    return said_in((yield from journal.of_turn(original.turn)))


def _ask_again(
    setting: Setting, original: Original, tip: TurnId, recorded: list[Recorded]
) -> Op[Accepted]:
    """Ask the last message again: it reads differently, so its answer is another one."""
    at_work = started(setting)
    recorded += yield from end(setting, at_work, cut=REPLACED)
    words = yield from _words(original)
    recorded += yield from ask_again(setting, tip, "edit", words=words)
    yield from _retell(setting, but=setting.session)
    return queueing.accepted(setting, setting.fresh.turn, Effect.AMENDED, recorded, ended=at_work)
