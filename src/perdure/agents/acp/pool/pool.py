"""Keeps the processes of one configured agent.

A call that needs a session takes the process of its group that has the fewest sessions, and starts
one if there is none with room. Calls that need a process at the same time join one start. Where no
room can be made, a call waits.

Nothing here runs while nothing happens: one timer stands for whatever is due next.
"""

import asyncio
import contextlib
from collections import deque
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from perdure.agents.acp.pool.breaker import Breaker
from perdure.agents.acp.pool.counts import PoolCounts
from perdure.agents.acp.pool.members import PoolMembers
from perdure.agents.acp.pool.seam import AgentSession
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.agents.acp.pool.tasks import PoolTasks
from perdure.agents.acp.programs.program import AgentProgram, fingerprint, prepared, probe
from perdure.domain.errors import NotFound, PerdureError, Transient
from perdure.domain.ids import PrincipalId
from perdure.ports.agents.bridge import BridgeAddress
from perdure.ports.agents.client import NO_OFFERS, ClientOffers
from perdure.ports.agents.programs import ProgramView
from perdure.ports.system.children import Children
from perdure.ports.system.clock import Clock
from perdure.ports.system.time_limits import running_time, time_limit_until

if TYPE_CHECKING:
    from perdure.agents.acp.pool.process import AgentProcess
    from perdure.agents.acp.pool.session import ProcessSession

ERRORS_MAX: Final = 64 * 1024
# How often the memory of a process is looked at, and no more often.
MEMORY_S: Final = 30.0
_NAME_MAX: Final = 100
log = structlog.get_logger("agents")


class ProcessPool:
    """Implements the `AgentPool` and the `AgentProgramKeeper` ports."""

    def __init__(
        self,
        program: AgentProgram,
        settings: PoolSettings,
        *,
        children: Children,
        clock: Clock,
        offers: ClientOffers = NO_OFFERS,
    ) -> None:
        self.offers = offers
        self.program = program
        self.settings = settings
        self.counts = PoolCounts()
        self._children = children
        self._clock = clock
        self._tasks = PoolTasks()
        self._breaker = Breaker(clock)
        self._members = PoolMembers(
            settings, self.counts, sessions=settings.sessions or program.preset.sessions
        )
        self._opening: dict[Path, asyncio.Lock] = {}
        self._room = asyncio.Event()
        self._is_proven = False
        self._no_sandbox = ""
        self._kept_errors: deque[bytes] = deque()
        self._kept_bytes = 0
        self._tidying: asyncio.TimerHandle | None = None
        self._looked_s: dict[AgentProcess, float] = {}
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_shared(self) -> bool:
        return self.program.is_shared

    @property
    def takes_tools(self) -> bool:
        return self.program.preset.takes_tools

    @property
    def errors(self) -> str:
        """Return the end of what all processes have written to standard error."""
        return b"".join(self._kept_errors)[-ERRORS_MAX:].decode(errors="replace")

    def log(self) -> str:
        return self.errors

    def view(self) -> ProgramView:
        return ProgramView(
            processes=tuple(each.view() for each in self._members.processes),
            starting=len(self._members.starting),
            resting_s=self._breaker.rest_s,
            takes_tools=self.takes_tools,
            is_shared=self.is_shared,
            trouble=self._breaker.cause,
            no_sandbox=self._no_sandbox,
            starts=self.counts.starts,
            crashes=self.counts.crashes,
            opened=self.counts.sessions,
        )

    def folder(self, group: str, name: str) -> Path:
        return self.program.work(group) / name[:_NAME_MAX]

    async def warm_for(self, principal: PrincipalId) -> None:
        await self.warm("" if self.is_shared else principal)

    async def warm(self, group: str) -> None:
        await self._check_version()
        if not any(each.is_usable for each in self._members.of(group)):
            await self._joined(group, self._members.free_slot(group))

    async def session(
        self, group: str, *, cwd: Path, bridge: BridgeAddress | None, kept_as: str = ""
    ) -> AgentSession:
        # A caller that is cancelled must not leave a session behind that nobody knows.
        opening = self._tasks.start(
            self._session(group, cwd, bridge if self.takes_tools else None, kept_as),
            name=f"session of {self.program.agent}",
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_release)
            raise

    async def _session(
        self, group: str, cwd: Path, bridge: BridgeAddress | None, kept_as: str
    ) -> "ProcessSession":
        slot, identity = _place(kept_as)
        await self._check_version()
        await asyncio.to_thread(cwd.mkdir, mode=0o700, parents=True, exist_ok=True)
        process, is_cold = await self._taken(group, slot)
        try:
            return await self._opened(process, cwd, bridge, identity, is_cold=is_cold)
        except Transient:
            # It may have died before it was asked. Nothing has been said yet, so asking another
            # one repeats nothing.
            if not process.is_over or identity:
                raise
        process, is_cold = await self._taken(group, slot)
        return await self._opened(process, cwd, bridge, identity, is_cold=is_cold)

    async def _opened(
        self,
        process: "AgentProcess",
        cwd: Path,
        bridge: BridgeAddress | None,
        identity: str,
        *,
        is_cold: bool,
    ) -> "ProcessSession":
        """Open a session in a process where a place was taken for it."""
        from perdure.agents.acp.pool.opening import SessionWish, opened_session  # noqa: PLC0415

        wish = SessionWish(
            cwd=cwd,
            bridge=bridge,
            identity=identity,
            is_cold=is_cold,
            may_load=self.program.preset.is_load_safe,
            meta=self.program.meta,
        )
        home = self.program.home(process.group, process.slot)
        try:
            return await opened_session(
                process, wish, self._opening.setdefault(home, asyncio.Lock())
            )
        finally:
            process.opening -= 1
            process.note_change()

    # Which process.

    async def _taken(self, group: str, slot: int | None) -> tuple["AgentProcess", bool]:
        """Take a place for a session. Returns the process, and whether it was started for it.
        Raises `Transient` if there is no room, or no process can be started."""
        is_cold = False
        due_s = running_time().now_s() + self.settings.room_s
        while True:
            self._refuse_if_closed()
            process = self._members.with_room(group, slot)
            if process is not None:
                process.opening += 1
                return process, is_cold
            where = self._members.place_to_start(group, slot)
            if where is not None:
                await self._joined(group, where)
                is_cold = True
            else:
                self._members.make_room(group, slot)
                await self._wait_for_room(due_s)

    async def _wait_for_room(self, due_s: float) -> None:
        self._room.clear()
        try:
            async with time_limit_until(due_s):
                await self._room.wait()
        except TimeoutError as error:
            raise Transient(
                f"all sessions that the agent may have are in use; raise [agents."
                f"{self.program.agent}.pool] processes or sessions_per_process"
            ) from error

    # Starting.

    async def _joined(self, group: str, slot: int) -> "AgentProcess":
        """Start a process, or wait for the one that starts already."""
        self._refuse_if_closed()
        key = (group, slot)
        starting = self._members.starting.get(key)
        if starting is None:
            self._breaker.check()
            name = f"{self.program.agent}-{slot}"
            starting = self._tasks.start(self._start(group, slot), name=f"start {name}")
            self._members.starting[key] = starting
            starting.add_done_callback(lambda _: self._note_started(key))
        else:
            self.counts.joined_starts += 1
        try:
            # Whoever is cancelled cancels nobody else.
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled():
                raise _stopping() from None
            raise

    def _note_started(self, key: tuple[str, int]) -> None:
        del self._members.starting[key]
        self._room.set()

    async def _start(self, group: str, slot: int) -> "AgentProcess":
        """Start a process in one of the homes of a group."""
        await asyncio.to_thread(import_module, "perdure.agents.acp.pool.opening")
        from perdure.agents.acp.pool.process import ProcessPlace, started_process  # noqa: PLC0415

        place = ProcessPlace(
            name=f"{self.program.agent}-{slot}",
            group=group,
            slot=slot,
            settings=self.settings,
            offers=self.offers,
            counts=self.counts,
            tasks=self._tasks,
            clock=self._clock,
            on_end=self._note_end,
            on_change=self._note_change,
            on_answer=self._breaker.worked,
            hear_errors=self._keep_errors,
        )
        self.counts.starts += 1
        try:
            await self._prove_sandbox()
            made = await asyncio.to_thread(fingerprint, self.program)
            wanted = await asyncio.to_thread(
                prepared, self.program, group, slot, has_sandbox=not self._no_sandbox
            )
            process = await started_process(place, wanted, self._children)
        except PerdureError as error:
            self.counts.failed_starts += 1
            self._breaker.failed(error.message)
            log.warning("an agent cannot be started", agent=place.name, error=error.message)
            raise
        process.fingerprint = made
        self._members.processes.append(process)
        log.info(
            "an agent was started",
            agent=process.name,
            spawn_ms=process.spawn_ms,
            has_sandbox=process.has_sandbox,
        )
        self._note_change(process)
        return process

    async def _prove_sandbox(self) -> None:
        """See whether a sandbox starts, until one has started."""
        if self._is_proven or not self.program.has_sandbox:
            return
        sandbox = await asyncio.to_thread(probe, self.program)
        self._no_sandbox = await self._children.sandbox_trouble(sandbox)
        self._is_proven = not self._no_sandbox
        if self._no_sandbox:
            log.warning(
                "an agent runs without a sandbox: it can read all that the gateway can",
                agent=self.program.agent,
                cause=self._no_sandbox,
            )

    async def _check_version(self) -> None:
        """Replace processes of a program that was installed anew."""
        self._refuse_if_closed()
        if not self._members.processes:
            return
        now = await asyncio.to_thread(fingerprint, self.program)
        for process in tuple(self._members.processes):
            if process.is_usable and process.fingerprint != now:
                process.retire("another version of it is installed", self.settings.drain_s)

    def _keep_errors(self, piece: bytes) -> None:
        self._kept_errors.append(piece)
        self._kept_bytes += len(piece)
        while self._kept_bytes - len(self._kept_errors[0]) >= ERRORS_MAX:
            self._kept_bytes -= len(self._kept_errors.popleft())

    # What happens to processes.

    def _note_end(self, process: "AgentProcess") -> None:
        with contextlib.suppress(ValueError):
            self._members.processes.remove(process)
        self._looked_s.pop(process, None)
        self._room.set()
        is_crash = not process.leaving and self._closing is None
        if is_crash and process.known is not None:
            self.counts.crashes += 1
            self._breaker.failed(process.ended_words)
            log.warning(
                "an agent has crashed",
                agent=process.name,
                how=process.ended_words,
                errors=process.errors,
            )
        self._plan()
        if process.known is not None:
            self._warm_again(process.group)

    def _warm_again(self, group: str) -> None:
        """Start a process in place of one that has ended, so that nobody waits for it later."""
        is_wanted = self.settings.has_prewarm and not group and self._closing is None
        if is_wanted and not any(each.is_usable for each in self._members.of(group)):
            self._tasks.start(self._warmed_after(self._breaker.rest_s), name="warm again")

    async def _warmed_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        with contextlib.suppress(PerdureError):
            await self.warm("")

    def _note_change(self, process: "AgentProcess") -> None:
        """Look at a process whose sessions have changed."""
        self._room.set()
        if process.is_usable:
            if process.unclosable >= self.program.preset.unclosable:
                process.retire("it keeps sessions that it cannot close", self.settings.drain_s)
            elif self._clock.monotonic_s() - self._looked_s.get(process, -MEMORY_S) >= MEMORY_S:
                self._looked_s[process] = self._clock.monotonic_s()
                self._tasks.start(self._look_at_memory(process), name=f"look at {process.name}")
        self._plan()

    async def _look_at_memory(self, process: "AgentProcess") -> None:
        process.memory_bytes = await process.child.memory()
        if process.memory_bytes > self.program.preset.memory_bytes:
            process.retire("it holds too much memory", self.settings.drain_s)

    # What is due later.

    def _plan(self) -> None:
        """Set the one timer to what is due next."""
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        due_s = min((self._due_s(each) for each in self._members.processes), default=None)
        if due_s is not None and self._closing is None:
            left_s = max(due_s - self._clock.monotonic_s(), 0.0)
            self._tidying = asyncio.get_running_loop().call_later(left_s, self._tidy)

    def _due_s(self, process: "AgentProcess") -> float:
        """Return when something is due about a process."""
        age_s = process.began_s + self.settings.age_s
        idle = [each.used_s for each in process.sessions.values() if each.is_usable]
        if not process.load and not self._stays(process):
            idle.append(process.used_s)
        if process.leaving:
            return age_s + self.settings.drain_s
        return min([age_s, *(each + self.settings.idle_s for each in idle)])

    def _stays(self, process: "AgentProcess") -> bool:
        """Tell whether a process is kept although nobody uses it, so that nobody has to wait for
        one."""
        others = [each for each in self._members.of(process.group) if each is not process]
        is_only = not any(each.is_usable for each in others)
        return self.settings.has_prewarm and not process.group and is_only

    def _tidy(self) -> None:
        """End what is idle or old."""
        now_s = self._clock.monotonic_s()
        for process in tuple(self._members.processes):
            if not process.is_usable:
                continue
            if now_s >= process.began_s + self.settings.age_s:
                process.retire("it is old", self.settings.drain_s)
                continue
            for session in tuple(process.sessions.values()):
                if session.is_usable and now_s >= session.used_s + self.settings.idle_s:
                    session.release()
            is_idle = now_s >= process.used_s + self.settings.idle_s
            if is_idle and not process.load and not self._stays(process):
                process.retire("nobody uses it", 0)
        self._plan()

    # The end.

    def _refuse_if_closed(self) -> None:
        if self._closing is not None:
            raise _stopping()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = PoolTasks().start(self._close(), name="close a pool")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._tidying is not None:
            self._tidying.cancel()
        self._room.set()
        for starting in tuple(self._members.starting.values()):
            starting.cancel()
        if self._members.starting:
            await asyncio.wait(tuple(self._members.starting.values()))
        await asyncio.gather(*(each.end(within_s=0.5) for each in tuple(self._members.processes)))
        await self._tasks.close()


def _place(kept_as: str) -> tuple[int | None, str]:
    """Return the home and the agent's own id of a session that is kept. Raises `NotFound`."""
    if not kept_as:
        return None, ""
    slot, _, identity = kept_as.partition(":")
    if not slot.isdecimal() or not identity or len(slot) > len("999"):
        raise NotFound("this is no name of a session of an agent")
    return int(slot), identity


def _release(opening: "asyncio.Task[ProcessSession]") -> None:
    """Give a session back whose caller is gone."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().release()


def _stopping() -> Transient:
    return Transient("the gateway is stopping; no agent is started any more")
