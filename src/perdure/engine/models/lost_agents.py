"""Notices agents that are lost while they wait for people's answers.

A turn that waits for people has no owner. The agent that has asked may still be in the middle of
its answer; if its program dies, an answer would reach nobody. So the questions end with it
(`deadlines.py`), and the turn goes on: the call is told as not run, and the next program may ask
again. If the gateway dies first, the questions stay open as after any crash.
"""

import asyncio
from collections import deque

from perdure.engine.foundation.supervisor import Start
from perdure.ports.turns.agent import Agent
from perdure.ports.turns.turns import TurnLease
from perdure.ports.turns.wakes import Topic, Wakes


class LostAgents:
    """Watches the agents of the turns that wait, and says whose were lost."""

    def __init__(self, start: Start, wakes: Wakes) -> None:
        self._start = start
        self._wakes = wakes
        self._watching: set[asyncio.Task[None]] = set()
        self._lost: deque[TurnLease] = deque()

    def watch(self, agent: Agent, lease: TurnLease) -> None:
        """Watch the agent of a turn that waits from now on. One that was lost before is noticed at
        once."""
        task = self._start(self._watch(agent, lease), name=f"agent of {lease.turn}")
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _watch(self, agent: Agent, lease: TurnLease) -> None:
        if await agent.lost(lease.turn):
            self._lost.append(lease)
            self._wakes.publish(Topic.QUESTIONS)

    def next(self) -> TurnLease | None:
        """Return an attempt whose agent was lost. It is returned again until `done`."""
        return self._lost[0] if self._lost else None

    def done(self) -> None:
        """Note that the loss of the attempt that `next` has returned is stored."""
        self._lost.popleft()

    def stop(self) -> None:
        """Watch nobody any more."""
        for task in self._watching:
            task.cancel()
