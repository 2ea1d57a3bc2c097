"""Commands that choose another turn to stand at. Nothing is rewritten: what is left behind stays in
the journal, and can be searched."""

from typing import NamedTuple

from perdure.domain.attachments import as_fetched, asked_again, places_of
from perdure.domain.commands import Given
from perdure.domain.errands import RESULT, UNASKED
from perdure.domain.events import (
    SENT,
    AnyEvent,
    Attachment,
    HeadMoved,
    MessageJoined,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.ids import MessageId, TurnId
from perdure.domain.recovery import PERSONAL
from perdure.domain.transcript import joined
from perdure.store.operations import journal, replies
from perdure.store.operations.commands.given import STOPPED_TOO, Taken, end, ids, started
from perdure.store.operations.line import AT_THE_END, look_again, queue_rows
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
NOT_ASKED = "Nothing to retry: the last thing here was sent from elsewhere. /undo takes it back."


def undo(setting: Setting, given: Given) -> Op[Taken]:
    """A turn that runs is stopped and counts as one. What waits stays."""
    left = yield from _left(setting)
    removed = (yield from rows(_BACK, left.head, given.count)) if left.head else []
    if left.head is None or not removed:
        return Taken("Nothing to undo.", left.recorded, left.ended)
    texts = []
    for turn, _ in reversed(removed):
        texts.append(said_in((yield from journal.of_turn(turn))))
        yield from replies.withdraw(turn, setting.stamp)
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
        stopped = f" {STOPPED_TOO}" if running else ""
        return Taken(f"Nothing to redo.{stopped}", recorded, running)
    recorded += yield from move(setting, "redo", known[-1], redo=known[:-1])
    return Taken("Brought back.", recorded, running)


def retry(setting: Setting, given: Given) -> Op[Taken]:
    """Ask the head turn's message again, from where that turn began, and before everything that
    waits."""
    left = yield from _left(setting)
    if left.head is None:
        return Taken("Nothing to retry.", left.recorded, left.ended)
    if (yield from _kind_of(left.head)) == SENT:
        return Taken(NOT_ASKED, left.recorded, left.ended)
    again = yield from ask_again(setting, left.head, "retry")
    return Taken("Asking again.", left.recorded + again, left.ended, turn=setting.fresh.turn)


def _kind_of(turn: TurnId) -> Op[str]:
    first = (yield from journal.of_turn(turn))[0].event
    return first.kind if isinstance(first, TurnQueued) else ""


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
        if isinstance(first, TurnQueued) and first.origin and first.kind not in UNASKED:
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
    yield from replies.withdraw(head, setting.stamp)
    queued = TurnQueued(
        turn=setting.fresh.turn,
        message=MessageId(setting.stamp.mint("msg")),
        text=said_in(events) if text is None else text,
        kind=PERSONAL if first.kind == RESULT else first.kind,
        agent=setting.place.agent or first.agent,
        attachments=_brought_in(events),
        instructions=first.instructions,
        context=first.context,
        tools=first.tools,
        options=first.options,
        persona=setting.place.persona,
        origin=head,
        by=first.by,
        sender=first.sender,
        via=setting.place.via,
        traits=first.traits,
        continues=first.continues,
    )
    recorded = yield from move(setting, reason, stands[0], then=[queued])
    places = {queued.message: waiting[0] - 1} if waiting else AT_THE_END
    yield from queue_rows(recorded, setting.stamp, places=places)
    yield from look_again(setting.session, setting.stamp)
    return recorded


def _brought_in(turn: list[Recorded]) -> tuple[Attachment, ...]:
    """The files of a turn, which are here by now; what was lost is tried once more."""
    places = places_of(turn)
    brought = [each for spoken in spoken_in(turn) for each in as_fetched(spoken, places)]
    return tuple(asked_again(each) for each in brought)


def said_in(turn: list[Recorded]) -> str:
    """What the person said in a turn, as it stands now; or what was sent there in it."""
    amended = {r.event.message: r.event.text for r in turn if isinstance(r.event, TurnAmended)}
    return joined(amended.get(each.message, _words(each)) for each in spoken_in(turn))


def _words(spoken: TurnQueued | MessageJoined | SteerTaken) -> str:
    return spoken.answer if isinstance(spoken, TurnQueued) and spoken.kind == SENT else spoken.text


def spoken_in(turn: list[Recorded]) -> list[TurnQueued | MessageJoined | SteerTaken]:
    return [r.event for r in turn if isinstance(r.event, TurnQueued | MessageJoined | SteerTaken)]


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
