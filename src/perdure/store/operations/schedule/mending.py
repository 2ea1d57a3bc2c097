"""Lets jobs go on that a wrong clock has moved far into the future."""

from typing import Final

import msgspec

from perdure.domain.schedule.policy import WRONG_CLOCK_MS, next_after
from perdure.store.operations.jobs import job_rows
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op

# Finds jobs whose last occurrence was dealt with long after now.
_AHEAD = f"""
    SELECT {job_rows.COLUMNS} FROM jobs j
    WHERE j.fire_at > $1 AND j.last_at > $1 AND j.next_at IS NOT NULL
    ORDER BY j.fire_at, j.id LIMIT $2 FOR UPDATE"""
AT_ONCE: Final = 500


def mend(stamp: Stamp) -> Op[int]:
    """Give some of these jobs their next occurrence from now on. One that has a row already starts
    nothing again."""
    found = yield from job_rows.read(_AHEAD, stamp.at + WRONG_CLOCK_MS, AT_ONCE)
    for job in found:
        fresh = msgspec.structs.replace(job, last_at=0)
        yield from job_rows.stand(
            job_rows.with_next(fresh, next_after(fresh, after=stamp.at)), at=stamp.at
        )
    return len(found)
