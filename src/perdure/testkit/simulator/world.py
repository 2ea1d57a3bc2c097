"""Sets up the crash simulator: `World` survives a death, and each `Life` is one process in it.

A test plays acts. An act gets a `Life`: one process of the real gateway, whose pumps the act drives
by hand. Each act has a process of its own. It ends by a death or in peace, and the next one begins
on the same `World`::

    async def talk(life: Life) -> None:
        life.world.say("hello")
        await life.rest()

    @pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
    async def test_no_instant_loses_a_word(simulator: Simulator, nemesis: Nemesis) -> None:
        async def run(fuse: Fuse) -> list[str]:
            world = await simulator.world()
            records = await world.play([talk], fuse)
            return [each for record in records for each in violations(record)]

        await simulator.strike(run, nemesis, every=4)

`simulator` is a fixture; `striking.py` says which points it strikes. People go on whatever happens
to the gateway: what was not acknowledged is offered again, and questions are answered. The model
echoes (`agent.py`). While the gate is closed, `long …` waits at the gate after its first word, and
`tool NAME`, which calls a tool first, waits there after the tool ran.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities
from perdure.domain.errors import Ambiguous, Conflict, Transient
from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.inbound.arrivals import Press
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Attachment
from perdure.domain.journal.records import SessionRecord
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Busy
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.recovery import CONTINUE, DROP, Policy
from perdure.domain.turn.watching import Delta
from perdure.ports.delivery.pushes import NoPushSender, PushSender
from perdure.ports.records.history import Page
from perdure.ports.records.occasions import Hooks, NoHooks
from perdure.ports.turns.tools import Tools
from perdure.testkit.simulator.agent import ScriptedAgent, said
from perdure.testkit.simulator.commits import Commits
from perdure.testkit.simulator.crash import BACK_S, Fuse, Nemesis, SimulatedCrash
from perdure.testkit.simulator.node import Process
from perdure.testkit.simulator.platform import PersonAct, ScriptedPlatform
from perdure.testkit.simulator.stores import admitted
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

T = TypeVar("T")
PLATFORM = "scripted"
BOSS = "boss"  # the clicker who is an operator
KEY = Capabilities(takes_key=True, can_delete=True, upload_bytes_max=10_000)


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Says how the gateway of a world is configured, and where it can be struck."""

    recovery: Policy = Policy(freshness_ms=0, attempts_max=5)
    has_titles: bool = False
    has_memory: bool = False
    context_tokens: int = 128_000
    has_jobs: bool = False  # jobs run when they are due
    asks: bool = False  # people are asked before a tool runs
    flies: bool = False  # the agent stays in the middle of its answer while tools run
    still_at_work_s: float = 0  # people are told that an answer takes long
    strikes_deliveries: bool = True
    strikes_commits: bool = False  # in the database's driver, instead of around the store's ports


# Makes the tools of one process, and ends with it whatever they have started.
MakeTools = Callable[[Fuse], AbstractAsyncContextManager[Tools]]
Begin = Callable[["World", Fuse], AbstractAsyncContextManager[Process]]
Bury = Callable[[], Awaitable[None]]


class _HeldWork:
    """Holds the work of one life in the middle, where an act wants it. It is called the gate."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()
        self.open()

    def close(self) -> None:
        """Hold the work that comes from now on."""
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        """Let all work pass, also the work that is held."""
        self._open.set()

    async def enter(self) -> None:
        """Note that work has reached the gate, and wait while it is closed."""
        self.reached.set()
        await self._open.wait()


def is_long(request: ModelRequest) -> bool:
    """Tell whether a request asks for an answer that is held at the gate."""
    return said(request).startswith("long ")


class World:
    """Holds what survives a death: the database, the platform, what the model was asked and what
    tools did.

    `holds` decides which answers wait at the gate after a piece of text. `shown` is what watchers
    have read of each message. `tools_ran` names each call once for every time that it ran, and
    `prompts_fetched` has the text of a prompt once for every time that it was fetched. `flown` is
    how an agent that stays in the middle of its answers has begun and gone on. `when_called` is
    done while a tool runs. `make_tools` makes other tools for each process than the usual ones. If
    an act begins their pump, `hooks` are told what happens, the instructions `boot` run, and
    `push_sender` is given the notifications for people's browsers. `clickers` are those who press a
    button under each question that they see: who, and which one."""

    def __init__(self, begin: Begin, bury: Bury, *, setup: Setup, seed: int = 0) -> None:
        self._begin = begin
        self._bury = bury
        self.setup = setup
        self.clock = VirtualClock(is_eager=True)
        self.platform = ScriptedPlatform(name=PLATFORM, capabilities=KEY, clock=self.clock)
        self.agent = ScriptedAgent()
        self.holds: Callable[[ModelRequest], bool] = is_long
        self.gate = _HeldWork()
        self.entropy = SeededEntropy(seed)
        self.tools_ran: list[str] = []
        self.prompts_fetched: list[str] = []
        self.flown: list[str] = []
        self.when_called: Callable[[], None] = lambda: None
        self.make_tools: MakeTools | None = None
        self.shown: dict[str, str] = {}
        self.modes: dict[str, Busy] = {}
        self.clickers: list[tuple[str, str]] = []
        self.commits = Commits()
        self.hooks: Hooks = NoHooks()
        self.boot = ""
        self.push_sender: PushSender = NoPushSender()

    def say(
        self,
        text: str,
        *,
        place: str = "room",
        busy: Busy = Busy.QUEUE,
        files: Sequence[str] = (),
        album: str = "",
        thread: str = "",
    ) -> None:
        """Let a person write. The first message has the id `u1`, the next one `u2`."""
        update = self._next_update()
        self.modes[update] = busy
        self.platform.say(update, place, text, files=files, album=album, thread=thread)

    def edit(self, target: str, text: str) -> None:
        """Let a person change a message."""
        self.platform.edit(self._next_update(), target, text)

    def delete(self, target: str) -> None:
        """Let a person delete a message."""
        self.platform.delete_message(self._next_update(), target)

    def _next_update(self) -> str:
        return f"u{len(self.platform.sent) + 1}"

    def see(self, delta: Delta) -> None:
        """Let a watcher read a piece of an answer."""
        seen = self.shown.get(delta.message, "")
        self.shown[delta.message] = seen[: delta.offset] + delta.text

    def answer(self) -> None:
        """Let people answer the questions that they see: ours each time with "continue", and those
        of an agent by its buttons, once each."""
        self._press()
        texts = [shown.text for shown in self.platform.shown]
        asked = sum(CONTINUE in text and DROP in text for text in texts)
        answered = sum(sent.text == CONTINUE for sent in self.platform.sent)
        if asked > answered:
            self.say(CONTINUE)

    def _press(self) -> None:
        """Let all clickers press, who have not pressed yet, where there are buttons."""
        pressed = {(sent.by, sent.press.question) for sent in self.platform.sent if sent.press}
        for shown in self.platform.visible:
            for who, label in self.clickers:
                is_new = (who, shown.question) not in pressed
                if shown.question is not None and is_new and label in shown.choices:
                    press = Press(question=shown.question, choice=shown.choices.index(label))
                    self.platform.press_button(self._next_update(), shown.place, press, by=who)

    async def live(self, act: "Act", fuse: Fuse | None = None) -> None:
        """Begin a process, let it recover, and play one act in it. A death ends the process and is
        no failure."""
        self.gate = _HeldWork()
        fuse = fuse or Fuse()
        fuse.set_clock = self.clock.jump
        was_dead = fuse.is_dead
        try:
            async with self._begin(self, fuse) as process:
                life = Life(self, process, fuse)
                await life.recover()
                # The hardest moment: what an earlier process asked for happens only now, after the
                # new one has found out what is left to do.
                self.platform.do_what_hung()
                await act(life)
        except BaseExceptionGroup as group:
            if group.split(SimulatedCrash)[1] is not None:
                raise
        finally:
            fuse.is_killed = False
        if fuse.is_dead and not was_dead and fuse.nemesis is Nemesis.DIE_AND_SET_BACK:
            self.clock.jump(-BACK_S)
        await self._bury()

    async def take_over(self) -> list[SessionRecord]:
        """Let another process find that the leases have run out, and do everything that was
        left."""
        gate = self.gate
        await self._bury()
        records = await self.tell(rest)
        # The new life brought a gate of its own. The process that stood still wakes up after this
        # and still waits at the old one.
        self.gate = gate
        return records

    async def sleep(self) -> None:
        """Let the machine stand still for longer than any lease, while no other process is
        there."""
        await self._bury()
        self.clock.stand_still(120)

    async def tell(self, act: "Act") -> list[SessionRecord]:
        """Play an act without a strike, and return what is stored after it."""
        records: list[SessionRecord] = []

        async def act_and_read(life: Life) -> None:
            await act(life)
            records.extend(await life.records())

        await self.live(act_and_read)
        assert self.commits.split == [], "a port call made more than one commit"
        return records

    async def play(
        self, acts: Sequence["Act"], *fuses: Fuse, last: "Act | None" = None
    ) -> list[SessionRecord]:
        """Play the acts, each in a life of its own: under the first fuse, and after its death under
        the next. At last `last` or `rest` is played without a strike. Returns what is stored
        then."""
        left = list(fuses)
        for act in acts:
            if left and left[0].is_dead:
                left.pop(0)
            await self.live(act, left[0] if left else None)
        if len(left) > 1 and left[0].is_dead:
            await self.live(rest, left[1])
        return await self.tell(last or rest)


class Life:
    """Represents one process of the gateway, from its recovery to its end. An act drives its
    pumps."""

    def __init__(self, world: World, process: Process, fuse: Fuse) -> None:
        self.world = world
        self.store = process.store
        self.parts = process.parts
        self.person = PrincipalId("")
        self.people: dict[str, PrincipalId] = {}
        self.deadlines = process.deadlines
        self.turns: dict[str, TurnId | None] = {}
        self._nodes = process.struck_nodes
        self._fuse = fuse

    async def recover(self) -> None:
        """Do what a process does before it takes anything: join, recover turns, and recover the
        outbox."""
        self.person = await patiently(partial(admitted, self.store, "person"))
        self.people = {"person": self.person}
        for name, _ in self.world.clickers:
            role = "operator" if name == BOSS else "member"
            known = await patiently(partial(admitted, self.store, name, role=role))
            self.people[name] = known
        await patiently(partial(self._nodes.join, name="sim"))
        while await patiently(self.parts.reaper.step):
            pass
        await patiently(self.parts.outbox.recall)
        await patiently(self.parts.outbox.recover)

    async def receive(self) -> None:
        """Take what people sent. Only what is committed is acknowledged; the rest is offered
        again."""
        for sent in list(self.world.platform.unacknowledged):
            accepted = await self.accept(self._update(sent))
            self.turns[sent.id] = accepted.turn
            await self.world.platform.acknowledge(sent.id)

    def _update(self, sent: PersonAct) -> Update:
        """Return the update that the gateway makes of what a person did."""
        return Update(
            address=Address(adapter=PLATFORM, account="bot", place=sent.place, thread=sent.thread),
            external_id=sent.id,
            kind=UpdateKind(sent.kind),
            principal=self.people[sent.by],
            text=sent.text,
            busy=self.world.modes.get(sent.id, Busy.QUEUE),
            target=sent.target,
            attachments=tuple(
                Attachment(reference=file.reference, name=file.name, size=file.size)
                for file in sent.files
            ),
            album=sent.album,
            press=sent.press,
        )

    async def accept(self, update: Update) -> Accepted:
        """Give an update to the door."""
        return await patiently(partial(self.parts.door.accept, update))

    async def hold(self, *texts: str) -> None:
        """Accept messages and work until an answer waits at the gate: text of it was shown, or a
        tool has run, or it is a summary, of which nothing is shown."""
        self.world.gate.close()
        for text in texts:
            self.world.say(text)
        await self.receive()
        await patiently(self.parts.turns.step)
        await until(lambda: self._is_held or not self.parts.turns.running)

    @property
    def _is_held(self) -> bool:
        world = self.world
        requests = world.agent.requests
        is_summary = bool(requests) and requests[-1].purpose == TurnKind.SUMMARY
        is_seen = bool(world.shown or world.tools_ran) or is_summary
        return world.gate.reached.is_set() and is_seen

    async def talk_beside(self, *texts: str) -> None:
        """Accept more messages and let them be answered while one answer still waits at the
        gate."""
        for text in texts:
            self.world.say(text)
        await self.receive()
        while await patiently(self.parts.turns.step):
            pass
        await until(lambda: self.parts.turns.running <= 1)

    async def stop(self, update: str) -> None:
        """Stop the turn of a message."""
        turn = self.turns[update]
        assert turn is not None
        try:
            await patiently(partial(self.parts.door.stop, turn, by=self.person))
        except Conflict:
            return  # the first try has stopped it, and its answer was lost

    def kill(self) -> None:
        """End the process from outside, whatever the fuse does. The act ends here."""
        self._fuse.is_killed = True
        raise SimulatedCrash("killed")

    async def greet(self) -> None:
        """Tell people that the gateway is back, as its start does."""
        await patiently(partial(self._nodes.greet, tells_homes=True))

    async def drain(self) -> None:
        """Stop the gateway as a shutdown does: work is finished or parked."""
        await patiently(self.parts.gateway.drain)

    async def work(self) -> None:
        """Open the gate and do everything that can be done now."""
        self.world.gate.open()
        for _ in range(100):
            await self.receive()
            is_busy = await patiently(self.parts.fetching.step)
            is_busy |= await patiently(self.parts.turns.step)
            await self.parts.turns.finished()
            if self.world.setup.flies:
                # A turn that has lost its agent wakes the pump, which puts it back in line.
                is_busy |= await patiently(self.parts.turns.step)
            if self.world.setup.has_jobs:
                is_busy |= await patiently(self.parts.schedule.step)
            if self.world.setup.asks:
                is_busy |= await patiently(self.deadlines.step)
            is_busy |= await patiently(self.parts.outbox.step)
            if not is_busy:
                return
        raise AssertionError("the gateway is never done")

    async def rest(self) -> None:
        """Do everything, and let time pass until nothing is left to do."""
        for _ in range(50):
            await self.work()
            self.world.clock.advance(400)
            self.world.answer()
            if not self.world.platform.unacknowledged and await self._is_over():
                return
        raise AssertionError("the gateway never came to rest")

    async def _is_over(self) -> bool:
        """Tell whether nothing is due in the store: no part, no fetch, no answer and no turn."""
        due = [
            await self.store.outbox.next_due_ms(),
            await self.store.fetches.next_due_ms(),
            await self.store.questions.next_deadline_ms(),
            await self.store.delegations.next_deadline_ms(),
        ]
        return due == [None, None, None, None] and await self.store.turns.next_claim_ms() is None

    async def records(self) -> list[SessionRecord]:
        """Return everything that is stored, with the sessions of errands."""
        page = Page(limit=1000, with_unlisted=True)
        sessions = await self.store.archive.sessions(principal=None, page=page)
        return [await self.store.diagnostics.record(session.id) for session in sessions]


Act = Callable[[Life], Awaitable[None]]


async def rest(life: Life) -> None:
    """Play the act of doing everything that is left."""
    await life.rest()


async def patiently(step: Callable[[], Awaitable[T]]) -> T:
    """Try a step again after a refusal or a lost answer, as the loops of the pumps do."""
    for _ in range(3):
        try:
            return await step()
        except (Transient, Ambiguous):
            continue
    raise AssertionError("refused three times")


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until other tasks or the threads of the database have done something, in real time."""
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - no event is set when it happens
            await asyncio.sleep(0.0005)  # noqa: TID251 - the world's clock does not wait for threads
