"""What a process was at when it died: after a death, a row for whatever is being handled."""

from perdure.domain.address import Address
from perdure.store.statement import Op, one, run

# Counts one more try of handling an arrival.
_BEGIN = """
    INSERT INTO handling (adapter, account, external_id, tries, at) VALUES ($1, $2, $3, 1, $4)
    ON CONFLICT (adapter, account, external_id) DO UPDATE SET tries = handling.tries + 1, at = $4
    RETURNING tries"""
# Forgets an arrival that was handled.
_END = "DELETE FROM handling WHERE adapter = $1 AND account = $2 AND external_id = $3"
# Forgets what the platform never offered again.
_FORGET = "DELETE FROM handling WHERE at < $1"
_KEPT_MS = 30 * 86_400_000


def begin(address: Address, external_id: str, *, at: int) -> Op[int]:
    """Note that an arrival is being handled. Returns for how many times."""
    yield from run(_FORGET, at - _KEPT_MS)
    tries = yield from one(int, _BEGIN, address.adapter, address.account, external_id, at)
    assert tries is not None
    return tries


def end(address: Address, external_id: str) -> Op[None]:
    """Note that an arrival was handled, however it went."""
    yield from run(_END, address.adapter, address.account, external_id)
