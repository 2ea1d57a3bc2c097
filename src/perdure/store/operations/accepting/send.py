"""Queues what somebody sends to a place from elsewhere.

It waits in the line of the place's live session, as a turn that is said without asking a model. So
it is delivered like an answer: in order, once, and through crashes. People find it in the history,
and the model knows it afterwards.
"""

import msgspec

from perdure.domain.address import HTTP, Address
from perdure.domain.errors import Rejected
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Recorded, TurnQueued
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.turn.recovery import SUSPENDED
from perdure.ports.people.places import OutgoingMessage, SentMessage
from perdure.store.operations.accepting import accept
from perdure.store.operations.addresses import ADDRESS, address_columns, address_of
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.people import principals
from perdure.store.operations.sessions import destinations, places, recency
from perdure.store.operations.turn_context import Fresh, LiveSession, Stamp
from perdure.store.operations.turns.queueing import queue_full
from perdure.store.operations.turns.session_queue import queue_turn
from perdure.store.statement import Op, one

# Finds the address at which a turn is answered.
_SENT_TO = f"""
    SELECT {ADDRESS}
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id) WHERE t.id = $1"""
# Finds the conversation at an address.
_AT = """
    SELECT id FROM conversations
    WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = $4 AND person = $5"""
# Counts the turns that wait in a session's line.
_WAITING = """
    SELECT count(*) FROM turns WHERE session_id = $1 AND outcome IS NULL AND attempts = 0"""


def send(
    sending: OutgoingMessage, fresh: Fresh, stamp: Stamp, *, queue_max: int
) -> Op[SentMessage]:
    """Queue a text for a place, once: the sender's id identifies text and place together.
    Sending it again returns the first result. Raises `Rejected` if the sender may not, or the
    line is full."""
    key = Update(
        address=Address(adapter=HTTP, account=sending.by.id, place=""),
        external_id=sending.external_id,
        kind=UpdateKind.SENT,
        principal=sending.by.id,
        text=sending.text,
        target=sending.to,
    )
    known = yield from accept.recalled(key)
    if known is not None:
        return SentMessage(accepted=known, address=(yield from _sent_to(known)))
    address, is_known = yield from permitted(sending)
    owner = sending.by.id if is_known else (yield from _owner(address, stamp))
    addressed = msgspec.structs.replace(key, address=address, principal=owner)
    place = yield from places.resolve(addressed, stamp)
    yield from _insist_on_room(place, queue_max)
    recorded = yield from _queue(sending, place, fresh, stamp)
    accepted = Accepted(
        conversation=place.conversation,
        session=place.session,
        turn=fresh.turn,
        message=fresh.message,
        recorded=tuple(recorded),
    )
    yield from accept.remember(key, accepted, stamp)
    conversation = place.via or place.conversation
    yield from recency.touch_conversation(conversation, at=stamp.at, is_listed=True)
    return SentMessage(accepted=accepted, address=address.name)


def open_place(sending: OutgoingMessage, stamp: Stamp) -> Op[ConversationId]:
    """Return the conversation that a sender means, opened if there is none."""
    address, is_known = yield from destinations.find(sending)
    if is_known:
        known = yield from one(ConversationId, _AT, *address_columns(address))
        assert known is not None
        return known
    owner = yield from _owner(address, stamp)
    arriving = Update(
        address=address, external_id="", kind=UpdateKind.SENT, principal=owner, text=""
    )
    return (yield from places.resolve(arriving, stamp)).conversation


def permitted(sending: OutgoingMessage) -> Op[tuple[Address, bool]]:
    """Return the address that is meant, and whether there is a conversation at it yet. Raises
    `Rejected` if the sender may not write there. A member sends to their home; an agent sends for
    a member to every conversation in which that person takes part."""
    is_free = sending.by.is_operator or sending.to == destinations.HOME
    if not is_free and sending.origin is None:
        raise Rejected(
            "only operators send to any place; you may send to `home`, your home conversation",
            code="forbidden",
        )
    address, is_known = yield from destinations.find(sending)
    if not is_free and not (yield from destinations.takes_part(sending.by.id, address)):
        raise Rejected(
            f"the person of this turn takes no part in {address.name}, and only operators send "
            "anywhere",
            code="forbidden",
        )
    return address, is_known


def _sent_to(accepted: Accepted) -> Op[str]:
    """Return the name of the address that a sent text went to."""
    address = yield from one(address_of, _SENT_TO, accepted.turn)
    assert address is not None
    return address.name


def _owner(address: Address, stamp: Stamp) -> Op[PrincipalId]:
    """Return the owner of a place in which nobody has spoken yet: the person named like the place.
    In a private chat that is its person from the start; elsewhere the first person who speaks
    becomes the owner."""
    name = f"{address.adapter}:{address.place}"
    owner = yield from principals.ensure(
        PrincipalId(stamp.mint("prn")), name, "member", at=stamp.at
    )
    return owner.id


def _insist_on_room(place: LiveSession, queue_max: int) -> Op[None]:
    """Raise `Rejected` if the session's line is full."""
    waiting = yield from one(int, _WAITING, place.session)
    assert waiting is not None, "a count is always one row"
    if waiting >= queue_max:
        raise queue_full(waiting)


def _queue(
    sending: OutgoingMessage, place: LiveSession, fresh: Fresh, stamp: Stamp
) -> Op[list[Recorded]]:
    """Queue the text as a turn of its own."""
    queued = TurnQueued(
        turn=fresh.turn,
        message=fresh.message,
        text="",
        kind=TurnKind.SENT,
        answer=sending.text,
        by=sending.by.id,
        via=place.via,
        ordered_by=sending.origin,
        traits=sending.traits,
        files=sending.files,
    )
    recorded = yield from queue_turn(place.session, queued, stamp)
    if place.is_successor:
        recorded += yield from notice(place.session, fresh.turn, SUSPENDED, stamp)
    return recorded
