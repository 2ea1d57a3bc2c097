"""Checks that `perdure verify` finds no problem, whatever people do and whenever the process dies.

A walk draws its steps from the run's seed. People write, edit, delete and command in several places
at once; turns are begun, shown and settled; files come or are lost; the process is killed, and
turns that are interrupted too often are given up. The walk does not know what each step should
result in: that is left to the checks of `perdure verify`. At the end everything that waits is
answered, so that no walk ends with a turn that nobody could ever claim.
"""

import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import msgspec
import pytest

from perdure.app.operate import verify
from perdure.domain.address import GROUP, HTTP, Address
from perdure.domain.delivery import PartState
from perdure.domain.errors import Conflict, Rejected
from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Attachment, TurnQueued
from perdure.domain.journal.transcript import joined, reply_text
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, Interruption, Outcome
from perdure.domain.people.menu import AgentOffer, Menu
from perdure.domain.people.sharing import EQUAL
from perdure.domain.reading.texts import FileReading
from perdure.domain.schedule.jobs import ScheduleTerms
from perdure.domain.turn.recovery import Policy, Resume, acknowledgements
from perdure.ports.people.places import OutgoingMessage
from perdure.ports.people.principals import Principal
from perdure.ports.records.media import Fetch, FetchedFile
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, flush, problems_of, reply_id
from perdure.testkit.simulator.system import VirtualClock


class Home(Protocol):
    is_shared: bool


class Room(NamedTuple):
    """Describes a place where people talk."""

    address: Address
    kind: str
    people: tuple[PrincipalId, ...]


Reopen = Callable[[], Awaitable[Store]]
Step = Callable[[], Awaitable[None]]
CHAT: Final = "chat"
TERMS: Final = ScheduleTerms(adapters=frozenset({CHAT}))
POLICIES: Final = [
    GO_ON,
    Policy(freshness_ms=60_000),
    Policy(resume=Resume.ASK, freshness_ms=0),
    Policy(resume=Resume.WAIT, freshness_ms=0),
]
WORDS: Final = ["tea", "rain", "maps", "continue", "drop"]
COMMANDS: Final = [
    *["/undo", "/undo 2", "/redo", "/retry", "/retry", "/stop", "/stop", "/stop all", "/branch"],
    *["/new", "/new maps", "/resume", "/resume", "/continue", "/steer north", "/steer south"],
    *["/queue this", "/queue that", "/background look", "/compact", "/compact off", "/title maps"],
    *["/why", "/status", "/sessions", "/link off"],
    *["/remind me in 1 hour to drink", "/jobs add every hour: look", "/jobs run look"],
]
CODE: Final = re.compile(r"Say /link (\w+)")
EDITS: Final = ["tea", "rain", "snow", "", "/stop"]
# How many of the newest messages people edit, delete, repeat and stop.
LATELY: Final = 12
# The number of steps between two checks of everything.
A_WHILE: Final = 10
REST_MAX: Final = 300
QUEUE_MAX: Final = 1000
# How many of the last steps are reported when a walk fails.
TOLD_MAX: Final = 60


class Walk:
    """Does one step after another to a store, and accepts whatever results."""

    def __init__(
        self, store: Store, reopen: Reopen, clock: VirtualClock, dice: random.Random
    ) -> None:
        self.store = store
        self._reopen = reopen
        self._clock = clock
        self._dice = dice
        self._attempts_max = dice.choice([1, 2, 3, 3, 3])
        self._policy = dice.choice(POLICIES)
        self._menu = Menu(
            agents={"plain": AgentOffer(has_memory=dice.random() < 0.3, keep_tokens=1)},
            idle_reset_ms=dice.choice([0, 0, 3_000_000]),
            recovery=self._policy,
        )
        self._rooms: list[Room] = []
        self._sent: list[Update] = []
        self._turns: list[TurnId] = []
        self._claimed: dict[TurnId, Claimed] = {}
        self._shown: dict[TurnId, str] = {}
        self._fetches: list[Fetch] = []
        self._operator: Principal | None = None
        self.story: list[str] = []

    async def begin(self) -> None:
        ada, bob = [
            (await self.store.principals.ensure(name, role="member")).id for name in ("ada", "bob")
        ]
        self._operator = await self.store.principals.ensure("eve", role="operator")
        self._rooms = [
            Room(Address(adapter=HTTP, account=ada, place="home"), "", (ada,)),
            Room(Address(adapter=CHAT, account="bot", place="ada"), "private", (ada,)),
            Room(Address(adapter=CHAT, account="bot", place="club"), GROUP, (ada, bob)),
        ]

    async def go(self, steps: int) -> None:
        """Take the steps, check everything now and then, come to rest and check again."""
        try:
            await self.begin()
            for number in range(1, steps + 1):
                await self._step()
                if number % A_WHILE == 0:
                    await self._verify()
            await self._rest()
            await self._verify()
            await self._compare()
        except Exception as error:
            error.add_note("the steps until then:\n" + "\n".join(self.story[-TOLD_MAX:]))
            raise

    async def _step(self) -> None:
        steps: list[tuple[int, Step]] = [
            (12, self._say),
            (5, self._steer),
            (6, self._command),
            (6, self._edit),
            (4, self._delete),
            (2, self._album),
            (1, self._link),
            (1, self._repeat),
            (1, self._stop),
            (1, self._amend),
            (1, self._send),
            (12, self._claim),
            (6, self._flush),
            (3, self._show),
            (4, self._take_steers),
            (14, self._settle),
            (4, self._fetch),
            (4, self._end_fetch),
            (4, self._deliver),
            (2, self._interrupt),
            (2, self._kill),
            (2, self._doom),
            (6, self._resume),
            (3, self._pass_time),
            (4, self._fire),
        ]
        (step,) = self._dice.choices([each for _, each in steps], [each for each, _ in steps])
        await step()

    def _tell(self, what: str) -> None:
        self.story.append(what)

    async def _take(self, update: Update) -> Accepted:
        """Accept an update. Sometimes its turn may begin in the same transaction."""
        self._sent.append(update)
        if self._dice.random() < 0.3:
            received = await self.store.inbox.accept_and_start(
                update, queue_max=QUEUE_MAX, menu=self._menu
            )
            accepted = received.accepted
            if received.claimed is not None:
                self._hold(received.claimed)
        else:
            accepted = await self.store.inbox.accept(update, queue_max=QUEUE_MAX, menu=self._menu)
        self._forget(*accepted.ended)
        if accepted.turn is not None:
            self._turns.append(accepted.turn)
        place, target = update.address.place, f" of {update.target}" if update.target else ""
        self._tell(
            f"{update.external_id} in {place}: {update.kind} {update.text!r}{target}: "
            f"{accepted.effect}, {accepted.turn} of {accepted.session}"
        )
        return accepted

    def _update(self, room: Room, kind: UpdateKind, text: str, target: str = "") -> Update:
        who = self._dice.choice(room.people)
        return Update(
            address=room.address,
            external_id=f"{kind[0]}{len(self._sent)}",
            kind=kind,
            principal=who,
            text=text,
            busy=self._dice.choice([Busy.QUEUE, Busy.QUEUE, Busy.STEER, Busy.INTERRUPT]),
            target=target,
            sender=str(who) if room.kind == GROUP else "",
            place_kind=room.kind,
        )

    def _files(self, room: Room, likely: float) -> tuple[Attachment, ...]:
        if self._dice.random() >= likely or room.address.adapter == HTTP:
            return ()
        return tuple(
            Attachment(reference=f"ref-{len(self._sent)}-{n}", name="report.txt", size=5)
            for n in range(self._dice.choice([1, 1, 2]))
        )

    async def _say(self) -> None:
        room = self._dice.choice(self._rooms)
        update = self._update(room, UpdateKind.MESSAGE, self._dice.choice(WORDS))
        files = self._files(room, 0.15)
        await self._take(msgspec.structs.replace(update, attachments=files))

    async def _steer(self) -> None:
        """Send a message to a turn at work."""
        claimed = self._one_at_work()
        for room in self._rooms:
            if claimed is not None and room.address == claimed.address:
                update = self._update(room, UpdateKind.MESSAGE, self._dice.choice(WORDS))
                await self._take(msgspec.structs.replace(update, busy=Busy.STEER))

    async def _command(self) -> None:
        room, text = self._dice.choice(self._rooms), self._dice.choice(COMMANDS)
        await self._take(self._update(room, UpdateKind.MESSAGE, text))

    async def _link(self) -> None:
        """Let one private place go on with the conversation of the other."""
        private = [room for room in self._rooms if room.kind != GROUP]
        here, there = self._dice.sample(private, 2)
        offered = await self._take(self._update(here, UpdateKind.MESSAGE, "/link"))
        code = CODE.search(offered.reply)
        if code is not None:
            await self._take(self._update(there, UpdateKind.MESSAGE, f"/link {code[1]}"))

    async def _album(self) -> None:
        """Send several pictures as one album, perhaps with other messages between them."""
        room, name = self._dice.choice(self._rooms), f"album{len(self._sent)}"
        first = self._update(room, UpdateKind.MESSAGE, "look")
        for n in range(self._dice.choice([2, 2, 3])):
            piece = msgspec.structs.replace(
                first,
                external_id=f"{first.external_id}.{n}",
                text=first.text if n == 0 else "",
                attachments=self._files(room, 0.7),
                album=name,
            )
            if n and not piece.attachments:
                piece = msgspec.structs.replace(piece, text="and")
            await self._take(piece)
            if self._dice.random() < 0.3:
                await self._edit()

    def _lately(self) -> Update | None:
        said = [each for each in self._sent if not each.target]
        return self._dice.choice(said[-LATELY:]) if said else None

    async def _edit(self) -> None:
        await self._change(UpdateKind.EDIT, self._dice.choice(EDITS))

    async def _delete(self) -> None:
        await self._change(UpdateKind.DELETE, "")

    async def _change(self, kind: UpdateKind, text: str) -> None:
        original = self._lately()
        if original is None:
            return
        room = next(each for each in self._rooms if each.address == original.address)
        update = self._update(room, kind, text, target=original.external_id)
        by_author = self._dice.random() < 0.9
        who = original.principal if by_author else update.principal
        await self._take(msgspec.structs.replace(update, principal=who))

    async def _repeat(self) -> None:
        if self._sent:
            update = self._dice.choice(self._sent[-LATELY:])
            again = await self.store.inbox.accept(update, queue_max=QUEUE_MAX, menu=self._menu)
            assert again.is_duplicate
            self._tell(f"{update.external_id} again")

    async def _stop(self) -> None:
        turn = self._some_turn()
        if turn is not None:
            with suppress(Conflict, Rejected):
                await self.store.inbox.stop(turn, by=None)
                self._tell(f"stop {turn}")
                self._forget(turn)

    async def _amend(self) -> None:
        turn = self._some_turn()
        if turn is not None:
            with suppress(Conflict, Rejected):
                await self.store.inbox.amend(turn, "rather this", by=None)
                self._tell(f"amend {turn}")

    def _some_turn(self) -> TurnId | None:
        return self._dice.choice(self._turns[-LATELY:]) if self._turns else None

    async def _send(self) -> None:
        """Send a message to a place from elsewhere."""
        assert self._operator is not None
        place = self._dice.choice(["ada", "club"])
        sending = OutgoingMessage(
            to=f"{CHAT}:{place}",
            text="the train is late",
            external_id=f"sent{len(self.story)}",
            by=self._operator,
            accounts={CHAT: "bot"},
        )
        sent = await self.store.places.send(sending, queue_max=QUEUE_MAX)
        self._tell(f"sent to {place}: {sent.accepted.turn} of {sent.accepted.session}")

    def _hold(self, claimed: Claimed) -> None:
        self._claimed[claimed.lease.turn] = claimed
        self._shown[claimed.lease.turn] = ""
        self._turns.append(claimed.lease.turn)
        lease = claimed.lease
        self._tell(f"{lease.turn} of {lease.session} begins, attempt {lease.attempt}")

    def _forget(self, *turns: TurnId) -> None:
        for turn in turns:
            self._claimed.pop(turn, None)

    def _one_at_work(self) -> Claimed | None:
        return self._dice.choice([*self._claimed.values()]) if self._claimed else None

    async def _claim(self) -> None:
        for each in await self.store.turns.claim(limit=self._dice.choice([1, 1, 3])):
            self._hold(each)

    async def _flush(self) -> None:
        claimed = self._one_at_work()
        if claimed is None or _queued(claimed).answer:
            return
        turn = claimed.lease.turn
        stale = await flush(self.store, claimed.lease, "word ", start=len(self._shown[turn]))
        if stale:
            self._forget(turn)
        else:
            self._shown[turn] += "word "
            self._tell(f"flush {turn}")

    async def _show(self) -> None:
        """Show the stored text of a turn at work on its platform."""
        claimed = self._one_at_work()
        if claimed is None or claimed.address.adapter == HTTP or _is_errand(claimed):
            return
        text = self._shown[claimed.lease.turn].strip()
        if text:
            with suppress(Conflict):
                shown = await self.store.outbox.bubble(claimed.lease, 0, text)
                if shown is not None and not shown.receipt and not shown.is_lost:
                    await self.store.outbox.record(
                        shown.part.id, PartState.SENT, receipt=f"r{len(self.story)}"
                    )
                self._tell(f"show {claimed.lease.turn}")

    async def _take_steers(self) -> None:
        claimed = self._one_at_work()
        if claimed is not None:
            with suppress(Conflict):
                await self.store.turns.take_steers(claimed.lease)
                self._tell(f"take steers {claimed.lease.turn}")

    async def _settle(self, outcome: Outcome | None = None) -> None:
        claimed = self._one_at_work()
        if claimed is None:
            return
        turn, answer = claimed.lease.turn, _queued(claimed).answer
        drawn = self._dice.choice([Outcome.DONE, Outcome.DONE, Outcome.FAILED])
        ended = Outcome.DONE if answer else outcome or drawn
        text = answer or self._shown[turn] + "end."
        is_pushed = claimed.address.adapter != HTTP and not _is_errand(claimed)
        told = acknowledgements(turn, claimed.telling.interruptions)
        settlement = Settlement(
            outcome=ended,
            reason="stop",
            message=reply_id(claimed.lease),
            text=text,
            parts=(joined([reply_text(claimed.events), text]),) if is_pushed else (),
            acknowledgements=tuple(told),
        )
        with suppress(Conflict):
            await self.store.turns.settle(claimed.lease, settlement)
            self._tell(f"{turn} is {ended}")
        self._forget(turn)

    async def _fetch(self) -> None:
        self._fetches += await self.store.fetches.take(adapters=("", CHAT), limit=3)

    async def _end_fetch(self, *, well: bool = False) -> None:
        if not self._fetches:
            return
        fetch = self._fetches.pop(self._dice.randrange(len(self._fetches)))
        end = 0.0 if well else self._dice.random()
        with suppress(Conflict):
            if end < 0.6:
                kept = await self.store.media.keep(_pieces(), bytes_max=100)
                found = FetchedFile(
                    mime="text/plain",
                    name="report.txt",
                    size=kept.size,
                    digest=kept.digest,
                    reading=FileReading(text="hello"),
                )
                await self.store.fetches.done(fetch, found)
            elif end < 0.85:
                await self.store.fetches.lost(fetch, "it is gone")
            else:
                await self.store.fetches.again(fetch, error="not now", due_in_s=1)
            self._tell(f"a file of {fetch.turn} ends: {end:.2f}")

    async def _deliver(self) -> None:
        for part in await self.store.outbox.take(adapter=CHAT, limit=3):
            state = self._dice.choice([PartState.SENT, PartState.SENT, PartState.FAILED])
            receipt = f"r-{part.id}" if state is PartState.SENT else ""
            await self.store.outbox.record(part.id, state, receipt=receipt)

    async def _fire(self) -> None:
        """Deal with jobs that are due."""
        for each in await self.store.schedule.due(limit=2, shares=EQUAL):
            fired = await self.store.schedule.fire(each.job, TERMS)
            self._forget(*fired.ended)
            self._tell(f"{each.job} is due: {fired.turn}")

    async def _interrupt(self) -> None:
        claimed = self._one_at_work()
        if claimed is None:
            return
        reason = self._dice.choice(list(Interruption))
        with suppress(Conflict):
            await self.store.turns.interrupt(claimed.lease, reason, attempts_max=self._attempts_max)
            self._tell(f"{claimed.lease.turn} is interrupted: {reason}")
        self._forget(claimed.lease.turn)

    async def _kill(self) -> None:
        """Kill the process, and let the next one clean up after it."""
        self._tell("kill")
        self.store = await self._reopen()
        self._claimed, self._fetches = {}, []
        await self.store.nodes.reap(attempts_max=self._attempts_max, limit=100)
        await self.store.fetches.recover(attempts_max=3)
        for part in await self.store.outbox.stranded(adapter=CHAT):
            await self.store.outbox.record(part.id, PartState.UNKNOWN)

    async def _doom(self) -> None:
        """Kill the process whenever some turn is tried, until that turn is given up."""
        for _ in range(self._attempts_max + 1):
            for each in await self.store.turns.claim(limit=3):
                self._hold(each)
            if self._dice.random() < 0.3:
                await self._edit()
            await self._kill()
            await self._resume()

    async def _resume(self, policy: Policy | None = None) -> None:
        resumed = await self.store.nodes.resume(policy or self._policy, limit=100)
        self._tell(f"resume: {len(resumed.recorded)}")

    async def _pass_time(self) -> None:
        self._clock.advance(self._dice.choice([0.05, 1, 1, 100, 4_000]))
        assert await self.store.nodes.beat()

    async def _verify(self) -> None:
        found = await verify.report(self.store.audit, self.store.diagnostics)
        assert found.violations == []

    async def _compare(self) -> None:
        """Check that an operator who looks at one session sees the same as `verify`."""
        for session in await self.store.audit.batch(after=None, only_new=False):
            assert await problems_of(self.store, session) == []

    async def _rest(self) -> None:
        """Run without new input until everything is answered."""
        for _ in range(REST_MAX):
            counts = await self.store.diagnostics.counts()
            waiting = counts.queued + counts.running + counts.interrupted
            if not waiting:
                return
            self._clock.advance(100)
            assert await self.store.nodes.beat()
            await self._resume(GO_ON)
            await self._fetch()
            while self._fetches:
                await self._end_fetch(well=True)
            await self._claim()
            while self._claimed:
                await self._settle(Outcome.DONE)
        raise AssertionError("something waits for ever")


async def _pieces() -> AsyncIterator[bytes]:
    yield b"hello"


def _queued(claimed: Claimed) -> TurnQueued:
    queued = claimed.events[0].event
    assert isinstance(queued, TurnQueued)
    return queued


def _is_errand(claimed: Claimed) -> bool:
    return _queued(claimed).kind.is_errand


async def walk(store: Store, reopen: Reopen, clock: VirtualClock, seed: int, steps: int) -> None:
    await Walk(store, reopen, clock, random.Random(seed)).go(steps)


@pytest.mark.parametrize("number", range(4))
async def test_every_walk_ends_sound_on_either_database(
    store: Store, restart: Reopen, clock: VirtualClock, home: Home, seed: int, number: int
) -> None:
    await walk(store, restart, clock, seed, 40 if home.is_shared else 150)


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(25))
async def test_every_walk_ends_sound_on_either_database_for_long(
    store: Store, restart: Reopen, clock: VirtualClock, home: Home, seed: int, number: int
) -> None:
    await walk(store, restart, clock, seed, 200 if home.is_shared else 600)
