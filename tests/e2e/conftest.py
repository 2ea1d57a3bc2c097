"""Holds what several end-to-end tests need."""

import os
from pathlib import Path

import pytest

from perdure.testkit.processes.wall_clock import WallClock

LIBRARIES = "*/faketime/libfaketimeMT.so.1"


@pytest.fixture
def wall_clock(tmp_path: Path) -> WallClock:
    found = sorted(Path("/usr/lib").glob(LIBRARIES))
    if not found:
        words = "libfaketime cannot be had here: run scripts/test-peers"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(words)
    return WallClock(str(found[0]), tmp_path)
