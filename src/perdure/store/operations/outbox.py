"""The line of parts: put down in the transaction that decides to say them, taken and recorded one
by one, each only after those before it in its conversation."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.address import HTTP, Address
from perdure.domain.delivery import DELETIONS, LEGAL, REPLY, WITHDRAWN, PartState, Step, too_late
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import ConversationId, MediaId, NodeId, PartId, SessionId, TurnId
from perdure.ports.outbox import Part
from perdure.store.dialect import Dialect
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, RaceLost, Row, row, rows, run

_VIA = """
    SELECT COALESCE((SELECT t.via_id FROM turns t WHERE t.id = $1), s.conversation_id)
    FROM sessions s WHERE s.id = $2"""
_LINE = """
    SELECT c.adapter, COALESCE((SELECT o.place_in_line FROM outbox o
        WHERE o.conversation_id = c.id ORDER BY o.place_in_line DESC LIMIT 1), 0)
    FROM conversations c WHERE c.id = $1"""
_NEXT_PLACE = """
    SELECT MIN(place_in_line) FROM outbox WHERE conversation_id = $1 AND place_in_line > $2"""
# Parts stand this far apart in line, so that one which has to be divided has room behind it.
APART: Final = 1_000
_PUT = """
    INSERT INTO outbox (id, message_id, part, conversation_id, session_id, turn_id, adapter,
                        place_in_line, step, target, text, choices, media_id, state, attempts,
                        node_id, due_at, receipt, error, created_at, changed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, '', '',
            $18, $18)
    ON CONFLICT (conversation_id, place_in_line) DO NOTHING RETURNING id"""
PART = """
    SELECT o.id, o.message_id, o.part, o.turn_id, o.text, o.attempts, o.step, o.target, o.choices,
           o.media_id, o.state, o.receipt, o.node_id, o.changed_at,
           c.adapter, c.account, c.place, c.thread, c.person
    FROM outbox o JOIN conversations c ON c.id = o.conversation_id """
_IS_FIRST = """
    NOT EXISTS (SELECT 1 FROM outbox e WHERE e.conversation_id = o.conversation_id
                AND e.place_in_line < o.place_in_line AND e.state IN ('pending', 'attempting'))"""
_DUE = (
    PART
    + f"""
    WHERE o.adapter = $1 AND o.state = 'pending' AND o.due_at <= $2 AND {_IS_FIRST}
    ORDER BY o.due_at LIMIT $3 FOR UPDATE OF o SKIP LOCKED"""
)
ATTEMPT = """
    UPDATE outbox SET state = 'attempting', attempts = attempts + 1, node_id = $1, changed_at = $2
    WHERE id = $3"""
_STATE = "SELECT state, receipt, attempts FROM outbox WHERE id = $1 FOR UPDATE"
# A pairing's code is nobody's business once it has arrived.
_RECORD = """
    UPDATE outbox SET state = $1, receipt = $2, error = $3, due_at = $4, changed_at = $5,
                      node_id = NULL,
                      text = CASE WHEN $1 = 'sent' AND message_id LIKE 'pair%' THEN '' ELSE text END
    WHERE id = $6"""
_POST_INSTEAD = "UPDATE outbox SET step = 'post', target = NULL WHERE id = $1"
_WHOLE = """
    SELECT o.conversation_id, o.session_id, o.turn_id, o.message_id, o.choices, o.place_in_line,
           (SELECT MAX(p.part) FROM outbox p WHERE p.message_id = o.message_id)
    FROM outbox o WHERE o.id = $1"""
# Bubbles of a turn that are to be taken away, and can show what does not fit elsewhere instead.
_SPARE = """
    SELECT d.id, d.place_in_line FROM outbox d JOIN outbox b ON b.id = d.target
    WHERE d.message_id = $1 AND d.step = 'delete' AND d.state = 'pending' AND b.step = 'bubble'
    ORDER BY b.part FOR UPDATE OF d"""
_SHOW_IN = """
    UPDATE outbox SET step = 'edit', text = $1, message_id = $2, part = $3 WHERE id = $4"""
_SHORTEN = "UPDATE outbox SET text = $1, choices = '' WHERE id = $2"
_STRANDED = (
    PART
    + """
    WHERE o.adapter = $1 AND o.state = 'attempting'
      AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = o.node_id AND n.left_at IS NULL
                      AND n.lease_until > {now_ms})
    ORDER BY o.changed_at LIMIT 1000"""
)
_TAKEN = """
    SELECT id FROM outbox
    WHERE adapter = $1 AND state = 'attempting' AND step <> 'bubble' AND node_id = $2
    FOR UPDATE"""
_RELEASE = """
    UPDATE outbox SET state = 'pending', node_id = NULL, due_at = $1, changed_at = $1
    WHERE id = $2"""
_DEFER = """
    UPDATE outbox SET state = 'pending', node_id = NULL, attempts = attempts - 1, due_at = $1,
                      changed_at = $2
    WHERE id = $3"""
_EXPIRE = """
    UPDATE outbox SET state = 'expired', changed_at = $1
    WHERE state = 'pending' AND COALESCE(replayed_at, created_at) < $2 RETURNING id, error"""
_SAY_WHY = "UPDATE outbox SET error = $1 WHERE id = $2"
WITHDRAW = """
    UPDATE outbox SET state = 'expired', error = $1, changed_at = $2, node_id = NULL
    WHERE id = $3"""
# Of the part, or of the bubble that it was to edit.
_DELETION_OF = """
    SELECT 1 FROM outbox o JOIN outbox d ON d.step = 'delete' AND d.target IN (o.id, o.target)
    WHERE o.id = $1 AND o.step <> 'delete'"""
# A turn's own message, or the one of the update that was answered without a turn.
_ANSWERED = """
    SELECT i.external_id FROM inbox i
    WHERE i.message_id = COALESCE((SELECT t.message_id FROM turns t WHERE t.id = $1), $2)
      AND i.adapter = $3 AND i.account = $4"""
_BEFORE = """
    SELECT receipt FROM outbox
    WHERE message_id = $1 AND part < $2 AND state = 'sent' ORDER BY part DESC LIMIT 1"""
_NEXT_DUE = f"""
    SELECT o.due_at FROM outbox o WHERE o.state = 'pending' AND {_IS_FIRST}
    ORDER BY o.due_at LIMIT 1"""


class Words(NamedTuple):
    """One part to be put down."""

    text: str
    step: Step = Step.POST
    target: str | None = None
    choices: tuple[str, ...] = ()
    media: MediaId | None = None


class Line(NamedTuple):
    """Where parts are put: a conversation's line, and what they belong to."""

    conversation: ConversationId
    session: SessionId
    turn: TurnId | None
    message: str


def put(
    line: Line,
    parts: Sequence[Words],
    stamp: Stamp,
    *,
    first: int = 0,
    delay_ms: int = 0,
    behind: int | None = None,
) -> Op[list[PartId]]:
    """Put parts at the end of the line, in order; those of the message are counted from `first`.
    With `behind` they stand directly behind that place, as long as there is room."""
    found = yield from row(_LINE, line.conversation)
    assert found is not None
    adapter, last = found
    places = [last + APART * nth for nth in range(1, len(parts) + 1)]
    if behind is not None:
        places = (yield from _places_behind(line.conversation, behind, len(parts))) or places
    put_down = []
    for offset, (place, words) in enumerate(zip(places, parts, strict=True)):
        is_bubble = words.step is Step.BUBBLE
        part = PartId(stamp.mint("prt"))
        placed = yield from row(
            _PUT,
            part, line.message, first + offset, line.conversation, line.session, line.turn,
            adapter, place, words.step, words.target, words.text,
            msgspec.json.encode(words.choices).decode() if words.choices else "", words.media,
            PartState.ATTEMPTING if is_bubble else PartState.PENDING, int(is_bubble),
            stamp.node if is_bubble else None, stamp.at + delay_ms, stamp.at,
        )  # fmt: skip
        if placed is None:
            raise RaceLost  # another session of the same line was faster
        put_down.append(part)
    return put_down


def _places_behind(conversation: ConversationId, place: int, count: int) -> Op[list[int]]:
    """Return places between this one and the next in line; empty if there are not enough, or if
    nothing follows."""
    following = yield from row(_NEXT_PLACE, conversation, place)
    room = following[0] - place - 1 if following and following[0] is not None else 0
    return [place + nth for nth in range(1, count + 1)] if room >= count else []


def put_unless_read(
    session: SessionId,
    turn: TurnId | None,
    message: str,
    words: Words,
    stamp: Stamp,
    *,
    to: ConversationId | None = None,
) -> Op[None]:
    """For people on a platform; over HTTP clients read it from the journal."""
    conversation = to or (yield from conversation_of(session, turn))
    line = yield from row(_LINE, conversation)
    assert line is not None
    if line[0] != HTTP:
        yield from put(Line(conversation, session, turn, message), [words], stamp)


def conversation_of(session: SessionId, turn: TurnId | None) -> Op[ConversationId]:
    """Where the turn is answered."""
    found = yield from row(_VIA, turn, session)
    assert found is not None
    conversation: ConversationId = found[0]
    return conversation


def take(adapter: str, node: NodeId, *, limit: int, at: int) -> Op[list[Part]]:
    due = yield from rows(_DUE, adapter, at, limit)
    taken = []
    for found in due:
        yield from run(ATTEMPT, node, at, found[0])
        part = msgspec.structs.replace(part_of(found), attempts=found[5] + 1)
        taken.append((yield from _completed(part, found[7])))
    return taken


def _completed(part: Part, target: PartId | None) -> Op[Part]:
    """With the receipt it needs, or as a post where what it was to edit never arrived."""
    if target is None:
        return (yield from with_answered(part))
    found = yield from row(_STATE, target)
    assert found is not None
    state, receipt, _ = found
    if part.step is Step.EDIT and state != PartState.SENT:
        yield from run(_POST_INSTEAD, part.id)
        return (yield from with_answered(msgspec.structs.replace(part, step=Step.POST)))
    return msgspec.structs.replace(part, receipt=receipt)


def with_answered(part: Part) -> Op[Part]:
    """With the message that it answers; only the first part of a reply does. It must have come from
    where the part goes: what was sent from elsewhere answers nothing. A later part has the receipt
    of the one before it instead."""
    if part.index and part.step is not Step.REACT:
        before = yield from row(_BEFORE, part.message, part.index)
        return msgspec.structs.replace(part, after=before[0]) if before else part
    address = part.address
    found = yield from row(_ANSWERED, part.turn, part.message, address.adapter, address.account)
    return msgspec.structs.replace(part, reply_to=found[0]) if found else part


def part_of(found: Row) -> Part:
    part, message, index, turn, text, attempts, step, _, choices, media, *rest = found
    _, _, _, changed_at, adapter, account, place, thread, person = rest
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
        changed_at=changed_at,
        step=Step(step),
        choices=msgspec.json.decode(choices, type=tuple[str, ...]) if choices else (),
        media=media,
    )


def record(  # noqa: PLR0913 - all that is known of a try
    part: PartId,
    state: PartState,
    *,
    receipt: str,
    error: str,
    due_at: int,
    at: int,
    attempt: int,
) -> Op[None]:
    found = yield from row(_STATE, part)
    if found is None:
        raise NotFound(f"there is no part {part}")
    before, its_receipt, attempts = found
    if (state, receipt) == (before, its_receipt):
        return  # said again after a lost answer
    if state not in LEGAL[PartState(before)] or (attempt and attempt != attempts):
        raise Conflict(f"part {part} is {before} (try {attempts}) and cannot become {state}")
    if state is PartState.PENDING and (yield from _is_withdrawn(part)):
        yield from run(WITHDRAW, WITHDRAWN, at, part)
        return
    yield from run(_RECORD, state, receipt, error, due_at, at, part)


def post_instead(part: PartId, *, error: str, at: int, attempt: int) -> Op[None]:
    """What it was to edit is gone: its words are posted."""
    yield from record(
        part, PartState.PENDING, receipt="", error=error, due_at=at, at=at, attempt=attempt
    )
    yield from run(_POST_INSTEAD, part)


def defer(part: PartId, *, due_at: int, at: int, attempt: int) -> Op[None]:
    found = yield from row(_STATE, part)
    state, _, attempts = found or (None, None, None)
    if (state, attempts) == (PartState.PENDING, attempt - 1):
        return  # said again after a lost answer
    if (state, attempts) != (PartState.ATTEMPTING, attempt):
        raise Conflict(f"part {part} is {state} (try {attempts}) and is not ours to give back")
    if (yield from _is_withdrawn(part)):
        yield from run(WITHDRAW, WITHDRAWN, at, part)
    else:
        yield from run(_DEFER, due_at, at, part)


def _is_withdrawn(part: PartId) -> Op[bool]:
    return (yield from row(_DELETION_OF, part)) is not None


def release(adapter: str, node: NodeId, *, keep: Sequence[PartId], at: int) -> Op[int]:
    taken = yield from rows(_TAKEN, adapter, node)
    released = [part for (part,) in taken if part not in keep]
    for part in released:
        if (yield from _is_withdrawn(part)):
            yield from run(WITHDRAW, WITHDRAWN, at, part)
        else:
            yield from run(_RELEASE, at, part)
    return len(released)


def divide(part: PartId, texts: Sequence[str], stamp: Stamp, *, attempt: int) -> Op[None]:
    """Make several parts of a text that turned out to be too long for its platform. What does not
    fit takes the place of bubbles that would be taken away, or stands directly behind, with the
    buttons: what was put into the line meanwhile comes after all of it."""
    found = yield from row(_WHOLE, part)
    assert found is not None
    conversation, session, turn, message, choices, place, last = found
    at = stamp.at
    yield from record(
        part, PartState.PENDING, receipt="", error="", due_at=at, at=at, attempt=attempt
    )
    now = yield from row(_STATE, part)
    if now is None or now[0] != PartState.PENDING:
        return  # it was withdrawn meanwhile
    yield from run(_SHORTEN, texts[0], part)
    spare = (yield from rows(_SPARE, f"{turn}{DELETIONS}")) if message == f"{turn}{REPLY}" else []
    rest = list(texts[1:])
    for bubble, bubbles_place in spare[: len(rest)]:
        last += 1
        place = max(place, bubbles_place)
        yield from run(_SHOW_IN, rest.pop(0), message, last, bubble)
    words = [Words(text) for text in rest]
    if choices and words:
        words[-1] = words[-1]._replace(choices=msgspec.json.decode(choices, type=tuple[str, ...]))
    line = Line(conversation, session, turn, message)
    yield from put(line, words, stamp, first=last + 1, behind=place)


def stranded(dialect: Dialect, adapter: str) -> Op[list[Part]]:
    found = yield from rows(_STRANDED.format(now_ms=dialect.now_ms), adapter)
    return [part_of(each) for each in found]


def expire(*, before: int, at: int) -> Op[int]:
    expired = yield from rows(_EXPIRE, at, before)
    for part, error in expired:
        yield from run(_SAY_WHY, too_late(error), part)
    return len(expired)


def next_due() -> Op[int | None]:
    found = yield from row(_NEXT_DUE)
    return found[0] if found else None
