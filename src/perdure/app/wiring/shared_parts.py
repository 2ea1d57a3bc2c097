"""Makes the objects that nearly every part of the engine is given."""

from collections.abc import Callable

import msgspec

from perdure.domain.people.access import Terms
from perdure.engine.delivery.surfaces import Surfaces
from perdure.engine.foundation.heartbeat import Heartbeat
from perdure.engine.foundation.leases import NodeLease
from perdure.engine.foundation.memory_trim import MemoryTrim
from perdure.engine.foundation.supervisor import Start
from perdure.engine.foundation.wakes import Bus
from perdure.engine.models.lost_agents import LostAgents
from perdure.engine.models.windows import Windows
from perdure.engine.people.admission import Admission
from perdure.engine.watching.feed import Feed
from perdure.ports.system.clock import Clock
from perdure.store.store import Store


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """Holds these objects."""

    feed: Feed
    start: Start
    bus: Bus
    surfaces: Surfaces
    admission: Admission
    heartbeat: Heartbeat
    lease: NodeLease
    trim: MemoryTrim
    windows: Windows
    lost: LostAgents


def common_parts(  # noqa: PLR0913 - what these objects stand on
    store: Store,
    surfaces: Surfaces,
    *,
    clock: Clock,
    terms: Callable[[str], Terms],
    give_back: Callable[[], None],
    start: Start,
    feed: Feed,
) -> Common:
    """Make these objects. `surfaces` are those of all platforms."""
    trim = MemoryTrim(store.shrink, give_back, clock=clock)
    bus = Bus()
    return Common(
        feed=feed,
        start=start,
        bus=bus,
        surfaces=surfaces,
        admission=Admission(terms),
        heartbeat=Heartbeat(clock),
        lease=NodeLease(clock, lease_s=store.nodes.lease_s),
        trim=trim,
        windows=Windows(clock=clock, dropped=trim.stir),
        lost=LostAgents(start, bus),
    )
