"""Keeps the windows that servers have named, and makes room for turns that are too long."""

from perdure.domain.errors import Corrupt
from perdure.domain.ids import TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.session_events import (
    Compacted,
    CompactionFailed,
    RoomSought,
    WindowExceeded,
)
from perdure.ports.turns.room import LearnedWindow, RoomMade
from perdure.ports.turns.turns import TurnLease
from perdure.store.operations import journal
from perdure.store.operations.sessions import compaction
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, many, run

# Stores the window of an agent's model. The newest refusal is right: the server may have been
# started again with another window.
_LEARN = """
    INSERT INTO model_windows (agent, model, tokens, learned_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent, model) DO UPDATE SET
        tokens = excluded.tokens, learned_at = excluded.learned_at"""
# Reads all windows that are known.
_LEARNED = "SELECT agent, model, tokens FROM model_windows ORDER BY agent, model"


def learn(exceeded: WindowExceeded, *, at: int) -> Op[None]:
    """Store the window that a refusal has named, if it has named one."""
    if exceeded.window:
        yield from run(_LEARN, exceeded.agent, exceeded.model, exceeded.window, at)


def learned() -> Op[list[LearnedWindow]]:
    """Return the windows that are known."""
    return (yield from many(_window, _LEARNED))


def _window(agent: str, model: str, tokens: int) -> LearnedWindow:
    return LearnedWindow(agent=agent, model=model, tokens=tokens)


def make(lease: TurnLease, made: RoomMade, stamp: Stamp) -> Op[list[Recorded]]:
    """Apply a running turn's summary, and append what came of it. After a crash both are there or
    neither, so the next attempt neither summarises again nor asks without the summary."""
    yield from journal.fence(lease.session, lease.epoch)
    recorded: list[Recorded] = []
    sought = RoomSought(turn=lease.turn, problem=made.problem, detail=made.detail)
    if made.upto is not None:
        summary = compaction.WrittenSummary(
            errand=lease.turn,
            session=lease.session,
            upto=made.upto,
            text=made.summary,
            failure=made.problem,
            cost=made.cost,
            tokens=made.tokens,
        )
        recorded = yield from compaction.apply(summary, stamp)
        sought = _came_of(lease.turn, recorded[-1], made)
    return recorded + (yield from journal.append(lease.session, [sought], at=stamp.at))


def _came_of(turn: TurnId, last: Recorded, made: RoomMade) -> RoomSought:
    """Return what came of a summary, by the event that records it."""
    match last.event:
        case Compacted(message=message):
            return RoomSought(turn=turn, compaction=message)
        case CompactionFailed(reason=reason):
            return RoomSought(turn=turn, problem=reason, detail=made.detail)
        case other:
            raise Corrupt(f"a summary left {type(other).__name__}; run `perdure verify`")
