"""What the HTTP surfaces are given."""

from collections.abc import Awaitable, Callable

import msgspec

from perdure.domain.outcomes import Busy
from perdure.ports.clock import Clock
from perdure.ports.entropy import Entropy
from perdure.ports.gateway import Control, Door, Report, Watchers
from perdure.ports.history import Archive, Conversations, Diagnostics
from perdure.ports.media import MediaLibrary
from perdure.ports.principals import Principals


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
    media: MediaLibrary
    clock: Clock
    entropy: Entropy
    info: NodeInfo
    verify: Callable[[], Awaitable[Report]]
    busy: Busy
    body_bytes_max: int
