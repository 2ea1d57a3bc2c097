"""Checks which external agents stay the same when the configuration is read again."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.app.children.children import LaunchedChildren
from perdure.app.config.values import (
    AcpAgent,
    Pool,
)
from perdure.app.external.agents import ExternalAgents
from perdure.domain.secret import Secret
from perdure.ports.agents.client import NO_OFFERS, ClientOffers
from perdure.testkit.simulator.system import VirtualClock

KEY = "sk-" + "a" * 60
SECTION = AcpAgent(preset="gemini", env={"KEY": Secret(KEY + "b")}, tools=("memory",))


@pytest.fixture
async def external(tmp_path: Path) -> AsyncIterator[ExternalAgents]:
    children = LaunchedChildren()
    made = ExternalAgents(tmp_path, children=children, clock=VirtualClock())
    yield made
    await made.close()
    await children.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"env": {"KEY": Secret(KEY + "c")}},
        {"preset": "codex"},
        {"command": ("gemini", "--acp", "--model", "other")},
        {"cwd": "/srv"},
        {"roots": ("/srv",)},
        {"own_tools": True},
        {"sandbox": "off"},
        {"share": False},
        {"pool": Pool(processes=2)},
    ],
    ids=lambda changed: next(iter(changed)),
)
async def test_what_a_process_depends_on_makes_another_pool(
    external: ExternalAgents, changed: dict[str, Any]
) -> None:
    first = external.agent("main", SECTION, NO_OFFERS)
    pool = external.pools["main"]
    other = external.agent("main", msgspec.structs.replace(SECTION, **changed), NO_OFFERS)
    assert other is not first
    assert external.pools["main"] is not pool


async def test_what_is_the_same_for_a_process_keeps_it(external: ExternalAgents) -> None:
    first = external.agent("main", SECTION, NO_OFFERS)
    env = {"KEY": Secret(KEY + "b")}
    again = msgspec.structs.replace(SECTION, env=env, tools=("todo",), concurrent=3)
    assert external.agent("main", again, NO_OFFERS) is first
    # Another agent with the same program shares nothing with it.
    assert external.agent("other", SECTION, NO_OFFERS) is not first
    assert external.pools["other"] is not external.pools["main"]


async def test_what_is_offered_to_a_process_makes_another_pool(external: ExternalAgents) -> None:
    first = external.agent("main", SECTION, NO_OFFERS)
    calls = external.calls("main")
    assert external.agent("main", SECTION, NO_OFFERS) is first
    assert external.calls("main") is calls
    assert external.agent("main", SECTION, ClientOffers(reads=True)) is not first
    # What the old one ends with its answers is nothing to the new one.
    assert external.calls("main") is not calls
