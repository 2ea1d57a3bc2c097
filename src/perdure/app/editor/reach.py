"""Reaches the node for an editor, also across a restart of the node."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from perdure.app.operate.client import NodeClient
from perdure.app.wiring.system import SystemClock
from perdure.domain.errors import Ambiguous, Transient

T = TypeVar("T")
RETRY_S: Final = 0.3
# How long a node that went away is looked for.
PATIENCE_S: Final = 30.0
AWAY: Final = (Transient, Ambiguous)

FindNode = Callable[[], Awaitable[NodeClient]]


class PatientNode:
    """Calls the node of a home. `find` returns it, and raises `Rejected` if none runs."""

    def __init__(self, find: FindNode) -> None:
        self._find = find
        self._node: NodeClient | None = None

    async def client(self) -> NodeClient:
        """Return the node that was found last. Raises `Rejected` if none runs."""
        if self._node is None:
            self._node = await self._find()
        return self._node

    async def insist(self, call: Callable[[NodeClient], Awaitable[T]]) -> T:
        """Make a call until the node answers, or patience ends. The call must be one that may be
        repeated."""
        patience = ReconnectPatience(self)
        while True:
            try:
                return await call(await self.client())
            except AWAY as error:
                await patience.spend(error)

    async def found_again(self) -> None:
        """Look for the node where it is now. Raises `Rejected` if none runs."""
        if self._node is None or not await self._node.look_again():
            self._node = None
            self._node = await self._find()


class ReconnectPatience:
    """Limits how long a node that went away is looked for."""

    def __init__(self, node: PatientNode) -> None:
        self._node = node
        self._clock = SystemClock()
        self._since_s: float | None = None

    @property
    def is_spending(self) -> bool:
        """Tell whether the node is being looked for."""
        return self._since_s is not None

    def renew(self) -> None:
        """Start the patience anew, because the node has answered."""
        self._since_s = None

    async def spend(self, error: Transient | Ambiguous) -> None:
        """Wait a little, and look for the node again. Raises the error, or what says better why
        nobody answers, when patience ends."""
        now_s = self._clock.monotonic_s()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s > PATIENCE_S:
            await self._node.found_again()
            raise error
        await self._clock.sleep(RETRY_S)
        node = await self._node.client()
        await node.look_again()
