"""Counts what each person has stored, in the transaction that stores it, and enforces quotas.

Messages of operators are not counted: operators have no quota, and programs that speak for them
would wait for each other at one row.
"""

from typing import Final, NamedTuple

from perdure.domain.errors import NotFound
from perdure.domain.ids import MediaId, PrincipalId
from perdure.domain.inbound.updates import Update
from perdure.domain.kinds import ERRANDS, UNASKED, TurnKind
from perdure.domain.people.quotas import Quota, bytes_used_up, files_used_up, turns_used_up
from perdure.domain.prompt.bounds import utf8_size
from perdure.store.statement import Op, exists, many, one, run, sql_list

# Finds a member.
_IS_MEMBER = "SELECT 1 FROM principals WHERE id = $1 AND role = 'member'"
# Reads what a person has stored.
_HELD = "SELECT bytes, files FROM holdings WHERE principal_id = $1"
# Adds to what a person has stored; negative numbers take away.
_ADD = """
    INSERT INTO holdings (principal_id, bytes, files) VALUES ($1, $2, $3)
    ON CONFLICT (principal_id) DO UPDATE
    SET bytes = holdings.bytes + excluded.bytes, files = holdings.files + excluded.files"""
# Kinds of turns that the gateway starts by itself. They do not count, because nobody can be refused
# for them.
_OWN: Final = sql_list({*UNASKED, *ERRANDS} - {TurnKind.BACKGROUND})
# Counts the unfinished turns of a person, up to a limit.
_TURNS = f"""
    SELECT COUNT(*) FROM (SELECT 1 FROM turns WHERE principal_id = $1 AND outcome IS NULL
                          AND kind NOT IN {_OWN} LIMIT $2) AS at_once"""
# Marks a file as named by a message, and returns its owner, unless it was marked before.
_NAME_FILE = "UPDATE media SET is_loose = 0 WHERE id = $1 AND is_loose = 1 RETURNING principal_id"
# Finds a file.
_IS_THERE = "SELECT 1 FROM media WHERE id = $1"
# Locks files that no message has named since then, oldest first.
_LOOSE = """
    SELECT id, principal_id, size + shown_size FROM media WHERE is_loose = 1 AND created_at < $1
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED"""
# Deletes a file's row.
_REMOVE = "DELETE FROM media WHERE id = $1"


class _Held(NamedTuple):
    """Holds how many bytes a person has stored, and how many files no message has named."""

    bytes: int
    files: int


class _Loose(NamedTuple):
    """Holds a file that no message has named."""

    id: MediaId
    owner: PrincipalId
    size: int


def insist_on_turn(
    quota: Quota, principal: PrincipalId, update: Update, *, ends: int = 0
) -> Op[None]:
    """Raise `OverQuota` if the person has no room for this message. `ends` of their turns will end
    for it."""
    if not (quota.turns or quota.bytes) or not (yield from _is_member(principal)):
        return
    if quota.turns:
        at_once = yield from one(int, _TURNS, principal, quota.turns + ends)
        assert at_once is not None
        if at_once - ends >= quota.turns:
            raise turns_used_up(quota)
    if quota.bytes and (yield from _held(principal)).bytes + message_bytes(update) > quota.bytes:
        raise bytes_used_up(quota)


def insist_on_file(quota: Quota, principal: PrincipalId, size: int, *, is_loose: bool) -> Op[None]:
    """Raise `OverQuota` if the person has no room for this file."""
    if not (quota.files or quota.bytes) or not (yield from _is_member(principal)):
        return
    held = yield from _held(principal)
    if is_loose and quota.files and held.files >= quota.files:
        raise files_used_up(quota)
    if quota.bytes and held.bytes + size > quota.bytes:
        raise bytes_used_up(quota)


def message_bytes(update: Update) -> int:
    """Return how many bytes of a message count as stored."""
    results = (each.text for each in update.results)
    said = (update.text, update.instructions, update.context, update.tools, *results)
    return sum(map(utf8_size, said))


def count_message(principal: PrincipalId, update: Update) -> Op[None]:
    """Count a message's bytes, and mark its files as named, so that they are not removed as loose.
    Raises `NotFound` if a file was removed already."""
    for media in [each.media for each in update.attachments if each.media is not None]:
        owner = yield from one(PrincipalId, _NAME_FILE, media)
        if owner is not None:
            yield from add(owner, files=-1)
        elif not (yield from exists(_IS_THERE, media)):
            raise NotFound(f"there is no file {media} any more; upload it again")
    size = message_bytes(update)
    if size and (yield from _is_member(principal)):
        yield from add(principal, size)


def add(principal: PrincipalId, size: int = 0, *, files: int = 0) -> Op[None]:
    """Add to what a person has stored; negative numbers take away."""
    yield from run(_ADD, principal, size, files)


def remove_loose(*, before: int, limit: int) -> Op[int]:
    """Delete the rows of files that no message has named since `before`. Returns how many there
    were. The bytes on disk are removed later, once no row has them: after a crash in between, they
    are found as bytes without a row."""
    loose = yield from many(_Loose, _LOOSE, before, limit)
    for file in loose:
        yield from run(_REMOVE, file.id)
        yield from add(file.owner, -file.size, files=-1)
    return len(loose)


def _is_member(principal: PrincipalId) -> Op[bool]:
    """Tell whether a person is a member. Quotas apply to members only."""
    return (yield from exists(_IS_MEMBER, principal))


def _held(principal: PrincipalId) -> Op[_Held]:
    """Return what a person has stored."""
    return (yield from one(_Held, _HELD, principal)) or _Held(0, 0)
