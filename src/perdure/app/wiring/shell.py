"""Makes the tool `shell` of a node. All agents share one, and its jobs outlive a change of the
agents."""

import asyncio
import os
from pathlib import Path

import msgspec

from perdure.app.config.tool_values import ShellSection
from perdure.ports.system.children import ChildLimits, Children
from perdure.tools.shell.jobs import ShellJobs
from perdure.tools.shell.settings import ShellSettings
from perdure.tools.shell.tool import ShellTool


class NodeShell:
    """Holds the tool as it is configured now, with its jobs."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._settings: ShellSettings | None = None
        self.jobs = ShellJobs()
        self._tool: ShellTool | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def tool(self, section: ShellSection) -> ShellTool:
        """Return the tool for these settings. If they have changed, the jobs that run by the old
        ones are ended: they may do what is no longer allowed."""
        settings = _settings(section)
        if self._tool is None or settings != self._settings:
            self._end_jobs()
            self._settings = settings
            self._tool = ShellTool(settings, self._children, self.jobs)
        return self._tool

    def tool_in(self, section: ShellSection, folders: tuple[Path, ...]) -> ShellTool:
        """Return a tool for these settings that works in other folders. It shares the jobs."""
        settings = msgspec.structs.replace(_settings(section), roots=folders)
        return ShellTool(settings, self._children, self.jobs)

    def _end_jobs(self) -> None:
        if self._tool is not None:
            ending = asyncio.create_task(self.jobs.close())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all jobs."""
        await self.jobs.close()


def _settings(section: ShellSection) -> ShellSettings:
    """Return the settings as the tool takes them."""
    return ShellSettings(
        roots=tuple(Path(root).expanduser() for root in section.roots),
        has_network=section.network,
        has_sandbox=section.sandbox != "off",
        timeout_s=section.timeout_s,
        limits=ChildLimits(memory_bytes=section.memory_bytes, processes=section.processes),
        search_path=os.environ.get("PATH", os.defpath),
    )
