"""Checks what a start costs: what not everybody needs is imported by who needs it."""

import os
import subprocess
import sys

import pytest

_IMPORTS_ALL = """
import importlib, pkgutil, sys
for room in map(importlib.import_module, ("perdure.app", "perdure.cli")):
    for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        importlib.import_module(module.name)
print("\\n".join(sys.modules))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    shown = subprocess.run(
        [sys.executable, "-c", _IMPORTS_ALL], check=True, capture_output=True, text=True
    )
    return set(shown.stdout.split())


@pytest.mark.parametrize(
    "name", ["acp", "mcp", "mcp_types", "pydantic", "anyio", "jsonschema", "httpx2"]
)
def test_a_start_does_not_import_what_only_tool_servers_and_agents_need(
    loaded: set[str], name: str
) -> None:
    assert "perdure.cli.main" in loaded
    assert name not in loaded


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return what a gateway without a configuration has imported when it is ready."""
    home = tmp_path_factory.mktemp("light") / "home"
    log = home.with_suffix(".log")
    command = (sys.executable, "-X", "importtime", "-m", "perdure", "serve")
    with (
        log.open("wb") as written,
        subprocess.Popen(
            [*command, "--home", str(home), "--port", "0"],
            env={**os.environ, "PERDURE_DISCOVER": "0", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=written,
        ) as process,
    ):
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.kill()
    assert ready
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


@pytest.mark.parametrize(
    "name",
    [
        *("difflib", "importlib.metadata", "importlib.resources", "python_socks"),
        *("rich.console", "xml.parsers.expat", "zipfile", "zoneinfo"),
        "perdure.app.life.replace",
        "perdure.domain.checking.checker",
        "perdure.domain.reading.pages",
        "perdure.tools.builtin",
    ],
)
def test_a_gateway_starts_without_what_only_some_gateways_need(
    started: set[str], name: str
) -> None:
    assert "perdure.app.life.serve" in started
    assert name not in started
