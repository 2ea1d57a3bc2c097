"""Moves what is known of a place to the id that the place has now.

A Telegram group that becomes a supergroup gets another id. One transaction moves its conversations,
with their sessions, grants and jobs, and what was overheard there; and it keeps both ids, so that
settings and addresses that name the first one stay good. The row of the two ids is written first
and once: if the process dies before the commit, nothing has moved and the platform tells it again;
if it dies after, nothing is moved twice.
"""

from typing import Final, NamedTuple

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import ConversationId
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, many, one, run

_PLACE = "adapter = $1 AND account = $2 AND place = $3"
# Records where a place is now, once.
_NOTE = """
    INSERT INTO relocations (adapter, account, place, moved_to, at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (adapter, account, place) DO NOTHING RETURNING at"""
# Leads older ids of a place to its newest one. Nothing leads a place to itself.
_FOLLOW = """
    UPDATE relocations SET moved_to = $1
    WHERE adapter = $2 AND account = $3 AND moved_to = $4 AND place <> $1"""
# Deletes that a place was moved: it is in use again.
_BACK = f"DELETE FROM relocations WHERE {_PLACE}"
# Finds where a place is now.
_NOW = f"SELECT moved_to FROM relocations WHERE {_PLACE}"
# Finds where a place is now, whichever account has seen it there.
_ANYBODYS = """
    SELECT moved_to FROM relocations WHERE adapter = $1 AND place = $2
    ORDER BY at DESC LIMIT 1"""
# Finds the id that a place had first.
FORMER: Final = """
    SELECT r.place FROM relocations r WHERE r.adapter = {adapter} AND r.account = {account}
      AND r.moved_to = {place} ORDER BY r.at, r.place LIMIT 1"""
_FORMER = FORMER.format(adapter="$1", account="$2", place="$3")
# Locks the conversations of a place.
_CONVERSATIONS = f"""
    SELECT id, thread, person FROM conversations WHERE {_PLACE} ORDER BY id FOR UPDATE"""
# Finds the conversation at an address.
_AT = f"SELECT id FROM conversations WHERE {_PLACE} AND thread = $4 AND person = $5"
# Gives a conversation its new address.
_MOVE = "UPDATE conversations SET place = $1 WHERE id = $2"
# Gives the jobs of a conversation, and the homes that it is, to another one.
_JOBS = "UPDATE jobs SET conversation_id = $1 WHERE conversation_id = $2 AND state <> 'removed'"
_HOMES = "UPDATE principals SET home_conversation_id = $1 WHERE home_conversation_id = $2"
# Puts what was overheard in the new place behind what was overheard in the old one.
_BEHIND = """
    UPDATE overheard SET nth = nth + (SELECT COALESCE(MAX(o.nth), 0) FROM overheard o
        WHERE o.adapter = $1 AND o.account = $2 AND o.place = $3 AND o.thread = overheard.thread)
    WHERE adapter = $1 AND account = $2 AND place = $4"""
# Moves what was overheard.
_OVERHEARD = """
    UPDATE overheard SET place = $1 WHERE adapter = $2 AND account = $3 AND place = $4"""


class _There(NamedTuple):
    id: ConversationId
    thread: str
    person: str


def relocate(old: Address, to: str, stamp: Stamp) -> Op[None]:
    """Move everything in a place to the id that it has now, unless that was done before."""
    here = (old.adapter, old.account, old.place)
    if old.place == to or not (yield from exists(_NOTE, *here, to, stamp.at)):
        return
    yield from run(_FOLLOW, to, *here)
    yield from run(_BACK, old.adapter, old.account, to)
    for each in (yield from many(_There, _CONVERSATIONS, *here)):
        known = yield from one(
            ConversationId, _AT, old.adapter, old.account, to, each.thread, each.person
        )
        if known is None:
            yield from run(_MOVE, to, each.id)
            continue
        # People wrote in the new place before this was known, so their conversation stays.
        yield from run(_JOBS, known, each.id)
        yield from run(_HOMES, known, each.id)
    yield from run(_BEHIND, *here, to)
    yield from run(_OVERHEARD, to, *here)


def now(address: Address) -> Op[Address | None]:
    """Return an address with the id that its place has now, or None if it has not moved."""
    to = yield from one(str, _NOW, address.adapter, address.account, address.place)
    return None if to is None else msgspec.structs.replace(address, place=to)


def place_now(adapter: str, place: str) -> Op[str | None]:
    """Return the id that a place has now, or None if it has not moved."""
    return (yield from one(str, _ANYBODYS, adapter, place))


def former(address: Address) -> Op[str]:
    """Return the id that a place had first, or an empty string if it has not moved."""
    found = yield from one(str, _FORMER, address.adapter, address.account, address.place)
    return found or ""
