"""Holds what several end-to-end tests need."""

import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perdure.testkit.processes.http import Client
from perdure.testkit.processes.wall_clock import WallClock

if TYPE_CHECKING:
    from tests.chat_window import Chat, Gateway, Guest

AXE = Path(__file__).parents[1] / "peers" / "node_modules" / "axe-core" / "axe.min.js"
LIBRARIES = "*/faketime/libfaketimeMT.so.1"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--remote-debugging-port=0",
    # Pages of the browser's own, which it would load for each window behind its address bar. They
    # cost more than the page under test.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
    # A microphone that hears a tone, and may be used.
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)


@pytest.fixture
def wall_clock(tmp_path: Path) -> WallClock:
    found = sorted(Path("/usr/lib").glob(LIBRARIES))
    if not found:
        words = "libfaketime cannot be had here: run scripts/test-peers"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(words)
    return WallClock(str(found[0]), tmp_path)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a browser that outlives the event loops of the tests. Yields its address."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        missing = "no browser: install the package 'chromium', or run `make test`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    profile = tmp_path_factory.mktemp("browser")
    command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with (
        (profile / "browser.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            yield f"http://127.0.0.1:{debugging_port(process, profile)}"
        finally:
            process.kill()


def debugging_port(process: subprocess.Popen[bytes], profile: Path) -> int:
    file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) > 1:
            return int(lines[0])
        assert process.poll() is None, (profile / "browser.log").read_text()
        time.sleep(0.05)
    raise AssertionError("the browser did not open its debugging port in 30 s")


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the script that finds what hinders people."""
    if not AXE.exists():
        words = "axe-core is missing: run scripts/test-peers"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(words)
    return AXE.read_text("utf-8")


@pytest.fixture
def place(request: pytest.FixtureRequest) -> "Gateway | Guest":
    """Return the test's own gateway or, if the test is marked `shared`, a new guest at one that
    others use."""
    from tests.chat_window import Guest

    if request.node.get_closest_marker("shared") is None:
        own: Gateway = request.getfixturevalue("gateway")
        return own
    guest: Client = request.getfixturevalue("guest")
    return Guest(guest.gateway.url, guest.token)


@pytest.fixture
async def chat(browser: str, place: "Gateway | Guest") -> "AsyncIterator[Chat]":
    """Open a window with the web chat. The browser's library is imported by tests that use it
    only."""
    from tests.chat_window import opened

    async with opened(browser, place) as window:
        yield window
