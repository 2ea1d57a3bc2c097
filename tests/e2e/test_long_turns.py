"""Checks that reading one very long turn takes no more memory than a page."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from perdure.app.config.environment import DATABASE, OPERATOR
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.ids import CallId, MessageId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    SteerAccepted,
    ToolCall,
    ToolFinished,
)
from perdure.domain.outcomes import CallEnding
from perdure.ports.turns.turns import TurnLease
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.memory import forget_peak, peak_mb
from perdure.testkit.processes.process import GatewayProcess
from perdure.testkit.simulator.stores import claim_one, message, settle

MB = 1_000_000
STEPS = 60
STEERS = 4


def step(lease: TurnLease, number: int) -> list[AnyEvent]:
    """Return the events of one step of the turn: its text, its call and the result."""
    call = CallId(f"call_{lease.turn}_{number}")
    calls = (ToolCall(id=call, name="look", arguments=f'{{"n": {number}}}'),)
    said = AssistantSaid(
        turn=lease.turn,
        attempt=lease.attempt,
        message=MessageId(f"msg_{lease.turn}_step_{number}"),
        text=f"step {number}",
        calls=calls,
    )
    found = ToolFinished(
        turn=lease.turn, call=call, ending=CallEnding.RETURNED, result=f"{number} {'r' * MB}"
    )
    return [said, found]


async def write_long_turn(home: Path) -> None:
    """Write a turn into the store of a gateway that does not run, as a gateway would."""
    store = Store(
        SqliteDriver(home / DATABASE),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        media=home / "media",
    )
    await store.open()
    try:
        operator = await store.principals.ensure(OPERATOR, role="operator")
        await store.inbox.accept(message(operator.id, f"look {'q' * MB}"), queue_max=10)
        claimed = await claim_one(store)
        lease = claimed.lease
        for number in range(STEPS):
            await store.turns.append(lease, step(lease, number))
        for number in range(STEERS):
            steer = SteerAccepted(
                turn=lease.turn,
                message=MessageId(f"msg_steer_{number}"),
                text=f"steer {number} {'s' * 9 * MB}",
            )
            await store.turns.append(lease, [steer])
        await store.turns.take_steers(lease)
        await settle(store, claimed, f"answer {'a' * MB}")
    finally:
        await store.close()


@pytest.fixture
async def client(gateway_factory: Any) -> AsyncIterator[Client]:
    gateway: GatewayProcess = await gateway_factory()
    await gateway.kill()
    await write_long_turn(gateway.home)
    await gateway.start()
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


async def place(client: Client) -> tuple[str, str]:
    _, conversation = await client.call("GET", "/api/conversations/home")
    return conversation["session"], conversation["head"]


async def at_rest(client: Client) -> int:
    """Restart the process, so that it has read nothing yet, and return its memory."""
    await client.gateway.restart()
    await place(client)
    return forget_peak(client)


async def test_a_long_turn_is_explained_in_short(client: Client) -> None:
    session, turn = await place(client)
    before = await at_rest(client)
    status, found = await client.call("GET", f"/api/explain/{turn}")
    assert status == 200, found
    assert peak_mb(client) - before < 150

    results = [each for each in found["events"] if each["kind"] == "tool_finished"]
    assert len(results) == STEPS
    text = results[7]["body"]["result"]
    assert text.startswith("7 rrr")
    assert len(text) < 2_300
    assert f"{MB + 2:,} characters" in text
    path = re.search(r"GET (/api/sessions/\S+)", text)
    assert path is not None
    assert session in path[1]
    _, journal = await client.call("GET", path[1])
    assert [each["body"]["result"] for each in journal["events"]] == [f"7 {'r' * MB}"]


async def test_a_long_turn_is_told_in_pages(client: Client) -> None:
    session, turn = await place(client)
    before = await at_rest(client)
    entries: list[dict[str, Any]] = []
    more, pages = "", 0
    while True:
        status, page = await client.call("GET", f"/api/sessions/{session}/transcript{more}")
        assert status == 200, page
        entries = page["messages"] + entries
        pages += 1
        if page["next"] is None:
            break
        more = f"?cursor={page['next']}"
    assert peak_mb(client) - before < 150

    assert pages > STEPS / 2
    steps = [role for _ in range(STEPS) for role in ("assistant", "tool")]
    assert [each["role"] for each in entries] == ["user", *steps, *["user"] * STEERS, "assistant"]
    assert {each["name"] for each in entries if each["role"] == "tool"} == {"look"}
    assert len({each["id"] for each in entries}) == len(entries)
    assert [each["turn"] for each in entries if each.get("outcome")] == [turn]
    assert entries[-1]["outcome"] == "done"
    status, _ = await client.call("GET", f"/api/sessions/{session}/transcript?cursor={turn}:x")
    assert status == 400


async def test_a_response_is_given_without_what_its_calls_have_found(client: Client) -> None:
    _, turn = await place(client)
    before = await at_rest(client)
    path = f"/v1/responses/resp_{turn.removeprefix('trn_')}"
    status, found = await client.call("GET", path)
    assert status == 200, found
    assert peak_mb(client) - before < 150
    text = found["output"][0]["content"][0]["text"]
    assert text.startswith("step 0\n\nstep 1\n\n")
    assert text.endswith("aaa")
