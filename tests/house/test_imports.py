"""Checks what a start costs: a library that not everybody needs is imported by who needs it."""

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
