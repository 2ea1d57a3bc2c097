"""Parts that wait for a person: shown, sent after all, or dropped."""

from typing import Final

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import WITHDRAWN, PartState, Step
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import PartId
from perdure.domain.records import PartView
from perdure.ports.history import Page
from perdure.store.operations import letters
from perdure.store.statement import Op, Row, row, rows, run

PARTS: Final = """
    SELECT o.id, o.message_id, o.turn_id, o.part, o.adapter, o.state, o.attempts, o.receipt,
           o.error, o.text, o.step, o.changed_at, o.choices, o.media_id,
           c.adapter, c.account, c.place, c.thread, c.person
    FROM outbox o JOIN conversations c ON c.id = o.conversation_id """
# In the words of the index that finds them: a preview that failed was never seen.
IS_PARKED: Final = f"""
    o.state IN ('unknown', 'failed', 'expired') AND o.error <> '{WITHDRAWN}'
    AND o.dropped_at IS NULL AND (o.step <> 'bubble' OR o.state = 'unknown')"""
PAGE = f"""{PARTS} WHERE {IS_PARKED}
      AND (o.changed_at < $1 OR (o.changed_at = $1 AND o.id < $2))
    ORDER BY o.changed_at DESC, o.id DESC LIMIT $3"""
_PART = PARTS + "WHERE o.id = $1"
_LOCKED = "SELECT state, step FROM outbox WHERE id = $1 FOR UPDATE"
_IS_PARKED = f"SELECT 1 FROM outbox o WHERE o.id = $1 AND {IS_PARKED}"
_IS_TAKEN_BACK = "SELECT 1 FROM outbox WHERE target = $1 AND step = 'delete'"
_REPLAY = """
    UPDATE outbox SET state = 'pending', error = '', due_at = $1, changed_at = $1,
                      replayed_at = $1, node_id = NULL
    WHERE id = $2"""
_DROP = "UPDATE outbox SET dropped_at = $1 WHERE id = $2"
_END_OF_TIME = (2**62, "")


def page(asked: Page) -> Op[list[PartView]]:
    at, last = asked.after or _END_OF_TIME
    found = [view(each) for each in (yield from rows(PAGE, at, last, asked.limit))]
    found += yield from letters.page(at, last, asked.limit)
    return sorted(found, key=lambda each: (each.at, each.id), reverse=True)[: asked.limit]


def part(part_id: PartId) -> Op[PartView]:
    if letters.is_letter(part_id):
        return (yield from letters.one(part_id))
    found = yield from row(_PART, part_id)
    if found is None:
        raise NotFound(f"there is no part {part_id}; `perdure parked list` shows what is parked")
    return view(found)


def replay(part_id: PartId, *, force: bool, at: int) -> Op[PartView]:
    if letters.is_letter(part_id):
        return (yield from letters.end(part_id, "replayed"))
    state, step = yield from _insist_on_parked(part_id)
    if step == Step.BUBBLE:
        raise Conflict(
            f"part {part_id} is a preview; its final words were sent as a message of their own. "
            "Drop it",
            code="not_replayable",
        )
    if (yield from row(_IS_TAKEN_BACK, part_id)) is not None:
        raise Conflict(f"the turn of part {part_id} was taken back; drop it", code="not_replayable")
    if state == PartState.UNKNOWN and not force:
        raise Conflict(
            f"part {part_id} may have arrived, and would then show twice; look there first. To "
            'send it all the same: `perdure parked replay --yes`, or {"force": true} over HTTP',
            code="may_show_twice",
        )
    yield from run(_REPLAY, at, part_id)
    return (yield from part(part_id))


def drop(part_id: PartId, *, at: int) -> Op[PartView]:
    if letters.is_letter(part_id):
        return (yield from letters.end(part_id, "dropped"))
    yield from _insist_on_parked(part_id)
    yield from run(_DROP, at, part_id)
    return (yield from part(part_id))


def _insist_on_parked(part_id: PartId) -> Op[tuple[str, str]]:
    found = yield from row(_LOCKED, part_id)
    if found is None:
        raise NotFound(f"there is no part {part_id}; `perdure parked list` shows what is parked")
    state, step = found
    if (yield from row(_IS_PARKED, part_id)) is None:
        raise Conflict(
            f"part {part_id} is not parked (it is {state}); `perdure parked list` shows what is",
            code="not_parked",
        )
    return state, step


def view(found: Row) -> PartView:
    (part_id, message, turn, index, adapter, state, attempts, receipt, error, text, step, at,
     choices, media, *address) = found  # fmt: skip
    _, account, place, thread, person = address
    return PartView(
        id=part_id,
        message=message,
        turn=turn,
        part=index,
        adapter=adapter,
        state=state,
        attempts=attempts,
        receipt=receipt,
        error=error,
        text=text,
        step=step,
        at=at,
        choices=msgspec.json.decode(choices, type=tuple[str, ...]) if choices else (),
        media=media,
        address=Address(
            adapter=adapter, account=account, place=place, thread=thread, person=person
        ).name,
    )
