"""Measures what a call of a tool server costs: how much longer it takes by a tool of an agent than
by the client of the official package.

Both call the same tool of a server that answers at once, one after the other, so that the state of
the machine is the same for both.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median

from mcp import Client, StdioServerParameters
from mcp_types import TextContent

from bench.report import Findings, Gate
from perdure.app.children.children import LaunchedChildren
from perdure.app.config.tool_values import McpServer
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.app.wiring.tool_servers import settings_of
from perdure.domain.ids import CallId, ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding
from perdure.ports.system.outgoing import DIRECT
from perdure.ports.turns.tools import ToolCaller
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp
from perdure.testkit.peers.peer import Site
from perdure.tools.mcp.servers.reaching import reach
from perdure.tools.mcp.servers.servers import McpServers
from perdure.tools.mcp.servers.settings import ServerTimings
from perdure.tools.toolbox import Toolbox

ROUNDS = 500
WARM = 50
ROOT = Path(__file__).resolve().parents[1]
WORDS = "a short text"
Call = Callable[[], Awaitable[None]]


async def measure(folder: Path) -> Findings:
    peer = HostileMcp(ROOT, Site(folder, {}, SystemClock()))
    command = peer.command()
    gates, facts = [], []
    async with peer.over_http() as server:
        for name, configured in (
            ("a program", McpServer(command=tuple(command), shared=True)),
            ("an address", McpServer(url=server.url, shared=True)),
        ):
            added_ms, bare_ms = await _added_ms(configured)
            gates.append(
                Gate(name=f"added to a call of {name}", measured=added_ms, limit=3, unit="ms")
            )
            facts.append(f"a call of {name} by the official client took {bare_ms:.2f} ms")
    return Findings(part="mcp", facts=facts, gates=gates)


async def _added_ms(configured: McpServer) -> tuple[float, float]:
    """Return how much longer a call by an agent's tool takes than one by the official client, and
    how long that one takes."""
    added, bare = [], []
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(_ours(configured))
        theirs = await stack.enter_async_context(_official(configured))
        for number in range(WARM + ROUNDS):
            by_client_s, by_tool_s = await _elapsed_s(theirs), await _elapsed_s(ours)
            if number >= WARM:
                added.append((by_tool_s - by_client_s) * 1e3)
                bare.append(by_client_s * 1e3)
    return median(added), median(bare)


async def _elapsed_s(call: Call) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


@asynccontextmanager
async def _ours(configured: McpServer) -> AsyncIterator[Call]:
    """Yield a call by an agent's tools."""
    children = LaunchedChildren()
    servers = McpServers(clock=SystemClock(), entropy=SystemEntropy())
    reaching = partial(reach, children=children, outgoing=DIRECT)
    servers.replace([settings_of("bench", configured)], reaching, ServerTimings())
    person = PrincipalId("prn_bench")
    caller = ToolCaller(
        principal=person,
        conversation=ConversationId("cnv_bench"),
        session=SessionId("ses_bench"),
        turn=TurnId("trn_bench"),
    )
    try:
        tools = await Toolbox(sources=[servers.source("bench")]).current(person)
        asked = ToolCall(id=CallId("call_1"), name="bench__echo", arguments=f'{{"text":"{WORDS}"}}')

        async def call() -> None:
            found = await tools.call(asked, caller)
            assert found.ending is CallEnding.RETURNED
            assert WORDS in found.text

        yield call
    finally:
        await servers.close()
        await children.close()


@asynccontextmanager
async def _official(configured: McpServer) -> AsyncIterator[Call]:
    """Yield a call by the client of the official package."""
    command = configured.command or ()
    server = (
        StdioServerParameters(command=command[0], args=list(command[1:]))
        if command
        else configured.url or ""
    )
    async with Client(server, cache=None) as client:

        async def call() -> None:
            found = await client.call_tool("echo", {"text": WORDS})
            (piece,) = found.content
            assert isinstance(piece, TextContent)
            assert piece.text == WORDS

        yield call
