"""Keeps the commands that run in the background, each for the person and the conversation that
have started it.

Jobs live in memory and end with the gateway. Nobody else can see, read or end them.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import CallId, ConversationId, PrincipalId
from perdure.domain.tools.traits import digest_of
from perdure.ports.system.children import Child, ChildEnd
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.shell.commands import ShellCommand
from perdure.tools.shell.output import KeptOutput
from perdure.tools.shell.running import CommandRuns, RunEnd
from perdure.tools.shell.settings import JOBS_MAX, JOBS_OF_PERSON, LOG_BYTES

Owner = tuple[PrincipalId, ConversationId]
GONE: Final = "jobs end with the gateway, so what ran before its last start is gone"
_ID_CHARS: Final = 8


def owner_of(caller: ToolCaller) -> Owner:
    """Return whose jobs a call may touch."""
    return caller.principal, caller.conversation


class ShellJob:
    """Runs one command in the background."""

    def __init__(self, name: str, owner: Owner, command: ShellCommand) -> None:
        self.name = name
        self.owner = owner
        self.command = command
        self.log = KeptOutput(head_max=0, tail_max=LOG_BYTES)
        self._ended: RunEnd | None = None
        self._is_lost = False
        self._child: Child | None = None
        self._began_s = asyncio.get_running_loop().time()
        self._following: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._over = asyncio.Event()

    def begin(self, runs: CommandRuns, child: Child) -> None:
        """Read what the command writes, in a task of its own."""
        self._child = child
        follow = self._follow(runs, child)
        self._following = asyncio.create_task(follow)  # noqa: TID251 - `ShellJobs.close` ends it
        self._following.add_done_callback(self._close)

    async def _follow(self, runs: CommandRuns, child: Child) -> None:
        self._ended = await runs.follow(child, self.command, self.log, report=self._tell)

    def _close(self, following: "asyncio.Task[None]") -> None:
        self._is_lost = following.cancelled() or following.exception() is not None
        self._over.set()
        self._news.set()

    def _tell(self, _: bytes) -> None:
        self._news.set()
        self._news = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Tell whether the command has ended."""
        return self._over.is_set()

    @property
    def state(self) -> str:
        """Return how the command is, in words that follow "it"."""
        if self._ended is not None:
            return self._ended.words
        if self._is_lost:
            return "was ended"
        # The time tells two looks at a silent job apart, so that waiting is no call made in vain.
        return f"has run for {asyncio.get_running_loop().time() - self._began_s:.0f} s"

    async def news(self, offset: int, *, within_s: float) -> None:
        """Wait until the log is longer than an offset or the command has ended, but no longer than
        this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.log.size <= offset and not self.is_over:
                    await self._news.wait()

    async def over(self, *, within_s: float | None) -> None:
        """Wait until the command has ended, but no longer than this, if a time is given."""
        if self._following is not None:
            await asyncio.wait({self._following}, timeout=within_s)

    @property
    def ended_as(self) -> ChildEnd | None:
        """Return how the command has ended, or None while it runs."""
        return self._child.ended if self._child is not None and self.is_over else None

    def begin_to_end(self) -> None:
        """End the command, and do not wait for that."""
        if self._following is not None:
            self._following.cancel()

    async def end(self) -> None:
        """End the command, and wait until it has ended."""
        if self._following is not None:
            self.begin_to_end()
            await asyncio.wait({self._following})


class ShellJobs:
    """Knows the jobs of all people."""

    def __init__(self) -> None:
        self._jobs: dict[str, ShellJob] = {}

    def of(self, owner: Owner) -> list[ShellJob]:
        """Return the jobs of a person in a conversation, the oldest first."""
        return [job for job in self._jobs.values() if job.owner == owner]

    def named(self, name: str, owner: Owner) -> ShellJob:
        """Return a job. Raises `NotFound` if the person has none of this name in this
        conversation, whoever else has."""
        job = self._jobs.get(name)
        if job is None or job.owner != owner:
            shown = name[:100]
            raise NotFound(f"there is no job {shown!r} in this conversation; {GONE}; see list")
        return job

    def prepare(self, call: CallId, owner: Owner, command: ShellCommand) -> ShellJob:
        """Make room for a job, and return it. It does not run yet. Raises `Rejected` if too many
        run."""
        person = owner[0]
        for most, is_counted, whose in (
            (JOBS_OF_PERSON, lambda job: job.owner[0] == person, "you have"),
            (JOBS_MAX, lambda _: True, "all people together have"),
        ):
            counted = [job for job in self._jobs.values() if is_counted(job)]
            if len(counted) >= most and not self._forget(counted):
                raise Rejected(f"{whose} {most} jobs that still run; end one first, or wait")
        name = next(name for name in _names(call) if name not in self._jobs)
        self._jobs[name] = ShellJob(name, owner, command)
        return self._jobs[name]

    def drop(self, job: ShellJob) -> None:
        """Forget a job that could not be started, or of which nobody will ask any more."""
        self._jobs.pop(job.name, None)

    async def close(self) -> None:
        """End all jobs."""
        await asyncio.gather(*(job.end() for job in tuple(self._jobs.values())))

    def _forget(self, jobs: list[ShellJob]) -> bool:
        """Forget the oldest of these jobs that has ended. Returns False if all of them run."""
        oldest = next((job for job in jobs if job.is_over), None)
        if oldest is not None:
            del self._jobs[oldest.name]
        return oldest is not None


def _names(call: CallId) -> Iterator[str]:
    """Yield names for the job of a call. They come from its id, so a job of an earlier life of the
    gateway never has the name of a later one."""
    for length in range(_ID_CHARS, 64):
        yield f"job-{digest_of(call)[:length]}"
