"""Decides what happens to interrupted turns, and what the model and the people are told about it.

The results that close a cut call are facts, and are in the journal. The guidance about them is a
note: it is made for one request and stored nowhere. That the model was told is a fact again, and is
written with the first thing that the model says. So the model acknowledges each interruption once.
"""

import hashlib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

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
from perdure.domain.journal.question_events import EffectMarked
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, NodeRequest
from perdure.domain.prompt.prompt import Note, PromptMessage, Role, messages_of
from perdure.domain.prompt.whereabouts import NO_TIMES, Times
from perdure.domain.sayings.saying import worded
from perdure.domain.tools.rounds import VAIN_NOTE, told_in_vain
from perdure.domain.tools.traits import canonical
from perdure.domain.turn.errands import instruction, is_watched
from perdure.domain.turn.next_action import open_calls

CONTINUE: Final = "continue"
DROP: Final = "drop"
# How often a node writes that it lives while turns run there. So a node that died, and the turns
# that ran there with it, ended at most this long after its last sign of life.
HEARTBEAT_MS: Final = 500
# A session that was interrupted so often is a suspect: its turn may be the cause of the crashes.
SUSPECT_FROM: Final = 2
# A suspect is on trial until it has lived longer than in any attempt before, but for no longer than
# this. The next suspects wait until then.
ALONE_MS: Final = 60_000
# All suspects have begun within about this time, even if there are many: then several of them are
# on trial together.
_TRIALS_MS: Final = 10_000
# How many suspects may be on trial together at first. With each crash it is half as many, down to
# one.
_TOGETHER_MAX: Final = 64


class Resume(StrEnum):
    """Says what happens at the next start to an interrupted turn that answers a person's
    message."""

    CONTINUE = "continue"
    ASK = "ask"
    WAIT = "wait"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the rules for interrupted turns. A `freshness_ms` of 0 means that no interruption is
    too old to be resumed."""

    resume: Resume = Resume.CONTINUE
    freshness_ms: int = 3_600_000
    attempts_max: int = 3


class Fate(StrEnum):
    """Says what happens to one interrupted turn. MAKES_WAY: it is settled with what it has said so
    far, and the messages since are answered. TOO_OLD: it would have continued, or been asked about,
    but is too old for that; it waits for the next message, and its people are told so once."""

    GOES_ON = "goes on"
    ASKS = "asks"
    WAITS = "waits"
    TOO_OLD = "too old"
    MAKES_WAY = "makes way"


def fate(policy: Policy, *, kind: TurnKind, age_ms: int, is_followed: bool) -> Fate:
    """Decide what happens to an interrupted turn. A turn that would wait for the next message makes
    way if that message is already there, and nobody is asked about it."""
    is_stale = bool(policy.freshness_ms) and age_ms > policy.freshness_ms
    if kind is not TurnKind.MESSAGE or (policy.resume is Resume.CONTINUE and not is_stale):
        return Fate.GOES_ON
    if is_followed:
        return Fate.MAKES_WAY
    if policy.resume is Resume.WAIT:
        return Fate.WAITS
    return Fate.TOO_OLD if is_stale else Fate.ASKS


def alone_until(attempt_at: int, longest_ms: int) -> int:
    """Return the last instant at which a suspect whose attempt began at `attempt_at` must run
    alone."""
    return attempt_at + min(longest_ms, ALONE_MS)


class Suspect(NamedTuple):
    """Describes a suspect that waits: how often its session was interrupted since its last answer,
    and the longest time that an attempt of its turn has lived."""

    strikes: int
    longest_ms: int


def trial_size(suspects: Sequence[Suspect]) -> int:
    """Return how many of these suspects go on trial together, from the first of them. Those with
    the fewest interruptions come first.

    Whoever is on trial alone when the node dies is given up. Of several, nobody is: they are tried
    again after the others, at most half as many together, so that in the end the cause is alone.
    It takes one crash for each halving, so they are only as many as lets all begin in time."""
    least = suspects[0].strikes
    level = [each for each in suspects if each.strikes == least]
    in_time = sum(min(each.longest_ms, ALONE_MS) for each in level) // _TRIALS_MS + 1
    most = _TOGETHER_MAX >> min(least - SUSPECT_FROM, 62)
    return max(min(in_time, len(level) // 2, most), 1)


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
    CallEnding.DENIED: "The call was not run: the turn ended before anybody had allowed it.",
}
_WHY: Final = {
    Interruption.CRASH: worded("The gateway stopped unexpectedly"),
    Interruption.SHUTDOWN: worded("The gateway was shut down"),
    Interruption.RESTART: worded("The gateway was restarted"),
    Interruption.AGENT_LOST: worded("The agent's program ended unexpectedly"),
    Interruption.AGENT_LOST_BESIDE: worded("The agent's program ended unexpectedly"),
}
_ASKED: Final = {
    NodeRequest.RESTART: worded("The gateway was restarted"),
    NodeRequest.STOP: worded("The gateway was shut down"),
    NodeRequest.NOTHING: worded("The gateway was stopped"),
}
BACK: Final = worded("The gateway is back.")
SUSPENDED: Final = worded(
    "This conversation was interrupted too often in a row, so it begins anew here. "
    "Nothing is lost: /resume brings the old one back."
)
IDLE: Final = worded(
    "Nobody has said anything here for a long time, so this is a new session. "
    "Nothing is lost: /resume brings the old one back."
)


def why(reason: Interruption, asked: NodeRequest) -> str:
    """Return what has cut an answer short, as the beginning of a sentence."""
    return _ASKED[asked] if reason is Interruption.DRAIN_TIMEOUT else _WHY[reason]


def question_text(reason: Interruption, asked: NodeRequest) -> str:
    """Return the question whether an interrupted answer is to go on."""
    return worded(
        "{why}, and an answer here was cut short. Continue it, or drop it?",
        why=why(reason, asked),
    )


def given_up_text(times: int, *, goes_on: bool) -> str:
    """Return what people are told about a turn that is not tried again. `goes_on`: the messages
    that waited behind it are answered by themselves."""
    often = worded("once") if times == 1 else worded("{count} times in a row", count=times)
    then = worded("The next message begins anew.")
    if goes_on:
        then = worded("What waited is answered in a new session.")
    return worded(
        "An answer here was interrupted {often}, so it is given up. What was said so far is kept. "
        "{then} /resume goes back to it, and /retry then asks again.",
        often=often,
        then=then,
    )


def closed(turn: TurnId, call: CallId, ending: CallEnding) -> ToolFinished:
    """Return the result that replaces the missing one of a call that never returned."""
    return ToolFinished(turn=turn, call=call, ending=ending, result=_CLOSING[ending])


def may_have_happened(call: ToolCall, events: Iterable[AnyEvent]) -> bool:
    """Tell whether this turn made the same call before and it may have taken effect: nobody knows,
    or a person has said that it did."""
    made = list(events)
    unknown = {
        event.call
        for event in made
        if isinstance(event, ToolFinished) and event.ending is CallEnding.UNKNOWN
    }
    unknown -= {e.call for e in made if isinstance(e, EffectMarked) and not e.has_happened}
    earlier = [c for event in made if isinstance(event, AssistantSaid) for c in event.calls]
    return any(
        each.id in unknown
        and each.name == call.name
        and canonical(each.arguments) == canonical(call.arguments)
        for each in earlier
    )


def tail_key(events: Iterable[AnyEvent]) -> str:
    """Return a stable key of the tool results with which the turn ends. It is empty if the turn
    does not end with tool results."""
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
    """Holds what an attempt tells the model: the interruptions that the model has not been told of,
    oldest first, and the events of those earlier turns that had such interruptions. It is the same
    in every request of the attempt."""

    interruptions: tuple[Recorded, ...] = ()
    before: tuple[Recorded, ...] = ()


def untold(turn: Iterable[Recorded], *, told_seq: int) -> tuple[Recorded, ...]:
    """Return the interruptions of a turn that the model has not been told of, oldest first.
    `told_seq` is the number of the newest that it was told of, by whichever turn."""
    return tuple(
        recorded
        for recorded in turn
        if isinstance(recorded.event, AttemptInterrupted) and recorded.seq > told_seq
    )


def telling_before(turn: Sequence[Recorded], telling: Telling, *, told_seq: int) -> Telling:
    """Add an earlier turn to what a turn tells the model, ahead of the turns that came after it."""
    new = untold(turn, told_seq=told_seq)
    if not new:
        return telling
    return Telling((*new, *telling.interruptions), (*turn, *telling.before))


def telling_own(turn: Sequence[Recorded], telling: Telling, *, told_seq: int) -> Telling:
    """Add the turn's own interruptions to what it tells the model. An errand that was cut continues
    as if nothing had happened: from its beginning, or from the results of its last calls. The
    exception is an errand that ends with words of the model, because it has sent a file: the model
    must be told why the conversation does not end there."""
    if not is_watched(turn) and not _ends_with_words(turn):
        return telling
    own = untold(turn, told_seq=told_seq)
    return msgspec.structs.replace(telling, interruptions=(*telling.interruptions, *own))


def telling_again(
    turn: Sequence[Recorded], chain: Iterable[Sequence[Recorded]], *, upto: int
) -> Telling:
    """Find out what the attempt has told the model whose request held the turn's events up to
    `upto`. About earlier turns, that is what the attempt has acknowledged; about its own turn, what
    was not acknowledged before the attempt."""
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
    """Tell whether the last message of a turn is the model's own, so that another message must
    follow it."""
    told = [r.event for r in turn if isinstance(r.event, AssistantSaid | ToolFinished)]
    return bool(told) and isinstance(told[-1], AssistantSaid) and not told[-1].calls


def has_untaken_steers(turn: Sequence[Recorded]) -> bool:
    """Tell whether messages that were handed to this turn have not been taken by an attempt yet."""
    taken = {r.event.message for r in turn if isinstance(r.event, SteerTaken)}
    accepted = [r.event.message for r in turn if isinstance(r.event, SteerAccepted)]
    return any(message not in taken for message in accepted)


def acknowledgements(turn_id: TurnId, interruptions: Iterable[Recorded]) -> list[AnyEvent]:
    """Return the events which record that the model was told of these interruptions. They are
    written in the transaction of the model's first event."""
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
    """Return the key of the interruption that an acknowledgement is about."""
    event = acknowledged.event
    assert isinstance(event, InterruptionAcknowledged)
    return event.session or acknowledged.session, event.interruption


def messages_with_notes(
    turn: Sequence[Recorded],
    telling: Telling,
    *,
    times: Times = NO_TIMES,
    before: Sequence[ToolCall] = (),
) -> list[PromptMessage]:
    """Return a turn's messages with the notes of this attempt. The order of an errand follows the
    turn's own words directly, and that the model's tool calls go round is said behind the results
    that show it. The note about interruptions stands at the turn's last interruption.
    If only earlier turns were interrupted, it stands before the person's new message, which has
    priority. `before` are the calls that the turn before has left to its caller."""
    notes = {**_orders(turn), **_warnings(turn)}
    own = {recorded.key for recorded in turn}
    mine = [each for each in telling.interruptions if each.key in own]
    if mine:
        last = mine[-1]
        notes[last.key] = _note(last, [*telling.before, *_known_at(turn, last)], is_replaced=False)
    messages = messages_of(turn, notes=notes, with_thoughts=True, times=times, before=before)
    if mine or not telling.interruptions:
        return messages
    ahead = _note(telling.interruptions[-1], telling.before, is_replaced=True)
    count = len(before)  # results come first, because providers want them directly behind the calls
    if not count:
        return [PromptMessage(role=Role.USER, blocks=(ahead,)), *messages]
    first = messages[0]
    blocks = (*first.blocks[:count], ahead, *first.blocks[count:])
    return [msgspec.structs.replace(first, blocks=blocks), *messages[1:]]


def _known_at(turn: Sequence[Recorded], last: Recorded) -> list[Recorded]:
    """Return what the model knows of a turn at the place of the note about this interruption: all
    events before it, and the results of calls that ran only after it, because they had not
    started."""
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
    """Return the notes that order an errand, by the event that each of them follows."""
    orders: dict[tuple[SessionId, int], Note] = {}
    for recorded in turn:
        if isinstance(recorded.event, TurnQueued) and (order := instruction(recorded.event)):
            orders[recorded.key] = order
    return orders


def _warnings(turn: Sequence[Recorded]) -> dict[tuple[SessionId, int], Note]:
    """Return the notes that tell the model that its tool calls go round. They follow from the
    turn's events alone, so each request of the turn holds them at the same places."""
    places = told_in_vain([recorded.event for recorded in turn])
    return {turn[place].key: Note(VAIN_NOTE) for place in places}


def _note(interruption: Recorded, events: Sequence[Recorded], *, is_replaced: bool) -> Note:
    """Return one note about all interruptions so far: what happened, which results there are, what
    is unknown, and what to do next."""
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
