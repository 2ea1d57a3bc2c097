"""Parts of replies: put down in the settling transaction, taken and recorded one by one.

What a turn has sent is taken away again by parts of another kind, which wait in the same line: a
part that is on its way when its turn is taken back is shown, gets its receipt, and is then deleted
by it.
"""

from collections.abc import Sequence

import msgspec

from perdure.domain.address import HTTP, Address
from perdure.domain.delivery import LEGAL, WITHDRAWN, PartState, Step
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import NodeId, PartId, SessionId, TurnId
from perdure.ports.outbox import Part
from perdure.store.dialect import Dialect
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, Row, row, rows, run

_LINE = """
    SELECT c.id, c.adapter, COALESCE((SELECT o.place_in_line FROM outbox o
        WHERE o.conversation_id = c.id ORDER BY o.place_in_line DESC LIMIT 1), 0)
    FROM sessions s JOIN conversations c ON c.id = s.conversation_id WHERE s.id = $1"""
_PUT = """
    INSERT INTO outbox (id, message_id, part, conversation_id, session_id, turn_id, adapter,
                        place_in_line, step, text, state, attempts, due_at, receipt, error,
                        created_at, changed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', 0, $11, '', '', $11, $11)"""
_PART = """
    SELECT o.id, o.message_id, o.part, o.turn_id, o.text, o.attempts,
           o.step, c.adapter, c.account, c.place, c.thread, c.person
    FROM outbox o JOIN conversations c ON c.id = o.conversation_id """
_DUE = (
    _PART
    + """
    WHERE o.adapter = $1 AND o.state = 'pending' AND o.due_at <= $2
      AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.conversation_id = o.conversation_id
                      AND e.place_in_line < o.place_in_line
                      AND e.state IN ('pending', 'attempting'))
    ORDER BY o.due_at LIMIT $3 FOR UPDATE OF o SKIP LOCKED"""
)
_ATTEMPT = """
    UPDATE outbox SET state = 'attempting', attempts = attempts + 1, node_id = $1, changed_at = $2
    WHERE id = $3"""
_STATE = "SELECT state, receipt FROM outbox WHERE id = $1 FOR UPDATE"
_RECORD = """
    UPDATE outbox SET state = $1, receipt = $2, error = $3, due_at = $4, changed_at = $5,
                      node_id = NULL
    WHERE id = $6"""
_STRANDED = (
    _PART
    + """
    WHERE o.adapter = $1 AND o.state = 'attempting'
      AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = o.node_id AND n.left_at IS NULL
                      AND n.lease_until > {now_ms})
    ORDER BY o.changed_at LIMIT 1000"""
)
_RELEASE = """
    UPDATE outbox SET state = 'pending', node_id = NULL, due_at = $1, changed_at = $1
    WHERE adapter = $2 AND state = 'attempting' AND node_id = $3 RETURNING id"""
_EXPIRE = """
    UPDATE outbox SET state = 'expired', changed_at = $1
    WHERE state = 'pending' AND created_at < $2 RETURNING id"""
_OF_REPLY = """
    SELECT id, part, session_id, state, receipt FROM outbox
    WHERE message_id = $1 AND state IN ('pending', 'attempting', 'sent')
    ORDER BY part FOR UPDATE"""
_ARE_WITHDRAWN = "SELECT part FROM outbox WHERE message_id = $1"
_WITHDRAW = """
    UPDATE outbox SET state = 'expired', error = $1, changed_at = $2, node_id = NULL
    WHERE id = $3"""
_RECEIPT = "SELECT receipt FROM outbox WHERE message_id = $1 AND part = $2"
_DELETION_OF = """
    SELECT 1 FROM outbox o JOIN outbox d ON d.message_id = o.turn_id || $1 AND d.part = o.part
    WHERE o.id = $2 AND o.message_id = o.turn_id || $3"""
_REPLY, _DELETIONS = ".reply", ".deletions"
_NEXT_DUE = "SELECT MIN(due_at) FROM outbox WHERE state = 'pending'"


def put(
    session: SessionId, turn: TurnId | None, message: str, parts: Sequence[str], stamp: Stamp
) -> Op[None]:
    line = yield from row(_LINE, session)
    assert line is not None
    conversation, adapter, last = line
    for index, text in enumerate(parts):
        yield from run(
            _PUT,
            stamp.mint("prt"), message, index, conversation, session, turn, adapter,
            last + 1 + index, Step.POST, text, stamp.at,
        )  # fmt: skip


def put_unless_read(
    session: SessionId, turn: TurnId | None, message: str, text: str, stamp: Stamp
) -> Op[None]:
    """A notice for people on a platform; over HTTP clients read it from the journal."""
    line = yield from row(_LINE, session)
    assert line is not None
    if line[1] != HTTP:
        yield from put(session, turn, message, [text], stamp)


def take(adapter: str, node: NodeId, *, limit: int, at: int) -> Op[list[Part]]:
    due = yield from rows(_DUE, adapter, at, limit)
    taken = []
    for found in due:
        yield from run(_ATTEMPT, node, at, found[0])
        part = _part(found, attempts=found[5] + 1)
        if part.step is Step.DELETE and not part.text:
            receipt = yield from row(_RECEIPT, f"{part.turn}{_REPLY}", part.index)
            assert receipt is not None
            part = msgspec.structs.replace(part, text=receipt[0])
        taken.append(part)
    return taken


def _part(found: Row, *, attempts: int) -> Part:
    part, message, index, turn, text, _, step, adapter, account, place, thread, person = found
    return Part(
        id=part,
        message=message,
        index=index,
        turn=turn,
        address=Address(
            adapter=adapter, account=account, place=place, thread=thread, person=person
        ),
        text=text,
        attempts=attempts,
        step=Step(step),
    )


def record(
    part: PartId, state: PartState, *, receipt: str, error: str, due_at: int, at: int
) -> Op[None]:
    found = yield from row(_STATE, part)
    if found is None:
        raise NotFound(f"there is no part {part}")
    if (state, receipt) == tuple(found):
        return  # said again after a lost answer
    if state not in LEGAL[PartState(found[0])]:
        raise Conflict(f"part {part} is {found[0]} and cannot become {state}")
    if state is PartState.PENDING and (yield from _is_withdrawn(part)):
        yield from run(_WITHDRAW, WITHDRAWN, at, part)
        return
    yield from run(_RECORD, state, receipt, error, due_at, at, part)


def _is_withdrawn(part: PartId) -> Op[bool]:
    return (yield from row(_DELETION_OF, _DELETIONS, part, _REPLY)) is not None


def release(adapter: str, node: NodeId, *, at: int) -> Op[int]:
    released = yield from rows(_RELEASE, at, adapter, node)
    for (part,) in released:
        if (yield from _is_withdrawn(part)):
            yield from run(_WITHDRAW, WITHDRAWN, at, part)
    return len(released)


def stranded(dialect: Dialect, adapter: str) -> Op[list[Part]]:
    found = yield from rows(_STRANDED.format(now_ms=dialect.now_ms), adapter)
    return [_part(each, attempts=each[5]) for each in found]


def expire(*, before: int, at: int) -> Op[int]:
    return len((yield from rows(_EXPIRE, at, before)))


def next_due() -> Op[int | None]:
    found = yield from row(_NEXT_DUE)
    return found[0] if found else None


def withdraw(turn: TurnId, stamp: Stamp) -> Op[None]:
    """Take back what a turn has sent, where the platform can; what is still to be sent is not. The
    rows are locked first: none of them can come back to the line while its deletion is queued."""
    parts = yield from rows(_OF_REPLY, f"{turn}{_REPLY}")
    if not parts:
        return
    deletions = f"{turn}{_DELETIONS}"
    known = {part for (part,) in (yield from rows(_ARE_WITHDRAWN, deletions))}
    line = yield from row(_LINE, parts[0][2])
    assert line is not None
    conversation, adapter, last = line
    for part, index, session, state, receipt in parts:
        if state == PartState.PENDING:
            yield from run(_WITHDRAW, WITHDRAWN, stamp.at, part)
        elif index not in known:
            last += 1
            yield from run(
                _PUT,
                stamp.mint("prt"), deletions, index, conversation, session, turn, adapter, last,
                Step.DELETE, receipt, stamp.at,
            )  # fmt: skip
