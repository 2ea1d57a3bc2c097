"""What an interruption leaves behind, what is done about it, and what the model is told.

Results that close a cut call are facts and stand in the journal. The guidance around them is a
note: it is built for one request and stored nowhere. That the model has been told is a fact again,
written with the first thing it says, so each interruption is announced once.
"""

import hashlib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.ids import CallId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    InterruptionAcknowledged,
    Recorded,
    SteerAccepted,
    SteerTaken,
    ToolCall,
    ToolFinished,
    TurnQueued,
    TurnStarted,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, NodeRequest
from perdure.domain.prompt.prompt import Note, PromptMessage, Role, messages_of
from perdure.domain.turn.errands import instruction, is_watched
from perdure.domain.turn.next_action import open_calls

CONTINUE: Final = "continue"
DROP: Final = "drop"
# How often a node says that it lives while turns run there. So long after its last sign of life at
# most it died, and with it whatever ran.
HEARTBEAT_MS: Final = 500
# A turn that has crashed before may be the reason. It is alone until it has lived longer than it
# ever did, and no longer than this.
ALONE_MS: Final = 60_000


class Resume(StrEnum):
    """What happens to an interrupted turn of a person's at the next start."""

    CONTINUE = "continue"
    ASK = "ask"
    WAIT = "wait"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """`freshness_ms` 0 means that no interruption is too old to be resumed."""

    resume: Resume = Resume.CONTINUE
    freshness_ms: int = 3_600_000
    attempts_max: int = 3


class Fate(StrEnum):
    """What becomes of one interrupted turn. MAKES_WAY: it is settled, and what was said since is
    answered; what it has said so far is kept. TOO_OLD: it was to go on, or to be asked about; now
    it waits for the next message, and its people are told so once."""

    GOES_ON = "goes on"
    ASKS = "asks"
    WAITS = "waits"
    TOO_OLD = "too old"
    MAKES_WAY = "makes way"


def fate(policy: Policy, *, kind: TurnKind, age_ms: int, is_followed: bool) -> Fate:
    """What would wait for the next message does not wait if that has come already, and nobody is
    asked about it then."""
    is_stale = bool(policy.freshness_ms) and age_ms > policy.freshness_ms
    if kind is not TurnKind.MESSAGE or (policy.resume is Resume.CONTINUE and not is_stale):
        return Fate.GOES_ON
    if is_followed:
        return Fate.MAKES_WAY
    if policy.resume is Resume.WAIT:
        return Fate.WAITS
    return Fate.TOO_OLD if is_stale else Fate.ASKS


def alone_until(attempt_at: int, longest_ms: int) -> int:
    """Return the last instant at which a suspect that began at `attempt_at` must be alone."""
    return attempt_at + min(longest_ms, ALONE_MS)


def died_at(alive_at: int, found_at: int) -> int:
    """Return the latest instant at which the attempt of a dead node can have ended."""
    return min(found_at, alive_at + HEARTBEAT_MS)


_CLOSING: Final = {
    CallEnding.UNKNOWN: (
        "The call was cut short and its effect is unknown: it may or may not have happened. "
        "Do not repeat it without asking the person."
    ),
    CallEnding.INTERRUPTED: (
        "The call was interrupted before it returned. It is safe to call again."
    ),
}
_WHY: Final = {
    Interruption.CRASH: "The gateway stopped unexpectedly",
    Interruption.SHUTDOWN: "The gateway was shut down",
    Interruption.RESTART: "The gateway was restarted",
}
_ASKED: Final = {
    NodeRequest.RESTART: "The gateway was restarted",
    NodeRequest.STOP: "The gateway was shut down",
    NodeRequest.NOTHING: "The gateway was stopped",
}
BACK: Final = "The gateway is back."
SUSPENDED: Final = (
    "This conversation was interrupted too often in a row, so it begins anew here. "
    "Nothing is lost: /resume brings the old one back."
)
IDLE: Final = (
    "Nobody has said anything here for a long time, so this is a new session. "
    "Nothing is lost: /resume brings the old one back."
)


def why(reason: Interruption, asked: NodeRequest) -> str:
    """Return what happened to the gateway, as the beginning of a sentence."""
    return _ASKED[asked] if reason is Interruption.DRAIN_TIMEOUT else _WHY[reason]


def question_text(reason: Interruption, asked: NodeRequest) -> str:
    return f"{why(reason, asked)}, and an answer here was cut short. Continue it, or drop it?"


def given_up_text(times: int, *, goes_on: bool) -> str:
    """What people are told of a turn that is not tried again. `goes_on`: what waited behind it is
    answered by itself."""
    often = "once" if times == 1 else f"{times} times in a row"
    then = (
        "What waited is answered in a new session." if goes_on else "The next message begins anew."
    )
    return (
        f"An answer here was interrupted {often}, so it is given up. What was said so far is kept. "
        f"{then} /resume goes back to it, and /retry then asks again."
    )


def closed(turn: TurnId, call: CallId, ending: CallEnding) -> ToolFinished:
    """Return the result that stands for a call which never returned."""
    return ToolFinished(turn=turn, call=call, ending=ending, result=_CLOSING[ending])


def may_have_happened(call: ToolCall, events: Iterable[AnyEvent]) -> bool:
    """Did this turn make the same call before, with an effect that nobody knows?"""
    made = list(events)
    unknown = {
        event.call
        for event in made
        if isinstance(event, ToolFinished) and event.ending is CallEnding.UNKNOWN
    }
    earlier = [c for event in made if isinstance(event, AssistantSaid) for c in event.calls]
    return any(
        each.id in unknown and (each.name, _canonical(each)) == (call.name, _canonical(call))
        for each in earlier
    )


def _canonical(call: ToolCall) -> str:
    """Arguments that mean the same, written the same way."""
    try:
        value = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return call.arguments
    return msgspec.json.encode(value, order="deterministic").decode()


def tail_key(events: Iterable[AnyEvent]) -> str:
    """A stable name of the trailing batch of tool results, empty if the turn does not end so."""
    tail: list[str] = []
    for event in events:
        match event:
            case ToolFinished(call=call, ending=ending, result=result):
                tail += [call, ending, result]
            case AssistantSaid():
                tail = []
            case _:
                pass
    return hashlib.sha256("\0".join(tail).encode()).hexdigest()[:16] if tail else ""


class Telling(msgspec.Struct, frozen=True):
    """What an attempt tells the model: the interruptions that it has not heard of, oldest first,
    and the events of the earlier turns among which these are. It stays the same in every request of
    the attempt."""

    interruptions: tuple[Recorded, ...] = ()
    before: tuple[Recorded, ...] = ()


def untold(turn: Iterable[Recorded], *, told_seq: int) -> tuple[Recorded, ...]:
    """Return the interruptions of a turn that the model has not been told of, oldest first.
    `told_seq` is the newest one that it has been told of, whoever has told it."""
    return tuple(
        recorded
        for recorded in turn
        if isinstance(recorded.event, AttemptInterrupted) and recorded.seq > told_seq
    )


def telling_before(turn: Sequence[Recorded], telling: Telling, *, told_seq: int) -> Telling:
    """Add an earlier turn to what a turn tells, ahead of those that came after it."""
    new = untold(turn, told_seq=told_seq)
    if not new:
        return telling
    return Telling((*new, *telling.interruptions), (*turn, *telling.before))


def telling_own(turn: Sequence[Recorded], telling: Telling, *, told_seq: int) -> Telling:
    """Add the turn's own interruptions to what it tells. An errand that was cut goes on as if
    nothing had happened: from its beginning, or from the results of its last calls. Only where it
    has given a file since must it hear why the conversation does not end there."""
    if not is_watched(turn) and not _ends_with_words(turn):
        return telling
    own = untold(turn, told_seq=told_seq)
    return msgspec.structs.replace(telling, interruptions=(*telling.interruptions, *own))


def telling_again(
    turn: Sequence[Recorded], chain: Iterable[Sequence[Recorded]], *, upto: int
) -> Telling:
    """Find out what the attempt has told whose request held the turn's events up to this one.
    Of earlier turns that is what it has acknowledged; of its own, what it had not before."""
    begun = max(r.seq for r in turn if isinstance(r.event, TurnStarted) and r.seq <= upto)
    ended = [r.seq for r in turn if isinstance(r.event, TurnStarted) and r.seq > begun]
    acknowledged = [r for r in turn if isinstance(r.event, InterruptionAcknowledged)]
    now = {told_by(r) for r in acknowledged if begun < r.seq < min(ended, default=r.seq + 1)}
    telling = Telling()
    for events in reversed(list(chain)):
        told = [recorded.seq for recorded in events if recorded.key in now]
        if told:
            telling = telling_before(events, telling, told_seq=min(told) - 1)
    own = {recorded.key for recorded in turn}
    before = [told_by(r) for r in acknowledged if r.seq < begun]
    told_seq = max((key[1] for key in before if key in own), default=0)
    return telling_own([r for r in turn if r.seq <= begun], telling, told_seq=told_seq)


def _ends_with_words(turn: Iterable[Recorded]) -> bool:
    """Tell whether the last message of a turn is the model's own, so that one must follow it."""
    told = [r.event for r in turn if isinstance(r.event, AssistantSaid | ToolFinished)]
    return bool(told) and isinstance(told[-1], AssistantSaid) and not told[-1].calls


def has_untaken_steers(turn: Sequence[Recorded]) -> bool:
    """Did messages for this turn come before its attempt began?"""
    taken = {r.event.message for r in turn if isinstance(r.event, SteerTaken)}
    accepted = [r.event.message for r in turn if isinstance(r.event, SteerAccepted)]
    return any(message not in taken for message in accepted)


def acknowledgements(turn_id: TurnId, interruptions: Iterable[Recorded]) -> list[AnyEvent]:
    """The facts that say so, for the transaction of the model's first event."""
    told: list[AnyEvent] = []
    for recorded in interruptions:
        event = recorded.event
        assert isinstance(event, AttemptInterrupted)
        told.append(
            InterruptionAcknowledged(
                turn=turn_id,
                interruption=recorded.seq,
                tail=event.tail,
                session=recorded.session,
            )
        )
    return told


def told_by(acknowledged: Recorded) -> tuple[SessionId, int]:
    """Return the key of the interruption that an acknowledgement speaks of."""
    event = acknowledged.event
    assert isinstance(event, InterruptionAcknowledged)
    return event.session or acknowledged.session, event.interruption


def messages_with_notes(turn: Sequence[Recorded], telling: Telling) -> list[PromptMessage]:
    """A turn's messages with the notes that this attempt carries. An errand's order stands where it
    was given, directly behind the turn's own words. What is said about interruptions stands where
    the turn's last one does, or, if only turns before it were interrupted, ahead of the person's
    new message, which has priority."""
    notes = _orders(turn)
    own = {recorded.key for recorded in turn}
    mine = [each for each in telling.interruptions if each.key in own]
    if mine:
        last = mine[-1]
        notes[last.key] = _note(last, [*telling.before, *_known_at(turn, last)], is_replaced=False)
    messages = messages_of(turn, notes=notes)
    if mine or not telling.interruptions:
        return messages
    ahead = _note(telling.interruptions[-1], telling.before, is_replaced=True)
    return [PromptMessage(role=Role.USER, blocks=(ahead,)), *messages]


def _known_at(turn: Sequence[Recorded], last: Recorded) -> list[Recorded]:
    """Return what the model knows of a turn where the note about this interruption stands: all that
    came before it, and the results of calls that were run after it because they had not begun."""
    before = [recorded for recorded in turn if recorded.seq <= last.seq]
    still_open = {call.id for call in open_calls([recorded.event for recorded in before])}
    results = (
        recorded
        for recorded in turn
        if recorded.seq > last.seq
        and isinstance(recorded.event, ToolFinished)
        and recorded.event.call in still_open
    )
    return [*before, *results]


def _orders(turn: Sequence[Recorded]) -> dict[tuple[SessionId, int], Note]:
    """What an errand is told to do, behind the event that ordered it."""
    orders: dict[tuple[SessionId, int], Note] = {}
    for recorded in turn:
        if isinstance(recorded.event, TurnQueued) and (order := instruction(recorded.event)):
            orders[recorded.key] = order
    return orders


def _note(interruption: Recorded, events: Sequence[Recorded], *, is_replaced: bool) -> Note:
    """One note, whatever has piled up: what happened, what is there, what is unknown, what next."""
    event = interruption.event
    assert isinstance(event, AttemptInterrupted)
    seen = [recorded.event for recorded in events]
    has_text = any(isinstance(each, AssistantSaid) and each.is_interrupted for each in seen)
    has_steer = any(isinstance(each, SteerTaken) for each in seen)
    endings = {each.ending for each in seen if isinstance(each, ToolFinished)}
    is_late = event.reason is Interruption.DRAIN_TIMEOUT
    while_working = " while you were still working" if is_late else ""
    lines = [f"[{why(event.reason, event.asked)}{while_working}; your work was interrupted."]
    if has_text:
        lines.append("The person has seen your text above.")
    if endings - {CallEnding.INTERRUPTED}:
        lines.append("The tool results above are already there: do not make those calls again.")
    if CallEnding.INTERRUPTED in endings:
        lines.append("Calls marked as interrupted may be made again.")
    if CallEnding.UNKNOWN in endings:
        lines.append("Calls marked as unknown may have happened: ask the person first.")
    if is_replaced:
        lines.append("The person's new message below has priority over the interrupted work.]")
    elif has_steer:
        lines.append("Go on, with the person's latest message in mind.]")
    else:
        lines.append("Go on from where you stopped, without repeating yourself.]")
    return Note(" ".join(lines))
