"""Ids and the time, as the store stamps them on rows."""

from perdure.domain.ids import RANDOM_BYTES, NodeId, mint
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.store.operations.turn_context import Stamp


class Mint:
    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def stamp(self, node: NodeId) -> Stamp:
        """What a node's operation writes on its rows, from now."""
        return Stamp(node=node, at=self.now_ms(), mint=self.id)

    def id(self, prefix: str) -> str:
        return mint(
            prefix,
            now_ms=self._clock.now_ms(),
            randomness=self._entropy.random_bytes(RANDOM_BYTES),
        )
