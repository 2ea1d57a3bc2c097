"""Commands about what the model is told of older turns."""

from perdure.domain.inbound.commands import Given
from perdure.domain.journal.events import CompactionDropped, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.store.operations import journal
from perdure.store.operations.commands.given import Taken
from perdure.store.operations.sessions import compaction
from perdure.store.operations.setting import Setting
from perdure.store.operations.turns import errands
from perdure.store.statement import Op


def compact(setting: Setting, given: Given) -> Op[Taken]:
    place = setting.place
    if given.arguments.lower() == "off":
        return (yield from _drop(setting))
    offer = setting.menu.offer(place.agent)
    upto = None
    if place.head is not None:
        upto = yield from compaction.choose(place.head, keep_tokens=offer.keep_tokens)
    if upto is None:
        return Taken("There is nothing to compact yet.")
    if (yield from errands.is_running(setting.session, TurnKind.SUMMARY)):
        return Taken("A compaction is already on its way.")
    order = errands.Order(
        TurnKind.SUMMARY,
        setting.session,
        setting.conversation,
        errands.person_of(setting),
        upto,
        setting.fresh.message,
        text=given.arguments,
        agent=offer.compact_agent or place.agent,
        reason="command",
        traits=setting.update.traits,
    )
    recorded = yield from errands.begin(order, setting.stamp)
    queued = recorded[-1].event
    assert isinstance(queued, TurnQueued)
    reply = "Compacting; you will be told here. Go on meanwhile, or /stop it."
    return Taken(reply, recorded, turn=queued.turn)


def _drop(setting: Setting) -> Op[Taken]:
    """Drop all summaries: each was made from the one before it, which would take its place."""
    if (yield from errands.is_running(setting.session, TurnKind.SUMMARY)):
        return Taken("A compaction is on its way: /stop it first.")
    head = setting.place.head
    found = (yield from compaction.in_force(head)) if head else []
    if not found:
        return Taken("Nothing is compacted here.")
    by = setting.update.principal
    dropped = [CompactionDropped(by=by, upto=upto, compaction=summary) for upto, summary in found]
    recorded = yield from journal.append(setting.session, dropped, at=setting.stamp.at)
    yield from compaction.drop(
        setting.session, [each.upto for each in found], setting.fresh.message
    )
    return Taken("The model reads those turns in full again.", recorded)
