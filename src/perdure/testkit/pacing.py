"""An account's pace for tests that have no store: it is kept as long as the object lives."""

from perdure.ports.delivery.pacing import Hold, Lately
from perdure.ports.system.clock import Clock


class RememberedPacing:
    """The `Pacing` port. It knows of no outbox, so of no calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[tuple[str, str], float] = {}

    async def hold(self, *, adapter: str, place: str, wait_s: float) -> None:
        until_s = self._clock.monotonic_s() + wait_s
        key = (adapter, place)
        self._until_s[key] = max(until_s, self._until_s.get(key, until_s))

    async def lately(self, *, adapter: str, within_s: float) -> Lately:
        now_s = self._clock.monotonic_s()
        held = (
            Hold(place=place, left_s=until_s - now_s)
            for (name, place), until_s in self._until_s.items()
            if name == adapter and until_s > now_s
        )
        return Lately(holds=tuple(held))
