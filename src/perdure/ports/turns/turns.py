"""Defines the ports of turns and nodes: what a runner may write, and the life of a process among
those that share the store. Each write of a runner carries its lease's epoch, and is refused once
that is stale."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import (
    ConversationId,
    MediaId,
    MessageId,
    PrincipalId,
    SessionId,
    TurnId,
)
from perdure.domain.journal.events import (
    AnyEvent,
    Attachment,
    LeftOut,
    Recorded,
    ToolCall,
)
from perdure.domain.journal.model.agent_state import UNTOLD, AgentState
from perdure.domain.journal.model.reach import AT_ONCE, Reach
from perdure.domain.journal.model.timings import UNTIMED, Timings
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.question_events import AnswerAwaited
from perdure.domain.outcomes import Interruption, NodeRequest, Outcome
from perdure.domain.people.access import Speaker
from perdure.domain.people.memory import Memory
from perdure.domain.people.sharing import EQUAL, FairShares
from perdure.domain.prompt.prefix import NOTHING_ASKED, RequestOrigin
from perdure.domain.prompt.whereabouts import NOWHERE, Whereabouts
from perdure.domain.turn.announcing import Drain
from perdure.domain.turn.recovery import Policy, Telling
from perdure.domain.turn.spent import NOTHING_SPENT, Spent
from perdure.ports.agents.delegations import WorkOrder
from perdure.ports.people.places import PostedCall, TurnPosting


class TurnLease(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the right to run one turn. Every write of the runner carries it."""

    session: SessionId
    turn: TurnId
    epoch: int
    attempt: int


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a turn that this node has claimed, with all that its runner needs to begin.

    `principal` is the sender, and `address` is where the answer goes; `is_shared`: several people
    read there. `parent` is the turn it stands on, `events` are its own so far. `telling` is what
    the model must be told about interruptions. `view` changes whenever the same turns are told to
    the model in another way; `prefix` is what the last request began with. `memories` are what is
    remembered about the person, everywhere and here. `has_title`: the session has one. `is_listed`:
    the conversation is shown in lists, so people may come back to it. `whereabouts` describe where
    the answer goes. `speaker` is needed to decide again whether the person may speak; None if that
    was just decided with the message.
    """

    lease: TurnLease
    conversation: ConversationId
    principal: PrincipalId
    address: Address
    parent: TurnId | None
    is_shared: bool = False
    events: tuple[Recorded, ...]
    telling: Telling = Telling()
    view: str = ""
    prefix: str = ""
    memories: tuple[Memory, ...] = ()
    has_title: bool = True
    is_listed: bool = True
    whereabouts: Whereabouts = NOWHERE
    speaker: Speaker | None = None


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a turn that is not settled, and the person it is for."""

    turn: TurnId
    speaker: Speaker


class TextPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a piece of the running message's text, which begins at `start` (in code points). The
    first piece has the `origin` of the request that the message answers."""

    lease: TurnLease
    message: MessageId
    start: int
    text: str
    origin: RequestOrigin = NOTHING_ASKED


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how a turn ends: the outcome, the final message if there is one, and the parts of the
    reply. `context_tokens` is how much the model reads to know everything up to here.
    `spoken` is read aloud where people want that.
    `is_reserved`: the turn may have a reservation in the budgets. `origin` is `SENT` if no model
    was asked. `asked` is the origin of the last request. `reach` says what it took to get an
    answer. `note` is told to people after the reply, unless a part of the reply tells it.
    `choices` are commands to offer as buttons under the reply. `left_out` is what later requests
    leave out, because the model's server has refused it. `agent_session` is the session that the
    agent itself keeps, and `timings` are where its time went."""

    outcome: Outcome
    reason: str
    detail: str = ""
    agent: str = ""
    usage: Usage = Usage()  # of this attempt
    message: MessageId | None = None
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    acknowledgements: tuple[AnyEvent, ...] = ()
    parts: tuple[str, ...] = ()
    spoken: str = ""
    attachments: tuple[Attachment, ...] = ()
    files: tuple[MediaId, ...] = ()
    context_tokens: int = 0
    asked: RequestOrigin = NOTHING_ASKED
    prefix_break: str = ""
    cost: int = 0  # of this attempt
    is_reserved: bool = False
    origin: str = ""
    reach: Reach = AT_ONCE
    note: str = ""
    choices: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    agent_session: str = ""
    timings: Timings = UNTIMED
    agent_state: AgentState = UNTOLD


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a settlement has journalled. `has_more`: the session's next turn can be claimed
    now."""

    recorded: list[Recorded]
    has_more: bool


class Turns(Protocol):
    """Claims queued turns, and records what their runners do.

    Guarantees: a session has one running turn at most. Each method that writes is one transaction,
    and what it returns is durable. The last `origin` that came with any write is kept with the
    turn, even if the turn is ended from outside.
    Requires: a lease from `claim` or from `Inbox.accept_and_start`.
    Raises: `Fenced` when the lease is stale; `Transient` when nothing was written; `Ambiguous` when
    that is unknown.
    After a crash: the reaper finds the turn still running and ends the attempt.
    """

    async def claim(self, *, limit: int, shares: FairShares = EQUAL) -> list[Claimed]:
        """Claim queued turns that can begin. Gives each to one node.

        They come in order of arrival per session and per person, whatever the clock says. If more
        wait than there is room for, the next is always of the person with the fewest by `shares`,
        and among equals of the one who came first; nobody gets more than `shares.most`. If the
        answer is lost, `Nodes.reclaim` finds the turns.
        """

    async def next_claim_ms(self, *, shares: FairShares = EQUAL) -> int | None:
        """Return when `claim` can claim the next turn with these shares; 0 if that is now, None if
        none waits."""

    async def flush(self, pieces: Sequence[TextPiece], *, beats: bool = False) -> list[TurnLease]:
        """Store pieces of growing text. Returns the leases that are stale; their pieces were not
        stored, and the others were.

        Requires the pieces of a message in order and without gaps. With `beats` this is a heartbeat
        of the node too, unless its lease has run out; only `Nodes.beat` tells that.
        """

    async def append(
        self,
        lease: TurnLease,
        events: Sequence[AnyEvent],
        *,
        piece: TextPiece | None = None,
        origin: RequestOrigin = NOTHING_ASKED,
    ) -> list[Recorded]:
        """Append events of the running turn, together with a last piece of text. Returns them."""

    async def take_steers(self, lease: TurnLease) -> list[Recorded]:
        """Take the messages that were sent to the running turn into it. Returns what was
        appended."""

    async def tell(self, lease: TurnLease, text: str) -> list[Recorded]:
        """Post a notice in the turn's conversation, which the model never sees. Returns what was
        appended."""

    async def tell_still(self, lease: TurnLease, text: str) -> list[Recorded]:
        """Post a notice that the turn is still at work, once for a turn. To repeat it changes
        nothing. Returns what was appended."""

    async def settle(self, lease: TurnLease, settlement: Settlement) -> Settled:
        """End a running turn, with everything that follows from it."""

    async def post(
        self, lease: TurnLease, posting: TurnPosting, *, why: str, queue_max: int
    ) -> PostedCall:
        """Queue what an agent sends into another conversation, and store the call and its result
        with it. `why` says what has allowed the call. Called again, it returns what came of the
        first time. Raises what `Places.find` raises, and then nothing was written."""

    async def interrupt(
        self,
        lease: TurnLease,
        reason: Interruption,
        *,
        attempts_max: int,
        asked: NodeRequest = NodeRequest.NOTHING,
        spent: Spent = NOTHING_SPENT,
    ) -> list[Recorded]:
        """End the attempt of a running turn, or give the turn up after too many attempts. The turn
        is charged what the attempt has `spent`. Returns what was appended."""

    async def wait(
        self,
        lease: TurnLease,
        questions: Sequence[AnswerAwaited],
        work: Sequence[WorkOrder] = (),
        *,
        spent: Spent = NOTHING_SPENT,
        live_max: int = 0,
    ) -> list[Recorded]:
        """End the attempt with questions to people and with work for other agents. The turn is
        charged what the attempt has `spent`, and has no owner until the last answer
        (`Questions.answer`) or the end of the last errand puts it back in line. Returns what was
        appended, the turn's own events first. Raises `Rejected` if more than `live_max` errands of
        this kind would be under way for the person; then nothing was written."""

    async def unfinished(self, *, after: TurnId | None, limit: int) -> list[Unfinished]:
        """Return the turns after `after` that are not settled, on whichever node, ordered by id."""

    async def turn_away(self, turn: TurnId, reason: str) -> list[Recorded]:
        """End a turn whose person may not speak any more: as stopped if it is at work, otherwise as
        refused. Does nothing if it has ended. Returns what was appended."""


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what `Nodes.resume` has journalled. `is_holding_back`: suspects, which are turns whose
    sessions were interrupted several times, wait for one that is at work. Call `resume` again when
    that one is done, and at `look_again_ms`, when it has run long enough to be trusted."""

    recorded: list[Recorded]
    is_holding_back: bool
    look_again_ms: int | None = None


class Nodes(Protocol):
    """Represents this process among those that share the store.

    Guarantees: each method that writes is one transaction; those that return events return what was
    appended.
    Requires: `join` before anything else.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: the next node's `reap` does it all again, from the rows.
    """

    @property
    def lease_s(self) -> float | None:
        """Return how long a lease lasts that nobody renews; None if holding the store is the
        lease."""

    async def join(self, *, name: str) -> bool:
        """Make this node known. Returns whether the last node of this name ended without `leave`,
        as after a crash."""

    async def beat(self) -> bool:
        """Renew this node's lease. Returns False if it ran out: join again."""

    async def reap(self, *, attempts_max: int, limit: int) -> list[Recorded]:
        """End the attempts of turns whose owner is gone; a node is never gone for itself. After
        `attempts_max` a turn is given up and its session suspended; what waits behind it goes on in
        another session."""

    async def reclaim(self, *, known: Sequence[TurnId], attempts_max: int) -> list[Recorded]:
        """End the attempts of turns that the rows give to this node and that are not in `known`:
        the answer to their claim was lost."""

    async def resume(self, policy: Policy, *, limit: int) -> Resumed:
        """Apply the policy to interrupted turns: queue them again, ask their people, or leave them.
        The people of a turn that is left because it is too old are told once."""

    async def announce(self, policy: Policy, drain: Drain) -> list[Recorded]:
        """Tell each conversation in which this node runs a turn what the drain means for it and, if
        the drain says so, the operators' homes that the node ends."""

    async def greet(self, *, tells_homes: bool = False) -> list[Recorded]:
        """Tell the sessions that asked for a restart that it is done, once; with `tells_homes` also
        tell the operators' homes that the node is back."""

    async def leave(
        self,
        *,
        restart_session: SessionId | None = None,
        asked: NodeRequest = NodeRequest.STOP,
    ) -> None:
        """Record that this node ends as planned, what was asked for, and which session has asked
        for a restart."""
