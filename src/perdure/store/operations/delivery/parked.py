"""Shows parts that wait for a person's decision, sends them after all, or drops them."""

from typing import Final, NamedTuple

from perdure.domain.delivery import WITHDRAWN, DeliveryStep, PartState
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import MediaId, PartId, TurnId
from perdure.domain.journal.records import PartView
from perdure.domain.waits import AT_ONCE
from perdure.ports.records.history import Page
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.delivery import dead_letters
from perdure.store.operations.delivery.part_rows import choices_of
from perdure.store.statement import Op, exists, many, one, run

# Reads parts as people are shown them, as a `ShownPart`; the caller appends which.
PARTS: Final = f"""
    SELECT o.id, o.message_id, o.turn_id, o.part, o.adapter, o.state, o.attempts, o.receipt,
           o.error, o.text, o.step, o.changed_at, o.choices, o.media_id, o.replayed_at,
           {ADDRESS}
    FROM outbox o JOIN conversations c ON c.id = o.conversation_id """
# A condition: part `o` waits for a person. Uses the words of the partial index. A failed preview is
# left out, since nobody ever saw it.
IS_PARKED: Final = f"""
    o.state IN ('unknown', 'failed', 'expired') AND o.error <> '{WITHDRAWN}'
    AND o.dropped_at IS NULL AND (o.step <> 'bubble' OR o.state = 'unknown')"""
# Reads a page of the parked parts, newest first.
PAGE = f"""{PARTS} WHERE {IS_PARKED}
      AND (o.changed_at < $1 OR (o.changed_at = $1 AND o.id < $2))
    ORDER BY o.changed_at DESC, o.id DESC LIMIT $3"""
# Reads one part.
_PART = PARTS + "WHERE o.id = $1"
# Locks a part.
_LOCKED = "SELECT state, step FROM outbox WHERE id = $1 FOR UPDATE"
# Finds a part if it is parked.
_IS_PARKED = f"SELECT 1 FROM outbox o WHERE o.id = $1 AND {IS_PARKED}"
# Finds the deletion of a part.
_IS_TAKEN_BACK = "SELECT 1 FROM outbox WHERE target = $1 AND step = 'delete'"
# Puts a part back into its line, to be sent at once.
_REPLAY = f"""
    UPDATE outbox SET state = 'pending', error = '', due_at = {AT_ONCE}, changed_at = $1,
                      replayed_at = $1, node_id = NULL
    WHERE id = $2"""
# Records that nobody wants a part any more.
_DROP = "UPDATE outbox SET dropped_at = $1 WHERE id = $2"
_END_OF_TIME = (2**62, "")


class ShownPart(NamedTuple):
    """Holds the columns of `PARTS`. `number` is the part's position in its message."""

    id: PartId
    message: str
    turn: TurnId | None
    number: int
    adapter: str
    state: str
    attempts: int
    receipt: str
    error: str
    text: str
    step: str
    at: int
    choices: str
    media: MediaId | None
    replayed_at: int | None
    conversations_adapter: str
    account: str
    place: str
    thread: str
    person: str


class _Locked(NamedTuple):
    """Holds the state and step of a locked part."""

    state: str
    step: str


def page(asked: Page) -> Op[list[PartView]]:
    """Return a page of what is parked, parts and dead letters alike, newest first."""
    at, last = asked.after or _END_OF_TIME
    found = [view(each) for each in (yield from many(ShownPart, PAGE, at, last, asked.limit))]
    found += yield from dead_letters.page(at, last, asked.limit)
    return sorted(found, key=lambda each: (each.at, each.id), reverse=True)[: asked.limit]


def part(part_id: PartId) -> Op[PartView]:
    """Return one part or dead letter. Raises `NotFound`."""
    if dead_letters.is_letter(part_id):
        return (yield from dead_letters.get(part_id))
    found = yield from one(ShownPart, _PART, part_id)
    if found is None:
        raise NotFound(f"there is no part {part_id}; `perdure parked list` shows what is parked")
    return view(found)


def replay(part_id: PartId, *, force: bool, at: int) -> Op[PartView]:
    """Send a parked part after all. Raises `Conflict` for a part that may have arrived, unless
    `force` is set, and for a preview or a part that was taken back."""
    if dead_letters.is_letter(part_id):
        return (yield from dead_letters.end(part_id, "replayed"))
    parked = yield from _insist_on_parked(part_id)
    if parked.step == DeliveryStep.BUBBLE:
        raise Conflict(
            f"part {part_id} is a preview; its final words were sent as a message of their own. "
            "Drop it",
            code="not_replayable",
        )
    if (yield from exists(_IS_TAKEN_BACK, part_id)):
        raise Conflict(f"the turn of part {part_id} was taken back; drop it", code="not_replayable")
    if parked.state == PartState.UNKNOWN and not force:
        raise Conflict(
            f"part {part_id} may have arrived, and would then show twice; look there first. To "
            'send it all the same: `perdure parked replay --yes`, or {"force": true} over HTTP',
            code="may_show_twice",
        )
    yield from run(_REPLAY, at, part_id)
    return (yield from part(part_id))


def drop(part_id: PartId, *, at: int) -> Op[PartView]:
    """Give up a parked part or letter for good."""
    if dead_letters.is_letter(part_id):
        return (yield from dead_letters.end(part_id, "dropped"))
    yield from _insist_on_parked(part_id)
    yield from run(_DROP, at, part_id)
    return (yield from part(part_id))


def _insist_on_parked(part_id: PartId) -> Op[_Locked]:
    """Lock a part. Raises `NotFound` if there is none, and `Conflict` if it is not parked."""
    found = yield from one(_Locked, _LOCKED, part_id)
    if found is None:
        raise NotFound(f"there is no part {part_id}; `perdure parked list` shows what is parked")
    if not (yield from exists(_IS_PARKED, part_id)):
        raise Conflict(
            f"part {part_id} is not parked (it is {found.state}); `perdure parked list` shows what "
            "is",
            code="not_parked",
        )
    return found


def view(found: ShownPart) -> PartView:
    """Return a part as people are shown it."""
    address = address_of(found.adapter, found.account, found.place, found.thread, found.person)
    return PartView(
        id=found.id,
        message=found.message,
        turn=found.turn,
        part=found.number,
        adapter=found.adapter,
        state=found.state,
        attempts=found.attempts,
        receipt=found.receipt,
        error=found.error,
        text=found.text,
        step=found.step,
        at=found.at,
        choices=choices_of(found.choices),
        media=found.media,
        is_replayed=found.replayed_at is not None,
        address=address.name,
    )
