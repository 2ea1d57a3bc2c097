"""Holds what the HTTP surfaces are given."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import msgspec

from perdure.domain.outcomes import Busy
from perdure.domain.people.menu import Menu
from perdure.ports.agents.programs import AgentStandings
from perdure.ports.delivery.pushes import Pushes, PushSender
from perdure.ports.gateway import Control, Door, Report, Watchers
from perdure.ports.people.quotas import QuotaGate
from perdure.ports.platform.adapter import HookRequest, HookResponse
from perdure.ports.records.condition import StoreCondition
from perdure.ports.records.history import Counts
from perdure.ports.records.media import MediaLibrary
from perdure.ports.records.occasions import Hooks, NoHooks
from perdure.ports.records.shelves import Shelves
from perdure.ports.system.clock import Clock
from perdure.ports.turns.servers import ToolServers
from perdure.web.endpoints import OperatorServices
from perdure.web.http.shared_question import SharedQuestion

Hook = Callable[[HookRequest], Awaitable[HookResponse]]


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies the running node. `started_at` is in milliseconds."""

    version: str
    node: str
    pid: int
    started_at: int


class Services(OperatorServices, frozen=True, kw_only=True):
    """Holds what a running node offers its surfaces, besides what every endpoint has."""

    door: Door
    control: Control
    watchers: Watchers
    condition: StoreCondition
    counts: SharedQuestion[Counts]
    shelves: Shelves
    menu: Callable[[], Menu]
    media: MediaLibrary
    clock: Clock
    info: NodeInfo
    verify: Callable[[], Awaitable[Report]]
    busy: Busy
    body_bytes_max: int
    gate: QuotaGate
    agents: AgentStandings
    tool_servers: ToolServers
    # By the adapter's name.
    hooks: Mapping[str, Hook] = MappingProxyType({})
    operators_hooks: Hooks = NoHooks()
    pushes: Pushes
    push_sender: PushSender
    # What keeps the instructions for the start from running, or nothing.
    boot_problem: Callable[[], str] = str
    # Networks of trusted proxies, and host names that are ours.
    proxies: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    # How long a `/v1` call that is not streamed stays open while its turn waits for a person.
    call_wait_s: float = 60.0
    # Whether other nodes write to the same store.
    is_shared: bool = False
