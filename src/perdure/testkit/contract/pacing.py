"""Keeps the pace of an account in memory, for tests that have no store."""

from perdure.ports.delivery.pacing import Hold, Lately
from perdure.ports.system.clock import Clock


class RememberedPacing:
    """Implements the `Pacing` port. It has no outbox to read, so it reports waits and never
    calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[tuple[str, str], float] = {}

    async def hold(self, *, adapter: str, place: str, wait_s: float) -> None:
        """Keep a wait. A shorter one never ends a longer one."""
        until_s = self._clock.monotonic_s() + wait_s
        key = (adapter, place)
        self._until_s[key] = max(until_s, self._until_s.get(key, until_s))

    async def lately(self, *, adapter: str, within_s: float) -> Lately:
        """Return the waits that are not over."""
        now_s = self._clock.monotonic_s()
        held = (
            Hold(place=place, left_s=until_s - now_s)
            for (name, place), until_s in self._until_s.items()
            if name == adapter and until_s > now_s
        )
        return Lately(holds=tuple(held))
