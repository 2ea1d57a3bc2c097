"""Makes the ids and timestamps that the store writes into rows."""

from perdure.domain.ids import RANDOM_BYTES, NodeId, mint
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.store.operations.turn_context import Stamp


class Mint:
    """Makes ids and reads the time, both from the clock and the entropy that were injected."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def stamp(self, node: NodeId) -> Stamp:
        """Return the node, the current time and the id maker that one operation of this node writes
        with."""
        return Stamp(node=node, at=self.now_ms(), mint=self.id)

    def id(self, prefix: str) -> str:
        """Return a new id with this prefix that sorts by the time it was made."""
        return mint(
            prefix,
            now_ms=self._clock.now_ms(),
            randomness=self._entropy.random_bytes(RANDOM_BYTES),
        )
