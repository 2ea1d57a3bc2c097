"""Checks files and terminals that an external agent uses through the gateway, with a death, a lost
answer or a refusal at every instant.

Whatever happens, nothing is written and nothing runs that was not allowed, a command runs at most
once, a file is the old one or the new one, the journal says what came of it, and no command
outlives the gateway.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from perdure.app.children.children import LaunchedChildren
from perdure.domain.checking.checker import violations
from perdure.domain.ids import TurnId
from perdure.domain.journal.events import ToolFinished
from perdure.domain.journal.records import SessionRecord
from perdure.domain.outcomes import CallEnding, Outcome
from perdure.domain.tools.asking import ALLOW_CALL, DENY_CALL
from perdure.ports.agents.client import AGENT_FILES, AGENT_SHELL, ClientCalls
from perdure.ports.turns.tools import Tools
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import KEY, Life, Setup, World
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.client.files import AgentFilesTool
from perdure.tools.client.shell import AgentShellTool
from perdure.tools.shell.jobs import ShellJobs
from perdure.tools.shell.settings import ShellSettings
from perdure.tools.shell.tool import ShellTool
from perdure.tools.toolbox import Toolbox
from perdure.tools.workroom import Workroom

pytestmark = pytest.mark.timeout(100)
BUTTONS = msgspec.structs.replace(KEY, choices_max=3, can_edit=True)
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]
OLD, NEW = "old\n", "new\n"


class AnyTurn(ClientCalls):
    """Waits for the calls of every turn."""

    def is_expected(self, turn: TurnId) -> bool:
        self.expect(turn)
        return True


@asynccontextmanager
async def tools_of(folder: Path, _: Fuse) -> AsyncIterator[Tools]:
    """Make the tools of one process, and end with it whatever they have started."""
    children, jobs, calls = LaunchedChildren(), ShellJobs(), AnyTurn()

    def shell(folders: tuple[Path, ...]) -> ShellTool:
        return ShellTool(ShellSettings(roots=folders, has_sandbox=False), children, jobs)

    try:
        yield Toolbox(
            hidden=[
                AgentFilesTool((), calls, bounds=FilesBounds(), work=Workroom()),
                AgentShellTool((), calls, make=shell, jobs=jobs),
            ]
        )
    finally:
        calls.close()
        await jobs.close()
        await children.close()


class Case:
    """Plays a world in which the agent asks for one thing in a fresh folder."""

    def __init__(self, folder: Path, answer: str) -> None:
        self._folder = folder
        self._answer = answer
        self._runs = 0

    async def play(self, simulator: Simulator, *fuses: Fuse, tool: str) -> "Played":
        self._runs += 1
        place = self._folder / str(self._runs)
        place.mkdir()
        (place / "file").write_text(OLD)
        world = await simulator.world(setup=Setup(asks=True, flies=True))
        world.make_tools = partial(tools_of, place)
        world.platform.can = BUTTONS
        world.clickers = [("person", self._answer)]
        command = ["/bin/sh", "-c", f"echo ran >> {place}/log"]
        asked: dict[str, dict[str, object]] = {
            AGENT_FILES: {"action": "write", "path": f"{place}/file", "text": NEW},
            AGENT_SHELL: {"argv": command},
        }
        world.say(f"tool {tool} {json.dumps({**asked[tool], 'folder': str(place)})}")
        records = await world.play([rest], *fuses)
        return Played(place, world, records)


class Played:
    """Holds what a world has come to."""

    def __init__(self, place: Path, world: World, records: list[SessionRecord]) -> None:
        self.text = (place / "file").read_text()
        self.left = [each.name for each in place.iterdir() if each.name not in ("file", "log")]
        log = place / "log"
        self.ran = log.read_text().splitlines() if log.exists() else []
        self.records = records
        facts = [recorded.event for record in records for recorded in record.events]
        ended = [each for each in facts if isinstance(each, ToolFinished)]
        self.endings = [each.ending for each in ended if "found" not in each.result]

    def problems(self) -> list[str]:
        found = [each for record in self.records for each in violations(record)]
        outcomes = [turn.outcome for record in self.records for turn in record.turns]
        if outcomes != [Outcome.DONE]:
            found.append(f"the turn is {outcomes}")
        # An agent that was lost before it had asked does not ask again.
        if len(self.endings) > 1:
            found.append(f"the call ended as {self.endings}")
        if not self.endings and (self.ran or self.text != OLD):
            found.append("something was done, and the journal says nothing of it")
        return found


async def rest(life: Life) -> None:
    await life.rest()


def writes(simulator: Simulator, case: Case) -> Run:
    async def run(*fuses: Fuse) -> list[str]:
        played = await case.play(simulator, *fuses, tool=AGENT_FILES)
        found = played.problems()
        if played.text not in (OLD, NEW):
            found.append(f"the file holds {played.text!r}")
        if (played.text == NEW) is not (CallEnding.RETURNED in played.endings):
            found.append(f"the file holds {played.text!r} after {played.endings}")
        return found

    return run


def runs(simulator: Simulator, case: Case) -> Run:
    async def run(*fuses: Fuse) -> list[str]:
        played = await case.play(simulator, *fuses, tool=AGENT_SHELL)
        found = played.problems()
        if len(played.ran) > 1:
            found.append(f"the command ran {len(played.ran)} times")
        if CallEnding.DENIED in played.endings and played.ran:
            found.append("the command ran although it was denied")
        return found

    return run


@pytest.mark.parametrize("what", [writes, runs])
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_repeats_or_hides_what_an_agent_asks_of_its_client(
    simulator: Simulator,
    tmp_path: Path,
    nemesis: Nemesis,
    what: Callable[[Simulator, Case], Run],
) -> None:
    await simulator.strike(what(simulator, Case(tmp_path, ALLOW_CALL)), nemesis, every=4)


@pytest.mark.parametrize("tool", [AGENT_FILES, AGENT_SHELL])
async def test_what_is_denied_is_not_done(simulator: Simulator, tmp_path: Path, tool: str) -> None:
    played = await Case(tmp_path, DENY_CALL).play(simulator, tool=tool)
    assert played.problems() == []
    assert (played.text, played.ran, played.left) == (OLD, [], [])
    assert played.endings == [CallEnding.DENIED]


@pytest.mark.parametrize("tool", [AGENT_FILES, AGENT_SHELL])
async def test_what_is_allowed_is_done_once(
    simulator: Simulator, tmp_path: Path, tool: str
) -> None:
    played = await Case(tmp_path, ALLOW_CALL).play(simulator, tool=tool)
    assert played.problems() == []
    assert played.endings == [CallEnding.RETURNED]
    assert (played.text == NEW) is (tool == AGENT_FILES)
    assert len(played.ran) <= (tool == AGENT_SHELL)  # it may be ended with the answer
