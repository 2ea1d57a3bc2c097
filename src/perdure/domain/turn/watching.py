"""Decides what a watcher of a conversation is told, and where a watcher continues after a lost
connection.

A position names the last thing that the watcher has seen: the journal entry, how many of its news,
and how far into the message that is being written. Positions sort as text. A watcher who comes back
to a position gets the same news as one who stayed, except that states in between are skipped,
because only the present state matters.

If a conversation goes on in another session, the watcher follows it there: first the rest of the
session that was left, and then what is written to the new one from then on. The deltas of a
message, joined, are its text. If a message says more than its deltas so far, the rest comes as one
more delta before the message.
"""

from typing import Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    MessageJoined,
    NoticePosted,
    Recorded,
    SteerAccepted,
    ToolFinished,
    ToolStarted,
    TurnAmended,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.model.agent_state import UNTOLD, AgentState
from perdure.domain.journal.model.timings import UNTIMED, Timings
from perdure.domain.journal.model.usage import AnswerUsage, usage_shown
from perdure.domain.journal.open_calls import OpenCalls
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived, WorkDelegated
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.journal.transcript import (
    FINISHED,
    UNKNOWN,
    Entry,
    assistant_entry,
    call_state,
    notice_entry,
    user_entry,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.renewals import renewal_of
from perdure.domain.tools.asking import AGENT_LOST, ALLOW, DENY
from perdure.domain.turn.standing import SessionStanding

ALL_SUBS: Final = 99
# Events after which the watcher has seen nothing of the message being written: it is over, or a new
# one begins. TurnSettled is not among them: that turn may have waited behind the one that speaks.
_ENDERS: Final = (AssistantSaid, TurnStarted)
_ANSWER_STATES: Final = {ALLOW: "allowed", DENY: "denied"}
_OVER_STATES: Final = {"deadline": "expired", AGENT_LOST: "withdrawn"}


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """Brings text of the message that is being written, from `offset` (in code points) on. It is
    already durable."""

    turn: TurnId
    message: MessageId
    offset: int
    text: str


class ToolProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Says how far a tool call is. It is shown as it comes, and stored nowhere. `name` is set if
    the call is not in the journal yet, because an external agent makes it by itself."""

    turn: TurnId
    call: str
    text: str
    name: str = ""


class ToolNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Says that a tool call has started or ended, or how far it is. `ended` says how, if it has not
    just returned a result. A long result is kept as the file `whole`, of `size` characters, and
    `result` is its beginning."""

    turn: TurnId
    call: str
    name: str
    state: str
    ended: str = ""
    result: str | None = None
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    whole: str = ""
    size: int = 0


class QuestionNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Says that a person is asked whether a call may run, or something that the agent wants to
    know; or that such a question is closed."""

    id: str
    turn: TurnId
    tool: str
    args: str
    deadline: int
    state: str
    kind: str = ""
    text: str = ""
    choices: tuple[str, ...] = ()
    answer: str = ""
    by: str = ""


class OutcomeNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Says how a turn ended."""

    turn: TurnId
    outcome: str
    reason: str = ""
    detail: str = ""
    ending: str = ""
    renews_at: int = 0
    usage: AnswerUsage | None = None
    timings: Timings = UNTIMED
    agent_state: AgentState = UNTOLD


class StateNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Says where the conversation stands now."""

    state: str
    session: str
    head: TurnId | None
    turn: TurnId | None
    queued: int
    resume_reason: str = ""
    choices: tuple[str, ...] = ()
    title: str = ""


News = Entry | Delta | ToolNews | QuestionNews | OutcomeNews | StateNews
NAMES: Final[dict[type[News], str]] = {
    Entry: "message",
    Delta: "delta",
    ToolNews: "tool",
    QuestionNews: "approval",
    OutcomeNews: "outcome",
    StateNews: "state",
}


class Position(msgspec.Struct, frozen=True, order=True):
    """Names a place in what a watcher is told. `sub` counts the news of one journal entry, and
    `offset` the characters of the message that is being written. A new `generation` begins when the
    conversation moves to another session."""

    generation: int
    seq: int
    sub: int = ALL_SUBS
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.generation:06d}-{self.seq:010d}-{self.sub:02d}-{self.offset:09d}"


Told = tuple[Position, News]


class Move(msgspec.Struct, frozen=True):
    """Says that another session became the live one. The session that was `left` has news up to its
    entry `left_seq`, the new one after its entry `seq`."""

    generation: int
    left: SessionId
    left_seq: int
    session: SessionId
    seq: int


class JournalStretch(msgspec.Struct, frozen=True):
    """Marks a stretch of one journal that was written while its session was the live one: after
    `start`, and up to the entry `upto`."""

    start: Position
    session: SessionId
    upto: int


def position(text: str) -> Position:
    """Return the position that a `Last-Event-ID` names. Raises `Rejected` if it names none."""
    try:
        generation, seq, sub, offset = (int(part) for part in text.split("-"))
    except ValueError as error:
        raise Rejected(f"{text!r} is not an event id of this server") from error
    return Position(generation, seq, sub, offset)


def news_of(recorded: Recorded, calls: OpenCalls) -> list[News]:
    """Return what one event means to a watcher."""
    match recorded.event:
        case TurnQueued() | MessageJoined() | SteerAccepted() as spoken:
            is_sent = isinstance(spoken, TurnQueued) and spoken.kind == TurnKind.SENT
            return [] if is_sent else [user_entry(spoken, recorded.at)]
        case TurnAmended() as amended:
            return [
                Entry(
                    id=amended.message,
                    role="user",
                    text=amended.text,
                    turn=amended.turn,
                    at=recorded.at,
                )
            ]
        case AssistantSaid() as said:
            return [assistant_entry(said, recorded.at)]
        case ToolStarted() | ToolFinished() | AnswerAwaited() | AnswerReceived() as event:
            return [_call_news(event, calls)]
        case WorkDelegated(turn=turn, call=call, agent=agent):
            name = calls.name_of(call)
            return [ToolNews(turn=turn, call=call, name=name, state="started", text=agent)]
        case TurnSettled() as settled:
            return [
                OutcomeNews(
                    turn=settled.turn,
                    outcome=settled.outcome,
                    reason=settled.reason,
                    detail=settled.detail,
                    renews_at=renewal_of(settled.reason, recorded.at),
                    usage=usage_shown(settled.agent, settled.usage, settled.cost),
                    timings=settled.timings,
                    agent_state=settled.agent_state,
                )
            ]
        case CommandTaken() | NoticePosted() as posted:
            return [notice_entry(posted, recorded.at)]
        case _:
            return []


def _call_news(
    event: ToolStarted | ToolFinished | AnswerAwaited | AnswerReceived, calls: OpenCalls
) -> ToolNews | QuestionNews:
    """Return what an event means that is about one call, or about a question."""
    match event:
        case ToolStarted(turn=turn, call=call):
            return ToolNews(turn=turn, call=call, name=calls.name_of(call), state="started")
        case ToolFinished():
            return _finished_news(event, event.name or calls.name_of(event.call))
        case AnswerAwaited():
            return _question_news(event)
        case AnswerReceived():
            return _answer_news(event, calls.asked(event.question))


def _finished_news(finished: ToolFinished, name: str) -> ToolNews:
    state = call_state(finished.ending)
    is_known = state in (FINISHED, UNKNOWN)
    return ToolNews(
        turn=finished.turn,
        call=finished.call,
        name=name,
        state=state if is_known else FINISHED,
        ended="" if is_known else state,
        result=finished.result,
        attachments=finished.attachments,
        whole=finished.whole or "",
        size=finished.size,
    )


def _question_news(asked: AnswerAwaited) -> QuestionNews:
    return QuestionNews(
        id=asked.question,
        turn=asked.turn,
        tool=asked.tool,
        args=asked.arguments,
        deadline=asked.deadline,
        state="pending",
        kind=asked.kind,
        text=asked.text,
        choices=asked.choices,
    )


def _answer_news(answered: AnswerReceived, asked: AnswerAwaited | None) -> QuestionNews:
    state = _ANSWER_STATES.get(answered.answer, "answered") if answered.by else answered.reason
    return QuestionNews(
        id=answered.question,
        turn=answered.turn,
        tool=asked.tool if asked else "",
        args=asked.arguments if asked else "",
        deadline=asked.deadline if asked else 0,
        state=_OVER_STATES.get(state, state),
        kind=asked.kind if asked else "",
        answer=answered.answer,
        by=answered.by or "",
    )


def state_of(standing: SessionStanding) -> StateNews:
    """Return the news of a conversation's standing."""
    return StateNews(
        state=standing.state,
        session=standing.session,
        head=standing.head,
        turn=standing.turn,
        queued=standing.queued,
        resume_reason=standing.resume_reason,
        choices=standing.choices,
        title=standing.title,
    )


def told_of(
    recorded: Recorded, *, generation: int, shown: int, calls: OpenCalls
) -> tuple[list[Told], int]:
    """Return the news of one event with their positions, for a watcher who was shown `shown`
    characters of the message that is being written. Also return how many characters of such a
    message are shown afterwards."""
    event, seq = recorded.event, recorded.seq
    after = 0 if isinstance(event, _ENDERS) else shown
    told: list[Told] = []
    if isinstance(event, AssistantSaid) and event.text[shown:]:
        rest = Delta(turn=event.turn, message=event.message, offset=shown, text=event.text[shown:])
        told.append((Position(generation, seq, 0, len(event.text)), rest))
    news = enumerate(news_of(recorded, calls), start=1)
    told += [(Position(generation, seq, sub, after), each) for sub, each in news]
    calls.take(event)
    return told, after


def missed_in(
    leg: JournalStretch, recorded: Recorded, *, shown: int, calls: OpenCalls
) -> tuple[list[Told], int]:
    """Return the same as `told_of`, for a watcher who stands at the beginning of the stretch. The
    watcher may have seen some of the news of the entry at which it stands."""
    start = leg.start
    told, after = told_of(recorded, generation=start.generation, shown=shown, calls=calls)
    unseen = [(at, news) for at, news in told if (at.seq, at.sub) > (start.seq, start.sub)]
    # The position's offset counts what was shown after its entry, unless the message of the entry
    # itself is still to be told.
    is_told = recorded.seq == start.seq and start.sub > 0
    return unseen, shown if is_told else after


def has_seen_state(seen: Position, now: Position) -> bool:
    """Tell whether a watcher who has seen up to `seen` knows the state at `now`. The state is told
    after all other news of an entry, and before what is said next."""
    return (seen.generation, seen.seq, seen.sub) == (now.generation, now.seq, ALL_SUBS)
