"""The words that are kept about stickers, by their platform and its id."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import Attachment
from perdure.domain.waits import AT_ONCE, is_ahead
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, RaceLost, exists, one, run

# Finds the words that are kept of a sticker.
_WORDS = "SELECT words FROM stickers WHERE adapter = $1 AND id = $2"
# Locks a sticker, to see what is known of it.
_KNOWN = """
    SELECT s.words, s.tried_at, s.errand_id, t.outcome IS NULL
    FROM stickers s JOIN turns t ON t.id = s.errand_id
    WHERE s.adapter = $1 AND s.id = $2 FOR UPDATE OF s"""
# Keeps who is the first to describe a sticker.
_FIRST = """
    INSERT INTO stickers (adapter, id, words, errand_id, tried_at) VALUES ($1, $2, '', $3, $4)
    ON CONFLICT (adapter, id) DO NOTHING RETURNING id"""
# Corrects when somebody began to describe it, by a clock that was set back since.
_TRIED_NOW = "UPDATE stickers SET tried_at = $1 WHERE adapter = $2 AND id = $3"
# Keeps who describes it now, after those before have found nothing.
_AGAIN = "UPDATE stickers SET errand_id = $1, tried_at = $2 WHERE adapter = $3 AND id = $4"
# Locks the sticker that an errand describes.
_OF_ERRAND = "SELECT adapter, id FROM stickers WHERE errand_id = $1 FOR UPDATE"
# Keeps the words that an errand has found.
_DESCRIBED = "UPDATE stickers SET words = $1 WHERE errand_id = $2"
# Lets those look again who wait for the words.
_WAKE = f"""
    UPDATE fetches SET due_at = {AT_ONCE}
    WHERE adapter = $1 AND sticker_id = $2 AND state = 'pending' AND sticker_id <> ''"""


class _Sticker(NamedTuple):
    adapter: str
    id: str


class _KnownSticker(NamedTuple):
    """What is known of a sticker: its words, or who tries to find some, and since when."""

    words: str
    tried_at: int
    errand: TurnId
    is_open: int


def with_words(update: Update) -> Op[Update]:
    """Return the update with the words that are known of its stickers. The turn then waits for
    nothing, and what it was told stays as it was, whatever becomes of the words."""
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
    """Return what is known of a sticker, whose row is locked. If the clock was set back since
    somebody began to describe it, those who wait for that begin to wait anew, and no longer than
    that."""
    found = yield from one(_KnownSticker, _KNOWN, adapter, sticker)
    if found is None or not is_ahead(found.tried_at, stamp.at):
        return found
    yield from run(_TRIED_NOW, stamp.at, adapter, sticker)
    return found._replace(tried_at=stamp.at)


def tried(
    adapter: str, sticker: str, errand: TurnId, stamp: Stamp, *, before: _KnownSticker | None
) -> Op[None]:
    """Write down who describes it. Two who meet it at once meet at the key: one of them loses, and
    finds the other's errand."""
    if before is not None:
        yield from run(_AGAIN, errand, stamp.at, adapter, sticker)
    elif not (yield from exists(_FIRST, adapter, sticker, errand, stamp.at)):
        raise RaceLost


def described(errand: TurnId, words: str) -> Op[None]:
    """Keep what an errand has found out, and let those look again who wait for it. The sticker's
    row is locked first: whoever begins to wait at this moment has either written that down before,
    or will find the words."""
    sticker = yield from one(_Sticker, _OF_ERRAND, errand)
    if sticker is None:
        return  # it took so long that another one was sent
    if words:
        yield from run(_DESCRIBED, words, errand)
    yield from run(_WAKE, *sticker)
