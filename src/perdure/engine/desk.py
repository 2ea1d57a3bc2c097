"""What every runner works with."""

from collections.abc import Callable

import msgspec

from perdure.domain.bounds import Bounds
from perdure.domain.quotas import NO_QUOTA, Quota
from perdure.domain.recovery import Policy
from perdure.engine.admission import Admission
from perdure.engine.alarm import Alarm
from perdure.engine.budget import Budgets
from perdure.engine.errands import Afterwards
from perdure.engine.feed import Feed
from perdure.engine.giving import Files
from perdure.engine.leases import NodeLease
from perdure.engine.prompts import Prompts
from perdure.engine.reaching import Reaching
from perdure.engine.roster import Roster
from perdure.engine.scribe import Flusher
from perdure.engine.thrift import Thrift
from perdure.ports.clock import Clock
from perdure.ports.history import Conversations
from perdure.ports.turns import Turns
from perdure.ports.wakes import Wakes


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    concurrent: int = 10_000
    turn_timeout_s: float = 1800
    steps_max: int = 50
    bounds: Bounds = Bounds()
    quota: Quota = NO_QUOTA
    recovery: Policy = Policy()
    queue_max: int = 100
    drain_timeout_s: float = 30
    delivery_expire_s: int = 86_400
    has_titles: bool = False
    idle_reset_ms: int = 0
    media_bytes: int = 20_000_000
    fetch_wait_s: float = 60


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    turns: Turns
    admission: Admission
    conversations: Conversations
    prompts: Prompts
    files: Files
    roster: Roster
    reaching: Reaching
    flusher: Flusher
    feed: Feed
    clock: Clock
    mint: Callable[[str], str]
    limits: Limits
    budgets: Budgets
    wakes: Wakes
    lease: NodeLease
    afterwards: Afterwards
    alarm: Alarm
    thrift: Thrift
