"""Reads the row of one part, and makes the changes that several modules need."""

from typing import Final, NamedTuple

import msgspec

from perdure.domain.delivery import WITHDRAWN, DeliveryStep
from perdure.domain.ids import MediaId, MessageId, NodeId, PartId, QuestionId, TurnId
from perdure.ports.delivery.outbox import Part
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.statement import Op, one, run

# Reads parts with their addresses, as a `PartRow`; the caller appends which.
PART: Final = f"""
    SELECT o.id, o.message_id, o.part, o.turn_id, o.text, o.attempts, o.step, o.target, o.choices,
           o.media_id, o.state, o.receipt, o.node_id, o.changed_at, o.created_at,
           o.question_id,
           {ADDRESS}
    FROM outbox o JOIN conversations c ON c.id = o.conversation_id """
# Locks a part and reads how far it has come.
_PROGRESS: Final = "SELECT state, receipt, attempts FROM outbox WHERE id = $1 FOR UPDATE"
# Marks a part as being sent.
_ATTEMPT: Final = """
    UPDATE outbox SET state = 'attempting', attempts = attempts + 1, node_id = $1, changed_at = $2
    WHERE id = $3"""
# Gives up a part whose words were taken back.
_WITHDRAW: Final = """
    UPDATE outbox SET state = 'expired', error = $1, changed_at = $2, node_id = NULL
    WHERE id = $3"""


class PartRow(NamedTuple):
    """Holds the columns of `PART`. `number` is the part's position in its message."""

    id: PartId
    message: MessageId
    number: int
    turn: TurnId | None
    text: str
    attempts: int
    step: str
    target: PartId | None
    choices: str
    media: MediaId | None
    state: str
    receipt: str
    node: NodeId | None
    changed_at: int
    created_at: int
    question: QuestionId | None
    adapter: str
    account: str
    place: str
    thread: str
    person: str


class _PartProgress(NamedTuple):
    """Holds how far a part has come."""

    state: str
    receipt: str
    attempts: int


def part_of(found: PartRow) -> Part:
    """Return the part that a row holds, without what it answers or follows."""
    return Part(
        id=found.id,
        message=found.message,
        index=found.number,
        turn=found.turn,
        address=address_of(found.adapter, found.account, found.place, found.thread, found.person),
        text=found.text,
        attempts=found.attempts,
        changed_at=found.changed_at,
        created_at=found.created_at,
        step=DeliveryStep(found.step),
        choices=choices_of(found.choices),
        media=found.media,
        question=found.question,
    )


def choices_of(column: str) -> tuple[str, ...]:
    """Return the labels of a part's buttons from its column."""
    return msgspec.json.decode(column, type=tuple[str, ...]) if column else ()


def part_progress(part: PartId) -> Op[_PartProgress | None]:
    """Return how far a part has come, and lock it until the transaction ends."""
    return (yield from one(_PartProgress, _PROGRESS, part))


def attempt(part: PartId, node: NodeId, *, at: int) -> Op[None]:
    """Mark a part as being sent by this node, and count the attempt."""
    yield from run(_ATTEMPT, node, at, part)


def withdraw(part: PartId, *, at: int) -> Op[None]:
    """Give up a part whose words were taken back before they were sent."""
    yield from run(_WITHDRAW, WITHDRAWN, at, part)
