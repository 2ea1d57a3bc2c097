"""Keeps who was let in by a pairing code, and which arrivals of strangers were refused."""

import hashlib
from typing import Final, NamedTuple

import msgspec

from perdure.domain.address import Address
from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import ConversationId, PrincipalId, SessionId
from perdure.domain.inbound.arrivals import PlaceKind
from perdure.domain.journal.session_events import SessionOpened
from perdure.domain.waits import TOLERANCE_MS
from perdure.ports.people.access import CallerStanding, PairingView, PlacedArrival
from perdure.ports.records.history import Page
from perdure.store.operations.addresses import ADDRESS
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.delivery.outbox import DeliveryLine, PartText, put
from perdure.store.operations.people import principals, wrong_codes
from perdure.store.operations.sessions import relocating
from perdure.store.operations.sessions.sessions import open_conversation, open_session
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, many, one, run

# How long a pairing code can be used.
CODE_MS: Final = 3_600_000
# A stranger gets at most one code in this time, and `ASKED_MAX` codes within `CODE_MS`.
ASKED_AGAIN_MS: Final = 60_000
ASKED_MAX: Final = 5
# Usable codes of one account at a time.
WAITING_MAX: Final = 100
# How many refusals are kept for each account.
REFUSALS_MAX: Final = 10_000
# Wrong codes within an hour, after which no code is accepted.
WRONG_MAX: Final = 10

# Finds out whether a person was let in.
_PAIRED = """
    SELECT 1 FROM pairings WHERE adapter = $1 AND account = $2 AND sender = $3
      AND state = 'approved' LIMIT 1"""
# Finds a conversation in a thread.
_IN_THREAD = """
    SELECT 1 FROM conversations WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = $4
      AND is_listed = 1 LIMIT 1"""
# Finds the author of an accepted message, and the conversation it is in.
_TAKEN = f"""
    SELECT i.principal_id, {ADDRESS}
    FROM inbox i JOIN conversations c ON c.id = i.conversation_id
    WHERE i.external_id = $1 AND i.adapter = $2 AND i.account = $3 LIMIT 1"""
# Finds out whether an arrival was refused before.
_REFUSED = """
    SELECT 1 FROM refusals WHERE external_id = $1 AND adapter = $2 AND account = $3 AND kind = $4"""
# Records that an arrival was refused, once.
_REFUSE = """
    INSERT INTO refusals (external_id, adapter, account, kind, sender, place, reason, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (external_id, adapter, account, kind) DO NOTHING RETURNING at"""
# Deletes old refusals of an account: what strangers send must not fill the disk.
_FORGET = """
    DELETE FROM refusals WHERE adapter = $1 AND account = $2 AND at <= (
        SELECT r.at FROM refusals r WHERE r.adapter = $1 AND r.account = $2
        ORDER BY r.at DESC LIMIT 1 OFFSET $3)"""
# Reads when a person was given codes, latest first.
_ASKED = """
    SELECT asked_at FROM pairings WHERE adapter = $1 AND account = $2 AND sender = $3
      AND asked_at > $4 AND asked_at <= $5 ORDER BY asked_at DESC"""
# Counts the codes of an account that can still be used.
_WAITING = """
    SELECT COUNT(*) FROM pairings WHERE adapter = $1 AND account = $2 AND state = 'asked'
      AND expires_at > $3 AND asked_at <= $4"""
# Makes the codes of a person useless: a new one replaces the last.
_VOID = """
    UPDATE pairings SET expires_at = $1 WHERE adapter = $2 AND account = $3 AND sender = $4
      AND state = 'asked' AND expires_at > $1"""
# Records that a person was given a code.
_ASK = """
    INSERT INTO pairings (id, adapter, account, sender, name, place, digest, state, asked_at,
                          expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'asked', $8, $9)"""
# The columns of a `_Pairing`.
_COLUMNS = """
    id, adapter, account, sender, name, place, state, asked_at, expires_at, decided_at"""
# Locks the pairing of a code that can still be used.
_BY_CODE = f"""
    SELECT {_COLUMNS} FROM pairings WHERE digest = $1 AND state = 'asked' AND expires_at > $2
    FOR UPDATE"""
# Locks a pairing.
_BY_ID = f"SELECT {_COLUMNS} FROM pairings WHERE id = $1 FOR UPDATE"
# Reads a page of the pairings, latest first.
_PAGE = f"""
    SELECT {_COLUMNS} FROM pairings WHERE asked_at < $1 OR (asked_at = $1 AND id < $2)
    ORDER BY asked_at DESC, id DESC LIMIT $3"""
_END_OF_TIME = (2**62, "")
# Records what was decided about a pairing, and by whom.
_DECIDE = "UPDATE pairings SET state = $1, decided_at = $2, decided_by = $3 WHERE id = $4"
# Finds the conversation at an address, and its live session.
_LIVE = """
    SELECT id, session_id FROM conversations
    WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = $4 AND person = $5"""


class _Taken(NamedTuple):
    """Holds the author of a message, and the address of the conversation it is in."""

    author: PrincipalId
    adapter: str
    account: str
    place: str
    thread: str
    person: str


class _Live(NamedTuple):
    """Holds a conversation, and its live session."""

    conversation: ConversationId
    session: SessionId


class _Pairing(NamedTuple):
    """Holds a stranger who was given a code, and what was decided."""

    id: str
    adapter: str
    account: str
    sender: str
    name: str
    place: str
    state: str
    asked_at: int
    expires_at: int
    decided_at: int | None


def standing(caller: PlacedArrival) -> Op[CallerStanding]:
    """Return what is known of the person behind an arrival: whether they were let in, whether this
    arrival was refused before, and whether they write where the bot takes part."""
    where, arrival = caller.address, caller.arrival
    account = (where.adapter, where.account)
    is_paired = yield from exists(_PAIRED, *account, arrival.sender.id)
    is_refused = yield from exists(_REFUSED, arrival.external_id, *account, arrival.kind)
    is_group = arrival.place_kind is PlaceKind.GROUP
    known = CallerStanding(
        is_paired=is_paired,
        is_refused=is_refused,
        is_engaged=False,
        former_place=(yield from relocating.former(where)) if is_group else "",
    )
    if arrival.target:
        return (yield from _about_a_message(caller, known))
    if not where.thread:
        return known
    is_engaged = yield from exists(_IN_THREAD, *account, where.place, where.thread)
    return msgspec.structs.replace(known, is_engaged=is_engaged)


def _about_a_message(caller: PlacedArrival, known: CallerStanding) -> Op[CallerStanding]:
    """Add what is known of the message that an arrival is about."""
    here = caller.address
    taken = yield from one(_Taken, _TAKEN, caller.arrival.target, here.adapter, here.account)
    if taken is None:
        return known
    # A message from a linked place belongs to the other conversation, but is discussed here.
    place = (taken.adapter, taken.account, taken.place)
    is_here = place == (here.adapter, here.account, here.place)
    where = msgspec.structs.replace(here, thread=taken.thread, person=taken.person)
    return msgspec.structs.replace(
        known, is_engaged=True, author=taken.author, where=where if is_here else None
    )


def refuse(caller: PlacedArrival, reason: str, stamp: Stamp, *, told: str) -> Op[None]:
    """Record that an arrival was refused, and tell the people of its conversation, once. Both
    are one transaction: if the platform delivers the arrival again after a crash, nobody is told
    twice."""
    is_new = yield from _note_refusal(caller, reason, stamp)
    if is_new and told:
        yield from _tell(caller.address, told, stamp)


def _note_refusal(caller: PlacedArrival, reason: str, stamp: Stamp) -> Op[bool]:
    """Record that an arrival was refused. Returns False if that is recorded already."""
    where, arrival = caller.address, caller.arrival
    is_new = yield from exists(
        _REFUSE,
        arrival.external_id, where.adapter, where.account, arrival.kind, arrival.sender.id,
        where.place, reason, stamp.at,
    )  # fmt: skip
    if is_new:
        yield from run(_FORGET, where.adapter, where.account, REFUSALS_MAX)
    return is_new


def _tell(where: Address, text: str, stamp: Stamp) -> Op[None]:
    """Post a notice in the conversation at an address, if there is one."""
    live = yield from _live(where)
    if live is not None:
        yield from notice(live.session, None, text, stamp)


def _live(where: Address) -> Op[_Live | None]:
    """Return the conversation at an address, or None."""
    place = (where.adapter, where.account, where.place, where.thread, where.person)
    return (yield from one(_Live, _LIVE, *place))


def ask(caller: PlacedArrival, code: str, stamp: Stamp) -> Op[bool]:
    """Give a stranger a pairing code, if they may have one now. Returns whether they got one.
    The code goes only through the outbox: no journal holds it, and its part is erased once it
    was sent."""
    where, arrival = caller.address, caller.arrival
    who = (where.adapter, where.account, arrival.sender.id)
    # What was asked before the clock was set back does not keep anybody from asking again.
    latest = stamp.at + TOLERANCE_MS
    asked = yield from many(int, _ASKED, *who, stamp.at - CODE_MS, latest)
    waiting = yield from one(int, _WAITING, *who[:2], stamp.at, latest)
    assert waiting is not None
    is_fresh = bool(asked) and stamp.at - asked[0] < ASKED_AGAIN_MS
    is_too_often = is_fresh or len(asked) >= ASKED_MAX or waiting >= WAITING_MAX
    is_new = yield from _note_refusal(caller, "pairing", stamp)
    if is_too_often or not is_new:
        return False
    pairing = stamp.mint("pair")
    yield from run(_VOID, stamp.at, *who)
    yield from run(
        _ASK, pairing, *who, arrival.sender.name[:200], where.place, code_digest(code), stamp.at,
        stamp.at + CODE_MS,
    )  # fmt: skip
    to = yield from _unlisted(caller, stamp)
    text = (
        f"I do not know you yet. Your code is {code}. Whoever runs this bot can let you in with: "
        f"perdure pair approve {code}\nIt is good for an hour."
    )
    yield from put(
        DeliveryLine(to.conversation, to.session, None, pairing), [PartText(text)], stamp
    )
    return True


def _unlisted(caller: PlacedArrival, stamp: Stamp) -> Op[_Live]:
    """Return a conversation to answer a stranger in. A new one is not listed until the person was
    let in."""
    where = caller.address
    found = yield from _live(where)
    if found is not None:
        return found
    name = f"{where.adapter}:{caller.arrival.sender.id}"
    stranger = yield from principals.ensure(
        PrincipalId(stamp.mint("prn")), name, "member", at=stamp.at
    )
    conversation, session = ConversationId(stamp.mint("cnv")), SessionId(stamp.mint("ses"))
    yield from open_conversation(
        conversation, session, where, stamp, principal=stranger.id, kind="private"
    )
    opened = SessionOpened(by=stranger.id, reason="pairing")
    yield from open_session(session, conversation, opened, stamp, principal=stranger.id)
    return _Live(conversation, session)


def code_digest(code: str) -> str:
    """Return the hash of a code. Codes are read aloud and typed, so case and dashes are ignored."""
    plain = "".join(char for char in code.upper() if char.isalnum())
    return hashlib.sha256(plain.encode()).hexdigest()


def pairings(page: Page, *, at: int) -> Op[list[PairingView]]:
    """Return a page of the pairings, latest first."""
    before, last = page.after or _END_OF_TIME
    found = yield from many(_Pairing, _PAGE, before, last, page.limit)
    return [_view(each, at=at) for each in found]


def approve(code: str, stamp: Stamp, *, by: str) -> Op[PairingView | None]:
    """Let in the person who got this code. Returns None for a wrong code, instead of raising: an
    error would roll back the count of wrong codes. Raises `Rejected` after too many wrong codes."""
    if (yield from wrong_codes.are_too_many("pairing", "", WRONG_MAX, at=stamp.at)):
        raise Rejected(
            f"{WRONG_MAX} wrong codes were given within an hour, so none is taken for a while; "
            "try again later, with the code as the person got it",
            code="too_many_codes",
        )
    found = yield from one(_Pairing, _BY_CODE, code_digest(code), stamp.at)
    if found is None:
        yield from wrong_codes.note("pairing", "", stamp)
        return None
    approved = yield from _decide(found.id, "approved", stamp, by=by)
    where = Address(adapter=approved.adapter, account=approved.account, place=approved.place)
    yield from _tell(where, "You are let in. Go ahead.", stamp)
    return approved


def revoke(pairing: str, stamp: Stamp, *, by: str) -> Op[PairingView]:
    """Revoke a pairing: its person is a stranger again."""
    found = yield from _by_id(pairing)
    if found is None:
        raise NotFound(f"there is no pairing {pairing}; see `perdure pair list`")
    return (yield from _decide(found.id, "revoked", stamp, by=by))


def _by_id(pairing: str) -> Op[_Pairing | None]:
    """Return a pairing, and lock it until the transaction ends."""
    return (yield from one(_Pairing, _BY_ID, pairing))


def _decide(pairing: str, state: str, stamp: Stamp, *, by: str) -> Op[PairingView]:
    """Record what was decided about a pairing, and return it."""
    yield from run(_DECIDE, state, stamp.at, by, pairing)
    changed = yield from _by_id(pairing)
    assert changed is not None
    return _view(changed, at=stamp.at)


def _view(found: _Pairing, *, at: int) -> PairingView:
    """Return a pairing as it is shown. An unused code is shown as expired after its time."""
    is_over = found.state == "asked" and found.expires_at <= at
    return PairingView(
        id=found.id,
        adapter=found.adapter,
        account=found.account,
        sender=found.sender,
        name=found.name,
        place=found.place,
        state="expired" if is_over else found.state,
        asked_at=found.asked_at,
        expires_at=found.expires_at,
        decided_at=found.decided_at,
    )
