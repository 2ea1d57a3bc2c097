"""Implements the tool `shell`: runs commands in configured folders.

A command is a list of words that no shell reads. `commands.py` says what it may be, `running.py`
what it can reach, and `jobs.py` what becomes of it in the background. What a person is asked about
is the whole command with its folder and its input; if its program or a file that it names has
changed by the time it runs, it does not run.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final, Literal, assert_never, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.ports.system.children import Children
from perdure.ports.system.sandbox import SYSTEM_FOLDERS
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.shell.commands import INPUT_CHARS, ShellCommand, ShellFolders, checked_words
from perdure.tools.shell.jobs import GONE, ShellJob, ShellJobs, owner_of
from perdure.tools.shell.output import KeptOutput, last_line, plain_text
from perdure.tools.shell.running import CommandRuns, RunEnd
from perdure.tools.shell.settings import (
    AROUND_S,
    HEAD_BYTES,
    JOB_S,
    TAIL_BYTES,
    USUAL_S,
    ShellSettings,
)
from perdure.tools.tool import ToolArguments, arguments_of, schema_of

NAME: Final = "shell"
# How much of a log one call shows, and how long it may wait for something new.
PAGE_BYTES: Final = 16_000
WAIT_MAX_S: Final = 60.0
# How long a call waits for a job that fails at once.
GLANCE_S: Final = 0.5
_SHOWN_WORDS: Final = 200
_DESCRIPTION: Final = (
    "Run programs in {folders}{around}. argv is the program and its arguments, one word each: no "
    'shell reads it, so pipes, variables and * do nothing (["sh", "-c", "…"] runs a script, if the '
    "person allows it). run waits for the end, or with background starts a job; log reads what a "
    "job has written, list shows the jobs of this conversation, end ends one."
)

Action = Literal["run", "list", "log", "end"]


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    action: Annotated[Action, Meta(description="what to do")]
    argv: Annotated[
        tuple[str, ...],
        Meta(description='run: the program and its arguments, such as ["git", "status"]'),
    ] = ()
    cwd: Annotated[
        str, Meta(description="run: the folder to work in, from the top; empty for the top")
    ] = ""
    input: Annotated[
        str, Meta(description="run: what the program reads", max_length=INPUT_CHARS)
    ] = ""
    timeout_s: Annotated[
        Annotated[float, Meta(gt=0, le=JOB_S)] | UnsetType,
        Meta(description="run: end it after so many seconds"),
    ] = UNSET
    background: Annotated[bool, Meta(description="run: go on at once, and let it run as a job")] = (
        False
    )
    job: Annotated[str, Meta(description="log, end: which job")] = ""
    offset: Annotated[
        Annotated[int, Meta(ge=0, le=2**53)] | UnsetType,
        Meta(description="log: where to begin; left out for the end of the log"),
    ] = UNSET
    wait_s: Annotated[
        float,
        Meta(description="log: wait so long for something new", ge=0, le=WAIT_MAX_S),
    ] = 0.0


def traits_of_command(action: Action) -> CallTraits:
    """Return the traits of a kind of call, without its command."""
    is_run = action == "run"
    return CallTraits(
        names=(NAME, f"{NAME}.{action}"),
        repeat=Repeat.ONCE if is_run else Repeat.REPEATABLE if action == "end" else Repeat.PURE,
        permission=Permission.ACT if is_run else Permission.OWN,
        ends_with_turn=is_run,
    )


class ShellTool:
    """Serves the `shell` tool. Raises `Rejected` if a folder is missing, or holds another one."""

    name: str = NAME
    parameters: str = schema_of(_Arguments)

    def __init__(self, settings: ShellSettings, children: Children, jobs: ShellJobs) -> None:
        self._settings = settings
        self._folders = ShellFolders(
            settings.roots,
            search_path=settings.search_path,
            seen=SYSTEM_FOLDERS if settings.has_sandbox else (),
        )
        self._runs = CommandRuns(settings, self._folders, children)
        self._jobs = jobs
        self.time_limit_s: float = max(settings.timeout_s, WAIT_MAX_S) + AROUND_S
        main, *others = self._folders.roots
        folders = ", ".join([f"{main} (where relative paths begin)", *others])
        around = f", {self._around}" if settings.has_sandbox else ""
        self.description: str = _DESCRIPTION.format(folders=folders, around=around)

    @property
    def _around(self) -> str:
        """Return what is around a command, in words."""
        if not self._settings.has_sandbox:
            return "without a sandbox"
        return f"in a sandbox {'with' if self._settings.has_network else 'without'} network"

    def traits(self, arguments: str) -> CallTraits:
        asked = self._asked(arguments)
        kind = traits_of_command(asked.action)
        if asked.action != "run":
            return kind
        command = self._command(asked)
        return msgspec.structs.replace(kind, argv=command.argv, folder=command.folder)

    def kinds(self) -> Sequence[CallTraits]:
        trouble = self._runs.last_trouble
        return tuple(
            msgspec.structs.replace(
                traits_of_command(action), problem=trouble if action == "run" else ""
            )
            for action in get_args(Action)
        )

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        asked = self._asked(call.arguments)
        if asked.action != "run":
            return NOTHING_AHEAD
        if trouble := await self._runs.trouble():
            return Outlook(problem=trouble)
        command = self._command(asked)
        operands = await asyncio.to_thread(self._folders.operands, command)
        program = await asyncio.to_thread(self._folders.program, command)
        return Outlook(
            preview=f"Runs {program} in {command.folder}, {self._around}.", operands=operands
        )

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        asked = self._asked(call.arguments)
        match asked.action:
            case "run":
                return await self._run(asked, call, caller)
            case "list":
                return self._list(caller)
            case "log":
                return await self._log(asked, caller)
            case "end":
                return await self._end(asked, caller)
            case _:
                assert_never(asked.action)

    def _asked(self, arguments: str) -> _Arguments:
        """Return the arguments. Raises `Rejected` for a call that can never work, so that nobody is
        asked about it."""
        asked = arguments_of(arguments, _Arguments, tool=NAME)
        if asked.action in ("log", "end") and not asked.job:
            raise Rejected(f"{asked.action} needs job, the name of one; list shows them")
        return asked

    def _command(self, asked: _Arguments) -> ShellCommand:
        words = checked_words(asked.argv)
        longest_s = JOB_S if asked.background else self._settings.timeout_s
        usual_s = JOB_S if asked.background else min(USUAL_S, longest_s)
        timeout_s = usual_s if asked.timeout_s is UNSET else asked.timeout_s
        if timeout_s > longest_s:
            raise Rejected(
                f"timeout_s may be {longest_s:g} at most; take background for what takes longer"
            )
        return ShellCommand(
            argv=words,
            folder=self._folders.folder(asked.cwd),
            given=asked.input.encode(errors="replace"),
            timeout_s=timeout_s,
        )

    async def _run(self, asked: _Arguments, call: ToolCall, caller: ToolCaller) -> str:
        command = self._command(asked)
        await asyncio.to_thread(self._folders.program, command)
        if asked.background:
            return await self._begin_job(command, call, caller)
        output = KeptOutput(head_max=HEAD_BYTES, tail_max=TAIL_BYTES)
        child = await self._runs.start(command)
        ended = await self._runs.follow(
            child, command, output, report=lambda piece: caller.report(last_line(piece))
        )
        return _told(ended, output)

    async def _begin_job(self, command: ShellCommand, call: ToolCall, caller: ToolCaller) -> str:
        job = await self._begun(command, call, caller)
        await job.over(within_s=GLANCE_S)
        return f"{job.name} {job.state}.{_page(job, 0)}"

    async def begin_job(self, call: ToolCall, caller: ToolCaller) -> ShellJob:
        """Make a call of `run` in the background, and return its job."""
        command = self._command(self._asked(call.arguments))
        await asyncio.to_thread(self._folders.program, command)
        return await self._begun(command, call, caller)

    async def _begun(self, command: ShellCommand, call: ToolCall, caller: ToolCaller) -> ShellJob:
        job = self._jobs.prepare(call.id, owner_of(caller), command)
        try:
            child = await self._runs.start(command)
        except BaseException:
            self._jobs.drop(job)
            raise
        job.begin(self._runs, child)
        return job

    def _list(self, caller: ToolCaller) -> str:
        jobs = self._jobs.of(owner_of(caller))
        if not jobs:
            return f"There are no jobs in this conversation; {GONE}."
        return "\n".join(
            f"{job.name} {job.state}; {job.log.size:,} bytes of log: "
            f"{shown_command(job.command.argv)}"
            for job in jobs
        )

    async def _log(self, asked: _Arguments, caller: ToolCaller) -> str:
        job = self._jobs.named(asked.job, owner_of(caller))
        is_end = asked.offset is UNSET
        offset = job.log.size if asked.offset is UNSET else asked.offset
        if asked.wait_s:
            await job.news(offset, within_s=asked.wait_s)
        begin = max(job.log.size - PAGE_BYTES, 0) if is_end else offset
        return f"{job.name} {job.state}.{_page(job, begin)}"

    async def _end(self, asked: _Arguments, caller: ToolCaller) -> str:
        job = self._jobs.named(asked.job, owner_of(caller))
        was_over = job.is_over
        if not was_over:
            await job.end()
        before = "It had ended before: " if was_over else ""
        return f"{before}{job.name} {job.state}."


def _told(ended: RunEnd, output: KeptOutput) -> str:
    """Return the result of a command."""
    text = output.text.strip("\n")
    what = f"\n\n{text}" if text else " It wrote nothing."
    return f"The command {ended.words}.{what}"


def _page(job: ShellJob, offset: int) -> str:
    """Return a part of a job's log, with where the next one begins."""
    start, found = job.log.page(offset, PAGE_BYTES)
    if not found:
        return f" There is nothing in its log from {offset:,} on; next offset: {job.log.size}"
    lost = f" The first {start:,} bytes are gone." if start > offset else ""
    following = start + len(found)
    return f"{lost} Its log from {start:,} on; next offset: {following}\n\n{plain_text(found)}"


def shown_command(argv: Sequence[str]) -> str:
    """Return a command as one short line."""
    words = " ".join(argv)
    shown = words if len(words) <= _SHOWN_WORDS else f"{words[:_SHOWN_WORDS]}…"
    return plain_text(shown.replace("\n", " ").encode(errors="replace"))
