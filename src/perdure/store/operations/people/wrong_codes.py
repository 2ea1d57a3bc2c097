"""Counts wrong codes, so that guessing a code is useless."""

from typing import Final

from perdure.domain.waits import TOLERANCE_MS
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, one, run

# Wrong codes count for an hour.
HOUR_MS: Final = 3_600_000

# Counts somebody's wrong codes. Codes with a time in the future, from before the clock was set
# back, do not count.
_COUNT = """
    SELECT count(*) FROM wrong_codes WHERE purpose = $1 AND who = $2 AND at > $3 AND at <= $4"""
# Records a wrong code.
_NOTE = "INSERT INTO wrong_codes (id, purpose, who, at) VALUES ($1, $2, $3, $4)"
# Deletes wrong codes that are too old to count.
_FORGET = "DELETE FROM wrong_codes WHERE purpose = $1 AND who = $2 AND at <= $3"


def are_too_many(purpose: str, who: str, limit: int, *, at: int) -> Op[bool]:
    """Tell whether `limit` wrong codes were given within the last hour. While that is so, the right
    code must not be accepted either."""
    found = yield from one(int, _COUNT, purpose, who, at - HOUR_MS, at + TOLERANCE_MS)
    return found is not None and found >= limit


def note(purpose: str, who: str, stamp: Stamp) -> Op[None]:
    """Record a wrong code, and delete old ones."""
    yield from run(_FORGET, purpose, who, stamp.at - HOUR_MS)
    yield from run(_NOTE, stamp.mint("bad"), purpose, who, stamp.at)
