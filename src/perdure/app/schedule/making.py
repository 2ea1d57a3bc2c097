"""Makes what runs jobs, from the configuration."""

import stat
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from perdure.app.config.values import (
    Config,
)
from perdure.app.schedule.time_zones import time_zone
from perdure.domain.schedule.boot import BOOT_BYTES_MAX, BOOT_FILE, BootFile, boot_file
from perdure.domain.schedule.checklist import CHECKLIST_MAX
from perdure.domain.schedule.jobs import ScheduleTerms
from perdure.engine.foundation.wakes import Bus
from perdure.engine.node.life import BackgroundTask
from perdure.engine.schedule.boot import BootRun
from perdure.engine.schedule.pump import SchedulePump
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.schedule.schedule import Schedule
from perdure.ports.system.clock import Clock

# What a heartbeat goes through, in the home.
CHECKLIST: Final = "HEARTBEAT.md"
# How often a node on a shared store looks for jobs that another node was told of.
JOBS_POLL_S: Final = 5.0


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the settings of jobs. `checklist` reads what a heartbeat goes through, every
    `heartbeat_s`, and `boot` reads the instructions for the start."""

    jobs_max: int = 100
    boot: Callable[[], BootFile] = BootFile
    checklist: Callable[[], str] = str
    heartbeat_s: int = 0


def job_settings(settings: Config, home: Path) -> JobSettings:
    """Return the settings of jobs."""
    return JobSettings(
        jobs_max=settings.schedule.jobs_per_person,
        boot=partial(boot_in, home),
        checklist=partial(checklist_in, home),
        heartbeat_s=int(settings.schedule.heartbeat_s),
    )


def zone_for(settings: Config, environ: Mapping[str, str]) -> str:
    """Return the zone in which times are read for people who have chosen none: the configured one,
    else that of the machine."""
    return settings.server.timezone or time_zone(environ)


def job_terms(settings: Config, environ: Mapping[str, str]) -> ScheduleTerms:
    """Return on what terms agents order jobs. Which agents there are is looked at when they run."""
    jobs_max = settings.schedule.jobs_per_person
    return ScheduleTerms(zone=zone_for(settings, environ), jobs_max=jobs_max)


def checklist_in(home: Path) -> str:
    """Return the checklist of a home, or an empty text if it has none."""
    try:
        with (home / CHECKLIST).open(encoding="utf-8", errors="replace") as file:
            return file.read(CHECKLIST_MAX)
    except OSError:
        return ""


def boot_in(home: Path) -> BootFile:
    """Return the instructions for the start, from a home."""
    path = home / BOOT_FILE
    try:
        # Looked at first: to open a pipe would wait for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            return BootFile(problem=f"{path} is not a file; remove it")
        with path.open("rb") as file:
            return boot_file(file.read(BOOT_BYTES_MAX + 1))
    except FileNotFoundError:
        return BootFile()
    except OSError as error:
        return BootFile(
            problem=f"{path} cannot be read ({error.strerror}); make it readable or remove it"
        )


def terms_of(
    settings: JobSettings, *, agents: Iterable[str], adapters: Iterable[str], zone: str
) -> ScheduleTerms:
    """Return on what terms people have jobs."""
    return ScheduleTerms(
        agents=frozenset(agents),
        adapters=frozenset(adapters),
        zone=zone,
        jobs_max=settings.jobs_max,
    )


class JobPumps(NamedTuple):
    """Holds what starts runs of jobs: by the time, and when the node starts."""

    pump: SchedulePump
    boot: BootRun

    @property
    def tasks(self) -> Mapping[str, BackgroundTask]:
        """Return what runs in the background, by name."""
        return {"schedule": self.pump, "boot": self.boot}


def job_pumps(  # noqa: PLR0913 - what jobs need around them
    schedule: Schedule,
    feed: Feed,
    *,
    terms: Callable[[], ScheduleTerms],
    settings: JobSettings,
    limits: Limits,
    clock: Clock,
    bus: Bus,
    is_shared: bool,
) -> JobPumps:
    """Make what starts runs of jobs."""
    boot = BootRun(
        schedule,
        feed,
        read=settings.boot,
        terms=terms,
        policy=limits.recovery,
        clock=clock,
        bus=bus,
        is_shared=is_shared,
    )
    pump = SchedulePump(
        schedule,
        feed,
        terms=terms,
        checklist=settings.checklist,
        heartbeat_s=settings.heartbeat_s,
        concurrent=limits.concurrent,
        clock=clock,
        bus=bus,
        poll_s=JOBS_POLL_S if is_shared else None,
    )
    return JobPumps(pump, boot)
