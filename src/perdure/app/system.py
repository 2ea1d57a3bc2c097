"""The real clock and the real randomness."""

import asyncio
import secrets
import time


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemEntropy:
    def random_bytes(self, size: int) -> bytes:
        return secrets.token_bytes(size)
