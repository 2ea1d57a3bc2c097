"""Implements the clock and the randomness of a real process."""

import asyncio
import io
import os
import time
from typing import Final

from perdure.ports.system.time_limits import running_time

# How many random bytes are taken from the system at once.
_BLOCK_BYTES: Final = 4096
# The smallest sleep that an event loop can measure.
_TICK_S: Final = 0.001


class SystemClock:
    """Implements the `Clock` port with the system's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def paused_s(self) -> float:
        """Return how long this process was paused in total, as far as that was noticed."""
        return running_time().paused_s()

    async def sleep(self, seconds: float) -> None:
        """Sleep at least this long. uvloop counts from when it last read the clock, so a plain
        sleep may wake early."""
        until_s = self.monotonic_s() + seconds
        await asyncio.sleep(seconds)
        while (left_s := until_s - self.monotonic_s()) > 0:  # noqa: ASYNC110 - time is the event
            await asyncio.sleep(max(left_s, _TICK_S))


def give_memory_back() -> None:
    """Return free memory to the system. Otherwise the C library keeps it, and what a busy hour has
    taken looks used for as long as the process lives."""
    import ctypes  # noqa: PLC0415 - most processes never come here

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has this function
    if trim is not None:
        trim(0)


class SystemEntropy:
    """Implements the `Entropy` port with the system's randomness, taken in blocks. Every turn needs
    a dozen small pieces, and each would be a system call.

    The event loop and the store's writer thread both draw. One read of a block is atomic, so no
    byte is given out twice. If two threads find a block empty at the same time, both make a new
    one, and one of the two is discarded unused.
    """

    def __init__(self) -> None:
        self._block = io.BytesIO()

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes that nobody else gets."""
        drawn = self._block.read(size)
        if len(drawn) < size:
            block = io.BytesIO(os.urandom(max(size, _BLOCK_BYTES)))
            drawn = block.read(size)
            self._block = block
        return drawn
