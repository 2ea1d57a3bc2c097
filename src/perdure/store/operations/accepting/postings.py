"""Queues what an agent sends into another conversation, together with the result of its call.

All of it is one transaction under the lease of the turn that sends. So after a crash the text is in
the line of the other conversation and the call has its result, or neither has happened and the next
attempt makes the call. Nobody ever has to wonder.
"""

from perdure.domain.errors import Rejected, Transient
from perdure.domain.journal.events import AnyEvent, Recorded, ToolFinished, ToolStarted
from perdure.domain.outcomes import CallEnding
from perdure.ports.people.places import OutgoingMessage, PostedCall, TurnPosting
from perdure.ports.turns.turns import TurnLease
from perdure.store.operations import journal
from perdure.store.operations.accepting import send
from perdure.store.operations.people import principals
from perdure.store.operations.turn_context import Fresh, Stamp
from perdure.store.statement import Op, exists

# Finds out whether a turn is answered in the conversation at this address.
_IS_HERE = """
    SELECT 1 FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = s.conversation_id OR c.id = t.via_id
    WHERE t.id = $1 AND c.adapter = $2 AND c.account = $3 AND c.place = $4 AND c.thread = $5
      AND c.person = $6"""


def find(posting: TurnPosting) -> Op[str]:
    """Return the name of the address that is meant. Raises `Rejected` or `NotFound` if nothing can
    be sent there."""
    sending = yield from _sending(posting)
    try:
        address, _ = yield from send.permitted(sending)
    except Transient as error:
        # The call ends with this, and is not repeated until the platform has connected.
        raise Rejected(error.message, code=error.code) from error
    is_here = yield from exists(
        _IS_HERE, posting.turn, address.adapter, address.account, address.place, address.thread,
        address.person,
    )  # fmt: skip
    if is_here:
        raise Rejected(f"{address.name} is this conversation; say it in your answer instead")
    return address.name


def post(
    lease: TurnLease,
    posting: TurnPosting,
    fresh: Fresh,
    stamp: Stamp,
    *,
    why: str,
    queue_max: int,
) -> Op[PostedCall]:
    """Queue the text, and write down that the call has begun and what came of it."""
    yield from journal.fence(lease.session, lease.epoch)
    known = [each for each in (yield from journal.of_turn(lease.turn)) if _is_of(posting, each)]
    if not known:
        yield from find(posting)
    sending = yield from _sending(posting)
    sent = yield from send.send(sending, fresh, stamp, queue_max=queue_max)
    if not known:
        result = f"Sent to {sent.address}: it is said there in its order, once."
        turn, call = lease.turn, posting.call
        events: list[AnyEvent] = [
            ToolStarted(turn=turn, call=call, why=why),
            ToolFinished(turn=turn, call=call, ending=CallEnding.RETURNED, result=result),
        ]
        known = yield from journal.append(lease.session, events, at=stamp.at, epoch=lease.epoch)
    return PostedCall(recorded=known, accepted=sent.accepted)


def _is_of(posting: TurnPosting, recorded: Recorded) -> bool:
    """Tell whether an event says that the call has begun, or what came of it."""
    event = recorded.event
    return isinstance(event, ToolStarted | ToolFinished) and event.call == posting.call


def _sending(posting: TurnPosting) -> Op[OutgoingMessage]:
    """Return the message with its sender, as they are known now."""
    by = yield from principals.with_id(posting.principal)
    return OutgoingMessage(
        to=posting.to,
        text=posting.text,
        external_id=f"sent {posting.turn} {posting.call}",
        by=by,
        accounts=posting.reach.accounts,
        forms=posting.reach.forms,
        origin=posting.turn,
        traits=posting.traits,
        files=posting.files,
    )
