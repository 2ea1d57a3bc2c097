"""Keeps the line of parts of each conversation.

Parts are written in the transaction that decides to say them. They are taken and recorded one by
one, each only after those before it in its conversation. If the process dies between taking and
recording a part, the part is found as `attempting`, and `doubts.py` finds out what became of it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.address import HTTP
from perdure.domain.delivery import LEGAL, DeliveryStep, PartState, too_late
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import (
    ConversationId,
    MediaId,
    NodeId,
    PartId,
    QuestionId,
    SessionId,
    TurnId,
)
from perdure.domain.waits import AT_ONCE, TOLERANCE_MS, due_at, is_ahead
from perdure.ports.delivery.outbox import Part
from perdure.store.operations.delivery import part_rows
from perdure.store.operations.delivery.part_rows import PART, PartRow, part_of, part_progress
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, RaceLost, exists, many, one, run

# Finds the conversation in which a turn is answered: the linked one it came from, or its session's.
_VIA = """
    SELECT COALESCE((SELECT t.via_id FROM turns t WHERE t.id = $1), s.conversation_id)
    FROM sessions s WHERE s.id = $2"""
# Finds where the parts of a conversation go, and the last place in its line.
_LINE = """
    SELECT c.adapter, c.account, COALESCE((SELECT o.place_in_line FROM outbox o
        WHERE o.conversation_id = c.id ORDER BY o.place_in_line DESC LIMIT 1), 0)
    FROM conversations c WHERE c.id = $1"""
# Finds the next place in a line after a given one.
_NEXT_PLACE = """
    SELECT MIN(place_in_line) FROM outbox WHERE conversation_id = $1 AND place_in_line > $2"""
# The distance between the places of two parts. If a part must be divided, its pieces fit between it
# and the next part.
APART: Final = 1_000
# Adds a part to its line, unless its place is taken.
_PUT = """
    INSERT INTO outbox (id, message_id, part, conversation_id, session_id, turn_id, adapter,
                        account, place_in_line, step, target, text, choices, media_id, state,
                        attempts, node_id, due_at, receipt, error, created_at, changed_at,
                        question_id, seq)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, '', '',
            $19, $19, $20, (SELECT COALESCE(MAX(q.seq), 0) + 1 FROM outbox q
                       WHERE q.adapter = $7 AND q.state = 'pending'))
    ON CONFLICT (conversation_id, place_in_line) DO NOTHING RETURNING id"""
# The order of everything that people see, previews and final words alike: nothing appears while
# something before it in its line is still on its way. Reactions have a line of their own, so that
# no answer ever waits for one.
IS_FIRST = """
    NOT EXISTS (SELECT 1 FROM outbox e WHERE e.conversation_id = o.conversation_id
                AND e.place_in_line < o.place_in_line AND e.state IN ('pending', 'attempting')
                AND (e.step = 'react') = (o.step = 'react'))"""
# Finds a part of a line that is still on its way.
_OPEN = """
    SELECT 1 FROM outbox WHERE conversation_id = $1 AND state IN ('pending', 'attempting')
      AND step <> 'react' LIMIT 1"""
# Reads and locks the parts of an adapter that can be sent now.
_DUE = (
    PART
    + f"""
    WHERE o.adapter = $1 AND o.state = 'pending' AND (o.due_at <= $2 OR o.changed_at > $3)
      AND {IS_FIRST}
    ORDER BY o.seq, o.id LIMIT $4 FOR UPDATE OF o SKIP LOCKED"""
)
# Starts the wait of a part again after the clock was set back. Changes no part that does not wait.
_WAIT_ANEW = """
    UPDATE outbox SET due_at = due_at - changed_at + $1, changed_at = $1
    WHERE id = $2 AND due_at > changed_at RETURNING id"""
# Finds another part that has this receipt. Uses the same condition as the unique index.
_OWNER = """
    SELECT o.id FROM outbox m JOIN outbox o ON o.adapter = m.adapter AND o.account = m.account
    WHERE m.id = $1 AND m.step IN ('post', 'bubble', 'upload')
      AND o.receipt = $2 AND o.receipt NOT IN ('', 'kept', 'gone') AND o.id <> m.id
      AND o.step IN ('post', 'bubble', 'upload')"""
# Records the result of an attempt. The text of a pairing code is erased once it was sent.
_RECORD = """
    UPDATE outbox SET state = $1, receipt = $2, error = $3, due_at = $4, changed_at = $5,
                      node_id = NULL,
                      text = CASE WHEN $1 = 'sent' AND message_id LIKE 'pair%' THEN '' ELSE text END
    WHERE id = $6"""
# Turns an edit into a post.
_POST_INSTEAD = "UPDATE outbox SET step = 'post', target = NULL WHERE id = $1"
# Locks the parts that a node has taken, except previews.
_TAKEN = """
    SELECT id FROM outbox
    WHERE adapter = $1 AND state = 'attempting' AND step <> 'bubble' AND node_id = $2
    FOR UPDATE"""
# Releases a part, so that it can be taken again at once.
_RELEASE = f"""
    UPDATE outbox SET state = 'pending', node_id = NULL, due_at = {AT_ONCE}, changed_at = $1
    WHERE id = $2"""
# Releases a part that was not tried, until its time comes. The attempt does not count.
_DEFER = """
    UPDATE outbox SET state = 'pending', node_id = NULL, attempts = attempts - 1, due_at = $1,
                      changed_at = $2
    WHERE id = $3"""
# Gives up parts that have waited too long.
_EXPIRE = """
    UPDATE outbox SET state = 'expired', changed_at = $1
    WHERE state = 'pending' AND COALESCE(replayed_at, created_at) < $2 RETURNING id, error"""
# Records why a part was given up.
_SAY_WHY = "UPDATE outbox SET error = $1 WHERE id = $2"
# Finds a deletion of a part, or of the bubble it was to edit.
_DELETION_OF = """
    SELECT 1 FROM outbox o JOIN outbox d ON d.step = 'delete' AND d.target IN (o.id, o.target)
    WHERE o.id = $1 AND o.step <> 'delete'"""
# Finds the platform's id of the message that a part answers: the message of its turn, or that of
# the update which was answered without a turn.
_ANSWERED = """
    SELECT i.external_id FROM inbox i
    WHERE i.message_id = COALESCE((SELECT t.message_id FROM turns t WHERE t.id = $1), $2)
      AND i.adapter = $3 AND i.account = $4"""
# Finds the receipt of the last sent part before this one, of the same message.
_BEFORE = """
    SELECT receipt FROM outbox
    WHERE message_id = $1 AND part < $2 AND state = 'sent' ORDER BY part DESC LIMIT 1"""
# Finds when the next part can be sent.
_NEXT_DUE = f"""
    SELECT MIN(CASE WHEN o.changed_at > $1 THEN {AT_ONCE} ELSE o.due_at END) FROM outbox o
    WHERE o.state = 'pending' AND {IS_FIRST}"""
# Finds when a platform should be asked again about a part in doubt, whichever node asked before.
_NEXT_DOUBT = f"""
    SELECT MIN(CASE WHEN o.changed_at > $1 THEN {AT_ONCE} ELSE o.due_at END) FROM outbox o
    WHERE o.state = 'attempting' AND o.node_id IS NULL"""
_OWNED = "the platform calls it {}, which is another part; look whether both are to be seen"


class _NextPlace(NamedTuple):
    place: int | None


class PartText(NamedTuple):
    """Holds the content of one part to be added to the outbox."""

    text: str
    step: DeliveryStep = DeliveryStep.POST
    target: str | None = None
    choices: tuple[str, ...] = ()
    media: MediaId | None = None
    question: QuestionId | None = None


class DeliveryLine(NamedTuple):
    """Says where parts are added: a conversation's line, and what they belong to."""

    conversation: ConversationId
    session: SessionId
    turn: TurnId | None
    message: str


class _End(NamedTuple):
    """Holds where the parts of a line go, and the line's last place."""

    adapter: str
    account: str
    last: int


class _TooOld(NamedTuple):
    """Holds a part that was given up, and the error that had kept it from being sent."""

    id: PartId
    error: str


class _Due(NamedTuple):
    """Holds when something is to be done; None if there is nothing."""

    at: int | None


def put(
    line: DeliveryLine,
    parts: Sequence[PartText],
    stamp: Stamp,
    *,
    first: int = 0,
    delay_ms: int = 0,
    behind: int | None = None,
) -> Op[list[PartId]]:
    """Add parts to the end of the line, in order, numbered within their message from `first`. With
    `behind` they stand directly behind that place if there is room. A bubble is added as
    `attempting`: its preview sends it, not the pump."""
    end = yield from _end_of(line.conversation)
    places = [end.last + APART * nth for nth in range(1, len(parts) + 1)]
    if behind is not None:
        places = (yield from _places_behind(line.conversation, behind, len(parts))) or places
    put_down = []
    for offset, (place, words) in enumerate(zip(places, parts, strict=True)):
        is_bubble = words.step is DeliveryStep.BUBBLE
        part = PartId(stamp.mint("prt"))
        is_placed = yield from exists(
            _PUT,
            part, line.message, first + offset, line.conversation, line.session, line.turn,
            end.adapter, end.account, place, words.step, words.target, words.text,
            msgspec.json.encode(words.choices).decode() if words.choices else "", words.media,
            PartState.ATTEMPTING if is_bubble else PartState.PENDING, int(is_bubble),
            stamp.node if is_bubble else None, due_at(stamp.at, delay_ms), stamp.at,
            words.question,
        )  # fmt: skip
        if not is_placed:
            raise RaceLost  # another session of the same line took the place first
        put_down.append(part)
    return put_down


def _end_of(conversation: ConversationId) -> Op[_End]:
    """Return where a conversation's parts go, and the last place of its line."""
    found = yield from one(_End, _LINE, conversation)
    assert found is not None
    return found


def _places_behind(conversation: ConversationId, place: int, count: int) -> Op[list[int]]:
    """Return `count` places between this one and the next in line. Returns none if there are not
    enough, or if nothing follows."""
    found = yield from one(_NextPlace, _NEXT_PLACE, conversation, place)
    following = found.place if found else None
    room = following - place - 1 if following is not None else 0
    return [place + nth for nth in range(1, count + 1)] if room >= count else []


def put_unless_read(
    session: SessionId,
    turn: TurnId | None,
    message: str,
    words: PartText,
    stamp: Stamp,
    *,
    to: ConversationId | None = None,
) -> Op[None]:
    """Add text for people on a platform. Over HTTP it does nothing: clients read the journal."""
    conversation = to or (yield from conversation_of(session, turn))
    end = yield from _end_of(conversation)
    if end.adapter != HTTP:
        yield from put(DeliveryLine(conversation, session, turn, message), [words], stamp)


def conversation_of(session: SessionId, turn: TurnId | None) -> Op[ConversationId]:
    """Return the conversation in which a turn is answered."""
    found = yield from one(ConversationId, _VIA, turn, session)
    assert found is not None
    return found


def is_clear(conversation: ConversationId) -> Op[bool]:
    """Tell whether everything in a line was delivered or given up, so that a new part would be
    first; see `IS_FIRST`."""
    return not (yield from exists(_OPEN, conversation))


def take(adapter: str, node: NodeId, *, limit: int, at: int) -> Op[list[Part]]:
    """Mark parts that can be sent now as attempting, and return them. The mark commits before
    anything is sent: if the process dies while sending, the part is found as `attempting` and is
    not sent again blindly."""
    due = yield from many(PartRow, _DUE, adapter, at, at + TOLERANCE_MS, limit)
    taken = []
    for found in due:
        if is_ahead(found.changed_at, at) and (yield from exists(_WAIT_ANEW, at, found.id)):
            continue
        yield from part_rows.attempt(found.id, node, at=at)
        part = part_of(found._replace(attempts=found.attempts + 1))
        taken.append((yield from _completed(part, found.target)))
    return taken


def _completed(part: Part, target: PartId | None) -> Op[Part]:
    """Return a part with the receipt it needs, or as a post if the message it was to edit never
    arrived."""
    if target is None:
        return (yield from with_answered(part))
    found = yield from part_progress(target)
    assert found is not None
    if part.step is DeliveryStep.EDIT and found.state != PartState.SENT:
        yield from _make_post(part.id)
        return (yield from with_answered(msgspec.structs.replace(part, step=DeliveryStep.POST)))
    return msgspec.structs.replace(part, receipt=found.receipt)


def _make_post(part: PartId) -> Op[None]:
    """Turn an edit into a post."""
    yield from run(_POST_INSTEAD, part)


def with_answered(part: Part) -> Op[Part]:
    """Return a part with the platform's id of the message it answers, if it is the first part of a
    reply. That message must have come from the place the part goes to. A later part gets the
    receipt of the part before it instead."""
    if part.index and part.step is not DeliveryStep.REACT:
        before = yield from one(str, _BEFORE, part.message, part.index)
        return part if before is None else msgspec.structs.replace(part, after=before)
    address = part.address
    found = yield from one(
        str, _ANSWERED, part.turn, part.message, address.adapter, address.account
    )
    return part if found is None else msgspec.structs.replace(part, reply_to=found)


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
    """Record the result of an attempt. Raises `Conflict` if the part is in another state or
    attempt; the same result again does nothing. If another part has this receipt already, the part
    becomes unknown. If its turn was taken back, a part that would be tried again is withdrawn."""
    now = yield from part_progress(part)
    if now is None:
        raise NotFound(f"there is no part {part}")
    if (state, receipt) == (now.state, now.receipt):
        return  # repeated after a lost answer
    if state is PartState.SENT and (yield from exists(_OWNER, part, receipt)):
        state, receipt, error = PartState.UNKNOWN, "", _OWNED.format(receipt)
    if state not in LEGAL[PartState(now.state)] or (attempt and attempt != now.attempts):
        raise Conflict(f"part {part} is {now.state} (try {now.attempts}) and cannot become {state}")
    if state is PartState.PENDING and (yield from _is_withdrawn(part)):
        yield from part_rows.withdraw(part, at=at)
        return
    yield from run(_RECORD, state, receipt, error, due_at, at, part)


def post_instead(part: PartId, *, error: str, at: int, attempt: int) -> Op[None]:
    """Let the text of a part be posted, because the message it was to edit is gone."""
    yield from record(
        part, PartState.PENDING, receipt="", error=error, due_at=AT_ONCE, at=at, attempt=attempt
    )
    yield from _make_post(part)


def defer(part: PartId, *, due_at: int, at: int, attempt: int) -> Op[None]:
    """Release a part that was not tried, until `due_at`. Raises `Conflict` if this attempt has
    ended."""
    now = yield from part_progress(part)
    state, attempts = (now.state, now.attempts) if now else (None, None)
    if (state, attempts) == (PartState.PENDING, attempt - 1):
        return  # repeated after a lost answer
    if (state, attempts) != (PartState.ATTEMPTING, attempt):
        raise Conflict(f"part {part} is {state} (try {attempts}) and is not ours to give back")
    if (yield from _is_withdrawn(part)):
        yield from part_rows.withdraw(part, at=at)
    else:
        yield from run(_DEFER, due_at, at, part)


def _is_withdrawn(part: PartId) -> Op[bool]:
    """Tell whether the words of a part were taken back."""
    return (yield from exists(_DELETION_OF, part))


def release(adapter: str, node: NodeId, *, keep: Sequence[PartId], at: int) -> Op[int]:
    """Release the parts that this node has taken, except `keep`. Returns how many there were."""
    taken = yield from many(PartId, _TAKEN, adapter, node)
    released = [part for part in taken if part not in keep]
    for part in released:
        if (yield from _is_withdrawn(part)):
            yield from part_rows.withdraw(part, at=at)
        else:
            yield from run(_RELEASE, at, part)
    return len(released)


def expire(*, before: int, at: int) -> Op[list[PartId]]:
    """Give up parts that could not be sent in time. Returns them."""
    expired = yield from many(_TooOld, _EXPIRE, at, before)
    for part in expired:
        yield from run(_SAY_WHY, too_late(part.error), part.id)
    return [part.id for part in expired]


def next_due(*, at: int) -> Op[int | None]:
    """Return when the next part can be sent, or when a platform should be asked about one in
    doubt."""
    due = yield from one(_Due, _NEXT_DUE, at + TOLERANCE_MS)
    doubt = yield from one(_Due, _NEXT_DOUBT, at + TOLERANCE_MS)
    instants = [each.at for each in (due, doubt) if each is not None and each.at is not None]
    return min(instants, default=None)
