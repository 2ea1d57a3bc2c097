"""Writes the log lines about a node's own life.

Normally a node logs its start, the turns that did not end well, and what people are asked. With
`-v` it also logs when each turn was accepted, begun and settled. Lines carry ids, never what people
said, and addresses without what may be secret in them.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from perdure import __version__
from perdure.app.config.environment import DATABASE
from perdure.app.config.loading import AgentConfig, Config
from perdure.app.config.values import (
    ChatAgentSection,
)
from perdure.app.logs import START
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import (
    AttemptInterrupted,
    Recorded,
    ToolFinished,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived
from perdure.domain.outcomes import CallEnding, Outcome, StopReason
from perdure.domain.tools.asking import DENY
from perdure.domain.turn.overflow import without_excerpt
from perdure.domain.urls import shown_database, shown_url
from perdure.store.migrations import Applied

# How much of an error's text a line contains.
DETAIL_MAX: Final = 300
# How many running turns are remembered, to log how long they took.
_BEGUN_MAX: Final = 100_000
_BAD: Final = frozenset({Outcome.FAILED, Outcome.SUSPENDED, Outcome.INTERRUPTED})
# The detail of an ending that brings none of its own.
_DETAILS: Final = {
    Outcome.SUSPENDED: "its attempts were interrupted too often in a row, so it is given up; "
    "`perdure explain` with its id shows each of them",
}
log = structlog.get_logger("node")
turn_log = structlog.get_logger("turn")


class LifeLog:
    """Logs what becomes of turns. The feed calls it with every fact once that is durable."""

    def __init__(self) -> None:
        self._is_verbose = logging.getLogger("turn").isEnabledFor(logging.DEBUG)
        self._begun_at: dict[TurnId, int] = {}

    def observe(self, recorded: Recorded) -> None:
        """Log one fact, if it is worth a line."""
        session = recorded.session
        match recorded.event:
            case TurnQueued(turn=turn, kind=kind) if self._is_verbose:
                turn_log.debug("turn accepted", turn=turn, session=session, kind=kind)
            case TurnStarted(turn=turn, attempt=attempt):
                self._begin(turn, recorded.at)
                if self._is_verbose:
                    turn_log.debug("turn begun", turn=turn, session=session, attempt=attempt)
            case AttemptInterrupted(turn=turn, attempt=attempt, reason=reason):
                self._begun_at.pop(turn, None)
                turn_log.info(
                    "attempt interrupted",
                    turn=turn,
                    session=session,
                    attempt=attempt,
                    reason=reason,
                )
            case TurnRequeued(turn=turn, reason=reason):
                turn_log.info("turn recovered", turn=turn, session=session, reason=reason)
            case TurnSettled() as settled:
                self._settled(recorded, settled)
            case AnswerAwaited() | AnswerReceived() as event:
                _asked_or_answered(event, session)
            case ToolFinished(turn=turn, call=call, ending=CallEnding.UNKNOWN):
                turn_log.warning(
                    "nobody knows whether a call has happened",
                    call=call,
                    turn=turn,
                    session=session,
                )
            case _:
                pass

    def _begin(self, turn: TurnId, at: int) -> None:
        if len(self._begun_at) >= _BEGUN_MAX:
            # Turns that another node settled are never removed one by one. Losing the rest costs
            # only their durations in the log.
            self._begun_at.clear()
        self._begun_at[turn] = at

    def _settled(self, recorded: Recorded, settled: TurnSettled) -> None:
        """Log the end of a turn: a bad one as a warning, others only with `-v`."""
        begun_at = self._begun_at.pop(settled.turn, None)
        is_bad = settled.outcome in _BAD
        if not is_bad and not self._is_verbose:
            return
        detail = settled.detail or _DETAILS.get(settled.outcome, "")
        if settled.reason == StopReason.CONTEXT_EXCEEDED:
            detail = without_excerpt(detail)
        fields = {
            "turn": settled.turn,
            "session": recorded.session,
            "agent": settled.agent,
            "reason": settled.reason,
            "detail": " ".join(detail.split())[:DETAIL_MAX] if is_bad else "",
            "ms": None if begun_at is None else recorded.at - begun_at,
        }
        said = {key: value for key, value in fields.items() if value not in ("", None)}
        say = turn_log.warning if is_bad else turn_log.debug
        say(f"turn {settled.outcome}", **said)


def _asked_or_answered(event: AnswerAwaited | AnswerReceived, session: SessionId) -> None:
    """Log that people are asked something, or how that ended. An answer in words is not logged."""
    about = {"question": event.question, "turn": event.turn, "session": session}
    match event:
        case AnswerAwaited(kind=kind, tool=tool, call=call):
            turn_log.info("question asked", **about, kind=kind, tool=tool, call=call)
        case AnswerReceived(by=None, reason="deadline"):
            turn_log.info("question expired", **about)
        case AnswerReceived(by=None, reason="agent_lost"):
            turn_log.warning("question void", **about, reason="the agent that asked was lost")
        case AnswerReceived(by=None, reason=reason):
            turn_log.warning("question undeliverable", **about, reason=reason)
        case AnswerReceived(by=by, scope=scope, answer=answer):
            verdict = "allowed" if scope else "denied" if answer == DENY else "answered"
            lasting = {"scope": scope} if scope else {}
            turn_log.info(f"question {verdict}", **about, by=by, **lasting)


def tell_of_store(trouble: str, lasted_s: float | None) -> None:
    """Log once when the store gets into trouble, and once when that is over. The second line
    repeats the cause: on a full disk the first may not have been written."""
    if lasted_s is None:
        log.error("the store refuses writes, so no message is accepted", error=trouble)
    else:
        log.info("the store takes writes again", after_s=round(lasted_s, 1), error=trouble)


def tell_of_migrations(applied: Sequence[Applied]) -> None:
    """Log one line for each migration, or one for a new database."""
    if applied and all(each.is_new for each in applied):
        log.info("a new database was made", schema=applied[-1].number)
        return
    for each in applied:
        log.info("migration applied", number=each.number, name=each.name, copy=each.copy)


def tell_of_start(
    config: Config, agents: Mapping[str, AgentConfig], *, home: Path, node: str, url: str
) -> None:
    """Log what was started, and where."""
    structlog.get_logger(START).info(
        "started",
        version=__version__,
        node=node,
        home=str(home),
        store=_store(config, home),
        url=url,
        agents=[_agent(name, each) for name, each in agents.items()],
        platforms=list(config.adapters),
    )


def _agent(name: str, config: AgentConfig) -> str:
    if not isinstance(config, ChatAgentSection):
        return f"{name} ({config.__struct_config__.tag})"
    return f"{name} (chat, {config.model} at {shown_url(config.base_url)})"


def _store(config: Config, home: Path) -> str:
    if config.store.is_sqlite:
        return f"sqlite {home / DATABASE}"
    return shown_database(config.store.url.reveal())
