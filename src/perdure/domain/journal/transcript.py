"""From journal to what a person reads.

Entries are what stands at the head: user messages, assistant messages with their tool calls, tool
results, oldest first. Turns that only wait, command replies and summaries are not in it. What was
sent here from elsewhere is an assistant entry with an `origin`, and nobody's message. The last
assistant entry of a settled turn carries the turn's outcome; a turn that ended without text is an
empty assistant entry, so that no ending is invisible.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from perdure.domain.ids import CallId, MessageId, SessionId, TurnId
from perdure.domain.journal.attachments import (
    NOWHERE,
    FileEnds,
    SpokenEvent,
    as_fetched,
    places_of,
    shown,
)
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    MessageJoined,
    Recorded,
    SteerTaken,
    ToolCall,
    ToolFinished,
    TurnAmended,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.records import ToldTurn
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Outcome

# What the empty entry of a turn that said nothing is called, behind the turn's own id.
_END: Final = ".end"


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    origin: str = ""
    # Why it does not stand any more; the session it is shared with. Both only where a session is
    # shown as a whole.
    left: str = ""
    session: str = ""


class RunningText(msgspec.Struct, frozen=True, kw_only=True):
    """The flushed text of the message that is being written."""

    turn: TurnId
    message: MessageId
    text: str
    at: int


def entries_of(
    turn: Sequence[Recorded], running: RunningText | None = None, *, since: int = 0
) -> list[Entry]:
    """One turn's entries, of facts from the number `since` on. A turn that never started has none:
    it is on no chain."""
    if not any(isinstance(recorded.event, TurnStarted) for recorded in turn):
        return []
    names = {
        call.id: call.name
        for recorded in turn
        if isinstance(recorded.event, AssistantSaid)
        for call in recorded.event.calls
    }
    amended = {r.event.message: r.event.text for r in turn if isinstance(r.event, TurnAmended)}
    places = places_of(turn)
    entries = [
        msgspec.structs.replace(entry, text=amended.get(MessageId(entry.id), entry.text))
        for recorded in turn
        if recorded.seq >= since
        for entry in _entries(recorded, names, places)
    ]
    settled = next((r for r in turn if isinstance(r.event, TurnSettled)), None)
    if settled is not None:
        return _with_outcome(entries, settled)
    if running is not None:
        entries.append(
            Entry(
                id=running.message,
                role="assistant",
                text=running.text,
                turn=running.turn,
                at=running.at,
            )
        )
    return entries


def entries_of_session(
    turns: Sequence[ToldTurn], session: SessionId, running: RunningText | None
) -> list[Entry]:
    """The entries of a session's turns, marked where a turn does not stand any more, or is shared
    with another session."""
    entries = []
    for turn in turns:
        home = turn.events[0].session
        shown = running if running and running.turn == turn.turn else None
        entries += [
            msgspec.structs.replace(entry, left=turn.left, session="" if home == session else home)
            for entry in entries_of(turn.events, shown, since=turn.begins_at)
        ]
    return entries


def user_entry(spoken: SpokenEvent, at: int, places: FileEnds = NOWHERE) -> Entry:
    return Entry(
        id=spoken.message,
        role="user",
        text=spoken.text,
        turn=spoken.turn,
        at=at,
        attachments=shown(as_fetched(spoken, places)),
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


def _entries(recorded: Recorded, names: Mapping[CallId, str], places: FileEnds) -> Iterable[Entry]:
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
                name=names.get(tool.call, ""),
                state=call_state(tool.ending),
            )
        case _:
            return


def _with_outcome(entries: list[Entry], settled: Recorded) -> list[Entry]:
    event = settled.event
    assert isinstance(event, TurnSettled)
    if entries and entries[-1].role == "assistant":
        entries[-1] = msgspec.structs.replace(
            entries[-1], outcome=event.outcome, reason=event.reason, detail=event.detail
        )
        return entries
    empty = Entry(
        id=f"{event.turn}{_END}",
        role="assistant",
        text="",
        turn=event.turn,
        at=settled.at,
        outcome=event.outcome,
        reason=event.reason,
        detail=event.detail,
    )
    return [*entries, empty]


def ended_turn(entry: str) -> str:
    """The turn whose end is an entry of its own under this id; else empty."""
    return entry.removesuffix(_END) if entry.endswith(_END) else ""


def call_state(ending: CallEnding) -> str:
    """How a call that is over looks to a person."""
    return "unknown" if ending is CallEnding.UNKNOWN else "finished"


def page(
    entries: Sequence[Entry], *, before: str | None, limit: int, length_max: int
) -> list[Entry]:
    """The newest entries, or the newest before one of them: as many as fit, and one at least."""
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
    """The characters of an entry that may be many."""
    return (
        len(entry.text)
        + len(entry.detail)
        + sum(len(call.arguments) for call in entry.tool_calls)
        + sum(len(attachment.text) for attachment in entry.attachments)
    )


def parent_of(turn: Iterable[Recorded]) -> TurnId | None:
    """The turn that this one continues, if there is one."""
    started = [recorded.event for recorded in turn if isinstance(recorded.event, TurnStarted)]
    return started[-1].parent if started else None


def reply_text(turn: Iterable[Recorded]) -> str:
    """The turn's whole text, as it is delivered: attempts and steps joined by a blank line. A
    refusal says why."""
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
    return "\n\n".join(text for text in texts if text.strip())
