"""Codes that did not fit are counted, so that guessing leads nowhere."""

from typing import Final

from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, row, run

HOUR_MS: Final = 3_600_000

_COUNT = "SELECT count(*) FROM wrong_codes WHERE purpose = $1 AND who = $2 AND at > $3"
_NOTE = "INSERT INTO wrong_codes (id, purpose, who, at) VALUES ($1, $2, $3, $4)"
_FORGET = "DELETE FROM wrong_codes WHERE purpose = $1 AND who = $2 AND at <= $3"


def are_too_many(purpose: str, who: str, limit: int, *, at: int) -> Op[bool]:
    """Within the last hour. While they are, the right code does not count either."""
    found = yield from row(_COUNT, purpose, who, at - HOUR_MS)
    return found is not None and found[0] >= limit


def note(purpose: str, who: str, stamp: Stamp) -> Op[None]:
    yield from run(_FORGET, purpose, who, stamp.at - HOUR_MS)
    yield from run(_NOTE, stamp.mint("bad"), purpose, who, stamp.at)
