"""Builds from the journal what a person reads.

The entries are those of the turns on the session's chain, oldest first: user messages, assistant
messages with their tool calls, and tool results. Turns that only wait, replies to commands and
summaries are not included. A text that was sent here from elsewhere is an assistant entry with an
`origin`, and has no user entry. If the last entry of a settled turn is an assistant's, it carries
the turn's outcome; otherwise an empty assistant entry does, so that every ending can be seen.

Notices and replies to commands are entries for those who ask for them. A notice belongs to a
session, not to a turn, so it stands where it was posted (`PlacedEntry`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.ids import CallId, MessageId, SessionId, TurnId
from perdure.domain.journal.attachments import (
    NOWHERE,
    FileEnds,
    SpokenEvent,
    as_fetched,
    places_of,
    shown_attachments,
)
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    AttemptInterrupted,
    MessageJoined,
    NoticePosted,
    Recorded,
    SteerTaken,
    ToolCall,
    ToolFinished,
    TurnAmended,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.left_out import NO_OMISSIONS, Omissions, Omitted, omissions_of
from perdure.domain.journal.model.agent_state import UNTOLD, AgentState
from perdure.domain.journal.model.timings import UNTIMED, Timings
from perdure.domain.journal.model.usage import AnswerUsage, usage_shown
from perdure.domain.journal.question_events import AnswerAwaited, WorkDelegated
from perdure.domain.journal.records import ToldTurn
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Outcome, StopReason
from perdure.domain.renewals import renewal_of

# The suffix that makes the id of an empty last entry from the id of its turn.
_END: Final = ".end"
# How people see that a tool call is over.
FINISHED: Final = "finished"
UNKNOWN: Final = "unknown"
_STATES: Final[Mapping[CallEnding, str]] = {
    CallEnding.FAILED: "failed",
    CallEnding.INTERRUPTED: "failed",
    CallEnding.DENIED: "refused",
    CallEnding.UNKNOWN: UNKNOWN,
}
# The place of what is still being written: behind everything that is in the journal.
AT_THE_END: Final = 2**62


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds one message, tool result or notice as a person reads it. `state` is that of a tool
    result, or of the `question` that a notice asks; `answer` is the answer to the question."""

    id: str
    role: str
    text: str
    turn: TurnId | None
    at: int
    outcome: Outcome | None = None
    reason: str = ""
    detail: str = ""
    state: str = ""
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    choices: tuple[str, ...] = ()
    question: str = ""
    answer: str = ""
    # The ending in a sentence, for everybody; and when the budget renews that has refused the turn.
    ending: str = ""
    renews_at: int = 0
    # What the answer took, and where the time of its turn went, in the last entry of a turn.
    usage: AnswerUsage | None = None
    timings: Timings = UNTIMED
    agent_state: AgentState = UNTOLD
    # The turns with other wordings of a person's message, and those with other answers to it, each
    # with this turn in its place. Empty if there is only one.
    versions: tuple[TurnId, ...] = ()
    answers: tuple[TurnId, ...] = ()
    # The file that keeps the whole of a long result, and how many characters it has.
    whole: str = ""
    size: int = 0
    origin: str = ""
    # `message` if later requests leave it out, `pictures` if they leave out pictures in it: a
    # model's server has refused to take that.
    left_out: str = ""
    # Why its turn is not on the chain any more, and the session that the turn is shared with. Both
    # are set only where a session is shown as a whole.
    left: str = ""
    session: str = ""


class RunningText(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the text of the message that is being written, as far as it is stored."""

    turn: TurnId
    message: MessageId
    text: str
    at: int


class PlacedEntry(NamedTuple):
    """Holds an entry and its place: a number in the journal of its session."""

    place: int
    entry: Entry


def entries_of(
    turn: Sequence[Recorded],
    running: RunningText | None = None,
    *,
    since: int = 0,
    omissions: Omissions = NO_OMISSIONS,
) -> list[Entry]:
    """Return one turn's entries, without their places."""
    placed = placed_entries(turn, running, since=since, omissions=omissions)
    return [each.entry for each in placed]


def placed_entries(
    turn: Sequence[Recorded],
    running: RunningText | None = None,
    *,
    since: int = 0,
    behind: int = 0,
    omissions: Omissions = NO_OMISSIONS,
) -> list[PlacedEntry]:
    """Return one turn's entries, from the events with the number `since` or higher. A turn that
    never started has none, because it is on no chain. An entry stands where its event is; but if a
    message came before the number `behind`, where the turn before ended, it stands where its own
    turn began. `omissions` are what the turns on its chain leave out of later requests."""
    began = next((r.seq for r in turn if isinstance(r.event, TurnStarted)), None)
    if began is None:
        return []
    names = {
        call.id: call.name
        for recorded in turn
        if isinstance(recorded.event, AssistantSaid)
        for call in recorded.event.calls
    }
    amended = {r.event.message: r.event.text for r in turn if isinstance(r.event, TurnAmended)}
    places = places_of(turn)
    omitted = Omitted(turn, omissions)
    entries = [
        PlacedEntry(
            recorded.seq if recorded.seq > behind else began,
            msgspec.structs.replace(
                entry,
                text=amended.get(MessageId(entry.id), entry.text),
                left_out=omitted.says(recorded),
            ),
        )
        for recorded in turn
        if recorded.seq >= since
        for entry in _entries(recorded, names, places)
    ]
    settled = next((r for r in turn if isinstance(r.event, TurnSettled)), None)
    if settled is not None:
        return _with_outcome(entries, settled, took_ms=worked_ms(turn))
    if running is not None:
        entries.append(PlacedEntry(AT_THE_END, _running_entry(running)))
    return entries


def _running_entry(running: RunningText) -> Entry:
    return Entry(
        id=running.message,
        role="assistant",
        text=running.text,
        turn=running.turn,
        at=running.at,
    )


def add_turn(
    entries: list[PlacedEntry], own: Sequence[PlacedEntry], turn: Sequence[Recorded]
) -> None:
    """Add the entries of one more turn to those of its chain. If the turn has continued an answer
    that reached the model's length limit, the answer becomes one message: the word that asked for
    the rest is left out, and the rest stands in the message of the continuing turn."""
    if not _is_rest(entries, own, turn):
        entries += own
        return
    (place, beginning), rest = entries.pop(), own[1].entry
    whole = msgspec.structs.replace(
        rest,
        text=beginning.text + rest.text,
        at=beginning.at,
        attachments=(*beginning.attachments, *rest.attachments),
    )
    entries += [PlacedEntry(place, whole), *own[2:]]


def _is_rest(
    before: Sequence[PlacedEntry], own: Sequence[PlacedEntry], turn: Sequence[Recorded]
) -> bool:
    """Tell whether a turn is over and its first words are the rest of the entry before them."""
    continued = continued_by(turn)
    if continued is None or not before or len(own) < 2:
        return False
    cut, asked, rest = before[-1].entry, own[0].entry, own[1].entry
    is_cut = (cut.turn, cut.role, cut.reason) == (continued, "assistant", StopReason.LENGTH)
    has_rest = (asked.role, rest.role) == ("user", "assistant") and bool(rest.text)
    return is_cut and has_rest and own[-1].entry.outcome is not None


def continued_by(turn: Sequence[Recorded]) -> TurnId | None:
    """Return the turn whose answer this one was asked to continue, or None."""
    queued = next((r.event for r in turn if isinstance(r.event, TurnQueued)), None)
    return queued.continues if queued else None


def entries_of_session(
    turns: Sequence[ToldTurn], session: SessionId, running: RunningText | None
) -> list[Entry]:
    """Return the entries of a session's turns. They are marked if their turn is not on the chain
    any more, or is shared with another session."""
    entries = []
    for turn in turns:
        home = turn.events[0].session
        shown = running if running and running.turn == turn.turn else None
        omissions = omissions_of(turn.left_out)
        found = entries_of(turn.events, shown, since=turn.begins_at, omissions=omissions)
        entries += [
            msgspec.structs.replace(entry, left=turn.left, session="" if home == session else home)
            for entry in found
        ]
    return entries


def user_entry(spoken: SpokenEvent, at: int, places: FileEnds = NOWHERE) -> Entry:
    """Return the entry of a person's message. `places` say what became of its files."""
    return Entry(
        id=spoken.message,
        role="user",
        text=spoken.text,
        turn=spoken.turn,
        at=at,
        attachments=shown_attachments(as_fetched(spoken, places)),
    )


def assistant_entry(said: AssistantSaid, at: int) -> Entry:
    return Entry(
        id=said.message,
        role="assistant",
        text=said.text,
        turn=said.turn,
        at=at,
        tool_calls=said.calls,
        attachments=said.attachments,
        outcome=Outcome.INTERRUPTED if said.is_interrupted else None,
        origin=said.origin,
    )


def notice_entry(posted: NoticePosted | CommandTaken, at: int) -> Entry:
    """Return the entry of what the gateway itself has said: a notice, or the reply to a command."""
    if isinstance(posted, CommandTaken):
        return Entry(
            id=posted.message,
            role="notice",
            text=posted.reply,
            turn=None,
            at=at,
            name=posted.command,
            choices=posted.choices,
        )
    return Entry(
        id=posted.message,
        role="notice",
        text=posted.text,
        turn=posted.about,
        at=at,
        choices=posted.choices,
        question=posted.question or "",
    )


def _entries(recorded: Recorded, names: Mapping[CallId, str], places: FileEnds) -> Iterable[Entry]:
    """Yield the entry that an event makes, if any. A turn of kind SENT has no user message."""
    match recorded.event:
        case TurnQueued(kind=kind) if kind == TurnKind.SENT:
            return
        case TurnQueued() | MessageJoined() | SteerTaken() as spoken:
            yield user_entry(spoken, recorded.at, places)
        case AssistantSaid() as said:
            yield assistant_entry(said, recorded.at)
        case ToolFinished() as tool:
            yield Entry(
                id=tool.call,
                role="tool",
                text=tool.result,
                turn=tool.turn,
                at=recorded.at,
                name=tool.name or names.get(tool.call, ""),
                state=call_state(tool.ending),
                attachments=tool.attachments,
                whole=tool.whole or "",
                size=tool.size,
            )
        case _:
            return


def _with_outcome(
    entries: list[PlacedEntry], settled: Recorded, *, took_ms: int
) -> list[PlacedEntry]:
    """Return the entries with the turn's outcome in the last assistant entry, added if there is
    none."""
    event = settled.event
    assert isinstance(event, TurnSettled)
    if entries and entries[-1].entry.role == "assistant":
        place, last = entries.pop()
    else:
        empty = Entry(
            id=f"{event.turn}{_END}", role="assistant", text="", turn=event.turn, at=settled.at
        )
        place, last = settled.seq, empty
    ended = msgspec.structs.replace(
        last,
        outcome=event.outcome,
        reason=event.reason,
        detail=event.detail,
        renews_at=renewal_of(event.reason, settled.at),
        usage=usage_shown(event.agent, event.usage, event.cost, took_ms=took_ms),
        timings=event.timings,
        agent_state=event.agent_state,
    )
    return [*entries, PlacedEntry(place, ended)]


def worked_ms(turn: Iterable[Recorded]) -> int:
    """Return how long the attempts of a turn worked, without the waits between them."""
    total, began = 0, None
    for recorded in turn:
        match recorded.event:
            case TurnStarted():
                began = recorded.at
            case AttemptInterrupted() | AnswerAwaited() | WorkDelegated() | TurnSettled() if (
                began is not None
            ):
                total += max(recorded.at - began, 0)
                began = None
            case _:
                pass
    return total


def ended_turn(entry: str) -> str:
    """Return the turn whose empty last entry has this id, or an empty string if the entry is
    another one."""
    return entry.removesuffix(_END) if entry.endswith(_END) else ""


def call_state(ending: CallEnding) -> str:
    """Return the state of a tool call that is over, as people see it."""
    return _STATES.get(ending, FINISHED)


def page(
    entries: Sequence[Entry], *, before: str | None, limit: int, length_max: int
) -> list[Entry]:
    """Return the newest entries, or the newest before the entry `before`: as many as fit, and at
    least one if there are any."""
    end = len(entries)
    if before is not None:
        end = next((n for n, entry in enumerate(entries) if entry.id == before), 0)
    start, length = end, 0
    while start > max(end - limit, 0):
        length += _length(entries[start - 1])
        if length > length_max and start < end:
            break
        start -= 1
    return list(entries[start:end])


def _length(entry: Entry) -> int:
    """Return the number of characters in those fields of an entry that may be long."""
    return (
        len(entry.text)
        + len(entry.detail)
        + sum(len(call.arguments) for call in entry.tool_calls)
        + sum(len(attachment.text) for attachment in entry.attachments)
    )


def parent_of(turn: Iterable[Recorded]) -> TurnId | None:
    """Return the turn that this one continues, or None."""
    started = [recorded.event for recorded in turn if isinstance(recorded.event, TurnStarted)]
    return started[-1].parent if started else None


def reply_text(turn: Iterable[Recorded]) -> str:
    """Return a turn's whole text as it is delivered: attempts and steps joined by blank lines. A
    refused turn says why."""
    said = []
    for recorded in turn:
        match recorded.event:
            case AssistantSaid(text=text):
                said.append(text)
            case TurnSettled(outcome=Outcome.REFUSED, detail=detail):
                said.append(detail)
            case _:
                pass
    return joined(said)


def joined(texts: Iterable[str]) -> str:
    """Join texts by blank lines, and leave out the blank ones."""
    return "\n\n".join(text for text in texts if text.strip())
