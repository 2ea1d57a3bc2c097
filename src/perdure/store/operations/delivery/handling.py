"""Counts how often the handling of an arrival was begun, so that one which kills the process is
found.

Used for a while after the process before died: a row is written before an arrival is handled and
deleted after. If the process dies in between, the row stays, and its count tells the next process
how often that has happened.
"""

from perdure.domain.address import Address
from perdure.store.statement import Op, one, run

# Counts one more attempt to handle an arrival.
_BEGIN = """
    INSERT INTO handling (adapter, account, external_id, tries, at) VALUES ($1, $2, $3, 1, $4)
    ON CONFLICT (adapter, account, external_id) DO UPDATE SET tries = handling.tries + 1, at = $4
    RETURNING tries"""
# Deletes the count of an arrival that was handled.
_END = "DELETE FROM handling WHERE adapter = $1 AND account = $2 AND external_id = $3"
# Deletes counts of arrivals that the platform never offered again.
_FORGET = "DELETE FROM handling WHERE at < $1"
# How long a count is kept for an arrival that is not offered again.
_KEPT_MS = 30 * 86_400_000


def begin(address: Address, external_id: str, *, at: int) -> Op[int]:
    """Record that an arrival is being handled. Returns how often it was begun, including this
    time."""
    yield from run(_FORGET, at - _KEPT_MS)
    tries = yield from one(int, _BEGIN, address.adapter, address.account, external_id, at)
    assert tries is not None
    return tries


def end(address: Address, external_id: str) -> Op[None]:
    """Record that an arrival was handled, whatever the result."""
    yield from run(_END, address.adapter, address.account, external_id)
