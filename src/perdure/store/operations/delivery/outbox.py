"""The line of parts: put down in the transaction that decides to say them, taken and recorded one
by one, each only after those before it in its conversation."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.address import HTTP
from perdure.domain.delivery import LEGAL, DeliveryStep, PartState, too_late
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import ConversationId, MediaId, NodeId, PartId, SessionId, TurnId
from perdure.domain.waits import AT_ONCE, TOLERANCE_MS, due_at, is_ahead
from perdure.ports.delivery.outbox import Part
from perdure.store.operations.delivery import part_rows
from perdure.store.operations.delivery.part_rows import PART, PartRow, part_of, progress_of
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, RaceLost, exists, many, one, row, run

# Finds the conversation in which a turn is answered, or that of its session.
_VIA = """
    SELECT COALESCE((SELECT t.via_id FROM turns t WHERE t.id = $1), s.conversation_id)
    FROM sessions s WHERE s.id = $2"""
# Finds where the parts of a conversation go, and the last place in its line.
_LINE = """
    SELECT c.adapter, c.account, COALESCE((SELECT o.place_in_line FROM outbox o
        WHERE o.conversation_id = c.id ORDER BY o.place_in_line DESC LIMIT 1), 0)
    FROM conversations c WHERE c.id = $1"""
# Finds the first place in a line behind another.
_NEXT_PLACE = """
    SELECT MIN(place_in_line) FROM outbox WHERE conversation_id = $1 AND place_in_line > $2"""
# Parts stand this far apart in line, so that one which has to be divided has room behind it.
APART: Final = 1_000
# Puts a part into its line, unless its place is taken.
_PUT = """
    INSERT INTO outbox (id, message_id, part, conversation_id, session_id, turn_id, adapter,
                        account, place_in_line, step, target, text, choices, media_id, state,
                        attempts, node_id, due_at, receipt, error, created_at, changed_at, seq)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, '', '',
            $19, $19, (SELECT COALESCE(MAX(q.seq), 0) + 1 FROM outbox q
                       WHERE q.adapter = $7 AND q.state = 'pending'))
    ON CONFLICT (conversation_id, place_in_line) DO NOTHING RETURNING id"""
# The order of everything that people see, previews and final words alike: nothing appears while
# something before it in its line is still on its way. Marks have a line of their own, so that no
# answer ever waits for one.
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
# Lets a part wait anew after the clock was set back; changes none that has nothing to wait for.
_WAIT_ANEW = """
    UPDATE outbox SET due_at = due_at - changed_at + $1, changed_at = $1
    WHERE id = $2 AND due_at > changed_at RETURNING id"""
# Finds another part that has this receipt, in the words of the index that guards it.
_OWNER = """
    SELECT o.id FROM outbox m JOIN outbox o ON o.adapter = m.adapter AND o.account = m.account
    WHERE m.id = $1 AND m.step IN ('post', 'bubble', 'upload')
      AND o.receipt = $2 AND o.receipt NOT IN ('', 'kept', 'gone') AND o.id <> m.id
      AND o.step IN ('post', 'bubble', 'upload')"""
# Records how a try went. A pairing's code is nobody's business once it has arrived.
_RECORD = """
    UPDATE outbox SET state = $1, receipt = $2, error = $3, due_at = $4, changed_at = $5,
                      node_id = NULL,
                      text = CASE WHEN $1 = 'sent' AND message_id LIKE 'pair%' THEN '' ELSE text END
    WHERE id = $6"""
# Makes a post of an edit.
_POST_INSTEAD = "UPDATE outbox SET step = 'post', target = NULL WHERE id = $1"
# Locks the parts that a node has taken.
_TAKEN = """
    SELECT id FROM outbox
    WHERE adapter = $1 AND state = 'attempting' AND step <> 'bubble' AND node_id = $2
    FOR UPDATE"""
# Gives a part back that may be taken again at once.
_RELEASE = f"""
    UPDATE outbox SET state = 'pending', node_id = NULL, due_at = {AT_ONCE}, changed_at = $1
    WHERE id = $2"""
# Gives a part back that was not tried, until its time comes.
_DEFER = """
    UPDATE outbox SET state = 'pending', node_id = NULL, attempts = attempts - 1, due_at = $1,
                      changed_at = $2
    WHERE id = $3"""
# Gives up what has waited for too long.
_EXPIRE = """
    UPDATE outbox SET state = 'expired', changed_at = $1
    WHERE state = 'pending' AND COALESCE(replayed_at, created_at) < $2 RETURNING id, error"""
# Notes why a part was given up.
_SAY_WHY = "UPDATE outbox SET error = $1 WHERE id = $2"
# Finds a deletion of a part, or of the bubble that it was to edit.
_DELETION_OF = """
    SELECT 1 FROM outbox o JOIN outbox d ON d.step = 'delete' AND d.target IN (o.id, o.target)
    WHERE o.id = $1 AND o.step <> 'delete'"""
# Finds the platform's id of what a part answers: the message of its turn, or the one of the update
# that was answered without a turn.
_ANSWERED = """
    SELECT i.external_id FROM inbox i
    WHERE i.message_id = COALESCE((SELECT t.message_id FROM turns t WHERE t.id = $1), $2)
      AND i.adapter = $3 AND i.account = $4"""
# Finds the receipt of the last part before another of its message.
_BEFORE = """
    SELECT receipt FROM outbox
    WHERE message_id = $1 AND part < $2 AND state = 'sent' ORDER BY part DESC LIMIT 1"""
# Finds when the next part can be sent.
_NEXT_DUE = f"""
    SELECT MIN(CASE WHEN o.changed_at > $1 THEN {AT_ONCE} ELSE o.due_at END) FROM outbox o
    WHERE o.state = 'pending' AND {IS_FIRST}"""
# Finds when a platform is asked again what it could not say, whoever asked before.
_NEXT_DOUBT = f"""
    SELECT MIN(CASE WHEN o.changed_at > $1 THEN {AT_ONCE} ELSE o.due_at END) FROM outbox o
    WHERE o.state = 'attempting' AND o.node_id IS NULL"""
_OWNED = "the platform calls it {}, which is another part; look whether both are to be seen"


class PartText(NamedTuple):
    """Holds one part that is to be put down."""

    text: str
    step: DeliveryStep = DeliveryStep.POST
    target: str | None = None
    choices: tuple[str, ...] = ()
    media: MediaId | None = None


class DeliveryLine(NamedTuple):
    """Says where parts are put: a conversation's line, and what they belong to."""

    conversation: ConversationId
    session: SessionId
    turn: TurnId | None
    message: str


class _End(NamedTuple):
    """Holds the end of a line: where its parts go, and its last place."""

    adapter: str
    account: str
    last: int


class _TooOld(NamedTuple):
    """Names a part that was given up, and why it had not been sent by then."""

    id: PartId
    error: str


class _Due(NamedTuple):
    """Says when something is to be done, if there is anything."""

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
    """Put parts at the end of the line, in order; those of the message are counted from `first`.
    With `behind` they stand directly behind that place, as long as there is room."""
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
        )  # fmt: skip
        if not is_placed:
            raise RaceLost  # another session of the same line was faster
        put_down.append(part)
    return put_down


def _end_of(conversation: ConversationId) -> Op[_End]:
    """Return the end of a conversation's line."""
    found = yield from one(_End, _LINE, conversation)
    assert found is not None
    return found


def _places_behind(conversation: ConversationId, place: int, count: int) -> Op[list[int]]:
    """Return places between this one and the next in line; empty if there are not enough, or if
    nothing follows."""
    (following,) = (yield from row(_NEXT_PLACE, conversation, place)) or (None,)
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
    """Put words down for people on a platform; over HTTP clients read them from the journal."""
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
    """Tell whether everything in a line was delivered or given up, so that a part which is put
    behind it would be the first; see `IS_FIRST`."""
    return not (yield from exists(_OPEN, conversation))


def take(adapter: str, node: NodeId, *, limit: int, at: int) -> Op[list[Part]]:
    """Mark parts that can be sent now as attempting, and return them."""
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
    """Return a part with the receipt it needs, or as a post where what it was to edit never
    arrived."""
    if target is None:
        return (yield from with_answered(part))
    found = yield from progress_of(target)
    assert found is not None
    if part.step is DeliveryStep.EDIT and found.state != PartState.SENT:
        yield from _make_post(part.id)
        return (yield from with_answered(msgspec.structs.replace(part, step=DeliveryStep.POST)))
    return msgspec.structs.replace(part, receipt=found.receipt)


def _make_post(part: PartId) -> Op[None]:
    """Let the words of an edit be posted."""
    yield from run(_POST_INSTEAD, part)


def with_answered(part: Part) -> Op[Part]:
    """Return a part with the message that it answers; only the first part of a reply does. It must
    have come from where the part goes: what was sent from elsewhere answers nothing. A later part
    has the receipt of the one before it instead."""
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
    """Note how a try went."""
    now = yield from progress_of(part)
    if now is None:
        raise NotFound(f"there is no part {part}")
    if (state, receipt) == (now.state, now.receipt):
        return  # said again after a lost answer
    if state is PartState.SENT and (yield from exists(_OWNER, part, receipt)):
        state, receipt, error = PartState.UNKNOWN, "", _OWNED.format(receipt)
    if state not in LEGAL[PartState(now.state)] or (attempt and attempt != now.attempts):
        raise Conflict(f"part {part} is {now.state} (try {now.attempts}) and cannot become {state}")
    if state is PartState.PENDING and (yield from _is_withdrawn(part)):
        yield from part_rows.withdraw(part, at=at)
        return
    yield from run(_RECORD, state, receipt, error, due_at, at, part)


def post_instead(part: PartId, *, error: str, at: int, attempt: int) -> Op[None]:
    """Let the words of a part be posted, because what it was to edit is gone."""
    yield from record(
        part, PartState.PENDING, receipt="", error=error, due_at=AT_ONCE, at=at, attempt=attempt
    )
    yield from _make_post(part)


def defer(part: PartId, *, due_at: int, at: int, attempt: int) -> Op[None]:
    """Give back a part that was not tried, until its time comes."""
    now = yield from progress_of(part)
    state, attempts = (now.state, now.attempts) if now else (None, None)
    if (state, attempts) == (PartState.PENDING, attempt - 1):
        return  # said again after a lost answer
    if (state, attempts) != (PartState.ATTEMPTING, attempt):
        raise Conflict(f"part {part} is {state} (try {attempts}) and is not ours to give back")
    if (yield from _is_withdrawn(part)):
        yield from part_rows.withdraw(part, at=at)
    else:
        yield from run(_DEFER, due_at, at, part)


def _is_withdrawn(part: PartId) -> Op[bool]:
    """Tell whether a part was taken back."""
    return (yield from exists(_DELETION_OF, part))


def release(adapter: str, node: NodeId, *, keep: Sequence[PartId], at: int) -> Op[int]:
    """Give back what this node has taken but for these. Returns how many there were."""
    taken = yield from many(PartId, _TAKEN, adapter, node)
    released = [part for part in taken if part not in keep]
    for part in released:
        if (yield from _is_withdrawn(part)):
            yield from part_rows.withdraw(part, at=at)
        else:
            yield from run(_RELEASE, at, part)
    return len(released)


def expire(*, before: int, at: int) -> Op[list[PartId]]:
    """Give up what could not be sent in time. Returns those parts."""
    expired = yield from many(_TooOld, _EXPIRE, at, before)
    for part in expired:
        yield from run(_SAY_WHY, too_late(part.error), part.id)
    return [part.id for part in expired]


def next_due(*, at: int) -> Op[int | None]:
    """Return when the next part can be sent, or a platform be asked for one in doubt."""
    due = yield from one(_Due, _NEXT_DUE, at + TOLERANCE_MS)
    doubt = yield from one(_Due, _NEXT_DOUBT, at + TOLERANCE_MS)
    instants = [each.at for each in (due, doubt) if each is not None and each.at is not None]
    return min(instants, default=None)
