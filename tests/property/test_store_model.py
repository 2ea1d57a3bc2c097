"""Compares the store with a few lines of plain Python, whatever is done to it.

The model holds sessions as lists of turns. Hypothesis tries sequences of operations and crashes.
After each of them the store must show what the model shows, and the checker must find nothing.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.databases import sqlite_on

from perdure.domain.checking.checker import violations
from perdure.domain.errors import Conflict, Rejected
from perdure.domain.ids import PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.events import AssistantSaid, TurnRequeued
from perdure.domain.outcomes import Busy, Interruption, Outcome
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, flush, message, only, settle
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

T = TypeVar("T")
PLACES = ("home", "work")
QUEUE_MAX = 4
ATTEMPTS_MAX = 3
SUSPECT = 2


@dataclass
class ModelTurn:
    """Represents a turn and its attempts."""

    id: TurnId
    text: str
    state: str = "queued"
    outcome: str | None = None
    attempts: int = 0
    began: int = 0
    longest: int = 0
    claimed: Claimed | None = None
    shown: str = ""
    said: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.outcome is None

    def end_attempt(self) -> None:
        if self.shown.strip():
            self.said.append(self.shown)
        self.shown, self.claimed = "", None

    def settle(self, outcome: str) -> None:
        self.state, self.outcome = "settled", outcome


@dataclass
class ModelSession:
    """Represents a session as a list of turns, and its strikes."""

    id: SessionId
    turns: list[ModelTurn] = field(default_factory=list)
    strikes: int = 0
    is_suspended: bool = False
    head: TurnId | None = None

    @property
    def open_turns(self) -> list[ModelTurn]:
        return [turn for turn in self.turns if turn.is_open]

    @property
    def next(self) -> ModelTurn | None:
        waiting = self.open_turns
        is_free = all(turn.state == "queued" for turn in waiting)
        return waiting[0] if waiting and is_free else None

    def interrupt(
        self, turn: ModelTurn, *, at: int, counts: bool, is_spared: bool = False
    ) -> list[ModelTurn]:
        """Interrupt a turn. Returns the turns that move to another session, if this turn is given
        up."""
        turn.end_attempt()
        turn.state = "interrupted"
        turn.longest = max(turn.longest, at - turn.began)
        self.strikes += counts
        if not counts or self.strikes < ATTEMPTS_MAX or is_spared:
            return []
        turn.settle("suspended")
        self.is_suspended, self.head = True, turn.id
        moved = self.open_turns
        self.turns = [each for each in self.turns if each not in moved]
        return moved

    def replaced_by(self, busy: Busy) -> tuple[ModelTurn, str] | None:
        """Return the turn that a new message would end, and its outcome, or None if there is
        none."""
        started = next((turn for turn in self.open_turns if turn.attempts), None)
        if started is None:
            return None
        return (started, "superseded") if busy is Busy.INTERRUPT else None

    def end(self, turn: ModelTurn, outcome: str) -> None:
        turn.end_attempt()
        turn.settle(outcome)
        if turn.attempts:
            self.head = turn.id


class StoreMachine(RuleBasedStateMachine):
    """Draws operations and crashes, and compares the store with the model after each."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-model-"))
        self.clock, self.entropy = VirtualClock(), SeededEntropy()
        self.live: dict[str, ModelSession] = {}
        self.all: list[ModelSession] = []
        self.sent: dict[str, TurnId] = {}
        self.ada = PrincipalId("")
        self.loop.run_until_complete(self.begin())

    async def begin(self) -> None:
        driver = sqlite_on(self.folder / "p.db")
        self.store = Store(driver, clock=self.clock, entropy=self.entropy, media=self.folder)
        await self.store.open()
        await self.store.nodes.join(name="model")
        self.ada = (await self.store.principals.ensure("ada", role="member")).id

    def teardown(self) -> None:
        self.loop.run_until_complete(self.store.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    @property
    def at_work(self) -> list[tuple[ModelSession, ModelTurn]]:
        return [(s, t) for s in self.all for t in s.turns if t.state == "running"]

    @property
    def open_turns(self) -> list[tuple[ModelSession, ModelTurn]]:
        return [(s, t) for s in self.all for t in s.open_turns]

    @rule(
        place=st.sampled_from(PLACES),
        text=st.text("ab ", max_size=3).filter(str.strip),
        busy=st.sampled_from([Busy.QUEUE, Busy.QUEUE, Busy.INTERRUPT]),
    )
    def accept(self, place: str, text: str, busy: Busy) -> None:
        external_id = f"{len(self.sent)}"
        update = message(self.ada, text, external_id=external_id, place=place)
        update = msgspec.structs.replace(update, busy=busy)
        session = self.live.get(place)
        is_full = (
            session is not None
            and not session.is_suspended
            and sum(not turn.attempts for turn in session.open_turns) >= QUEUE_MAX
        )
        if is_full:
            with pytest.raises(Rejected):
                self.run(self.store.inbox.accept(update, queue_max=QUEUE_MAX))
            return
        accepted = self.run(self.store.inbox.accept(update, queue_max=QUEUE_MAX))
        assert accepted.turn is not None
        if session is None or session.is_suspended:
            assert accepted.session not in {each.id for each in self.all}
            session = ModelSession(accepted.session)
            self.live[place] = session
            self.all.append(session)
        assert accepted.session == session.id
        self.replace(session, busy, accepted)
        assert accepted.queue_position == len(session.open_turns)
        session.turns.append(ModelTurn(accepted.turn, text))
        self.sent[f"{external_id} {place} {text}"] = accepted.turn

    def replace(self, session: ModelSession, busy: Busy, accepted: Accepted) -> None:
        replaced = session.replaced_by(busy)
        if replaced is None:
            assert accepted.ended == ()
            return
        turn, outcome = replaced
        claimed = turn.claimed
        session.end(turn, outcome)
        assert accepted.ended == (turn.id,)
        if claimed is not None:
            self.must_be_fenced(claimed)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Deliver an update again, as a platform may do."""
        key = data.draw(st.sampled_from(sorted(self.sent)))
        external_id, place, text = key.split(" ", 2)
        update = message(self.ada, text, external_id=external_id, place=place)
        again = self.run(self.store.inbox.accept(update, queue_max=QUEUE_MAX))
        assert (again.turn, again.is_duplicate) == (self.sent[key], True)
        other = message(self.ada, text + "!", external_id=external_id, place=place)
        with pytest.raises(Conflict):
            self.run(self.store.inbox.accept(other, queue_max=QUEUE_MAX))

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        expected = {s.next.id: s for s in self.all if s.next is not None and not s.is_suspended}
        claimed = self.run(self.store.turns.claim(limit=limit))
        assert len(claimed) == min(limit, len(expected))
        for each in claimed:
            session = expected.pop(each.lease.turn)
            turn = session.next
            assert turn is not None
            assert each.parent == session.head
            turn.state, turn.claimed, turn.attempts = "running", each, turn.attempts + 1
            turn.began = self.clock.now_ms()
            assert each.lease.attempt == turn.attempts

    @precondition(lambda self: self.at_work)
    @rule(data=st.data(), text=st.text("xy ", min_size=1, max_size=3))
    def flush(self, data: st.DataObject, text: str) -> None:
        _, turn = data.draw(st.sampled_from(self.at_work))
        assert turn.claimed is not None
        stale = self.run(flush(self.store, turn.claimed.lease, text, start=len(turn.shown)))
        assert stale == []
        turn.shown += text

    @precondition(lambda self: self.at_work)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.DONE, Outcome.FAILED]))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        session, turn = data.draw(st.sampled_from(self.at_work))
        assert turn.claimed is not None
        claimed = turn.claimed
        turn.shown += "z"
        self.run(settle(self.store, claimed, turn.shown, outcome=outcome))
        session.end(turn, outcome)
        session.strikes = 0 if outcome is Outcome.DONE else session.strikes
        self.must_be_fenced(claimed)

    @precondition(lambda self: self.open_turns)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        session, turn = data.draw(st.sampled_from(self.open_turns))
        claimed = turn.claimed
        self.run(self.store.inbox.stop(turn.id, by=self.ada))
        session.end(turn, "stopped")
        if claimed is not None:
            self.must_be_fenced(claimed)
        with pytest.raises(Conflict):
            self.run(self.store.inbox.stop(turn.id, by=None))

    @precondition(lambda self: self.at_work)
    @rule(data=st.data(), reason=st.sampled_from(Interruption))
    def interrupt(self, data: st.DataObject, reason: Interruption) -> None:
        session, turn = data.draw(st.sampled_from(self.at_work))
        assert turn.claimed is not None
        claimed = turn.claimed
        self.run(self.store.turns.interrupt(claimed.lease, reason, attempts_max=ATTEMPTS_MAX))
        at, counts = self.clock.now_ms(), reason.counts_towards_limit
        self.move_on(session, session.interrupt(turn, at=at, counts=counts))
        self.must_be_fenced(claimed)

    def move_on(self, session: ModelSession, turns: list[ModelTurn]) -> None:
        """Move the turns that waited behind a given-up turn to the session that follows."""
        if not turns:
            return
        place = next(place for place, live in self.live.items() if live is session)
        found = self.run(self.store.conversations.find(place, principal=self.ada))
        successor = ModelSession(found.view.standing.session, turns)
        assert successor.id not in {each.id for each in self.all}
        self.live[place] = successor
        self.all.append(successor)

    @rule()
    def crash(self) -> None:
        """Kill the process, start another and clean up after the first."""
        owned = self.at_work
        before = [turn.claimed for _, turn in owned]
        self.run(self.store.close())
        self.run(self.begin())
        self.run(self.store.nodes.reap(attempts_max=ATTEMPTS_MAX, limit=100))
        last = max(
            (t.began for s, t in owned if t.attempts > 1 and s.strikes >= SUSPECT), default=0
        )
        for session, turn in sorted(owned, key=lambda each: each[1].began):
            is_spared = turn.began < last
            at = self.clock.now_ms()
            moved = session.interrupt(turn, at=at, counts=True, is_spared=is_spared)
            self.move_on(session, moved)
        for claimed in before:
            assert claimed is not None
            self.must_be_fenced(claimed)

    @rule(seconds=st.sampled_from([0.05, 1, 100]))
    def time_passes(self, seconds: float) -> None:
        """Let time pass while the node renews its lease."""
        self.clock.advance(seconds)
        assert self.run(self.store.nodes.beat())

    @rule()
    def resume(self) -> None:
        """Resume turns: all at once, except in sessions that crashed before. Those come last and
        one at a time: the next one waits until this one has lived longer than it ever did, a minute
        at most."""
        resumed = self.run(self.store.nodes.resume(GO_ON, limit=100))
        went_on = {event.turn for event in only(TurnRequeued, resumed.recorded)}
        waiting = [(s, t) for s, t in self.open_turns if t.state == "interrupted"]
        bystanders = {t.id for s, t in waiting if s.strikes < SUSPECT}
        suspects = {t.id for s, t in waiting if s.strikes >= SUSPECT}
        at_work = [
            t
            for s, t in self.open_turns
            if t.attempts and t.state != "interrupted" and s.strikes >= SUSPECT
        ]
        now = self.clock.now_ms()
        is_suspect_at_work = any(
            t.state == "queued" or now <= t.began + min(t.longest, 60_000) for t in at_work
        )
        if bystanders or is_suspect_at_work:
            assert went_on == bystanders
        else:
            assert went_on <= suspects
            assert len(went_on) == min(len(suspects), 1)
        assert resumed.is_holding_back == bool(suspects - went_on)
        for _, turn in waiting:
            if turn.id in went_on:
                turn.state = "queued"

    def must_be_fenced(self, claimed: Claimed) -> None:
        assert self.run(flush(self.store, claimed.lease, "late")) == [claimed.lease]
        with pytest.raises(Conflict):
            self.run(settle(self.store, claimed, "late"))

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(work)

    @invariant()
    def the_store_shows_what_the_model_shows(self) -> None:
        for session in self.all:
            record = self.run(self.store.diagnostics.record(session.id))
            assert violations(record) == []
            assert [(t.id, t.state, t.outcome, t.attempts) for t in record.turns] == [
                (t.id, t.state, t.outcome, t.attempts) for t in session.turns
            ]
            assert record.head == session.head
            assert record.strikes == session.strikes
            assert (record.session.state == "suspended") == session.is_suspended
            for turn in session.turns:
                mine = [recorded for recorded in record.events if recorded.turn == turn.id]
                assert [said.text for said in only(AssistantSaid, mine)] == turn.said


StoreMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestTheStoreIsItsModel = pytest.mark.timeout(300)(StoreMachine.TestCase)  # shrinking takes time
