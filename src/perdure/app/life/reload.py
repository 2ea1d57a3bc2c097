"""Applies a changed `perdure.toml` to a running node.

Changes of the agents and of who may speak are applied at once. Changes that need a restart are
named in the log. An invalid file is refused as a whole, and nothing changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import structlog

from perdure.app.config import loading as config
from perdure.app.config.loading import Config, settings_without_effect
from perdure.app.config.network import network_of
from perdure.app.config.platforms import Hosts, operators_of
from perdure.app.config.tool_checks import check_folders
from perdure.app.wiring import agents, discovery
from perdure.domain.errors import Rejected
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.timed_waits import happens_within
from perdure.engine.models.roster import Roster

# How often the file's time and size are checked.
LOOK_S = 2.0
log = structlog.get_logger("config")


class Reloading:
    """Watches the file and applies its changes. It is polled: a stat costs nothing, and works on
    every file system.

    A caller that asks for a reload gets it at once, and `shown` is entered around it.
    """

    def __init__(  # noqa: PLR0913 - all that a change may reach
        self,
        path: Path,
        current: Config,
        *,
        roster: Roster,
        backend_maker: agents.BackendMaker,
        hosts: Hosts,
        appoint: Callable[[Collection[str]], Awaitable[None]],
        review: Callable[[], Awaitable[None]],
        environ: Mapping[str, str],
        shown: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._path = path
        self._current = current
        self._roster = roster
        self._backend_maker = backend_maker
        self._hosts = hosts
        self._appoint = appoint
        self._review = review
        self._environ = environ
        self._shown = shown
        self._seen = _stamp(path)
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Ask for a reload, even if the file did not change."""
        self._asked.set()

    async def run(self) -> None:
        """Apply changes until cancelled: at once when asked, else when the file's time or size
        changed."""
        while True:
            if await happens_within(self._asked, within_s=LOOK_S):
                self._asked.clear()
                self._seen = await asyncio.to_thread(_stamp, self._path)
                with self._shown():
                    await self.apply()
            elif (stamp := await asyncio.to_thread(_stamp, self._path)) != self._seen:
                await self._apply_when_quiet(stamp)

    async def _apply_when_quiet(self, stamp: tuple[int, int] | None) -> None:
        """Apply the change once the file has stayed the same for a moment, because an editor may
        still be writing it."""
        await self._backend_maker.clock.sleep(LOOK_S / 4)
        if await asyncio.to_thread(_stamp, self._path) == stamp:
            self._seen = stamp
            await self.apply()

    async def apply(self) -> None:
        """Read the file and apply it. Problems are logged, and the old configuration stays."""
        changed = config.reload(self._current, self._path, self._environ)
        if not isinstance(changed, Config):
            for problem in changed:
                log.error("configuration not applied", problem=str(problem))
            return
        if changed is self._current:
            log.info("configuration unchanged")
            return
        try:
            found = await discovery.agents(
                changed, self._environ, outgoing=self._backend_maker.outgoing
            )
            check_folders(changed, self._path)
            network_of(changed, self._path, self._environ)
            backends = self._backend_maker.backends(found.by_name, changed.tools)
        except Rejected as error:
            log.error("configuration not applied", problem=error.message)  # noqa: TRY400
            return
        needs_restart = config.restart_keys(self._current, changed)
        self._current = changed
        await self._roster.replace(backends)
        self._hosts.replace(changed.adapters)
        appointed = partial(self._appoint, operators_of(changed.adapters))
        await persist(appointed, clock=self._backend_maker.clock)
        # End the turns of people who may no longer speak.
        await persist(self._review, clock=self._backend_maker.clock)
        warn_of_what_has_no_effect(changed)
        log.info("configuration applied", agents=list(backends), needs_restart=needs_restart)


def warn_of_what_has_no_effect(settings: Config) -> None:
    """Log each setting that has no effect in this version."""
    for setting in settings_without_effect(settings):
        log.warning(f"{setting} has no effect in this version")  # noqa: G004 - a whole sentence


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return the file's time and size, or None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
