"""The words that are kept about stickers, by their platform and its id."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.domain.events import Attachment
from perdure.domain.ids import TurnId
from perdure.domain.updates import Update
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, RaceLost, row, run

_WORDS = "SELECT words FROM stickers WHERE adapter = $1 AND id = $2"
_KNOWN = """
    SELECT s.words, s.tried_at, s.errand_id, t.outcome IS NULL
    FROM stickers s JOIN turns t ON t.id = s.errand_id
    WHERE s.adapter = $1 AND s.id = $2 FOR UPDATE OF s"""
_FIRST = """
    INSERT INTO stickers (adapter, id, words, errand_id, tried_at) VALUES ($1, $2, '', $3, $4)
    ON CONFLICT (adapter, id) DO NOTHING RETURNING id"""
_AGAIN = "UPDATE stickers SET errand_id = $1, tried_at = $2 WHERE adapter = $3 AND id = $4"
_OF_ERRAND = "SELECT adapter, id FROM stickers WHERE errand_id = $1 FOR UPDATE"
_DESCRIBED = "UPDATE stickers SET words = $1 WHERE errand_id = $2"
_WAKE = """
    UPDATE fetches SET due_at = $1
    WHERE adapter = $2 AND sticker_id = $3 AND state = 'pending' AND sticker_id <> ''"""


class Known(NamedTuple):
    """What is known of a sticker: its words, or who tries to find some, and since when."""

    words: str
    tried_at: int
    errand: TurnId
    is_open: bool


def with_words(update: Update) -> Op[Update]:
    """The update with the words that are known of its stickers. The turn then waits for nothing,
    and what it was told stays as it was, whatever becomes of the words."""
    if not any(each.sticker is not None for each in update.attachments):
        return update
    attachments = yield from _filled(update.address.adapter, update.attachments)
    return msgspec.structs.replace(update, attachments=attachments)


def _filled(adapter: str, attachments: Sequence[Attachment]) -> Op[tuple[Attachment, ...]]:
    filled = []
    for each in attachments:
        found = (yield from row(_WORDS, adapter, each.sticker.id)) if each.sticker else None
        filled.append(msgspec.structs.replace(each, text=found[0]) if found else each)
    return tuple(filled)


def known(adapter: str, sticker: str) -> Op[Known | None]:
    """What is known of a sticker, whose row is locked."""
    found = yield from row(_KNOWN, adapter, sticker)
    if found is None:
        return None
    words, tried_at, errand, is_open = found
    return Known(words, tried_at, errand, bool(is_open))


def tried(
    adapter: str, sticker: str, errand: TurnId, stamp: Stamp, *, before: Known | None
) -> Op[None]:
    """Write down who describes it. Two who meet it at once meet at the key: one of them loses, and
    finds the other's errand."""
    if before is not None:
        yield from run(_AGAIN, errand, stamp.at, adapter, sticker)
    elif (yield from row(_FIRST, adapter, sticker, errand, stamp.at)) is None:
        raise RaceLost


def described(errand: TurnId, words: str, stamp: Stamp) -> Op[None]:
    """Keep what an errand has found out, and let those look again who wait for it. The sticker's
    row is locked first: whoever begins to wait at this moment has either written that down before,
    or will find the words."""
    found = yield from row(_OF_ERRAND, errand)
    if found is None:
        return  # it took so long that another one was sent
    if words:
        yield from run(_DESCRIBED, words, errand)
    yield from run(_WAKE, stamp.at, *found)
