"""Sends what an agent's call has for another conversation.

The store queues it in the transaction that stores the call's result, so no crash leaves open
whether it was sent.
"""

from functools import partial

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.journal.attachments import as_fetched, given_in, name_of, places_of
from perdure.domain.journal.events import Attachment, SteerTaken, ToolCall, TurnQueued
from perdure.domain.tools.traits import Outlook, Posting
from perdure.engine.foundation.persist import persist
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.runner_services import RunnerServices
from perdure.ports.people.places import TurnPosting
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic


class Postings:
    """Sends for the calls of one attempt."""

    def __init__(self, services: RunnerServices, claimed: Claimed, ledger: Ledger) -> None:
        self._services = services
        self._claimed = claimed
        self._ledger = ledger

    async def outlook(self, call: ToolCall, posting: Posting) -> Outlook:
        """Return where the text would arrive, or why it cannot be sent. A short name, such as
        `home`, may mean another place by the time that a person has answered."""
        try:
            find = partial(self._services.places.find, self._order(call, posting))
            name = await persist(find, clock=self._services.clock)
        except (Rejected, NotFound) as error:
            return Outlook(problem=error.message)
        preview = "" if name == posting.to else f"It goes to {name}."
        return Outlook(preview=preview, operands=name)

    async def post(self, call: ToolCall, posting: Posting, *, why: str) -> str:
        """Send something, and store the call with its result. Returns why nothing was sent, or an
        empty string."""
        try:
            await self._ledger.post(
                self._order(call, posting), why=why, queue_max=self._services.limits.queue_max
            )
        except (Rejected, NotFound) as error:
            return error.message
        self._services.wakes.publish(Topic.TURNS)
        return ""

    def _order(self, call: ToolCall, posting: Posting) -> TurnPosting:
        """Return what is sent, with the files that the call names. Raises `Rejected` if there is no
        such file in the turn."""
        return TurnPosting(
            to=posting.to,
            text=posting.text,
            call=call.id,
            turn=self._ledger.turn,
            principal=self._claimed.principal,
            reach=self._services.reach(),
            traits=self._ledger.queued.traits,
            files=named_files(self._ledger, posting.files),
        )


def named_files(ledger: Ledger, names: tuple[str, ...]) -> tuple[Attachment, ...]:
    """Return the files of a turn with these names, the newest of each: those that came with its
    messages, and those that its tools have made. Raises `Rejected` if there is none."""
    if not names:
        return ()
    places = places_of(ledger.events)
    events = ledger.facts
    spoken = [event for event in events if isinstance(event, TurnQueued | SteerTaken)]
    came = [each for event in spoken for each in as_fetched(event, places)]
    known = {
        name_of(each): each for each in (*came, *given_in(ledger.events)) if each.media is not None
    }
    missing = [name for name in names if name not in known]
    if missing:
        has = ", ".join(known) or "none"
        raise Rejected(f"this turn has no file {missing[0]!r}; it has: {has}")
    return tuple(known[name] for name in names)
