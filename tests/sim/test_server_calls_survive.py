"""Checks calls of a real tool server, with a death, a lost answer, a refusal, or the death of the
server itself at every instant.

Whatever happens, the call runs at most once and only if it was allowed, the journal never says more
than is known, a question that the server asks midway goes on or is told as lost, and no process of
the server outlives the gateway that has started it.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from perdure.app.children.children import LaunchedChildren
from perdure.domain.checking.checker import violations
from perdure.domain.journal.events import ToolFinished, ToolStarted
from perdure.domain.journal.records import SessionRecord
from perdure.domain.outcomes import CallEnding, Outcome, StopReason
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock
from perdure.domain.tools.asking import ALLOW_CALL
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.ports.system.outgoing import DIRECT
from perdure.ports.turns.tools import Tools
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp, Mischief
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import KEY, Act, Life, Setup, World
from perdure.tools.mcp.calls.forms import DONE
from perdure.tools.mcp.link import LinkTerms, ListedTool, ServerLink
from perdure.tools.mcp.servers.reaching import reach
from perdure.tools.mcp.servers.servers import McpServers
from perdure.tools.mcp.servers.settings import ServerSettings, ServerTimings
from perdure.tools.toolbox import Toolbox

pytestmark = pytest.mark.timeout(100)
ASKING = Setup(asks=True)
BUTTONS = msgspec.structs.replace(KEY, choices_max=3, can_edit=True)
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE, Nemesis.PAUSE]
QUICK = ServerTimings(first_wait_s=10.0, again_wait_s=5.0, rest_s=0.01, rest_max_s=0.01)
NOTE = ("peer__note", '{"text": "paid"}')
VISIT = ("peer__ask_to_visit", '{"url": "https://example.org/"}')


class StruckLink:
    """Wraps a link, so that the process can be struck before and after what goes over it."""

    def __init__(self, inner: ServerLink, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def tools(self) -> list[ListedTool]:
        await self._fuse.before("a list of tools")
        listed = await self._inner.tools()
        await self._fuse.instant("after a list of tools")
        return listed

    async def call(self, *given: Any, **more: Any) -> Any:
        return await self._struck("a call", partial(self._inner.call, *given, **more))

    async def resume(self, *given: Any, **more: Any) -> Any:
        return await self._struck("an answer", partial(self._inner.resume, *given, **more))

    async def _struck(self, name: str, act: Callable[[], Any]) -> Any:
        await self._fuse.before(name)
        result = await act()
        await self._fuse.after(name)
        return result


class Servers:
    """Gives each process of a world the real tool servers, with one bad server that is good today.
    What the server has really done is in the file `calls`. `left` are its processes that were there
    after their gateway had ended."""

    def __init__(self, hostile: HostileMcp, calls: Path, *mischief: str) -> None:
        self.mischief = Mischief(*mischief, calls=calls)
        self.left: list[int] = []
        self._settings = ServerSettings(
            name="peer", command=tuple(hostile.command(self.mischief)), takes=("note", "ask*")
        )
        self._world: World | None = None

    def serve(self, world: World) -> None:
        self._world = world
        world.make_tools = self._made

    def _made(self, fuse: Fuse) -> AbstractAsyncContextManager[Tools]:
        return self._tools(fuse)

    @asynccontextmanager
    async def _tools(self, fuse: Fuse) -> AsyncIterator[Tools]:
        assert self._world is not None
        children = LaunchedChildren()
        servers = McpServers(clock=self._world.clock, entropy=self._world.entropy)

        async def struck(settings: ServerSettings, *, person: str, terms: LinkTerms) -> ServerLink:
            await fuse.instant("before a server starts")
            link = await reach(
                settings, children=children, outgoing=DIRECT, terms=terms, person=person
            )
            return StruckLink(link, fuse)

        servers.replace([self._settings], struck, QUICK)
        try:
            yield Toolbox(sources=[servers.source("peer")])
        finally:
            await servers.close()
            await children.close()
            self.left += self.pids()

    def pids(self) -> list[int]:
        """Return the processes of the server that are there now."""
        calls = self.mischief.words[-1]
        below = psutil.Process().children(recursive=True)
        return [each.pid for each in below if calls in _words_of(each)]

    async def die(self) -> None:
        """Kill the server, and not the gateway."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)


def _words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def ask(life: Life) -> None:
    """Let the agent want to make the call, and let people be asked."""
    await life.work()


async def allow(life: Life) -> None:
    """Let the person allow the call, and let it begin."""
    life.world.answer()
    await life.work()


async def go_on(life: Life) -> None:
    """Let the person answer everything, and let everything go on."""
    await life.rest()


def calling(call: tuple[str, str]) -> ScriptedAgent:
    """Return an agent that makes this call, and then says that it is done."""

    def rule(request: ModelRequest) -> list[AgentEvent]:
        if any(isinstance(b, ResultBlock) for m in request.messages for b in m.blocks):
            return [AgentText("done"), Stopped(reason=StopReason.STOP)]
        name, arguments = call
        return [
            AgentCall(id="given", name=name, arguments=arguments),
            Stopped(reason=StopReason.TOOL_CALLS),
        ]

    return ScriptedAgent(rule)


def problems(servers: Servers, records: Sequence[SessionRecord]) -> list[str]:
    """Return what must not be, after everything has come to rest."""
    events = [recorded.event for record in records for recorded in record.events]
    found = [each for record in records for each in violations(record)]
    turns = [turn for record in records for turn in record.turns]
    if [turn.outcome for turn in turns] != [Outcome.DONE]:
        found.append(f"the turn is {turns}")
    endings = [each for each in events if isinstance(each, ToolFinished)]
    if len(endings) != 1:
        return [*found, f"the call ended as {endings}"]
    ran, (ended,) = len(servers.mischief.ran()), endings
    # What returned ran once; what certainly did not run is said to have failed.
    least, most = {
        CallEnding.RETURNED: (1, 1),
        CallEnding.UNKNOWN: (0, 1),
        CallEnding.FAILED: (0, 0),
        CallEnding.DENIED: (0, 0),
    }[ended.ending]
    if not least <= ran <= most:
        found.append(f"the call ran {ran} times, and the journal says {ended}")
    if ran and not any(isinstance(each, ToolStarted) for each in events):
        found.append("the call ran, and the journal does not say that it began")
    return found + [f"the process {pid} outlived its gateway" for pid in servers.left]


@pytest.fixture
def hostile(new_peer: NewPeer) -> HostileMcp:
    return new_peer.hostile_mcp()


class Stage:
    """Plays a call in a world of its own, again and again."""

    def __init__(self, simulator: Simulator, hostile: HostileMcp, folder: Path) -> None:
        self._simulator = simulator
        self._hostile = hostile
        self._folder = folder
        self._played = 0
        self.endings: list[CallEnding] = []

    def play(self, call: tuple[str, str], acts: Sequence[Act], *mischief: str) -> Run:
        async def run(fuse: Fuse) -> list[str]:
            self._played += 1
            world = await self._simulator.world(setup=ASKING)
            servers = Servers(self._hostile, self._folder / f"calls-{self._played}", *mischief)
            servers.serve(world)
            fuse.meanwhile = servers.die
            world.agent = calling(call)
            world.platform.can = BUTTONS
            world.clickers = [("person", ALLOW_CALL), ("person", DONE)]
            world.say("do it")
            records = await world.play(acts, fuse)
            events = [recorded.event for record in records for recorded in record.events]
            self.endings = [each.ending for each in events if isinstance(each, ToolFinished)]
            return problems(servers, records)

        return run


@pytest.fixture
def stage(simulator: Simulator, hostile: HostileMcp, tmp_path: Path) -> Stage:
    return Stage(simulator, hostile, tmp_path)


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_makes_a_call_twice_or_unasked(
    simulator: Simulator, stage: Stage, nemesis: Nemesis
) -> None:
    await simulator.strike(stage.play(NOTE, [ask, go_on]), nemesis, every=4)
    assert stage.endings == [CallEnding.RETURNED], "the last run was not struck"


# The acts, what is odd about the server, and how the call ends if nothing is struck.
WAITING: Mapping[str, tuple[Sequence[Act], Sequence[str], CallEnding]] = {
    "a server that waits": ([ask, allow, go_on], [], CallEnding.UNKNOWN),
    "a server that keeps nothing": ([ask, allow, go_on], ["modern"], CallEnding.RETURNED),
}


@pytest.mark.parametrize("waiting", WAITING)
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_a_question_midway_goes_on_or_is_told_as_lost(
    simulator: Simulator, stage: Stage, nemesis: Nemesis, waiting: str
) -> None:
    # The gateway restarts while the question is open.
    acts, mischief, ending = WAITING[waiting]
    await simulator.strike(stage.play(VISIT, acts, *mischief), nemesis, every=8)
    assert stage.endings == [ending], "the last run was not struck"


async def test_a_question_midway_goes_on_in_the_same_life(
    simulator: Simulator, stage: Stage
) -> None:
    await simulator.strike(stage.play(VISIT, [ask, go_on]), Nemesis.DIE, every=8)
    assert stage.endings == [CallEnding.RETURNED], "the last run was not struck"
