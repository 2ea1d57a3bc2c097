"""Holds what a node is assembled from."""

from collections.abc import Callable, Mapping

import msgspec

from perdure.app.reading.file_reading import FileReader
from perdure.app.schedule.making import JobSettings
from perdure.domain.address import AddressForm
from perdure.domain.delivery import Display
from perdure.domain.people.access import Terms
from perdure.domain.people.budgets import DailyBudgets
from perdure.engine.inbound.fetching import NothingFetched
from perdure.engine.models.roster import Roster
from perdure.engine.turns.runner_services import Limits
from perdure.ports.delivery.pushes import NoPushSender, PushSender
from perdure.ports.platform.adapter import Adapter, Platform
from perdure.ports.records.media import Fetcher, ReadsFiles
from perdure.ports.records.occasions import Hooks, NoHooks
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.ports.system.speech import Voice
from perdure.ports.turns.servers import NoToolServers, ToolServers
from perdure.store.store import Store

NO_ADAPTERS: Mapping[str, Adapter] = {}
NO_PLATFORMS: Mapping[str, Platform] = {}
NO_PERSONAS: Mapping[str, str] = {}
NO_DISPLAYS: Mapping[str, Display] = {}
NO_SOURCES: Mapping[str, Fetcher] = {}
NOBODY_TO_ASK = FileReader()
NO_HOOKS = NoHooks()
NO_SENDER = NoPushSender()


class NodeDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a node is assembled from. `platform` returns the platform of an adapter, which may
    be called otherwise. `give_back` returns free memory to the system. `zone` is the time zone that
    models are told, and that jobs are read in. `is_shared`: other nodes may use the same
    store."""

    store: Store
    roster: Roster
    clock: Clock
    entropy: Entropy
    limits: Limits = Limits()
    budgets: DailyBudgets = DailyBudgets()
    personas: Mapping[str, str] = NO_PERSONAS
    adapters: Mapping[str, Adapter] = NO_ADAPTERS
    platforms: Mapping[str, Platform] = NO_PLATFORMS
    forms: Mapping[str, AddressForm] = msgspec.field(default_factory=dict)
    terms: Callable[[str], Terms] = lambda _: Terms()
    platform: Callable[[str], str] = lambda name: name
    displays: Mapping[str, Display] = NO_DISPLAYS
    sources: Mapping[str, Fetcher] = NO_SOURCES
    web: Fetcher = NothingFetched()
    reader: ReadsFiles = NOBODY_TO_ASK
    speaker: Voice | None = None
    servers: ToolServers = NoToolServers()
    hooks: Hooks = NO_HOOKS
    pushes: PushSender = NO_SENDER
    give_back: Callable[[], None] = lambda: None
    zone: str = "UTC"
    jobs: JobSettings = JobSettings()
    is_shared: bool = False
