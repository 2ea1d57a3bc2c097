"""Keeps the description of each sticker, by platform and the platform's id.

A sticker is described once, by an errand; messages with the same sticker wait for that errand.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import Attachment
from perdure.domain.waits import AT_ONCE, is_ahead
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, RaceLost, exists, one, run

# Finds the description of a sticker.
_WORDS = "SELECT words FROM stickers WHERE adapter = $1 AND id = $2"
# Locks a sticker's row and reads what is known.
_KNOWN = """
    SELECT s.words, s.tried_at, s.errand_id, t.outcome IS NULL
    FROM stickers s JOIN turns t ON t.id = s.errand_id
    WHERE s.adapter = $1 AND s.id = $2 FOR UPDATE OF s"""
# Records which errand is the first to describe a sticker.
_FIRST = """
    INSERT INTO stickers (adapter, id, words, errand_id, tried_at) VALUES ($1, $2, '', $3, $4)
    ON CONFLICT (adapter, id) DO NOTHING RETURNING id"""
# Corrects the start of a description that lies in the future, because the clock was set back.
_TRIED_NOW = "UPDATE stickers SET tried_at = $1 WHERE adapter = $2 AND id = $3"
# Records which errand describes the sticker now, after the ones before found nothing.
_AGAIN = "UPDATE stickers SET errand_id = $1, tried_at = $2 WHERE adapter = $3 AND id = $4"
# Locks the sticker that an errand describes.
_OF_ERRAND = "SELECT adapter, id FROM stickers WHERE errand_id = $1 FOR UPDATE"
# Stores the description that an errand has found.
_DESCRIBED = "UPDATE stickers SET words = $1 WHERE errand_id = $2"
# Makes the fetches that wait for the description due at once.
_WAKE = f"""
    UPDATE fetches SET due_at = {AT_ONCE}
    WHERE adapter = $1 AND sticker_id = $2 AND state = 'pending' AND sticker_id <> ''"""


class _Sticker(NamedTuple):
    adapter: str
    id: str


class _KnownSticker(NamedTuple):
    """Holds what is known of a sticker: its description, or which errand looks for one and since
    when. `is_open` is 1 while that errand is not over."""

    words: str
    tried_at: int
    errand: TurnId
    is_open: int


def with_words(update: Update) -> Op[Update]:
    """Return the update with the known descriptions of its stickers filled in. Its turn then need
    not wait for them, and later changes of a description do not change what this turn was told."""
    if not any(each.sticker is not None for each in update.attachments):
        return update
    attachments = yield from _filled(update.address.adapter, update.attachments)
    return msgspec.structs.replace(update, attachments=attachments)


def _filled(adapter: str, attachments: Sequence[Attachment]) -> Op[tuple[Attachment, ...]]:
    filled = []
    for each in attachments:
        words = (yield from one(str, _WORDS, adapter, each.sticker.id)) if each.sticker else None
        filled.append(each if words is None else msgspec.structs.replace(each, text=words))
    return tuple(filled)


def known(adapter: str, sticker: str, stamp: Stamp) -> Op[_KnownSticker | None]:
    """Return what is known of a sticker, and lock its row. If the clock was set back since the
    description was ordered, the wait for it starts again from now, so nobody waits longer than
    intended."""
    found = yield from one(_KnownSticker, _KNOWN, adapter, sticker)
    if found is None or not is_ahead(found.tried_at, stamp.at):
        return found
    yield from run(_TRIED_NOW, stamp.at, adapter, sticker)
    return found._replace(tried_at=stamp.at)


def tried(
    adapter: str, sticker: str, errand: TurnId, stamp: Stamp, *, before: _KnownSticker | None
) -> Op[None]:
    """Record which errand describes a sticker. If two transactions see a new sticker at once,
    the unique key lets one win; the other raises `RaceLost`, runs again and finds the winner's
    errand."""
    if before is not None:
        yield from run(_AGAIN, errand, stamp.at, adapter, sticker)
    elif not (yield from exists(_FIRST, adapter, sticker, errand, stamp.at)):
        raise RaceLost


def described(errand: TurnId, words: str) -> Op[None]:
    """Store what an errand has found, and wake the fetches that wait for it. The sticker's row is
    locked first, so that a fetch which starts to wait at this moment is either woken or finds the
    description."""
    sticker = yield from one(_Sticker, _OF_ERRAND, errand)
    if sticker is None:
        return  # it took so long that another errand was ordered meanwhile
    if words:
        yield from run(_DESCRIBED, words, errand)
    yield from run(_WAKE, *sticker)
