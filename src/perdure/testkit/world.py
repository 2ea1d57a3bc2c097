"""One setup for the crash simulator: what survives a death, and the processes that live in it.

A test plays acts. An act gets a `Life`, which is one process of the real gateway whose pumps the
act drives by hand. Each act is a process of its own, so a process ends, by a death or in
peace, and the next one begins on the same `World`::

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

`simulator` is a fixture; see `Simulator` in `striking.py` for which points are struck. People go
on with their lives whatever happens to the gateway: what was not acknowledged comes again, and
what they are asked is answered. The model echoes (`agent.py`): `long …` is held at the gate after
its first word while the gate is closed, `tool NAME` calls a tool first, which is held after it ran.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities
from perdure.domain.errors import Ambiguous, Conflict, Transient
from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Attachment, ToolCall
from perdure.domain.journal.records import SessionRecord
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage
from perdure.domain.turn.recovery import CONTINUE, DROP, Policy
from perdure.domain.turn.stream import AgentEvent, AgentText
from perdure.domain.turn.watching import Delta
from perdure.ports.records.history import Page
from perdure.ports.turns.agent import Work
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.testkit.agent import CountingTools, ScriptedAgent, said
from perdure.testkit.commits import Commits
from perdure.testkit.crash import BACK_S, Fuse, Nemesis, SimulatedCrash
from perdure.testkit.node import Process
from perdure.testkit.platform import PersonAct, ScriptedPlatform
from perdure.testkit.stores import admitted
from perdure.testkit.system import SeededEntropy, VirtualClock

T = TypeVar("T")
PLATFORM = "scripted"
KEY = Capabilities(takes_key=True, can_delete=True, upload_bytes_max=10_000)


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How the gateway of a world is configured, and where it can be struck."""

    recovery: Policy = Policy(freshness_ms=0, attempts_max=5)
    has_titles: bool = False
    has_memory: bool = False
    context_tokens: int = 128_000
    strikes_deliveries: bool = True
    strikes_commits: bool = False  # in the database's driver, instead of around the store's ports


Begin = Callable[["World", Fuse], AbstractAsyncContextManager[Process]]
Bury = Callable[[], Awaitable[None]]


class _HeldWork:
    """Holds the work of one life where an act wants it: in the middle of it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()
        self.open()

    def close(self) -> None:
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def enter(self) -> None:
        self.reached.set()
        await self._open.wait()


def is_long(request: ModelRequest) -> bool:
    return said(request).startswith("long ")


class World:
    """What survives a death: the database, the platform, what the model was asked and tools did.

    `holds` says which answers stand at the gate after a piece of text. `shown` is what watchers
    have read of each message. `tools_ran` names each call once for every time that it ran.
    """

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
        self.shown: dict[str, str] = {}
        self.modes: dict[str, Busy] = {}
        self.commits = Commits()

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
        """A person writes; the first message is `u1`, the next `u2`."""
        update = self._next_update()
        self.modes[update] = busy
        self.platform.say(update, place, text, files=files, album=album, thread=thread)

    def edit(self, target: str, text: str) -> None:
        self.platform.edit(self._next_update(), target, text)

    def delete(self, target: str) -> None:
        self.platform.delete_message(self._next_update(), target)

    def _next_update(self) -> str:
        return f"u{len(self.platform.sent) + 1}"

    def see(self, delta: Delta) -> None:
        """A watcher reads what it is told."""
        seen = self.shown.get(delta.message, "")
        self.shown[delta.message] = seen[: delta.offset] + delta.text

    def answer(self) -> None:
        """People answer each question that they see."""
        texts = [shown.text for shown in self.platform.shown]
        asked = sum(CONTINUE in text and DROP in text for text in texts)
        answered = sum(sent.text == CONTINUE for sent in self.platform.sent)
        if asked > answered:
            self.say(CONTINUE)

    async def live(self, act: "Act", fuse: Fuse | None = None) -> None:
        """Begin a process, let it recover, and play one act in it. A death ends it."""
        self.gate = _HeldWork()
        fuse = fuse or Fuse()
        fuse.set_clock = self.clock.jump
        was_dead = fuse.is_dead
        try:
            async with self._begin(self, fuse) as process:
                life = Life(self, process, fuse)
                await life.recover()
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
        """Another process finds the leases run out, and does everything that was left."""
        gate = self.gate
        await self._bury()
        records = await self.tell(rest)
        self.gate = gate
        return records

    async def sleep(self) -> None:
        """The machine stands still for longer than any lease, and nobody else is there."""
        await self._bury()
        self.clock.stand_still(120)

    async def tell(self, act: "Act") -> list[SessionRecord]:
        """Play an act in peace. Returns what is stored after it."""
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
        """Play the acts, each in a life of its own: under the first fuse, after its death under
        the next, at last in peace until nothing is left to do. Returns what is stored then."""
        left = list(fuses)
        for act in acts:
            if left and left[0].is_dead:
                left.pop(0)
            await self.live(act, left[0] if left else None)
        if len(left) > 1 and left[0].is_dead:
            await self.live(rest, left[1])
        return await self.tell(last or rest)


class Life:
    """One process, from its recovery to its end."""

    def __init__(self, world: World, process: Process, fuse: Fuse) -> None:
        self.world = world
        self.store = process.store
        self.parts = process.parts
        self.person = PrincipalId("")
        self.turns: dict[str, TurnId | None] = {}
        self._nodes = process.struck_nodes
        self._fuse = fuse

    async def recover(self) -> None:
        """What a process does before it takes anything."""
        self.person = await patiently(partial(admitted, self.store, "person"))
        await patiently(partial(self._nodes.join, name="sim"))
        while await patiently(self.parts.reaper.step):
            pass
        await patiently(self.parts.outbox.recall)
        await patiently(self.parts.outbox.recover)

    async def receive(self) -> None:
        """Take what people sent. Only what is committed is acknowledged; the rest comes again."""
        for sent in list(self.world.platform.unacknowledged):
            accepted = await self.accept(self._update(sent))
            self.turns[sent.id] = accepted.turn
            await self.world.platform.acknowledge(sent.id)

    def _update(self, sent: PersonAct) -> Update:
        return Update(
            address=Address(adapter=PLATFORM, account="bot", place=sent.place, thread=sent.thread),
            external_id=sent.id,
            kind=UpdateKind(sent.kind),
            principal=self.person,
            text=sent.text,
            busy=self.world.modes.get(sent.id, Busy.QUEUE),
            target=sent.target,
            attachments=tuple(
                Attachment(reference=file.reference, name=file.name, size=file.size)
                for file in sent.files
            ),
            album=sent.album,
        )

    async def accept(self, update: Update) -> Accepted:
        return await patiently(partial(self.parts.door.accept, update))

    async def hold(self, *texts: str) -> None:
        """Accept messages and work until an answer stands at the gate, with words that were
        shown, or a tool has run."""
        self.world.gate.close()
        for text in texts:
            self.world.say(text)
        await self.receive()
        await patiently(self.parts.turns.step)
        await until(lambda: self._is_held or not self.parts.turns.running)

    @property
    def _is_held(self) -> bool:
        world = self.world
        return world.gate.reached.is_set() and bool(world.shown or world.tools_ran)

    async def talk_beside(self, *texts: str) -> None:
        """Accept more and let it be answered while one answer still stands at the gate."""
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
            return  # it had been stopped, and the answer was lost

    def kill(self) -> None:
        """The process is ended from outside, whoever strikes; the act ends here."""
        self._fuse.is_killed = True
        raise SimulatedCrash("killed")

    async def drain(self) -> None:
        await patiently(self.parts.gateway.drain)

    async def work(self) -> None:
        """Do everything that can be done now."""
        self.world.gate.open()
        for _ in range(100):
            await self.receive()
            is_busy = await patiently(self.parts.fetching.step)
            is_busy |= await patiently(self.parts.turns.step)
            await self.parts.turns.finished()
            is_busy |= await patiently(self.parts.outbox.step)
            if not is_busy:
                return
        raise AssertionError("the gateway is never done")

    async def rest(self) -> None:
        """Do everything, however long it takes."""
        for _ in range(50):
            await self.work()
            self.world.clock.advance(400)
            self.world.answer()
            if not self.world.platform.unacknowledged and await self._is_over():
                return
        raise AssertionError("the gateway never came to rest")

    async def _is_over(self) -> bool:
        due = [await self.store.outbox.next_due_ms(), await self.store.fetches.next_due_ms()]
        return due == [None, None] and await self.store.turns.next_claim_ms() is None

    async def records(self) -> list[SessionRecord]:
        """Everything stored, errands' sessions too."""
        page = Page(limit=1000, with_unlisted=True)
        sessions = await self.store.archive.sessions(principal=None, page=page)
        return [await self.store.diagnostics.record(session.id) for session in sessions]


Act = Callable[[Life], Awaitable[None]]


async def rest(life: Life) -> None:
    """The act of doing what is left."""
    await life.rest()


async def patiently(step: Callable[[], Awaitable[T]]) -> T:
    """Again after a refusal or a lost answer, as the pumps' own loops do."""
    for _ in range(3):
        try:
            return await step()
        except (Transient, Ambiguous):
            continue
    raise AssertionError("refused three times")


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what other tasks and the database's threads do, in real time."""
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.0005)  # noqa: TID251 - the world's clock waits for nobody


class HeldAgent:
    """Stands at the world's gate after each piece of an answer that the world holds."""

    def __init__(self, world: World) -> None:
        self._world = world

    def encode(self, message: PromptMessage) -> bytes:
        return self._world.agent.encode(message)

    async def close(self) -> None:
        await self._world.agent.close()

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        async for event in self._world.agent.run(request, work):
            yield event
            if isinstance(event, AgentText) and self._world.holds(request):
                await self._world.gate.enter()


class HeldTools(CountingTools):
    """Stands at the world's gate when the work is done and its result is on the way."""

    def __init__(self, world: World) -> None:
        super().__init__(world.tools_ran)
        self._world = world

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        result = await super().call(call, caller)
        await self._world.gate.enter()
        return result
