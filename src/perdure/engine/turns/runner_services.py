"""Holds the services and limits that every runner uses."""

from collections.abc import Callable

import msgspec

from perdure.domain.people.notices import NoticeTerms
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.domain.prompt.bounds import Bounds
from perdure.domain.turn.recovery import Policy
from perdure.engine.foundation.leases import NodeLease
from perdure.engine.foundation.memory_trim import MemoryTrim
from perdure.engine.foundation.supervisor import Start
from perdure.engine.models.budget import Budgets
from perdure.engine.models.lost_agents import LostAgents
from perdure.engine.models.prompts import Prompts
from perdure.engine.models.reaching import Reaching
from perdure.engine.models.roster import Roster
from perdure.engine.people.admission import Admission
from perdure.engine.people.alarm import Alarm
from perdure.engine.turns.agent_files import AgentFiles
from perdure.engine.turns.errands import Afterwards
from perdure.engine.turns.flusher import Flusher
from perdure.engine.watching.feed import Feed
from perdure.ports.agents.delegations import Delegations
from perdure.ports.people.places import Places, Reachable
from perdure.ports.records.history import Conversations
from perdure.ports.system.clock import Clock
from perdure.ports.turns.questions import Effects, Grants
from perdure.ports.turns.room import ContextRoom
from perdure.ports.turns.todos import Todos
from perdure.ports.turns.turns import Turns
from perdure.ports.turns.wakes import Wakes


class DelegatingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how agents may give work to others: how many may stand above an agent that is given
    some (`depth`), how many pieces a turn waits for at once, how many may be under way for one
    person, and how long a turn waits; 0 means for ever."""

    depth: int = 1
    at_once: int = 4
    per_person: int = 16
    wait_ms: int = 3_600_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the configured limits of this node."""

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
    answer_wait_ms: int = 3_600_000
    notices: NoticeTerms = NoticeTerms()
    delegating: DelegatingLimits = DelegatingLimits()


class RunnerServices(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the services that every runner uses. There is one of each per node. `can_speak`: there
    is somebody who reads answers aloud."""

    turns: Turns
    places: Places
    reach: Callable[[], Reachable]
    delegations: Delegations
    grants: Grants
    lost: LostAgents
    effects: Effects
    todos: Todos
    start: Start
    room: ContextRoom
    admission: Admission
    conversations: Conversations
    prompts: Prompts
    files: AgentFiles
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
    trim: MemoryTrim
    can_speak: bool
