"""Checks that a test which waits for ever is ended, also in a loop that waits outside of Python."""

import subprocess
import sys
from pathlib import Path

CONFTEST = """
from perdure.testkit.processes import hanging

def pytest_configure(config):
    config.pluginmanager.register(hanging)

def pytest_asyncio_loop_factories():
    return {"uvloop": hanging.new_loop}
"""
HANGS = """
import asyncio

async def test_nothing_happens_any_more():
    await asyncio.Event().wait()
"""


def test_a_test_that_hangs_is_ended_and_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(HANGS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "0.1"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50
    )
    assert "1 failed" in ended.stdout
    assert "the test took too long" in ended.stdout
