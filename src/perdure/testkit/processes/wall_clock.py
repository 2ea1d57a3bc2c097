"""Sets the wall clock of a real process, with libfaketime."""

from pathlib import Path


class WallClock:
    """Sets the wall clock of a process that runs with libfaketime. Its monotonic clock goes on."""

    def __init__(self, library: str, folder: Path) -> None:
        self._file = folder / "clock"
        self.set("+0")
        self.environ = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, difference: str) -> None:
        """Set the clock ahead of the machine's or behind it: `-2h`."""
        written = self._file.with_name("clock.new")
        written.write_text(f"{difference}\n")
        written.replace(self._file)
