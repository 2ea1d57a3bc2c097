"""The real clock and the real randomness."""

import asyncio
import io
import os
import time
from typing import Final

from perdure.ports.system.time_limits import running_time

_BLOCK_BYTES: Final = 4096
# What a loop can tell apart.
_TICK_S: Final = 0.001


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def paused_s(self) -> float:
        return running_time().paused_s()

    async def sleep(self, seconds: float) -> None:
        """Never less: uvloop counts from when it last looked at the clock, and may wake early."""
        until_s = self.monotonic_s() + seconds
        await asyncio.sleep(seconds)
        while (left_s := until_s - self.monotonic_s()) > 0:  # noqa: ASYNC110 - time is the event
            await asyncio.sleep(max(left_s, _TICK_S))


def give_memory_back() -> None:
    """Return the memory that is free to the system. The C library keeps it otherwise: what a busy
    hour has taken would look used for as long as the process lives."""
    import ctypes  # noqa: PLC0415 - most processes never come here

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)


class SystemEntropy:
    """The system's randomness, asked for in blocks: every turn needs a dozen small pieces, and each
    would be a system call.

    The loop and the store's writer both draw. One read of a block is atomic, so no byte is handed
    out twice; two threads that find a block used up both put a new one, and one of them is lost.
    """

    def __init__(self) -> None:
        self._block = io.BytesIO()

    def random_bytes(self, size: int) -> bytes:
        drawn = self._block.read(size)
        if len(drawn) < size:
            block = io.BytesIO(os.urandom(max(size, _BLOCK_BYTES)))
            drawn = block.read(size)
            self._block = block
        return drawn
