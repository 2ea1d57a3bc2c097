"""Commands that choose another turn to stand at. Nothing is rewritten: what is left behind stays in
the journal, and can be searched."""

from typing import NamedTuple

from perdure.domain.commands import Given
from perdure.domain.errands import RESULT
from perdure.domain.events import (
    AnyEvent,
    HeadMoved,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.ids import MessageId, TurnId
from perdure.domain.recovery import PERSONAL
from perdure.store.operations import journal, outbox
from perdure.store.operations.commands.given import Taken, end, ids, started
from perdure.store.operations.line import make_ready, queue_rows
from perdure.store.operations.setting import Setting
from perdure.store.statement import Op, row, rows, run

_BACK = """
    WITH RECURSIVE chain (id, parent_id, depth) AS (
        SELECT id, parent_id, 1 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, chain.depth + 1 FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.depth < $2)
    SELECT id, parent_id FROM chain ORDER BY depth"""
_PARENT = "SELECT parent_id FROM turns WHERE id = $1"
_FIRST_IN_LINE = """
    SELECT queued_seq FROM turns WHERE session_id = $1 AND outcome IS NULL
    ORDER BY queued_seq LIMIT 1"""
_MOVE = "UPDATE sessions SET head_turn = $1, epoch = epoch + 1 WHERE id = $2"
_LAST_MOVE = """
    SELECT session_id, seq, at, kind, body FROM journal
    WHERE session_id = $1 AND kind IN ('head_moved', 'turn_started') ORDER BY seq DESC LIMIT 1"""


def undo(setting: Setting, given: Given) -> Op[Taken]:
    """A turn that runs is stopped and counts as one. What waits stays."""
    left = yield from _left(setting)
    removed = (yield from rows(_BACK, left.head, given.count)) if left.head else []
    if left.head is None or not removed:
        return Taken("Nothing to undo.", left.recorded, left.ended)
    texts = []
    for turn, _ in reversed(removed):
        texts.append(said_in((yield from journal.of_turn(turn))))
        yield from outbox.withdraw(turn, setting.stamp)
    redo = (*(yield from _to_redo(setting)), left.head)
    moved = yield from move(setting, "undo", removed[-1][1], redo=redo)
    what = "Undone" if len(removed) == 1 else f"Undone, {len(removed)} turns"
    reply = f"{what}:\n\n" + "\n\n".join(texts)
    return Taken(reply, left.recorded + moved, left.ended)


def redo(setting: Setting, given: Given) -> Op[Taken]:
    running = started(setting)
    recorded = yield from end(setting, running)
    known = yield from _to_redo(setting)
    if not known:
        return Taken("Nothing to redo.", recorded, running)
    recorded += yield from move(setting, "redo", known[-1], redo=known[:-1])
    return Taken("Brought back.", recorded, running)


def retry(setting: Setting, given: Given) -> Op[Taken]:
    """Ask the head turn's message again, from where that turn began, and before everything that
    waits."""
    left = yield from _left(setting)
    if left.head is None:
        return Taken("Nothing to retry.", left.recorded, left.ended)
    again = yield from ask_again(setting, left.head, "retry")
    return Taken("Asking again.", left.recorded + again, left.ended, turn=setting.fresh.turn)


class Left(NamedTuple):
    """The turn that a command goes back from, and what had to end before."""

    head: TurnId | None
    recorded: list[Recorded]
    ended: tuple[TurnId, ...]


def _left(setting: Setting) -> Op[Left]:
    """A turn that runs is stopped, and is the head then. A turn that was to be asked again and has
    not begun gives way to the one it repeats: else a command said twice would go back twice."""
    running = started(setting)
    if running:
        recorded = yield from end(setting, running)
        return Left(running[0], recorded, running)
    for turn in ids(setting.open_turns[:1]):
        first = (yield from journal.of_turn(turn))[0].event
        if isinstance(first, TurnQueued) and first.origin and first.kind != RESULT:
            recorded = yield from end(setting, [turn])
            return Left(first.origin, recorded, (turn,))
    return Left(setting.place.head, [], ())


def ask_again(
    setting: Setting, head: TurnId, reason: str, *, text: str | None = None
) -> Op[list[Recorded]]:
    """Stand where the turn `head` began, and queue its message again, media included; with other
    words where its author has changed them."""
    events = yield from journal.of_turn(head)
    first = next(r.event for r in events if isinstance(r.event, TurnQueued))
    stands = yield from row(_PARENT, head)
    waiting = yield from row(_FIRST_IN_LINE, setting.session)
    assert stands is not None
    yield from outbox.withdraw(head, setting.stamp)
    queued = TurnQueued(
        turn=setting.fresh.turn,
        message=MessageId(setting.stamp.mint("msg")),
        text=said_in(events) if text is None else text,
        kind=PERSONAL if first.kind == RESULT else first.kind,
        agent=setting.place.agent or first.agent,
        attachments=tuple(a for spoken in spoken_in(events) for a in spoken.attachments),
        instructions=first.instructions,
        context=first.context,
        tools=first.tools,
        persona=setting.place.persona,
        origin=head,
    )
    recorded = yield from move(setting, reason, stands[0], then=[queued])
    yield from queue_rows(recorded, place=waiting[0] - 1 if waiting else None)
    yield from make_ready(setting.session, setting.stamp)
    return recorded


def said_in(turn: list[Recorded]) -> str:
    """What the person said in a turn, as it stands now."""
    amended = {r.event.message: r.event.text for r in turn if isinstance(r.event, TurnAmended)}
    return "\n\n".join(amended.get(each.message, each.text) for each in spoken_in(turn))


def spoken_in(turn: list[Recorded]) -> list[TurnQueued | SteerTaken]:
    return [r.event for r in turn if isinstance(r.event, TurnQueued | SteerTaken)]


def move(
    setting: Setting,
    reason: str,
    head: TurnId | None,
    *,
    redo: tuple[TurnId, ...] = (),
    then: list[AnyEvent] | None = None,
) -> Op[list[Recorded]]:
    moved = HeadMoved(by=setting.update.principal, reason=reason, head=head, redo=redo)
    events: list[AnyEvent] = [moved, *(then or [])]
    yield from run(_MOVE, head, setting.session)
    return (
        yield from journal.append(setting.dialect, setting.session, events, at=setting.stamp.at)
    )


def _to_redo(setting: Setting) -> Op[tuple[TurnId, ...]]:
    """The heads that undos have left, unless a turn has started since."""
    found = yield from row(_LAST_MOVE, setting.session)
    last = journal.read_row(found).event if found else None
    return last.redo if isinstance(last, HeadMoved) else ()
