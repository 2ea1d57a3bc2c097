"""Provides what tests of a store are written with: people who send messages, and steps of runners
that answer them.

Nothing here depends on which database the store uses.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

import msgspec

from perdure.domain.address import HTTP, Address
from perdure.domain.checking.checker import violations
from perdure.domain.ids import (
    CallId,
    MessageId,
    NodeId,
    PrincipalId,
    QuestionId,
    SessionId,
    TurnId,
)
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Recorded,
    ToolCall,
)
from perdure.domain.journal.model.usage import NOTHING_USED, Usage
from perdure.domain.journal.question_events import AnswerAwaited, GrantOffer
from perdure.domain.journal.records import PartView, SessionRecord
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Outcome, QuestionKind, Repeat
from perdure.domain.people.menu import PLAIN, Menu
from perdure.domain.prompt.history import history_of, open_after
from perdure.domain.prompt.prompt import (
    ModelRequest,
    PromptMessage,
    Window,
    assemble,
    extend,
)
from perdure.domain.tools.asking import ALLOW_CALL, ALLOW_SESSION, DENY_CALL
from perdure.domain.turn.recovery import Policy, messages_with_notes
from perdure.ports.people.principals import Principals
from perdure.ports.records.audit import Audit
from perdure.ports.records.history import Conversations, Diagnostics
from perdure.ports.turns.inbox import Inbox
from perdure.ports.turns.turns import Claimed, Settlement, TextPiece, TurnLease, Turns

E = TypeVar("E", bound=AnyEvent)
GO_ON = Policy(freshness_ms=0)


class _StorePorts(Protocol):
    """Describes the ports of a store that these helpers use."""

    @property
    def inbox(self) -> Inbox: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def conversations(self) -> Conversations: ...

    @property
    def diagnostics(self) -> Diagnostics: ...


class Inspected(Protocol):
    """Describes the ports of a store that are needed to check everything stored."""

    @property
    def diagnostics(self) -> Diagnostics: ...

    @property
    def audit(self) -> Audit: ...


class Admitting(Protocol):
    """Describes the ports of a store that are needed to give a person a token."""

    @property
    def principals(self) -> Principals: ...


def message(  # noqa: PLR0913 - all that makes messages differ
    principal: PrincipalId,
    text: str = "hello",
    *,
    external_id: str = "m1",
    place: str = "home",
    adapter: str = HTTP,
    kind: UpdateKind = UpdateKind.MESSAGE,
    account: str = "",
    person: str = "",
    place_kind: str = "",
) -> Update:
    """Return an update that is a message."""
    address = Address(adapter=adapter, account=account or principal, place=place, person=person)
    return Update(
        address=address,
        external_id=external_id,
        kind=kind,
        principal=principal,
        text=text,
        place_kind=place_kind,
    )


async def admitted(store: Admitting, name: str, *, role: str = "member") -> PrincipalId:
    """Create a person with a token, and return their principal. The engine lets turns of such a
    person begin, on whatever platform they are."""
    principal = await store.principals.ensure(name, role=role)
    await store.principals.grant(principal.id, f"the token of {name}")
    return principal.id


class OwnedDatabase(Protocol):
    """Describes a database under test that several processes may share, as its owner sees it.
    `empty` removes all rows and disconnects everybody; `bury` lets the lease of a dead process run
    out; `leases` counts the leases that run."""

    url: str

    async def empty(self) -> None: ...

    async def bury(self, node: NodeId) -> None: ...

    async def bury_all(self) -> None: ...

    async def leases(self) -> int: ...


class Person:
    """Sends messages as one person, each with an id of its own, to a node with this menu."""

    def __init__(
        self,
        store: _StorePorts,
        principal: PrincipalId,
        *,
        place: str = "home",
        adapter: str = HTTP,
        menu: Menu = PLAIN,
    ) -> None:
        self._store = store
        self.id = principal
        self._place = place
        self._adapter = adapter
        self._menu = menu
        self._sent = 0

    async def says(self, text: str = "hello", *, queue_max: int = 1000) -> Accepted:
        """Send a message, and return what accepting it did."""
        self._sent += 1
        update = message(
            self.id,
            text,
            external_id=f"{self._place}-{self._sent}",
            place=self._place,
            adapter=self._adapter,
        )
        return await self._store.inbox.accept(update, queue_max=queue_max, menu=self._menu)

    async def is_answered(
        self, question: str, answer: str, *, parts: tuple[str, ...] = ()
    ) -> TurnId:
        """Send a question, and let its turn be claimed and settled with this answer. Returns the
        turn."""
        await self.says(question)
        claimed = await claim_one(self._store)
        await settle(self._store, claimed, answer, parts=parts)
        return claimed.lease.turn


def turn_of(accepted: Accepted) -> TurnId:
    """Return the turn of an accepted message. The test fails if it has none."""
    assert accepted.turn is not None
    return accepted.turn


async def claim_one(store: _StorePorts) -> Claimed:
    """Claim the one turn that is ready. The test fails if there is none."""
    claimed = await store.turns.claim(limit=1)
    assert len(claimed) == 1, f"one turn was to be claimed, there were {len(claimed)}"
    return claimed[0]


def reply_id(lease: TurnLease) -> MessageId:
    """Return the id of the message that an attempt writes."""
    return MessageId(f"msg_{lease.turn}_{lease.attempt}")


def piece(lease: TurnLease, text: str, *, start: int = 0, of: MessageId | None = None) -> TextPiece:
    """Return a piece of the text that an attempt writes."""
    return TextPiece(lease=lease, message=of or reply_id(lease), start=start, text=text)


async def flush(
    store: _StorePorts, lease: TurnLease, text: str, *, start: int = 0
) -> list[TurnLease]:
    """Write a piece of a running turn's text. Returns the leases that are no longer valid."""
    return await store.turns.flush([piece(lease, text, start=start)])


async def settle(
    store: _StorePorts,
    claimed: Claimed,
    text: str = "fine",
    *,
    outcome: Outcome = Outcome.DONE,
    parts: tuple[str, ...] = (),
    usage: Usage = NOTHING_USED,
) -> list[Recorded]:
    """Settle a turn with this text, and return the events that were written."""
    settlement = Settlement(
        outcome=outcome,
        reason="stop",
        usage=usage,
        message=reply_id(claimed.lease),
        text=text,
        parts=parts,
    )
    return (await store.turns.settle(claimed.lease, settlement)).recorded


def said(lease: TurnLease, text: str, *, calls: tuple[ToolCall, ...] = ()) -> AssistantSaid:
    """Return the event by which an attempt has said this text."""
    return AssistantSaid(
        turn=lease.turn,
        attempt=lease.attempt,
        message=reply_id(lease),
        text=text,
        calls=calls,
    )


def tool_call(name: str, *, repeat: Repeat = Repeat.ONCE) -> ToolCall:
    return ToolCall(id=CallId(f"call_{name}"), name=name, arguments="{}", repeat=repeat)


def question_about(
    lease: TurnLease,
    call: ToolCall,
    *,
    question: str = "qst_1",
    deadline: int = 0,
    offer: GrantOffer | None = None,
    is_once: bool = False,
) -> AnswerAwaited:
    """Return the question whether a call may run."""
    return AnswerAwaited(
        turn=lease.turn,
        attempt=lease.attempt,
        question=QuestionId(question),
        text=f"May I call {call.name}?",
        choices=(ALLOW_CALL, ALLOW_SESSION, DENY_CALL) if offer else (ALLOW_CALL, DENY_CALL),
        call=call.id,
        deadline=deadline,
        kind=QuestionKind.APPROVAL,
        tool=call.name,
        arguments=call.arguments,
        digest=f"digest of {call.id}",
        offer=offer,
        is_once=is_once,
    )


def inquiry_by(
    lease: TurnLease,
    call: ToolCall,
    text: str,
    *choices: str,
    question: str = "qst_1",
    deadline: int = 0,
) -> AnswerAwaited:
    """Return a question of the agent's own, which it asks by a call."""
    return AnswerAwaited(
        turn=lease.turn,
        attempt=lease.attempt,
        question=QuestionId(question),
        text=text,
        choices=choices,
        call=call.id,
        deadline=deadline,
        kind=QuestionKind.QUESTION,
        tool=call.name,
        arguments=call.arguments,
    )


def only(kind: type[E], recorded: Iterable[Recorded]) -> list[E]:
    """Return the events of one kind."""
    return [each.event for each in recorded if isinstance(each.event, kind)]


def encode_for_tests(message: PromptMessage) -> bytes:
    return repr(message).encode()


async def next_request(store: _StorePorts, claimed: Claimed) -> ModelRequest:
    """Return the request that a runner of this turn would send. Raises `Corrupt` if it is not
    valid."""
    window = Window()
    before: tuple[ToolCall, ...] = ()
    if claimed.parent is not None:
        chain = await store.conversations.chain(claimed.parent, limit=1000)
        history = history_of(chain)
        window = extend(window, history, encode=encode_for_tests)
        before = open_after(chain)
    return assemble(window, messages_with_notes(claimed.events, claimed.telling, before=before))


async def assert_sound(store: Inspected, *sessions: SessionId) -> None:
    """Check that the rows of these sessions say what their journals say, and that both keep every
    rule."""
    for session in sessions:
        problems = await problems_of(store, session)
        assert problems == [], problems


async def problems_of(store: Inspected, session: SessionId) -> list[str]:
    """Return everything that is wrong with a session. An audit reads sessions in a different way;
    the test fails if it does not see the same."""
    record = await store.diagnostics.record(session)
    audited = await store.audit.records(session, session)
    assert [_audited(each) for each in audited] == [_audited(record)]
    assert set(audited[0].updates) <= set(record.updates)
    return list(dict.fromkeys(violations(record) + violations(audited[0])))


def _audited(record: SessionRecord) -> SessionRecord:
    """Return the parts of a record that both ways of reading show. An audit does not read the
    replies to commands, which belong to no turn, and it looks elsewhere for updates that no event
    names."""
    own = {turn.id for turn in record.turns}
    parts = tuple(
        PartView(
            id=part.id,
            message=part.message,
            turn=part.turn,
            part=part.part,
            adapter=part.adapter,
            state=part.state,
            attempts=part.attempts,
            receipt=part.receipt,
            error=part.error,
            text=part.text,
        )
        for part in record.parts
        if part.turn in own
    )
    return msgspec.structs.replace(
        record,
        parts=tuple(sorted(parts, key=lambda part: part.id)),
        updates=(),
        partials=tuple(sorted(record.partials)),
        fetches=tuple(sorted(record.fetches)),
        told=tuple(sorted(record.told)),
        questions=tuple(sorted(record.questions, key=lambda each: each.id)),
        effects=tuple(sorted(record.effects, key=lambda each: each.call)),
        summaries=tuple(sorted(record.summaries, key=lambda each: each.turn)),
    )
