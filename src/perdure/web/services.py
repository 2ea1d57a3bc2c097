"""What the HTTP surfaces are given."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import msgspec

from perdure.domain.address import AddressForm
from perdure.domain.outcomes import Busy
from perdure.ports.access import Access
from perdure.ports.clock import Clock
from perdure.ports.entropy import Entropy
from perdure.ports.gateway import Control, Door, Report, Watchers
from perdure.ports.history import Archive, Conversations, Diagnostics
from perdure.ports.media import MediaLibrary
from perdure.ports.parked import Parked
from perdure.ports.places import Places
from perdure.ports.principals import Principals
from perdure.web.hooks import Hook


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    node: str
    pid: int
    started_at: int


class Services(msgspec.Struct, frozen=True, kw_only=True):
    door: Door
    watchers: Watchers
    control: Control
    conversations: Conversations
    archive: Archive
    diagnostics: Diagnostics
    principals: Principals
    access: Access
    places: Places
    parked: Parked
    outbox_wake: Callable[[], None]
    media: MediaLibrary
    clock: Clock
    entropy: Entropy
    info: NodeInfo
    verify: Callable[[], Awaitable[Report]]
    busy: Busy
    body_bytes_max: int
    # By the name of the adapter.
    hooks: Mapping[str, Hook] = MappingProxyType({})
    forms: Mapping[str, AddressForm] = MappingProxyType({})
