"""Handles `/compact`, which changes what the model is told of older turns."""

from typing import Final

from perdure.domain.ids import TurnId
from perdure.domain.inbound.commands import Given
from perdure.domain.journal.events import TurnQueued
from perdure.domain.journal.session_events import CompactionDropped
from perdure.domain.kinds import TurnKind
from perdure.domain.people.menu import AgentOffer
from perdure.domain.prompt.compaction import KEEP_SHARE, KEEP_TURNS_MAX
from perdure.domain.prompt.portions import divided_at, tokens_told
from perdure.domain.sayings.saying import worded
from perdure.store.operations import journal
from perdure.store.operations.commands.command_result import CommandResult
from perdure.store.operations.reading import chains
from perdure.store.operations.sessions import compaction
from perdure.store.operations.turn_context import TurnContext
from perdure.store.operations.turns import errands
from perdure.store.statement import Op

# The share of a window above which a conversation leaves no room for an answer.
FULL_SHARE: Final = 0.8


def compact(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Order a summary of the older turns; with `off`, drop the summaries."""
    place = context.place
    if given.arguments.lower() == "off":
        return (yield from _drop(context))
    offer = context.menu.offer(place.answering)
    upto = None
    if place.head is not None:
        upto = yield from _chosen(place.head, offer)
    if upto is None:
        return CommandResult(worded("There is nothing to compact yet."))
    if (yield from errands.is_running(context.session, TurnKind.SUMMARY)):
        return CommandResult(worded("A compaction is already on its way."))
    order = errands.Order(
        TurnKind.SUMMARY,
        context.session,
        context.conversation,
        errands.person_of(context),
        upto,
        context.fresh.message,
        text=given.arguments,
        agent=offer.compact_agent or place.answering,
        stand_in=context.menu.answering(place.answering) if offer.compact_agent else "",
        reason="command",
        traits=context.update.traits,
    )
    recorded = yield from errands.begin(order, context.stamp)
    queued = recorded[-1].event
    assert isinstance(queued, TurnQueued)
    reply = worded("Compacting; you will be told here. Go on meanwhile, or /stop it.")
    return CommandResult(reply, recorded, turn=queued.turn)


def _chosen(head: TurnId, offer: AgentOffer) -> Op[TurnId | None]:
    """Return the turn to compact up to, or None if there is nothing to compact. If so few turns are
    left that all of them would stay, and the model cannot read them, fewer stay."""
    last = yield from compaction.choose(head, keep_tokens=offer.keep_tokens)
    if last is not None:
        return last
    chain = yield from chains.window(head, limit=KEEP_TURNS_MAX + 1)
    window = int(offer.keep_tokens / KEEP_SHARE)
    if tokens_told(chain, upto=head) <= window * FULL_SHARE:
        return None
    return divided_at(chain, keep_tokens=offer.keep_tokens, again=True)


def _drop(context: TurnContext) -> Op[CommandResult]:
    """Drop all summaries on the chain: each was made from the one before it, which would otherwise
    take its place."""
    if (yield from errands.is_running(context.session, TurnKind.SUMMARY)):
        return CommandResult(worded("A compaction is on its way: /stop it first."))
    head = context.place.head
    found = (yield from compaction.in_force(head)) if head else []
    if not found:
        return CommandResult(worded("Nothing is compacted here."))
    by = context.update.principal
    dropped = [CompactionDropped(by=by, upto=upto, compaction=summary) for upto, summary in found]
    recorded = yield from journal.append(context.session, dropped, at=context.stamp.at)
    yield from compaction.drop(
        context.session, [each.upto for each in found], context.fresh.message
    )
    return CommandResult(worded("The model reads those turns in full again."), recorded)
