"""Takes the results of the caller's own tool calls, which come with a message.

They become events of the turn of that message. The session is locked, so no other message can
answer the same calls meanwhile.
"""

from typing import Final

from perdure.domain.journal.events import Recorded, ToolFinished
from perdure.domain.outcomes import CallEnding
from perdure.domain.tools.callers import check_repeats, fitting_results, left_open
from perdure.store.operations import journal
from perdure.store.operations.reading import chains
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op

# How far back a call is looked for: turns before the message, and bytes of their events.
TURNS_MAX: Final = 20
BYTES_MAX: Final = 8_000_000


def with_results(context: TurnContext) -> Op[TurnContext]:
    """Return the context with the results that the update brings. Raises `Rejected` for a result
    that belongs to no call."""
    update = context.update
    check_repeats(update.results)
    chain = yield from _chain(context)
    waiting = yield from _waiting(context)
    has_words = bool(update.text.strip() or update.attachments)
    fitting = fitting_results(update.results, chain, waiting, has_words=has_words)
    results = tuple(
        ToolFinished(
            turn=context.fresh.turn,
            call=result.call,
            ending=CallEnding.RETURNED,
            result=result.text,
            is_callers=True,
            name=call.name,
        )
        for result, call in fitting
    )
    return context._replace(results=results)


def _waiting(context: TurnContext) -> Op[list[list[Recorded]]]:
    """Return the turns that have not ended."""
    turns: list[list[Recorded]] = []
    for turn in context.open_turns:
        events = yield from journal.of_turn(turn.id)
        turns.append(events)
    return turns


def _chain(context: TurnContext) -> Op[list[list[Recorded]]]:
    """Return the turns among which the calls are. Nearly always the last one has asked for all of
    them, and then no other one is read."""
    head = context.place.head
    if head is None:
        return []
    last = yield from journal.of_turn(head)
    asked = {call.id for call in left_open(last)}
    if all(result.call in asked for result in context.update.results):
        return [last]
    return (yield from chains.chain(head, limit=TURNS_MAX, until=None, bytes_max=BYTES_MAX))
