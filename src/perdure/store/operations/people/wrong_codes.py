"""Codes that did not fit are counted, so that guessing leads nowhere."""

from typing import Final

from perdure.domain.waits import TOLERANCE_MS
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, one, run

HOUR_MS: Final = 3_600_000

# Counts the wrong codes of somebody. Those from before the clock was set back, which are
# still to come, count no more.
_COUNT = """
    SELECT count(*) FROM wrong_codes WHERE purpose = $1 AND who = $2 AND at > $3 AND at <= $4"""
# Notes a wrong code.
_NOTE = "INSERT INTO wrong_codes (id, purpose, who, at) VALUES ($1, $2, $3, $4)"
# Removes wrong codes that are too old to count.
_FORGET = "DELETE FROM wrong_codes WHERE purpose = $1 AND who = $2 AND at <= $3"


def are_too_many(purpose: str, who: str, limit: int, *, at: int) -> Op[bool]:
    """Tell whether so many wrong codes were given within the last hour. While they are too many,
    the right code does not count either."""
    found = yield from one(int, _COUNT, purpose, who, at - HOUR_MS, at + TOLERANCE_MS)
    return found is not None and found >= limit


def note(purpose: str, who: str, stamp: Stamp) -> Op[None]:
    """Note a wrong code, and forget old ones."""
    yield from run(_FORGET, purpose, who, stamp.at - HOUR_MS)
    yield from run(_NOTE, stamp.mint("bad"), purpose, who, stamp.at)
