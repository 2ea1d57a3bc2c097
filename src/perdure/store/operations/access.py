"""Who may speak, as far as the store knows: pairings, and what strangers sent."""

import hashlib
from typing import Final

import msgspec

from perdure.domain.address import Address
from perdure.domain.errors import NotFound, Rejected
from perdure.domain.events import SessionOpened
from perdure.domain.ids import ConversationId, PrincipalId, SessionId
from perdure.ports.access import Caller, PairingView, Standing
from perdure.ports.history import Page
from perdure.store.dialect import Dialect
from perdure.store.operations import principals, wrong_codes
from perdure.store.operations.notices import notice
from perdure.store.operations.outbox import Line, Words, put
from perdure.store.operations.sessions import open_conversation, open_session
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, Row, row, rows, run

CODE_MS: Final = 3_600_000
ASKED_AGAIN_MS: Final = 60_000
ASKED_MAX: Final = 5
WAITING_MAX: Final = 100
REFUSALS_MAX: Final = 10_000
WRONG_MAX: Final = 10

_PAIRED = """
    SELECT 1 FROM pairings WHERE adapter = $1 AND account = $2 AND sender = $3
      AND state = 'approved' LIMIT 1"""
_IN_THREAD = """
    SELECT 1 FROM conversations WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = $4
      AND is_listed = 1 LIMIT 1"""
_TAKEN = """
    SELECT i.principal_id, c.adapter, c.account, c.place, c.thread, c.person
    FROM inbox i JOIN conversations c ON c.id = i.conversation_id
    WHERE i.external_id = $1 AND i.adapter = $2 AND i.account = $3 LIMIT 1"""
_REFUSED = """
    SELECT 1 FROM refusals WHERE external_id = $1 AND adapter = $2 AND account = $3 AND kind = $4"""
_REFUSE = """
    INSERT INTO refusals (external_id, adapter, account, kind, sender, place, reason, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (external_id, adapter, account, kind) DO NOTHING RETURNING at"""
# Old ones give way: what strangers send must not fill the disk.
_FORGET = """
    DELETE FROM refusals WHERE adapter = $1 AND account = $2 AND at <= (
        SELECT r.at FROM refusals r WHERE r.adapter = $1 AND r.account = $2
        ORDER BY r.at DESC LIMIT 1 OFFSET $3)"""
_ASKED = """
    SELECT asked_at FROM pairings WHERE adapter = $1 AND account = $2 AND sender = $3
      AND asked_at > $4 ORDER BY asked_at DESC"""
_WAITING = """
    SELECT COUNT(*) FROM pairings WHERE adapter = $1 AND account = $2 AND state = 'asked'
      AND expires_at > $3"""
# A new code takes the place of the last one.
_VOID = """
    UPDATE pairings SET expires_at = $1 WHERE adapter = $2 AND account = $3 AND sender = $4
      AND state = 'asked' AND expires_at > $1"""
_ASK = """
    INSERT INTO pairings (id, adapter, account, sender, name, place, digest, state, asked_at,
                          expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'asked', $8, $9)"""
_COLUMNS = """
    id, adapter, account, sender, name, place, state, asked_at, expires_at, decided_at"""
_BY_CODE = f"""
    SELECT {_COLUMNS} FROM pairings WHERE digest = $1 AND state = 'asked' AND expires_at > $2
    FOR UPDATE"""
_BY_ID = f"SELECT {_COLUMNS} FROM pairings WHERE id = $1 FOR UPDATE"
_PAGE = f"""
    SELECT {_COLUMNS} FROM pairings WHERE asked_at < $1 OR (asked_at = $1 AND id < $2)
    ORDER BY asked_at DESC, id DESC LIMIT $3"""
_END_OF_TIME = (2**62, "")
_DECIDE = "UPDATE pairings SET state = $1, decided_at = $2, decided_by = $3 WHERE id = $4"
_LIVE = """
    SELECT id, session_id FROM conversations
    WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = $4 AND person = $5"""


def standing(caller: Caller) -> Op[Standing]:
    where, arrival = caller.address, caller.arrival
    account = (where.adapter, where.account)
    paired = yield from row(_PAIRED, *account, arrival.sender.id)
    refused = yield from row(_REFUSED, arrival.external_id, *account, arrival.kind)
    known = Standing(is_paired=paired is not None, is_refused=refused is not None, is_engaged=False)
    if arrival.target:
        return (yield from _about_a_message(caller, known))
    if not where.thread:
        return known
    engaged = yield from row(_IN_THREAD, *account, where.place, where.thread)
    return msgspec.structs.replace(known, is_engaged=engaged is not None)


def _about_a_message(caller: Caller, known: Standing) -> Op[Standing]:
    where = caller.address
    taken = yield from row(_TAKEN, caller.arrival.target, where.adapter, where.account)
    if taken is None:
        return known
    author, adapter, account, place, thread, person = taken
    # Said in a place that is linked to another it stands there, and is spoken of here.
    is_here = (adapter, account, place) == (where.adapter, where.account, where.place)
    found = msgspec.structs.replace(where, thread=thread, person=person) if is_here else None
    return msgspec.structs.replace(known, is_engaged=True, author=author, where=found)


def refuse(dialect: Dialect, caller: Caller, reason: str, stamp: Stamp, *, told: str) -> Op[None]:
    is_new = yield from _note_refusal(caller, reason, stamp)
    if is_new and told:
        yield from _tell(dialect, caller.address, told, stamp)


def _note_refusal(caller: Caller, reason: str, stamp: Stamp) -> Op[bool]:
    """That it came; False if that is known already."""
    where, arrival = caller.address, caller.arrival
    noted = yield from row(
        _REFUSE,
        arrival.external_id, where.adapter, where.account, arrival.kind, arrival.sender.id,
        where.place, reason, stamp.at,
    )  # fmt: skip
    if noted is not None:
        yield from run(_FORGET, where.adapter, where.account, REFUSALS_MAX)
    return noted is not None


def _tell(dialect: Dialect, where: Address, text: str, stamp: Stamp) -> Op[None]:
    live = yield from _live(where)
    if live is not None:
        yield from notice(dialect, live[1], None, text, stamp)


def _live(where: Address) -> Op[Row | None]:
    return (
        yield from row(_LIVE, where.adapter, where.account, where.place, where.thread, where.person)
    )


def ask(dialect: Dialect, caller: Caller, code: str, stamp: Stamp) -> Op[bool]:
    """The code goes out by the outbox alone: no journal holds it, and the row forgets it once it
    was sent."""
    where, arrival = caller.address, caller.arrival
    who = (where.adapter, where.account, arrival.sender.id)
    asked = yield from rows(_ASKED, *who, stamp.at - CODE_MS)
    waiting = yield from row(_WAITING, *who[:2], stamp.at)
    assert waiting is not None
    is_fresh = bool(asked) and stamp.at - asked[0][0] < ASKED_AGAIN_MS
    is_too_often = is_fresh or len(asked) >= ASKED_MAX or waiting[0] >= WAITING_MAX
    is_new = yield from _note_refusal(caller, "pairing", stamp)
    if is_too_often or not is_new:
        return False
    pairing = stamp.mint("pair")
    yield from run(_VOID, stamp.at, *who)
    yield from run(
        _ASK, pairing, *who, arrival.sender.name[:200], where.place, digest(code), stamp.at,
        stamp.at + CODE_MS,
    )  # fmt: skip
    conversation, session = yield from _unlisted(dialect, caller, stamp)
    text = (
        f"I do not know you yet. Your code is {code}. Whoever runs this bot can let you in with: "
        f"perdure pair approve {code}\nIt is good for an hour."
    )
    yield from put(Line(conversation, session, None, pairing), [Words(text)], stamp)
    return True


def _unlisted(
    dialect: Dialect, caller: Caller, stamp: Stamp
) -> Op[tuple[ConversationId, SessionId]]:
    """A conversation to answer in, which nobody sees in a list until its person was let in."""
    where = caller.address
    found = yield from _live(where)
    if found is not None:
        return ConversationId(found[0]), SessionId(found[1])
    name = f"{where.adapter}:{caller.arrival.sender.id}"
    stranger = yield from principals.ensure(
        PrincipalId(stamp.mint("prn")), name, "member", at=stamp.at
    )
    conversation, session = ConversationId(stamp.mint("cnv")), SessionId(stamp.mint("ses"))
    yield from open_conversation(
        conversation, session, where, stamp, principal=stranger.id, kind="private"
    )
    opened = SessionOpened(by=stranger.id, reason="pairing")
    yield from open_session(dialect, session, conversation, opened, stamp, principal=stranger.id)
    return conversation, session


def digest(code: str) -> str:
    """Codes are read aloud and typed: case and dashes do not matter."""
    plain = "".join(char for char in code.upper() if char.isalnum())
    return hashlib.sha256(plain.encode()).hexdigest()


def pairings(page: Page, *, at: int) -> Op[list[PairingView]]:
    before, last = page.after or _END_OF_TIME
    found = yield from rows(_PAGE, before, last, page.limit)
    return [_view(each, at=at) for each in found]


def approve(dialect: Dialect, code: str, stamp: Stamp, *, by: str) -> Op[PairingView | None]:
    """None for a wrong code, which is counted: an error would undo that."""
    if (yield from wrong_codes.are_too_many("pairing", "", WRONG_MAX, at=stamp.at)):
        raise Rejected(
            f"{WRONG_MAX} wrong codes were given within an hour, so none is taken for a while; "
            "try again later, with the code as the person got it",
            code="too_many_codes",
        )
    found = yield from row(_BY_CODE, digest(code), stamp.at)
    if found is None:
        yield from wrong_codes.note("pairing", "", stamp)
        return None
    approved = yield from _decide(found, "approved", stamp, by=by)
    where = Address(adapter=approved.adapter, account=approved.account, place=approved.place)
    yield from _tell(dialect, where, "You are let in. Go ahead.", stamp)
    return approved


def revoke(pairing: str, stamp: Stamp, *, by: str) -> Op[PairingView]:
    found = yield from row(_BY_ID, pairing)
    if found is None:
        raise NotFound(f"there is no pairing {pairing}; see `perdure pair list`")
    return (yield from _decide(found, "revoked", stamp, by=by))


def _decide(found: Row, state: str, stamp: Stamp, *, by: str) -> Op[PairingView]:
    yield from run(_DECIDE, state, stamp.at, by, found[0])
    changed = yield from row(_BY_ID, found[0])
    assert changed is not None
    return _view(changed, at=stamp.at)


def _view(found: Row, *, at: int) -> PairingView:
    pairing, adapter, account, sender, name, place, state, asked_at, expires_at, decided = found
    is_over = state == "asked" and expires_at <= at
    return PairingView(
        id=pairing,
        adapter=adapter,
        account=account,
        sender=sender,
        name=name,
        place=place,
        state="expired" if is_over else state,
        asked_at=asked_at,
        expires_at=expires_at,
        decided_at=decided,
    )
