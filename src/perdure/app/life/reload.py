"""Applying a changed `perdure.toml` to a running node.

A change is applied where it can be (the agents, who may speak where), named where it needs a
restart, and refused whole where it is invalid: then everything stays as it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import structlog

from perdure.app.config import loading as config
from perdure.app.config.loading import Config
from perdure.app.config.platforms import Hosts, operators_of
from perdure.app.config.without_effect import settings_without_effect
from perdure.app.wiring import agents, discovery
from perdure.domain.errors import Rejected
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.timed_waits import happens_within
from perdure.engine.models.roster import Roster

LOOK_S = 2.0
log = structlog.get_logger("config")


class Reloading:
    """Looks at the file every now and then: a stat costs nothing, and works on every disk.

    Who asks for a look gets it at once, and `shown` is around it.
    """

    def __init__(  # noqa: PLR0913 - all that a change may reach
        self,
        path: Path,
        current: Config,
        *,
        roster: Roster,
        seating: agents.Seating,
        hosts: Hosts,
        appoint: Callable[[Collection[str]], Awaitable[None]],
        review: Callable[[], Awaitable[None]],
        environ: Mapping[str, str],
        shown: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._path = path
        self._current = current
        self._roster = roster
        self._seating = seating
        self._hosts = hosts
        self._appoint = appoint
        self._review = review
        self._environ = environ
        self._shown = shown
        self._seen = _stamp(path)
        self._asked = asyncio.Event()

    def ask(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        while True:
            if await happens_within(self._asked, within_s=LOOK_S):
                self._asked.clear()
                self._seen = await asyncio.to_thread(_stamp, self._path)
                with self._shown():
                    await self.apply()
            elif (stamp := await asyncio.to_thread(_stamp, self._path)) != self._seen:
                await self._apply_when_quiet(stamp)

    async def _apply_when_quiet(self, stamp: tuple[int, int] | None) -> None:
        """An editor may still be writing: take it once it has been the same for one look."""
        await self._seating.clock.sleep(LOOK_S / 4)
        if await asyncio.to_thread(_stamp, self._path) == stamp:
            self._seen = stamp
            await self.apply()

    async def apply(self) -> None:
        changed = config.reload(self._current, self._path, self._environ)
        if not isinstance(changed, Config):
            for problem in changed:
                log.error("configuration not applied", problem=str(problem))
            return
        if changed is self._current:
            log.info("configuration unchanged")
            return
        try:
            found = await discovery.agents(changed, self._environ)
            agents.check(changed, self._path)
            seats = self._seating.seats(found.by_name)
        except Rejected as error:
            log.error("configuration not applied", problem=error.message)  # noqa: TRY400
            return
        needs_restart = config.restart_keys(self._current, changed)
        self._current = changed
        await self._roster.replace(seats)
        self._hosts.replace(changed.adapters)
        appointed = partial(self._appoint, operators_of(changed.adapters))
        await persist(appointed, clock=self._seating.clock)
        # Whoever may not speak any more has no turn that goes on.
        await persist(self._review, clock=self._seating.clock)
        warn_of_what_has_no_effect(changed)
        log.info("configuration applied", agents=list(seats), needs_restart=needs_restart)


def warn_of_what_has_no_effect(settings: Config) -> None:
    for setting in settings_without_effect(settings):
        log.warning(f"{setting} has no effect in this version")  # noqa: G004 - a whole sentence


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
