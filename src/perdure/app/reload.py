"""Applying a changed `perdure.toml` to a running node.

A change is applied where it can be (the agents), named where it needs a restart, and refused whole
where it is invalid: then everything stays as it was.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from perdure.app import agents, config, discovery
from perdure.app.config import Config
from perdure.domain.errors import Rejected
from perdure.engine.roster import Roster
from perdure.ports.clock import Clock

LOOK_S = 2.0
log = structlog.get_logger("config")


class Reloading:
    """Looks at the file every now and then: a stat costs nothing, and works on every disk."""

    def __init__(
        self,
        path: Path,
        current: Config,
        *,
        roster: Roster,
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._path = path
        self._current = current
        self._roster = roster
        self._environ = environ
        self._clock = clock
        self._seen = _stamp(path)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            stamp = await asyncio.to_thread(_stamp, self._path)
            if stamp == self._seen:
                continue
            # An editor may still be writing: take it once it has been the same for one look.
            await self._clock.sleep(LOOK_S / 4)
            if await asyncio.to_thread(_stamp, self._path) == stamp:
                self._seen = stamp
                await self.apply()

    async def apply(self) -> None:
        changed = config.reload(self._current, self._path, self._environ)
        if not isinstance(changed, Config):
            for problem in changed:
                log.error("configuration not applied", problem=str(problem))
            return
        if changed == self._current:
            return
        try:
            found = await discovery.agents(changed, self._environ)
            seats = agents.seats(found.by_name, clock=self._clock)
        except Rejected as error:
            log.error("configuration not applied", problem=error.message)  # noqa: TRY400
            return
        needs_restart = config.restart_keys(self._current, changed)
        self._current = changed
        self._roster.replace(seats)
        log.info("configuration applied", agents=list(seats), needs_restart=needs_restart)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
