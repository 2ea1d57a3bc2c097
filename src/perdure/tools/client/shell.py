"""Implements the tool `agent_shell`: an external agent runs a command in a terminal of the gateway.

No model is told of it. When an agent asks for a terminal, the gateway makes this call in its place.
It is a call of the tool `shell`, in the background and in the folders of the agent's session, so
the same rules, questions, grants, sandbox and bounds hold. The call ends when the command has
begun; the agent is handed the terminal, and what came of it is written down when it is over.
"""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.tools.traits import CallTraits, Outlook
from perdure.ports.agents.client import (
    AGENT_SHELL,
    ClientCalls,
    TerminalExit,
    TerminalOutput,
)
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.client.folders import folders_of, whole_path
from perdure.tools.shell.jobs import ShellJob, ShellJobs
from perdure.tools.shell.output import plain_text
from perdure.tools.shell.settings import AROUND_S, LOG_BYTES
from perdure.tools.shell.tool import ShellTool, shown_command
from perdure.tools.tool import ToolArguments, arguments_of, schema_of

_DESCRIPTION: Final = "Run a command in a terminal for the agent."
_KEPT_MAX: Final = 64
# A program that sets variables for another one. People and rules see them as a part of the command.
_ENV: Final = "env"
# How long a call waits for a command that fails at once.
GLANCE_S: Final = 0.02
# The bytes that continue a character.
_INSIDE: Final = bytes(range(0x80, 0xC0))


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    argv: Annotated[tuple[str, ...], Meta(description="the program and its arguments")]
    folder: Annotated[str, Meta(description="where the agent works")]
    cwd: Annotated[str, Meta(description="where the command works")] = ""
    env: Annotated[tuple[str, ...], Meta(description="variables, each as NAME=value")] = ()


class AgentShellTool:
    """Serves one agent, in the folder of the session that asks and in `roots`. `make` makes the
    tool `shell` for some folders, and `jobs` are those of all its tools."""

    name: str = AGENT_SHELL
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = AROUND_S

    def __init__(
        self,
        roots: Sequence[Path],
        calls: ClientCalls,
        *,
        make: Callable[[tuple[Path, ...]], ShellTool],
        jobs: ShellJobs,
    ) -> None:
        self._roots = tuple(roots)
        self._calls = calls
        self._make = make
        self._jobs = jobs
        self._tools: dict[tuple[Path, ...], ShellTool] = {}

    def traits(self, arguments: str) -> CallTraits:
        tool, inner = self._asked(arguments)
        return tool.traits(inner)

    def kinds(self) -> Sequence[CallTraits]:
        return ()

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        tool, inner = self._asked(call.arguments)
        return await tool.outlook(msgspec.structs.replace(call, arguments=inner), caller)

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        tool, inner = self._asked(call.arguments)
        if not self._calls.is_expected(caller.turn):
            raise Rejected(
                "the agent's program that has asked for this command is gone, so it was not run"
            )
        job = await tool.begin_job(msgspec.structs.replace(call, arguments=inner), caller)
        terminal = JobTerminal(job, self._jobs)
        try:
            await job.over(within_s=GLANCE_S)
            if not self._calls.is_expected(caller.turn):
                raise Rejected("the agent's program is gone, so the command was ended")
            self._calls.hand_over(caller.turn, call.id, terminal)
        except BaseException:
            terminal.forget()
            raise
        return f"The terminal {job.name} {job.state}."

    def _asked(self, arguments: str) -> tuple[ShellTool, str]:
        """Return the tool that serves these arguments, and its own arguments."""
        asked = arguments_of(arguments, _Arguments, tool=AGENT_SHELL)
        argv = [_ENV, *asked.env, *asked.argv] if asked.env and asked.argv else [*asked.argv]
        told = {
            "action": "run",
            "argv": argv,
            "cwd": whole_path(asked.folder, asked.cwd) if asked.cwd else asked.folder,
            "background": True,
        }
        return self._tool(asked.folder), msgspec.json.encode(told).decode()

    def _tool(self, folder: str) -> ShellTool:
        """Return the tool for the folders of a session."""
        folders = folders_of(folder, self._roots)
        if folders not in self._tools:
            if len(self._tools) >= _KEPT_MAX:
                del self._tools[next(iter(self._tools))]
            self._tools[folders] = self._make(folders)
        return self._tools[folders]


class JobTerminal:
    """Implements the `AgentTerminal` port by a job of the tool `shell`."""

    def __init__(self, job: ShellJob, jobs: ShellJobs) -> None:
        self._job = job
        self._jobs = jobs

    @property
    def name(self) -> str:
        return self._job.name

    @property
    def command(self) -> str:
        return shown_command(self._job.command.argv)

    def output(self, limit: int | None) -> TerminalOutput:
        most = LOG_BYTES if limit is None else min(max(limit, 0), LOG_BYTES)
        size = self._job.log.size
        start, found = self._job.log.page(size - most, most) if most else (size, b"")
        # Plain text may be longer than its bytes, and must not begin in the middle of a character.
        text = plain_text(found.lstrip(_INSIDE) if start else found)
        data = text.encode()
        cut = data[len(data) - most :].lstrip(_INSIDE) if len(data) > most else data
        return TerminalOutput(
            text=cut.decode(),
            is_cut=start > 0 or len(data) > most,
            exit=self._exit,
        )

    @property
    def _exit(self) -> TerminalExit | None:
        if not self._job.is_over:
            return None
        ended = self._job.ended_as
        if ended is None:
            return TerminalExit(signal="SIGKILL")
        return TerminalExit(code=ended.code, signal=_signal_name(ended.signal))

    def told(self) -> str:
        output = self.output(None)
        gap = "[… the beginning is left out …]\n" if output.is_cut else ""
        text = output.text.strip("\n")
        what = f"\n\n{gap}{text}" if text else " It wrote nothing."
        return f"The command {self._job.state}.{what}"

    async def over(self) -> None:
        await self._job.over(within_s=None)

    def end(self) -> None:
        self._job.begin_to_end()

    def forget(self) -> None:
        self.end()
        self._jobs.drop(self._job)


def _signal_name(number: int) -> str:
    """Return what a signal is called, or an empty string for none."""
    try:
        return signal.Signals(number).name if number else ""
    except ValueError:
        return f"SIG{number}"
