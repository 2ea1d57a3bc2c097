"""Checks that the gateway decides again who may speak when a turn begins, and when somebody's
access ends.

The tests step the engine's pumps by hand, so that they can take away a person's access at any
moment: in the store or in the configuration, as another process or an editor does, without telling
the node.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.databases import sqlite_on

from perdure.app.config.platforms import Hosts
from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import HTTP, Address
from perdure.domain.checking.checker import violations
from perdure.domain.ids import PrincipalId, SessionId, TurnId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Attachment, NoticePosted, SenderTraits, TurnQueued
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Busy, Interruption, Outcome
from perdure.domain.people.access import ACCESS_ENDED
from perdure.domain.people.menu import AgentOffer, Menu
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.recovery import Policy, Resume
from perdure.domain.turn.stream import AgentEvent
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.people.access import PlacedArrival
from perdure.ports.people.places import OutgoingMessage
from perdure.ports.platform.settings import AdapterSettings
from perdure.ports.records.history import Page
from perdure.ports.turns.agent import Work
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import claim_one, settle, turn_of
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

CHAT = "scripted"
CLUB = "club"
MENU = Menu(agents={"main": AgentOffer(has_memory=True, keep_tokens=10)})
EVERYWHERE = Page(limit=100, with_unlisted=True)


class Held(ScriptedAgent):
    """Answers at once, unless a test holds it by clearing `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        async for event in super().run(request, work):
            self.has_begun.set()
            await self.go_on.wait()
            yield event


class Files(ScriptedPlatform):
    """Gives the same words for every file."""

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        yield b"words of a file"


class World:
    """Runs one process with a platform and an HTTP API."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock(is_eager=True)
        self.platform = Files()
        self.agent = Held()
        self.ran: list[str] = []
        self.hosts = Hosts({})
        self.limits = Limits(has_titles=True, drain_timeout_s=0)
        self.store = Store(
            sqlite_on(folder / "perdure.db"),
            clock=self.clock,
            entropy=SeededEntropy(),
            media=folder / "media",
        )
        self.parts: NodeParts
        self.supervisor: Supervisor

    def compose_node(self) -> None:
        backend = Backend(
            name="main", kind="s", agent=self.agent, tools=CountingTools(self.ran), has_memory=True
        )
        dependencies = NodeDependencies(
            store=self.store,
            roster=Roster({"main": backend}),
            clock=self.clock,
            entropy=SeededEntropy(7),
            limits=self.limits,
            adapters={CHAT: self.platform},
            sources={CHAT: self.platform},
            terms=self.hosts.terms,
        )
        self.parts = compose_node(dependencies, self.supervisor.start, feed=Feed())

    async def rest(self) -> None:
        """Step the pumps until nothing is left to do."""
        for _ in range(30):
            fetched = await self.parts.fetching.step()
            claimed = await self.parts.turns.step()
            await self.parts.turns.finished()
            sent = await self.parts.outbox.step()
            if not (fetched or claimed or sent):
                return
        raise AssertionError("it never came to rest")

    async def deliver(self) -> None:
        """Send everything that can be sent now."""
        while await self.parts.outbox.step():
            pass

    async def check(self) -> dict[TurnId, tuple[TurnKind, Outcome | None, str]]:
        """Check that no rule is broken. Returns the kind, outcome and reason of every turn, by its
        id."""
        found = {}
        for view in await self.store.archive.sessions(principal=None, page=EVERYWHERE):
            record = await self.store.diagnostics.record(view.id)
            assert violations(record) == []
            for recorded in record.events:
                event = recorded.event
                if isinstance(event, TurnQueued):
                    turn = await self.store.archive.turn(event.turn, principal=None)
                    outcome = Outcome(turn.outcome) if turn.outcome else None
                    found[event.turn] = (event.kind, outcome, turn.reason)
        return found

    async def notices(self, session: SessionId) -> list[str]:
        events = (await self.store.diagnostics.record(session)).events
        return [each.event.text for each in events if isinstance(each.event, NoticePosted)]

    async def spent(self) -> int:
        return len(self.agent.requests) + len(self.ran)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.store.open()
    try:
        async with Supervisor() as supervisor:
            world.supervisor = supervisor
            world.compose_node()
            await world.store.nodes.join(name="sim")
            yield world
    finally:
        await world.store.close()


class Person:
    """Plays a person who may speak until `lose_access`. Each subclass gains and loses access in
    another way."""

    place = "with ada"
    kind = "private"
    traits = SenderTraits()

    def __init__(self, world: World) -> None:
        self.world = world
        self.id = PrincipalId("")
        self._said = 0

    async def come(self) -> None:
        self.id = (await self.world.store.principals.ensure(f"{CHAT}:ada", role="member")).id

    async def lose_access(self) -> None:
        self.world.hosts.replace({CHAT: AdapterSettings()})

    @property
    def address(self) -> Address:
        return Address(adapter=CHAT, account="bot", place=self.place)

    def update(self, text: str) -> Update:
        self._said += 1
        return Update(
            address=self.address,
            external_id=f"{self.id}-{self._said}",
            kind=UpdateKind.MESSAGE,
            principal=self.id,
            text=text,
            place_kind=self.kind,
            traits=self.traits,
        )

    async def says(self, text: str) -> Accepted:
        """Accept a message of this person, and leave its turn to the pump."""
        return await self.world.store.inbox.accept(self.update(text), queue_max=9, menu=MENU)


class WithToken(Person):
    """Plays a person who speaks over HTTP with a token."""

    kind = ""

    async def come(self) -> None:
        principals = self.world.store.principals
        self.id = (await principals.ensure("ada", role="member")).id
        await principals.grant(self.id, "the token of ada")

    async def lose_access(self) -> None:
        await self.world.store.principals.revoke("ada")

    @property
    def address(self) -> Address:
        return Address(adapter=HTTP, account=self.id, place="main")


class Listed(Person):
    async def come(self) -> None:
        await super().come()
        self.world.hosts.replace({CHAT: AdapterSettings(allow=("ada",))})


class Paired(Person):
    async def come(self) -> None:
        await super().come()
        self.world.hosts.replace({CHAT: AdapterSettings(pairing=True)})
        arrival = Arrival(
            external_id="m0",
            place=self.place,
            place_kind=PlaceKind.PRIVATE,
            sender=Sender(id="ada"),
            text="let me in",
        )
        access = self.world.store.access
        await access.ask(PlacedArrival(address=self.address, arrival=arrival), "ABCD2345")
        self.pairing = (await access.approve("ABCD2345", by="root")).id
        await self.world.rest()

    async def lose_access(self) -> None:
        await self.world.store.access.revoke(self.pairing, by="root")


class Everybody(Person):
    async def come(self) -> None:
        await super().come()
        self.world.hosts.replace({CHAT: AdapterSettings(allow=("*",))})


class InPlace(Person):
    place = CLUB
    kind = "group"

    async def come(self) -> None:
        await super().come()
        self.world.hosts.replace({CHAT: AdapterSettings(allow_places=(CLUB,))})


class OfRole(Person):
    place = CLUB
    kind = "group"
    traits = SenderTraits(roles=("staff",))

    async def come(self) -> None:
        await super().come()
        self.world.hosts.replace({CHAT: AdapterSettings(allow_roles=("staff",))})


class Bot(Person):
    """Plays a bot that loses the rule for bots, while all people may still speak."""

    traits = SenderTraits(is_bot=True)

    async def come(self) -> None:
        await super().come()
        self.world.hosts.replace({CHAT: AdapterSettings(allow=("*",), allow_bots=("ada",))})

    async def lose_access(self) -> None:
        self.world.hosts.replace({CHAT: AdapterSettings(allow=("*",))})


class OfRemovedPlatform(Listed):
    async def lose_access(self) -> None:
        self.world.hosts.replace({})


class Linked(Listed):
    """Plays a person whose place on the platform continues a conversation over HTTP."""

    async def come(self) -> None:
        await super().come()
        over_http = WithToken(self.world)
        await over_http.come()
        await over_http.says("hello")
        await self.world.rest()
        code = (await over_http.says("/link")).reply.split()[3].strip(",.")
        linked = await self.says(f"/link {code}")
        assert linked.reply.startswith("Linked"), linked.reply
        await self.world.rest()


EVERY_PERSON = [
    WithToken, Listed, Paired, Everybody, InPlace, OfRole, Bot, OfRemovedPlatform, Linked,
]  # fmt: skip


@pytest.fixture(params=EVERY_PERSON)
async def anyone(request: pytest.FixtureRequest, world: World) -> Person:
    person: Person = request.param(world)
    await person.come()
    return person


@pytest.fixture(params=[WithToken, Listed, OfRole])
async def ada(request: pytest.FixtureRequest, world: World) -> Person:
    person: Person = request.param(world)
    await person.come()
    return person


async def test_whoever_may_speak_is_answered_also_later(world: World, anyone: Person) -> None:
    waiting = await anyone.says("hello")
    await world.rest()
    assert (await world.check())[turn_of(waiting)][:2] == ("message", Outcome.DONE)


async def test_what_waits_is_refused_once_its_person_may_not_speak(
    world: World, anyone: Person
) -> None:
    waiting = await anyone.says("hello")
    spent, shown = await world.spent(), len(world.platform.shown)

    await anyone.lose_access()
    await world.rest()

    kind, outcome, reason = (await world.check())[turn_of(waiting)]
    assert (kind, outcome) == ("message", Outcome.REFUSED)
    assert reason.startswith(ACCESS_ENDED)
    assert await world.spent() == spent
    assert len(world.platform.shown) == shown


async def queued(world: World, ada: Person) -> None:
    await ada.says("hello")


async def interrupted(world: World, ada: Person) -> None:
    await ada.says("hello")
    await claim_one(world.store)
    await world.parts.reaper.reclaim(())


async def suspect(world: World, ada: Person) -> None:
    for _ in range(2):
        await interrupted(world, ada)


async def answered_the_question(world: World, ada: Person) -> None:
    world.limits = msgspec.structs.replace(world.limits, recovery=Policy(resume=Resume.ASK))
    world.compose_node()
    await interrupted(world, ada)
    assert (await ada.says("continue")).command == "continue"


async def album(world: World, ada: Person) -> None:
    update = msgspec.structs.replace(ada.update("hello"), album="a1")
    await world.store.inbox.accept(update, queue_max=9)
    assert not await world.parts.turns.step()


async def files(world: World, ada: Person) -> None:
    is_http = ada.address.adapter == HTTP
    where = Attachment(url="http://127.0.0.1:1/") if is_http else Attachment(reference="f1")
    file = msgspec.structs.replace(where, name="plan.txt", mime="text/plain")
    update = msgspec.structs.replace(ada.update("hello"), attachments=(file,))
    await world.store.inbox.accept(update, queue_max=9)
    assert not await world.parts.turns.step()


async def memory_hold(world: World, ada: Person) -> None:
    await ada.says("hello")
    await world.rest()
    await ada.says("/reset")
    await ada.says("hello again")


async def background(world: World, ada: Person) -> None:
    await ada.says("/background think")


async def result(world: World, ada: Person) -> None:
    await ada.says("/background think")
    await settle(world.store, await claim_one(world.store), "thought")


async def title(world: World, ada: Person) -> None:
    await ada.says("hello")
    await world.parts.turns.step()
    await world.parts.turns.finished()


async def summary(world: World, ada: Person) -> None:
    for number in range(3):
        await ada.says(f"{number} {'words ' * 20}")
        await world.rest()
    assert (await ada.says("/compact")).reply.startswith("Compacting")


async def freed_steer(world: World, ada: Person) -> None:
    await ada.says("hello")
    claimed = await claim_one(world.store)
    steer = msgspec.structs.replace(ada.update("be quick"), busy=Busy.STEER)
    await world.store.inbox.accept(steer, queue_max=9)
    await settle(world.store, claimed, "done")


async def asked_again(world: World, ada: Person) -> None:
    await ada.says("hello")
    await world.rest()
    await ada.says("/retry")


EVERY_WAY = [
    (queued, ["message"]),
    (interrupted, ["message"]),
    (suspect, ["message", "message"]),
    (answered_the_question, ["message"]),
    (album, ["message"]),
    (files, ["message"]),
    (memory_hold, [TurnKind.MEMORY, "message"]),
    (background, [TurnKind.BACKGROUND]),
    (result, [TurnKind.RESULT]),
    (title, [TurnKind.TITLE]),
    (summary, [TurnKind.SUMMARY]),
    (freed_steer, ["message"]),
    (asked_again, ["message"]),
]
Way = Callable[[World, Person], Awaitable[None]]


@pytest.mark.parametrize(("way", "kinds"), EVERY_WAY, ids=[way.__name__ for way, _ in EVERY_WAY])
async def test_however_a_turn_begins_it_is_asked_who_may_speak(
    world: World, ada: Person, way: Way, kinds: list[str]
) -> None:
    await way(world, ada)
    await world.deliver()
    before = await world.check()
    open_kinds = sorted(kind for kind, outcome, _ in before.values() if outcome is None)
    spent, shown = await world.spent(), len(world.platform.shown)

    await ada.lose_access()
    world.clock.advance(1)
    await world.rest()

    after = await world.check()
    changed = [found for turn, found in after.items() if before.get(turn) != found]
    assert open_kinds == sorted(kinds)
    assert sorted(kind for kind, _, _ in changed) == sorted(kinds)
    assert {outcome for _, outcome, _ in changed} == {Outcome.REFUSED}
    assert all(reason.startswith(ACCESS_ENDED) for _, _, reason in changed)
    assert await world.spent() == spent
    assert len(world.platform.shown) == shown


@pytest.mark.parametrize(("way", "kinds"), EVERY_WAY, ids=[way.__name__ for way, _ in EVERY_WAY])
async def test_when_access_ends_what_waits_is_refused_at_once(
    world: World, ada: Person, way: Way, kinds: list[str]
) -> None:
    await way(world, ada)
    await world.deliver()
    before = await world.check()
    spent, shown = await world.spent(), len(world.platform.shown)

    await ada.lose_access()
    await world.parts.review.step()

    after = await world.check()
    changed = [found for turn, found in after.items() if before.get(turn) != found]
    assert sorted(kind for kind, _, _ in changed) == sorted(kinds)
    assert {outcome for _, outcome, _ in changed} == {Outcome.REFUSED}
    await world.rest()
    assert (await world.spent(), len(world.platform.shown)) == (spent, shown)
    assert await world.check() == after


class Bob(Person):
    """Plays a second person in the club."""

    place = CLUB
    kind = "group"

    async def come(self) -> None:
        self.id = (await self.world.store.principals.ensure(f"{CHAT}:bob", role="member")).id


class Club:
    """Holds Ada and Bob in a group conversation that Ada opened."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ada = Person(world)
        self.ada.place, self.ada.kind = CLUB, "group"
        self.bob = Bob(world)

    async def come(self) -> None:
        await self.ada.come()
        await self.bob.come()
        self.world.hosts.replace({CHAT: AdapterSettings(allow=("ada", "bob"))})

    async def bob_alone_may_speak(self) -> None:
        self.world.hosts.replace({CHAT: AdapterSettings(allow=("bob",))})


@pytest.fixture
async def club(world: World) -> Club:
    club = Club(world)
    await club.come()
    return club


@pytest.mark.parametrize("is_reviewed", [True, False])
async def test_running_turns_are_stopped_when_access_ends_and_others_go_on(
    world: World, club: Club, *, is_reviewed: bool
) -> None:
    # Without a review the running turn ends normally, and no further turn of that person begins.
    world.agent.go_on.clear()
    running = await world.parts.door.accept(club.ada.update("a long story"))
    await world.agent.has_begun.wait()
    waiting = await club.ada.says("one more")
    bobs = await club.bob.says("and me?")

    await club.bob_alone_may_speak()
    if is_reviewed:
        await world.parts.review.step()
        await world.parts.turns.finished()
        await world.deliver()
        assert world.platform.shown == []
    world.agent.go_on.set()
    await world.rest()

    turns = await world.check()
    _, outcome, reason = turns[turn_of(running)]
    assert outcome is (Outcome.STOPPED if is_reviewed else Outcome.DONE)
    assert reason.startswith(ACCESS_ENDED) is is_reviewed
    assert turns[turn_of(waiting)][1] is Outcome.REFUSED
    assert turns[turn_of(bobs)][1] is Outcome.DONE
    told = msgspec.json.encode(world.agent.requests[-1]).decode()
    assert "and me?" in told
    assert "one more" not in told


async def test_what_was_refused_is_told_to_no_model_later(world: World, club: Club) -> None:
    await club.ada.says("hello")
    await world.rest()
    await club.ada.says("the forbidden words")
    await claim_one(world.store)  # it had begun, and nothing was said
    await world.parts.reaper.reclaim(())
    await club.bob_alone_may_speak()
    await world.rest()

    await club.bob.says("go on")
    await world.rest()

    (request,) = [each for each in world.agent.requests if "go on" in repr(each.messages)]
    assert "hello" in msgspec.json.encode(request).decode()
    assert "forbidden" not in repr(request)


async def test_a_group_has_titles_and_summaries_after_its_opener_is_gone(
    world: World, club: Club
) -> None:
    await club.ada.says("hello")
    await world.rest()
    await club.bob_alone_may_speak()
    await club.bob.says("/new")
    for number in range(3):
        await club.bob.says(f"{number} {'words ' * 20}")
        await world.rest()
    await club.bob.says("/compact")
    await world.rest()

    endings = {(kind, outcome) for kind, outcome, _ in (await world.check()).values()}
    assert (TurnKind.TITLE, Outcome.DONE) in endings
    assert (TurnKind.SUMMARY, Outcome.DONE) in endings
    assert not [outcome for _, outcome in endings if outcome is Outcome.REFUSED]


async def test_nobody_is_asked_about_what_may_not_go_on(world: World, ada: Person) -> None:
    world.limits = msgspec.structs.replace(world.limits, recovery=Policy(resume=Resume.ASK))
    world.compose_node()
    cut = await ada.says("hello")
    claimed = await claim_one(world.store)
    await world.store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=3)
    await ada.lose_access()

    while await world.parts.reaper.step():
        pass

    assert (await world.check())[turn_of(cut)][1] is Outcome.REFUSED
    assert await world.notices(cut.session) == []


async def test_what_an_operator_sends_goes_out_whoever_may_speak_there(
    world: World, club: Club
) -> None:
    # The sender's own access is checked all the same: what a revoked sender ordered is not sent.
    store = world.store
    root = await store.principals.ensure("root", role="operator")
    other = await store.principals.ensure("other", role="operator")
    for who in (root, other):
        await store.principals.grant(who.id, f"the token of {who.name}")
    await club.ada.says("hello")
    await world.rest()
    world.hosts.replace({CHAT: AdapterSettings()})
    for who in (root, other):
        sending = OutgoingMessage(
            to=f"{CHAT}:{CLUB}",
            text=f"news of {who.name}",
            external_id=who.name,
            by=who,
            accounts={CHAT: "bot"},
        )
        await store.places.send(sending, queue_max=9)
    await store.principals.revoke("other")
    await world.rest()

    shown = [each.text for each in world.platform.shown]
    assert "news of root" in shown
    assert "news of other" not in shown
