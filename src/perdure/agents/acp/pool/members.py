"""Knows the processes of a pool, and decides which of them gets the next session."""

import asyncio
from typing import TYPE_CHECKING

from perdure.agents.acp.pool.counts import PoolCounts
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.domain.errors import NotFound

if TYPE_CHECKING:
    from perdure.agents.acp.pool.process import AgentProcess


class PoolMembers:
    """Holds the processes that run, and those that are being started, by group and home."""

    def __init__(self, settings: PoolSettings, counts: PoolCounts, *, sessions: int) -> None:
        """Prepare to hold processes, each with up to so many sessions."""
        self.processes: list[AgentProcess] = []
        self.starting: dict[tuple[str, int], asyncio.Task[AgentProcess]] = {}
        self._settings = settings
        self._counts = counts
        self._sessions = sessions

    def of(self, group: str) -> "list[AgentProcess]":
        """Return the processes of a group."""
        return [each for each in self.processes if each.group == group]

    def with_room(self, group: str, slot: int | None) -> "AgentProcess | None":
        """Return the process of a group with the fewest sessions, if one has room."""
        usable = [
            each
            for each in self.of(group)
            if each.is_usable and each.load < self._sessions and slot in {None, each.slot}
        ]
        return min(usable, key=lambda each: each.load, default=None)

    def place_to_start(self, group: str, slot: int | None) -> int | None:
        """Return the home in which a process may be started now, or None. Raises `NotFound` if
        the one that is wanted cannot be had."""
        there = next((each for each in self.of(group) if each.slot == slot), None)
        if there is not None and there.leaving and not there.is_over:
            raise NotFound("the agent's process with this session is being replaced")
        for starting_group, starting_slot in self.starting:
            if starting_group == group and slot in {None, starting_slot}:
                return starting_slot
        staying = sum(not each.leaving for each in self.of(group))
        starting = sum(each == group for each, _ in self.starting)
        if staying + starting >= self._settings.processes:
            if slot is not None and there is None:
                raise NotFound("the agent's process with this session is gone")
            return None
        if len(self.processes) + len(self.starting) >= self._settings.processes_max:
            return None
        if slot is None:
            return self.free_slot(group)
        return slot if there is None else None

    def free_slot(self, group: str) -> int:
        """Return the first home of a group that no process uses."""
        used = {each.slot for each in self.of(group)}
        used |= {slot for each, slot in self.starting if each == group}
        return next(slot for slot in range(len(used) + 1) if slot not in used)

    def make_room(self, group: str, slot: int | None) -> None:
        """Take back the session of the group that has been idle for longest. If the group has no
        process, end one of another group that is idle."""
        idle = [
            session
            for process in self.of(group)
            if process.is_usable and slot in {None, process.slot}
            for session in process.sessions.values()
            if session.is_usable
        ]
        if idle:
            self._counts.taken_back += 1
            min(idle, key=lambda each: each.used_s).release()
            return
        others = [
            each
            for each in self.processes
            if each.group != group and each.is_usable and not each.prompts and not each.opening
        ]
        if others and not any(each.is_usable for each in self.of(group)):
            min(others, key=lambda each: each.used_s).retire("another one needed its place", 0)
