"""Makes SQLite databases for tests: each is a copy of one that was migrated once.

A copy takes a tenth of the time of the migrations, and a run of the tests makes thousands of
databases.
"""

import asyncio
import tempfile
import threading
from functools import cache
from pathlib import Path

from perdure.store.drivers.sqlite import SqliteDriver
from perdure.testkit.simulator.system import VirtualClock


def sqlite_on(path: Path) -> SqliteDriver:
    """Return a driver on this file, which does not wait for the disk. A file that is missing is
    made, with all migrations and without a row."""
    if not path.exists():
        path.write_bytes(_migrated())
    return SqliteDriver(path, synchronous="OFF")


@cache
def _migrated() -> bytes:
    """Return a migrated database. It is made in a thread, because the caller's may run a loop."""
    made: list[bytes] = []
    thread = threading.Thread(target=lambda: made.append(asyncio.run(_make())))
    thread.start()
    thread.join()
    return made[0]


async def _make() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perdure.db"
        driver = SqliteDriver(path, synchronous="OFF")
        await driver.open(now_ms=VirtualClock().now_ms())
        await driver.close()
        return path.read_bytes()  # closing has emptied the log into the file
