"""Handles commands that choose another head: undo, redo, retry and edit.

Nothing is rewritten: the turns that are left behind stay in the journal and can be searched.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.domain.content.forwards import ForwardedText
from perdure.domain.ids import MessageId, TurnId
from perdure.domain.inbound.commands import COMMANDS, COUNT_MAX, Given, turn_and_words
from perdure.domain.journal.attachments import as_fetched, asked_again, places_of
from perdure.domain.journal.events import (
    AnyEvent,
    Attachment,
    Recorded,
    ToolFinished,
    TurnQueued,
)
from perdure.domain.journal.session_events import HeadMoved
from perdure.domain.journal.spoken import said_in, spoken_events
from perdure.domain.kinds import UNASKED, TurnKind
from perdure.domain.sayings.saying import in_one_line, worded
from perdure.domain.tools.callers import results_in
from perdure.store.operations import journal
from perdure.store.operations.commands.command_result import (
    STOPPED_TOO,
    CommandResult,
    end,
    ids,
    started,
)
from perdure.store.operations.delivery import replies
from perdure.store.operations.turn_context import TurnContext
from perdure.store.operations.turns.session_queue import AT_THE_END, look_again, queue_rows
from perdure.store.statement import Op, exists, many, one, run

# Finds the turns from a head back, up to a number.
_BACK = """
    WITH RECURSIVE chain (id, parent_id, depth) AS (
        SELECT id, parent_id, 1 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, chain.depth + 1 FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.depth < $2)
    SELECT id, parent_id FROM chain ORDER BY depth"""
# Tells whether a turn is among so many from a head back.
_ON_CHAIN = """
    WITH RECURSIVE chain (id, parent_id, depth) AS (
        SELECT id, parent_id, 1 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, chain.depth + 1 FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.depth < $2)
    SELECT 1 FROM chain WHERE id = $3"""
# Finds the parent of a turn.
_PARENT = "SELECT parent_id FROM turns WHERE id = $1"
# Finds the place of the first turn in a session's line.
_FIRST_IN_LINE = """
    SELECT queued_seq FROM turns WHERE session_id = $1 AND outcome IS NULL
    ORDER BY queued_seq LIMIT 1"""
# Moves a session's head. The epoch stays: ending the running turn has moved it already, and another
# turn that runs now must not be fenced.
_MOVE = "UPDATE sessions SET head_turn = $1 WHERE id = $2"
# Reads the last undo or redo of a session, or a turn that started after it.
_LAST_MOVE = f"""
    SELECT {journal.COLUMNS} FROM journal
    WHERE session_id = $1 AND kind IN ('head_moved', 'turn_started') ORDER BY seq DESC LIMIT 1"""
NOT_ASKED = worded(
    "Nothing to retry: the last thing here was sent from elsewhere. /undo takes it back."
)


class _Back(NamedTuple):
    turn: TurnId
    parent: TurnId | None


class _Stands(NamedTuple):
    """Holds the parent of a turn, which may be None."""

    parent: TurnId | None


def undo(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Take back turns. A running turn is stopped and counts as one; waiting turns stay."""
    left = yield from _left(context)
    removed = (yield from many(_Back, _BACK, left.head, given.count)) if left.head else []
    if left.head is None or not removed:
        return CommandResult(worded("Nothing to undo."), left.recorded, left.ended)
    texts = []
    for each in reversed(removed):
        texts.append(said_in((yield from journal.of_turn(each.turn))).text)
        yield from replies.withdraw(each.turn, context.stamp)
    redo = (*(yield from _to_redo(context)), left.head)
    moved = yield from move(context, "undo", removed[-1].parent, redo=redo)
    count, words = len(removed), "\n\n".join(texts)
    reply = worded("Undone, {count} turns:\n\n{words}", count=count, words=words)
    if count == 1:
        reply = worded("Undone:\n\n{words}", words=words)
    return CommandResult(reply, left.recorded + moved, left.ended)


def redo(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Return to the head that the last undo has left."""
    running = started(context)
    recorded = yield from end(context, running)
    known = yield from _to_redo(context)
    if not known:
        told = in_one_line(worded("Nothing to redo."), STOPPED_TOO if running else "")
        return CommandResult(told, recorded, running)
    recorded += yield from move(context, "redo", known[-1], redo=known[:-1])
    return CommandResult(worded("Brought back."), recorded, running)


def retry(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Ask a message again, from where its turn began, before everything that waits: that of the
    head turn, or that of a named turn before it."""
    meant, words = turn_and_words(given.arguments)
    if words:
        return CommandResult(
            worded("Only the id of a turn may follow /retry. /edit takes other words.")
        )
    return (yield from _again(context, meant, "retry"))


def edit(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Ask a message again in other words, as `retry` does."""
    meant, words = turn_and_words(given.arguments)
    if not words:
        return CommandResult(
            worded("The new words are missing. {usage}", usage=COMMANDS["edit"].usage)
        )
    return (yield from _again(context, meant, "edit", words=ForwardedText(words)))


def _again(
    context: TurnContext, meant: TurnId, reason: str, *, words: ForwardedText | None = None
) -> Op[CommandResult]:
    """Ask the message of a turn again; an empty id means the turn at the head."""
    # A turn that is not there must not cost the one that runs.
    tip = next(iter(started(context)), context.place.head)
    if meant and (tip is None or not (yield from exists(_ON_CHAIN, tip, COUNT_MAX, meant))):
        return CommandResult(
            worded(
                "There is no turn {turn} on the way to here. Only one of the last {count:,} can be "
                "asked again; it may have been undone.",
                turn=meant,
                count=COUNT_MAX,
            )
        )
    left = yield from _left(context)
    if left.head is None:
        return CommandResult(worded("Nothing to retry."), left.recorded, left.ended)
    target = meant or left.head
    if (yield from _kind_of(target)) == TurnKind.SENT:
        return CommandResult(NOT_ASKED, left.recorded, left.ended)
    for each in (yield from many(_Back, _BACK, left.head, COUNT_MAX)):
        if each.turn == target:
            break
        yield from replies.withdraw(each.turn, context.stamp)
    again = yield from ask_again(context, target, reason, words=words)
    return CommandResult(
        worded("Asking again."), left.recorded + again, left.ended, turn=context.fresh.turn
    )


def _kind_of(turn: TurnId) -> Op[str]:
    """Return the kind of a turn."""
    first = (yield from journal.of_turn(turn))[0].event
    return first.kind if isinstance(first, TurnQueued) else ""


class Left(NamedTuple):
    """Holds the turn that a command goes back from, and what was ended before."""

    head: TurnId | None
    recorded: list[Recorded]
    ended: tuple[TurnId, ...]


def _left(context: TurnContext) -> Op[Left]:
    """Return the turn to go back from. A running turn is stopped and becomes the head. A turn that
    asks again and has not begun is ended, and the turn it repeats is returned: otherwise a command
    given twice would go back twice."""
    running = started(context)
    if running:
        recorded = yield from end(context, running)
        return Left(running[0], recorded, running)
    for turn in ids(context.open_turns[:1]):
        first = (yield from journal.of_turn(turn))[0].event
        if isinstance(first, TurnQueued) and first.origin and first.kind not in UNASKED:
            recorded = yield from end(context, [turn])
            return Left(first.origin, recorded, (turn,))
    return Left(context.place.head, [], ())


def ask_again(
    context: TurnContext, head: TurnId, reason: str, *, words: ForwardedText | None = None
) -> Op[list[Recorded]]:
    """Move the head to where the turn `head` began, and queue its message again with its files;
    with other words if its author has changed them."""
    events = yield from journal.of_turn(head)
    first = next(r.event for r in events if isinstance(r.event, TurnQueued))
    stands = yield from one(_Stands, _PARENT, head)
    first_in_line = yield from one(int, _FIRST_IN_LINE, context.session)
    assert stands is not None
    words = words or said_in(events)
    yield from replies.withdraw(head, context.stamp)
    queued = TurnQueued(
        turn=context.fresh.turn,
        message=MessageId(context.stamp.mint("msg")),
        text=words.text,
        kind=TurnKind.MESSAGE if first.kind == TurnKind.RESULT else first.kind,
        agent=context.place.answering or first.agent,
        attachments=_brought_in(events),
        instructions=first.instructions,
        context=first.context,
        tools=first.tools,
        options=first.options,
        persona=context.place.speaking_as,
        effort=context.place.effort,
        origin=head,
        by=first.by,
        sender=first.sender,
        via=context.place.via,
        traits=first.traits,
        continues=first.continues,
        passed_on=words.passed_on,
        overheard=first.overheard,
        may_be_silent=first.may_be_silent,
    )
    then: list[AnyEvent] = [queued, *_results_again(events, queued.turn)]
    recorded = yield from move(context, reason, stands.parent, then=then)
    places = AT_THE_END if first_in_line is None else {queued.message: first_in_line - 1}
    yield from queue_rows(recorded, context.stamp, places=places)
    yield from look_again(context.session, context.stamp)
    return recorded


def _results_again(turn: list[Recorded], again: TurnId) -> list[ToolFinished]:
    """Return the results that came with the message of a turn, for the turn that asks again."""
    return [msgspec.structs.replace(result, turn=again) for result in results_in(turn)]


def _brought_in(turn: list[Recorded]) -> tuple[Attachment, ...]:
    """Return the files of a turn as they were fetched. Lost files are tried once more."""
    places = places_of(turn)
    brought = [each for spoken in spoken_events(turn) for each in as_fetched(spoken, places)]
    return tuple(asked_again(each) for each in brought)


def move(
    context: TurnContext,
    reason: str,
    head: TurnId | None,
    *,
    redo: tuple[TurnId, ...] = (),
    then: Sequence[AnyEvent] = (),
) -> Op[list[Recorded]]:
    """Move the session's head and append the event, followed by `then`. `redo` holds the heads that
    can be redone."""
    moved = HeadMoved(by=context.update.principal, reason=reason, head=head, redo=redo)
    events: list[AnyEvent] = [moved, *then]
    yield from run(_MOVE, head, context.session)
    return (yield from journal.append(context.session, events, at=context.stamp.at))


def _to_redo(context: TurnContext) -> Op[tuple[TurnId, ...]]:
    """Return the heads that undos have left, or none if a turn has started since."""
    found = yield from one(journal.entry, _LAST_MOVE, context.session)
    last = found.event if found else None
    return last.redo if isinstance(last, HeadMoved) else ()
