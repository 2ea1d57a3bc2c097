"""Speaks with a pool of an agent's processes, for the tests of pools."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import acp

from perdure.agents.acp.pool.pool import ProcessPool
from perdure.agents.acp.pool.seam import (
    AgentSession,
    Heard,
    PermissionAsked,
    PromptEnded,
    SessionUpdate,
)
from perdure.testkit.peers.mcp.hostile_mcp import Mischief

WAIT_S = 20.0


class Pooled:
    """Holds a pool, and asks its sessions."""

    def __init__(self, pool: ProcessPool, calls: Path) -> None:
        self.pool = pool
        self.mischief = Mischief(calls=calls)

    async def session(self, group: str = "", name: str = "a", **more: Any) -> AgentSession:
        async with asyncio.timeout(WAIT_S):
            cwd = self.pool.folder(group, name)
            return await self.pool.session(group, cwd=cwd, **{"bridge": None, **more})

    async def say(self, session: AgentSession, words: str) -> str:
        """Return what is said in answer to a prompt that ends well."""
        said, end = await self.hear(session, words)
        assert isinstance(end, PromptEnded), end
        return said

    async def hear(self, session: AgentSession, words: str) -> tuple[str, Heard]:
        """Return what is said in answer to a prompt, and how it ended."""
        prompt = Prompt(session, words)
        await prompt.end()
        return prompt.said, prompt.heard[-1]

    def pids(self) -> list[int]:
        """Return the processes that were started, in their order."""
        return list(dict.fromkeys(call.pid for call in self.mischief.ran()))

    def told(self, call: str, argument: str) -> list[Any]:
        """Return an argument of each of the agent's calls."""
        ran = [each.arguments for each in self.mischief.ran() if each.tool == call]
        return [each[argument] for each in ran if isinstance(each, dict)]

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                await asyncio.sleep(0.01)


class Prompt:
    """Reads a prompt, item by item."""

    def __init__(self, session: AgentSession, words: str) -> None:
        self._items = session.prompt([acp.text_block(words)])
        self.heard: list[Heard] = []

    async def until(self, is_enough: Callable[[], object]) -> None:
        """Read until something is true, or to the end."""
        async with asyncio.timeout(WAIT_S):
            while not is_enough():
                try:
                    self.heard.append(await anext(self._items))
                except StopAsyncIteration:
                    return

    async def begun(self) -> None:
        await self.until(lambda: self.heard)

    async def end(self) -> None:
        await self.until(lambda: False)

    async def asked(self) -> PermissionAsked:
        """Return the question that the agent asks."""
        await self.until(lambda: self.heard and isinstance(self.heard[-1], PermissionAsked))
        asked = self.heard[-1]
        assert isinstance(asked, PermissionAsked)
        return asked

    @property
    def said(self) -> str:
        chunks = [each.update for each in self.heard if isinstance(each, SessionUpdate)]
        return "".join(
            each.content.text for each in chunks if each.session_update == "agent_message_chunk"
        )


def lives(pid: int) -> bool:
    """Tell whether a process runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
