"""Compares a conversation under commands with a small model, whatever people say and when.

The model is written from what people are promised, not from the tables: sessions that stand at a
turn, turns that know their parent, a line of waiting turns, a stack of heads to go back to.
Hypothesis looks for a sequence on which the store and the model differ. On PostgreSQL, whose locks
and plans are different, the same steps are walked at random.
"""

import asyncio
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.databases import sqlite_on

from perdure.domain.checking.checker import violations
from perdure.domain.ids import PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import TurnQueued, TurnStarted
from perdure.domain.journal.session_events import HeadMoved
from perdure.domain.journal.transcript import entries_of
from perdure.domain.outcomes import Outcome
from perdure.domain.people.menu import Menu
from perdure.domain.prompt.prompt import (
    PromptMessage,
    Role,
    TextBlock,
    assert_valid,
    messages_of,
    weave,
)
from perdure.domain.turn.recovery import Policy, Resume, acknowledgements
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.operations.commands.command_result import STOPPED_TOO
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, claim_one, flush, message, only, reply_id
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock


class Home(Protocol):
    is_shared: bool


T = TypeVar("T")
Reopen = Callable[[], Awaitable[Store]]
NEVER = 1_000_000
# With these settings the next message replaces an interrupted answer.
WAITING = Menu(recovery=Policy(resume=Resume.WAIT, freshness_ms=0))
# The model is told of interruptions in at most this many earlier turns.
UNTOLD_MAX = 10


@dataclass
class ModelTurn:
    """Represents a turn: what was said in it, and its attempts."""

    id: TurnId
    text: str
    origin: "ModelTurn | None" = None
    parent: "ModelTurn | None" = None
    attempts: int = 0
    state: str = "queued"
    said: list[str] = field(default_factory=list)
    shown: list[tuple[str, str]] = field(default_factory=list)
    # The messages that were sent to it and not taken, with the time of each. `came` is the time of
    # the turn's own message.
    steers: list[tuple[str, float]] = field(default_factory=list)
    came: float = 0
    partial: str = ""
    is_done: bool = False
    # How often it was interrupted since the model was last told of that.
    untold: int = 0

    def __post_init__(self) -> None:
        self.hear(self.text)

    def hear(self, text: str) -> None:
        self.said.append(text)
        self.shown.append(("user", text))

    def end_attempt(self) -> None:
        if self.partial:
            self.shown.append(("assistant", self.partial))
        self.partial = ""

    def settle(self) -> None:
        self.end_attempt()
        self.state = "settled"
        if self.shown[-1][0] != "assistant":
            self.shown.append(("assistant", ""))

    def back(self) -> "list[ModelTurn]":
        """Return this turn and its ancestors, newest first."""
        chain: list[ModelTurn] = []
        turn: ModelTurn | None = self
        while turn is not None:
            chain.append(turn)
            turn = turn.parent
        return chain


@dataclass
class ModelSession:
    """Represents a session: its head, the line of waiting turns, and the heads to go back to."""

    id: SessionId
    head: ModelTurn | None = None
    line: list[ModelTurn] = field(default_factory=list)
    redo: list[ModelTurn] = field(default_factory=list)
    active: int = 0

    @property
    def started(self) -> ModelTurn | None:
        return next((turn for turn in self.line if turn.attempts), None)

    @property
    def tip(self) -> ModelTurn | None:
        return self.started or self.head

    @property
    def asked_again(self) -> ModelTurn | None:
        first = self.line[0] if self.line else None
        return first if first and first.origin and not first.attempts else None


class Walk:
    """Does each step to the store and to the model, and compares them."""

    def __init__(self, store: Store, reopen: Reopen, clock: VirtualClock) -> None:
        self.store = store
        self._reopen = reopen
        self._clock = clock
        self.ada = PrincipalId("")
        self.live: ModelSession | None = None
        self.all: list[ModelSession] = []
        self.claimed: Claimed | None = None
        self.sent: list[tuple[Update, Accepted]] = []

    async def begin(self) -> None:
        self.ada = (await self.store.principals.ensure("ada", role="member")).id
        await self.say("/status")

    @property
    def here(self) -> ModelSession:
        assert self.live is not None
        return self.live

    async def say(self, text: str) -> Accepted:
        self._clock.advance(1)
        update = message(self.ada, text, external_id=f"m{len(self.sent)}")
        accepted = await self.store.inbox.accept(update, queue_max=NEVER, menu=WAITING)
        self.sent.append((update, accepted))
        session = next((each for each in self.all if each.id == accepted.session), None)
        if session is None:
            session = ModelSession(accepted.session)
            self.all.append(session)
        if self.live is None:
            self.live = session
        session.active = len(self.sent)
        return accepted

    def to(self, session: SessionId) -> ModelSession:
        return next(each for each in self.all if each.id == session)

    def end(self, turn: ModelTurn) -> list[str]:
        """Stop a turn. Messages that were sent to it and not taken wait from now on. Returns the
        ids of the ended turns."""
        session = self.here
        session.line.remove(turn)
        if turn.attempts:
            turn.settle()
            session.head, self.claimed = turn, None
        session.line += [ModelTurn(TurnId(""), text, came=came) for text, came in turn.steers]
        session.line.sort(key=lambda each: each.came)
        return [turn.id]

    async def learn_freed(self) -> None:
        """Read the ids of the turns that freed messages became: the store chooses them."""
        turns = (await self.snapshot()).open_turns
        assert len(turns) == len(self.here.line)
        for known, turn in zip(self.here.line, turns, strict=True):
            known.id = known.id or turn.id

    async def message(self, text: str, prefix: str = "") -> None:
        accepted = await self.say(prefix + text)
        assert accepted.turn is not None
        running = self.here.started
        if prefix == "/steer " and running is not None and running.state == "running":
            assert accepted.turn == running.id
            running.steers.append((text, len(self.sent)))
            return
        if running is not None and running.state == "interrupted":
            self.end(running)
        self.here.line.append(ModelTurn(accepted.turn, text, came=len(self.sent)))
        await self.learn_freed()

    async def start(self) -> None:
        session = self.here
        first = session.line[0]
        self.claimed = await claim_one(self.store)
        assert self.claimed.lease.turn == first.id
        first.attempts += 1
        first.state, first.parent = "running", session.head
        session.redo = []
        told = [each.turn for each in self.claimed.telling.interruptions]
        assert told == [
            turn.id for turn in reversed(self.untold(first)) for _ in range(turn.untold)
        ]

    def untold(self, turn: ModelTurn) -> list[ModelTurn]:
        """Return the interrupted turns that the model has not been told of since its last answer,
        newest first."""
        before = list(takewhile(lambda each: not each.is_done, turn.back()[1:]))
        return [each for each in [turn, *before[:UNTOLD_MAX]] if each.untold]

    async def flush(self, text: str) -> None:
        turn = self.here.started
        assert self.claimed is not None
        assert turn is not None
        start = len(turn.partial)
        assert await flush(self.store, self.claimed.lease, text, start=start) == []
        turn.partial += text

    async def take_steers(self) -> None:
        turn = self.here.started
        assert self.claimed is not None
        assert turn is not None
        await self.store.turns.take_steers(self.claimed.lease)
        for text, _ in turn.steers:
            turn.hear(text)
        turn.steers = []

    async def finish(self, outcome: Outcome) -> None:
        turn = self.here.started
        assert self.claimed is not None
        assert turn is not None
        turn.partial += "."
        told = acknowledgements(turn.id, self.claimed.telling.interruptions)
        settlement = Settlement(
            outcome=outcome,
            reason="stop",
            message=reply_id(self.claimed.lease),
            text=turn.partial,
            acknowledgements=tuple(told),
        )
        await self.store.turns.settle(self.claimed.lease, settlement)
        for each in self.untold(turn):
            each.untold = 0
        turn.is_done = outcome is Outcome.DONE
        self.end(turn)
        await self.learn_freed()

    async def crash(self) -> None:
        """Kill the process and start another. The turn that ran waits to be resumed."""
        self.store = await self._reopen()
        await self.store.nodes.reap(attempts_max=NEVER, limit=100)
        turn = self.here.started
        if turn is not None and turn.state == "running":
            turn.end_attempt()
            turn.untold += 1
            turn.state, self.claimed = "interrupted", None

    async def go_on(self) -> None:
        await self.store.nodes.resume(GO_ON, limit=100)
        turn = self.here.started
        if turn is not None and turn.state == "interrupted":
            turn.state = "queued"

    def _leave_off(self) -> tuple[ModelTurn | None, list[str]]:
        """Stop the turn that has begun. Returns the turn to go back from, and the ids of the ended
        turns."""
        session = self.here
        running, again = session.started, session.asked_again
        if running is not None:
            return running, self.end(running)
        if again is not None:
            return again.origin, self.end(again)
        return session.head, []

    async def undo(self, count: int) -> None:
        accepted = await self.say(f"/undo {count}" if count > 1 else "/undo")
        head, ended = self._leave_off()
        assert list(accepted.ended) == ended
        await self.learn_freed()
        if head is None:
            assert accepted.reply == "Nothing to undo."
            return
        removed = head.back()[:count]
        texts = ["\n\n".join(turn.said) for turn in reversed(removed)]
        assert accepted.reply.split(":\n\n", 1)[1] == "\n\n".join(texts)
        self.here.head = removed[-1].parent
        self.here.redo.append(head)

    async def redo(self) -> None:
        accepted = await self.say("/redo")
        running = self.here.started
        if running is not None:
            self.end(running)
        await self.learn_freed()
        nothing = "Nothing to redo." if running is None else f"Nothing to redo. {STOPPED_TOO}"
        assert accepted.reply == ("Brought back." if self.here.redo else nothing)
        if self.here.redo:
            self.here.head = self.here.redo.pop()

    async def retry(self) -> None:
        accepted = await self.say("/retry")
        head, ended = self._leave_off()
        assert list(accepted.ended) == ended
        if head is None:
            assert (accepted.reply, accepted.turn) == ("Nothing to retry.", None)
        else:
            assert accepted.turn is not None
            came = min([len(self.sent), *(turn.came - 0.5 for turn in self.here.line)])
            again = ModelTurn(accepted.turn, "\n\n".join(head.said), origin=head, came=came)
            self.here.line.insert(0, again)
            self.here.head, self.here.redo = head.parent, []
        await self.learn_freed()

    def _close(self, accepted: Accepted) -> None:
        count = 0
        while self.here.line:
            self.end(self.here.line[0])
            count += 1
        assert len(accepted.ended) == count

    async def new(self) -> None:
        accepted = await self.say("/new")
        self._close(accepted)
        self.live = self.to(accepted.session)
        assert self.live.head is None

    async def branch(self) -> None:
        accepted = await self.say("/branch")
        tip = self.here.tip
        self._close(accepted)
        assert self.here.head is tip
        self.live = self.to(accepted.session)
        self.live.head = tip

    async def resume(self, wanted: int | None) -> None:
        others = [each for each in self.all if each is not self.live]
        named = others[wanted % len(others)] if others and wanted is not None else None
        target = named or max(others, key=lambda each: each.active, default=self.here)
        accepted = await self.say(f"/resume {named.id}" if named else "/resume")
        assert accepted.session == target.id
        if not others:
            assert "no earlier session" in accepted.reply
            return
        self._close(accepted)
        self.live = target

    async def stop(self, *, everything: bool) -> None:
        accepted = await self.say("/stop all" if everything else "/stop")
        line = self.here.line
        if not line:
            assert accepted.reply == "Nothing is running here."
            return
        self.end(next((turn for turn in line if turn.state != "queued"), line[0]))
        while everything and self.here.line:
            self.end(self.here.line[0])
        await self.learn_freed()
        left = len(self.here.line)
        assert (f"{left} more" in accepted.reply) == bool(left)

    async def repeat(self, which: int) -> None:
        update, first = self.sent[which % len(self.sent)]
        again = await self.store.inbox.accept(update, queue_max=NEVER)
        assert again.is_duplicate
        assert (again.message, again.reply) == (first.message, first.reply)
        assert again.session == first.session

    async def snapshot(self) -> Any:
        found = await self.store.conversations.find("home", principal=self.ada)
        return found.view.standing

    async def check(self) -> None:
        standing, session = await self.snapshot(), self.here
        assert standing.session == session.id
        assert standing.head == (session.head.id if session.head else None)
        assert [(t.id, t.state, t.attempts) for t in standing.open_turns] == [
            (t.id, t.state, t.attempts) for t in session.line
        ]
        await self._check_line(session)
        await self._check_transcript(standing.tip, session.tip)
        await self._check_redo(session)
        await self._check_request(session)
        for each in self.all:
            record = await self.store.diagnostics.record(each.id)
            assert violations(record) == []
            assert record.head == (each.head.id if each.head else None)
            assert (record.session.state == "open") == (each is session)

    async def _check_line(self, session: ModelSession) -> None:
        for turn in session.line:
            found = await self.store.diagnostics.explain(turn.id, principal=None)
            assert only(TurnQueued, found.events)[0].text == turn.text

    async def _check_transcript(self, tip: TurnId | None, expected: ModelTurn | None) -> None:
        assert tip == (expected.id if expected else None)
        if tip is None or expected is None:
            return
        chain = await self.store.conversations.chain(tip, limit=NEVER)
        assert [(e.role, e.text) for turn in chain for e in entries_of(turn)] == [
            entry for turn in reversed(expected.back()) for entry in turn.shown
        ]

    async def _check_redo(self, session: ModelSession) -> None:
        journal = await self.store.archive.journal(session.id, after=0, limit=NEVER)
        moves = [r.event for r in journal if isinstance(r.event, HeadMoved | TurnStarted)]
        last = moves[-1] if moves else None
        known = last.redo if isinstance(last, HeadMoved) else ()
        assert list(known) == [turn.id for turn in session.redo]

    async def _check_request(self, session: ModelSession) -> None:
        if session.head is None:
            return
        window = await self.store.conversations.window(session.head.id, limit=NEVER)
        history = [each for turn in window for each in messages_of(turn)]
        something = PromptMessage(role=Role.USER, blocks=(TextBlock("next"),))
        final, newest = weave(None, [*history, something])
        assert newest is not None
        assert_valid([*final, newest], begins=True)


def is_free(walk: Walk) -> bool:
    line = walk.here.line
    return bool(line) and all(turn.state == "queued" for turn in line)


def is_running(walk: Walk) -> bool:
    return walk.claimed is not None


class CommandMachine(RuleBasedStateMachine):
    """Draws commands, messages and crashes, and compares the store with the model after each."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-model-"))
        self.clock, self.entropy = VirtualClock(), SeededEntropy()
        self.store: Store | None = None
        store = self.run(self.reopen())
        self.walk = Walk(store, self.reopen, self.clock)
        self.run(self.walk.begin())

    async def reopen(self) -> Store:
        if self.store is not None:
            await self.store.close()
        driver = sqlite_on(self.folder / "p.db")
        self.store = Store(driver, clock=self.clock, entropy=self.entropy, media=self.folder)
        await self.store.open()
        await self.store.nodes.join(name="model")
        return self.store

    def teardown(self) -> None:
        assert self.store is not None
        self.run(self.store.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(work)

    @rule(
        text=st.sampled_from("abc"),
        prefix=st.sampled_from(["", "", "/queue ", "/steer ", "/steer "]),
    )
    def say(self, text: str, prefix: str) -> None:
        self.run(self.walk.message(text, prefix))

    @precondition(lambda self: is_free(self.walk))
    @rule()
    def start(self) -> None:
        self.run(self.walk.start())

    @precondition(lambda self: is_free(self.walk))
    @rule(outcome=st.sampled_from([Outcome.DONE, Outcome.DONE, Outcome.FAILED]))
    def answer(self, outcome: Outcome) -> None:
        self.run(self.walk.start())
        self.run(self.walk.finish(outcome))

    @precondition(lambda self: is_running(self.walk))
    @rule()
    def flush(self) -> None:
        self.run(self.walk.flush("x"))

    @precondition(lambda self: is_running(self.walk))
    @rule()
    def take_steers(self) -> None:
        self.run(self.walk.take_steers())

    @precondition(lambda self: is_running(self.walk))
    @rule(outcome=st.sampled_from([Outcome.DONE, Outcome.FAILED]))
    def finish(self, outcome: Outcome) -> None:
        self.run(self.walk.finish(outcome))

    @rule(count=st.integers(1, 3))
    def undo(self, count: int) -> None:
        self.run(self.walk.undo(count))

    @rule()
    def redo(self) -> None:
        self.run(self.walk.redo())

    @rule()
    def retry(self) -> None:
        self.run(self.walk.retry())

    @rule()
    def branch(self) -> None:
        self.run(self.walk.branch())

    @rule()
    def new(self) -> None:
        self.run(self.walk.new())

    @rule(wanted=st.none() | st.integers(0, 5))
    def resume(self, wanted: int | None) -> None:
        self.run(self.walk.resume(wanted))

    @rule(everything=st.booleans())
    def stop(self, everything: bool) -> None:
        self.run(self.walk.stop(everything=everything))

    @rule(which=st.integers(0, 20))
    def repeat(self, which: int) -> None:
        self.run(self.walk.repeat(which))

    @rule()
    def crash(self) -> None:
        self.run(self.walk.crash())

    @rule()
    def go_on(self) -> None:
        self.run(self.walk.go_on())

    @invariant()
    def the_store_shows_what_the_model_shows(self) -> None:
        self.run(self.walk.check())


def settings_of(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


class LongCommandMachine(CommandMachine):
    """Runs the same steps in more and longer sequences."""


CommandMachine.TestCase.settings = settings_of(10, 25)
LongCommandMachine.TestCase.settings = settings_of(200, 50)
TestAConversationIsItsModel = pytest.mark.timeout(300)(CommandMachine.TestCase)
TestAConversationIsItsModelForLong = pytest.mark.chaos(LongCommandMachine.TestCase)


class Stroll:
    """Walks at random, most of the steps being the usual ones."""

    def __init__(self, walk: Walk, seed: int) -> None:
        self._walk = walk
        self._dice = random.Random(seed)

    async def go(self, steps: int) -> None:
        await self._walk.begin()
        for _ in range(steps):
            await self._step()
            await self._walk.check()

    async def _step(self) -> None:
        walk, dice = self._walk, self._dice
        if is_free(walk) and dice.random() < 0.35:
            await walk.start()
        elif is_running(walk) and dice.random() < 0.6:
            within = [walk.take_steers, self._flush, self._finish, self._steer, walk.crash]
            await dice.choice(within)()
        elif not walk.here.line and dice.random() < 0.35:
            await self._exchange()
        else:
            steps = [*self._said(), *self._happens()]
            (chosen,) = dice.choices([each for _, each in steps], [each for each, _ in steps])
            await chosen()

    def _said(self) -> list[tuple[int, Callable[[], Awaitable[None]]]]:
        walk, dice = self._walk, self._dice
        text, prefix = dice.choice("abc"), dice.choice(["", "", "/queue ", "/steer ", "/steer "])
        return [
            (10, lambda: walk.message(text, prefix)),
            (8, lambda: walk.undo(dice.choice([1, 1, 1, 2, 3]))),
            (8, walk.redo),
            (6, walk.retry),
            (2, walk.branch),
            (1, walk.new),
            (4, lambda: walk.resume(dice.choice([None, None, 0, 1, 2]))),
            (3, lambda: walk.stop(everything=dice.random() < 0.5)),
            (1, lambda: walk.repeat(dice.randint(0, 20))),
        ]

    def _happens(self) -> list[tuple[int, Callable[[], Awaitable[None]]]]:
        return [(1, self._walk.crash), (6, self._walk.go_on)]

    async def _exchange(self) -> None:
        await self._walk.message("a question")
        await self._walk.start()
        await self._finish()

    async def _steer(self) -> None:
        await self._walk.message("a word", "/steer ")

    async def _flush(self) -> None:
        await self._walk.flush("y")

    async def _finish(self) -> None:
        await self._walk.finish(self._dice.choice([Outcome.DONE, Outcome.FAILED]))


@pytest.mark.parametrize("number", range(3))
async def test_a_conversation_is_its_model_on_either_database(
    store: Store, restart: Reopen, clock: VirtualClock, home: Home, seed: int, number: int
) -> None:
    await Stroll(Walk(store, restart, clock), seed).go(30 if home.is_shared else 160)


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(12))
async def test_a_conversation_is_its_model_on_either_database_for_long(
    store: Store, restart: Reopen, clock: VirtualClock, home: Home, seed: int, number: int
) -> None:
    await Stroll(Walk(store, restart, clock), seed).go(150 if home.is_shared else 400)
