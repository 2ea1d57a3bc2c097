"""Time."""

from typing import Protocol


class Clock(Protocol):
    """The only source of time.

    Guarantees: `now_ms` is UTC milliseconds since 1970 and may jump; `monotonic_s` never goes back;
    `paused_s` is how long the process has stood still so far, as far as that was noticed (while
    something is limited in time, `ports/system/time_limits.py`); `sleep` returns no sooner than
    asked. Requires: nothing.
    Raises: nothing but cancellation.
    After a crash: nothing is kept.
    """

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...

    def paused_s(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...
