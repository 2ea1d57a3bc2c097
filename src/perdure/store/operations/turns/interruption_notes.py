"""Finds what the model must be told about interruptions, and records that it was told.

Whether an interruption was told is stored with the interrupted turn (`told_seq`), not with the turn
that told of it: that one may have been undone, retried, or may lie in another branch. It is written
in the transaction that appends the acknowledgement.
"""

from collections.abc import Iterable
from typing import NamedTuple

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import InterruptionAcknowledged, Recorded
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.errands import hears_of
from perdure.domain.turn.recovery import Telling, telling_before, told_by
from perdure.store.operations import journal
from perdure.store.statement import Op, one, run

# Reads what a later turn must know about an earlier one.
_ENDED_TURN = "SELECT outcome, parent_id, prefix, kind, told_seq FROM turns WHERE id = $1"
# Records in the interrupted turn's row up to which seq the model has been told.
_TELL = """
    UPDATE turns SET told_seq = $1
    WHERE id = (SELECT turn_id FROM journal WHERE session_id = $2 AND seq = $1) AND told_seq < $1"""
# How many turns are looked at. A note about older ones would help nobody.
_TURNS_MAX = 10


class TurnsBefore(NamedTuple):
    """Holds what a new turn must know about the turns before it. `prefix` is what the last request
    began with. `telling` is what the model has not been told about turns since the last one that
    was done: what came after an interruption may never have reached the model."""

    prefix: str
    telling: Telling


class _Ended(NamedTuple):
    """Holds an earlier turn that a new one looks back at."""

    outcome: str | None
    parent: TurnId | None
    prefix: str
    kind: str
    told_seq: int


def looking_back(head: TurnId | None, *, kind: TurnKind) -> Op[TurnsBefore]:
    """Look back from a new turn of this kind, along the chain that begins at `head`."""
    prefix, telling = "", Telling()
    for _ in range(_TURNS_MAX):
        ended = (yield from one(_Ended, _ENDED_TURN, head)) if head is not None else None
        if head is None or ended is None:
            break
        prefix = prefix or ended.prefix
        earlier = TurnKind(ended.kind)
        if ended.outcome == Outcome.DONE and not earlier.is_unasked:  # the model has seen it
            break
        if hears_of(kind, earlier):
            events = yield from journal.of_turn(head)
            telling = telling_before(events, telling, told_seq=ended.told_seq)
        head = ended.parent
    return TurnsBefore(prefix, telling)


def mark_told(recorded: Iterable[Recorded]) -> Op[None]:
    """Record with the interrupted turns which interruptions these events acknowledge."""
    for each in recorded:
        if isinstance(each.event, InterruptionAcknowledged):
            session, seq = told_by(each)
            yield from run(_TELL, seq, session)
