"""Runs a gateway under mixed traffic for minutes, kills, stops and freezes it, and then inspects
it.

A hundred people write over the native API, programs call `/v1`, watchers come and go, and others
chat on a platform. The model is slow, fails and goes away. For the first part of the time the
process dies again and again; the last life then lasts, so that a leak has time to show. When the
traffic has ended everything must come to rest: what was acknowledged is there once, nothing is
stuck, and the process costs about what a fresh one costs.

`PERDURE_SOAK_S=30` makes it short, `PERDURE_SEED=17` draws the same traffic and strikes again.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from statistics import median

import aiohttp
import msgspec
import psutil
import pytest
from tests.fault.soak import gauges, rest
from tests.fault.soak.calls import Caller
from tests.fault.soak.chats import Chatter
from tests.fault.soak.model import MoodyModel
from tests.fault.soak.people import Person, Watcher
from tests.fault.soak.persistent_client import PersistentClient, Tally
from tests.fault.soak.storm import Storm
from tests.fault.soak.times import where_time_goes

from perdure.app.wiring.system import SystemClock
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
SOAK_S = float(os.environ.get("PERDURE_SOAK_S", "600"))
# The share of the time in which the process dies; after it the last life goes on to the end.
DEADLY = 0.6
PEOPLE, CALLERS, WATCHERS, CHATTERS = 100, 10, 12, 10
FIRST_CHAT = 4200
REST_S = 180.0
# Half of the turns are over within this time, although one model call in ten fails.
TYPICAL_S = 3.0
IDLE_S = 120.0
# The number of looks, a second apart, at which the number of descriptors must be the same:
# connections to the model are kept for up to 30 s.
CALM = 35
# The log tells of each strike, and of each turn that failed or was interrupted. It must not grow
# with turns that went well.
LINES_PER_STRIKE = 30
CLOCK = SystemClock()


class Soak:
    """Holds everything that takes part: the traffic, the strikes, and what both have seen."""

    def __init__(self, client: Client, model: MoodyModel, api: BotApi, seed: int) -> None:
        self.gateway = client.gateway
        self.model = model
        self.api = api
        self.tally = Tally()
        self.table: list[tuple[str, object]] = [("seed", os.environ["PERDURE_SEED"])]
        self.storm = Storm(client.gateway, model, random.Random(seed))
        self._seeds = iter(range(seed + 1, seed + 10_000))
        self._client = client
        self.people = [Person(self._caller(), f"room-{n}") for n in range(PEOPLE)]
        self.callers = [Caller(self._caller(), f"caller-{n}") for n in range(CALLERS)]
        self.chatters = [Chatter(self._caller(), api, FIRST_CHAT + n) for n in range(CHATTERS)]
        watched = random.Random(seed).sample(self.people, WATCHERS)
        self.watchers = [Watcher(self._caller(), person) for person in watched]

    def _caller(self) -> PersistentClient:
        return PersistentClient(self._client, random.Random(next(self._seeds)), self.tally)

    def note(self, what: str, seen: object) -> None:
        self.table.append((what, seen))

    async def run(self, seconds: float) -> None:
        """Let everybody act for so long, and strike meanwhile."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for person in self.people:
                group.create_task(person.talk_until(over))
            for caller in self.callers:
                group.create_task(caller.call_until(over))
            for watcher in self.watchers:
                group.create_task(watcher.watch_until(over))
            for chatter in self.chatters:
                group.create_task(chatter.chat_until(over))
            await self.storm.rage(DEADLY * seconds)
            await self.storm.rumble((1 - DEADLY) * seconds)
            over.set()
        async with asyncio.TaskGroup() as group:
            for person in self.people:
                group.create_task(person.repeat_some())
            for caller in self.callers:
                group.create_task(caller.repeat_some())
        self.note("struck", dict(self.storm.struck))
        for what, times in (
            ("ready after", self.storm.ready_s),
            ("stopped after", self.storm.stopped_s),
        ):
            if times:
                self.note(what, f"p50 {median(times):.2f} s, max {max(times):.2f} s")
        self.note("traffic", dict(sorted(self.tally.counts.items())))

    async def warm_up(self) -> None:
        """Send each kind of traffic through the process once, so that its cost can be compared
        later."""
        async with asyncio.TaskGroup() as group:
            for person in self.people:
                group.create_task(person.write("warm up"))
            for caller in self.callers:
                group.create_task(caller.call())
            for watcher in self.watchers:
                group.create_task(watcher.watch_for(2.0))
            for chatter in self.chatters:
                chatter.say("warm up")

    async def until_at_rest(self, database: rest.Database) -> dict[str, int]:
        """Wait until no row is unfinished and the platform has handed over every update. Returns
        what is left."""
        ends_at = CLOCK.monotonic_s() + REST_S
        while True:
            left = await rest.counted(database, rest.UNDER_WAY)
            left["updates"] = len(self.api.updates)
            if not any(left.values()) or CLOCK.monotonic_s() > ends_at:
                return {name: number for name, number in left.items() if number}
            await CLOCK.sleep(0.5)

    async def cost_at_rest(self, fresh: gauges.Cost | None = None) -> gauges.Cost:
        """Return the cost of the idle process once its connections are closed. If it is compared
        with a fresh process, wait until it costs no more than it may: freeing memory may take a
        while."""
        process = psutil.Process(self.gateway.pid)
        costs = [gauges.cost_of(process)]
        ends_at = CLOCK.monotonic_s() + IDLE_S
        while CLOCK.monotonic_s() < ends_at:
            await CLOCK.sleep(1.0)
            costs.append(gauges.cost_of(process))
            is_calm = len({cost.descriptors for cost in costs[-CALM:]}) == 1 and len(costs) > CALM
            if is_calm and (fresh is None or not gauges.excess(costs[-1], fresh)):
                break
        busy = sum(cost.busy for cost in costs[-CALM:]) / CALM
        return msgspec.structs.replace(costs[-1], busy=busy)


def configuration(model: MoodyModel, api: BotApi, store: str) -> str:
    people = ", ".join(f'"{FIRST_CHAT + n}"' for n in range(CHATTERS))
    return (
        f'{store}\n[agents.main]\nkind = "chat"\nbase_url = "{model.server.openai_url}"\n'
        f'model = "scripted"\n[drain]\ntimeout_s = 3\n[limits]\nqueued_per_conversation = 20\n'
        f'[adapters.telegram]\ntoken = "{api.token}"\napi_url = "{api.url}"\nallow = [{people}]\n'
        'busy = "interrupt"\ncollect_ms = 0\n'
    )


@pytest.fixture(params=["sqlite", "postgres"])
def store_section(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return ""
    return f'[store]\nurl = "{request.getfixturevalue("postgres_database")}"'


@pytest.fixture
async def soak(gateway_factory: StartGateway, store_section: str, seed: int) -> AsyncIterator[Soak]:
    model = MoodyModel(random.Random(seed), CLOCK)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(model.server)
        api = await stack.enter_async_context(BotApi(CLOCK))
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        gateway = await gateway_factory(toml=configuration(model, api, store_section))
        yield Soak(Client(gateway, session), model, api, seed)


@pytest.fixture
def database(soak: Soak, store_section: str) -> rest.Database:
    if store_section:
        return rest.PostgresDatabase(store_section.split('"')[1])
    return rest.SqliteFile(soak.gateway.home / "perdure.db")


@pytest.fixture
def told(soak: Soak, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Print the table at the end of the run, whether the test passes or not."""
    yield
    width = max(len(what) for what, _ in soak.table)
    record_property("table", "\n".join(f"{what:<{width}}  {seen}" for what, seen in soak.table))


async def judge_the_chats(soak: Soak, database: rest.Database) -> list[str]:
    """Compare what stands in the chats with the receipts of what was sent there."""
    posted, shown = await rest.read_posted(database), set[str]()
    found = []
    for chatter in soak.chatters:
        shown |= await chatter.receipts()
        found += [f"{chatter.chat}: shown twice: {t}" for t in await chatter.answers_shown_twice()]
    found += [f"{receipt} was sent and is not shown" for receipt in posted.standing - shown]
    if len(shown - posted.receipts) > posted.unknown:
        found.append(f"shown without a receipt: {sorted(shown - posted.receipts)}")
    return found


async def judge_the_pace(soak: Soak, database: rest.Database) -> list[str]:
    """Report if the failures of some turns have delayed the others."""
    took = await rest.answer_times_s(database)
    typical_s, late_s = median(took), took[int(0.95 * len(took))]
    told = f"p50 {typical_s:.2f} s, p95 {late_s:.2f} s, max {took[-1]:.2f} s"
    soak.note("turns over after", told)
    for part, spent in (await where_time_goes(database)).items():
        soak.note(f"  {part}", spent)
    return [f"half of the turns took longer than {TYPICAL_S:g} s: {told}"] * (typical_s > TYPICAL_S)


async def judge(soak: Soak, database: rest.Database) -> list[str]:
    """Compare what was acknowledged and shown with what is stored, and count what was kept."""
    stored = await rest.read_stored(database)
    acknowledged = [each for person in soak.people for each in person.acknowledged]
    acknowledged += [each for caller in soak.callers for each in caller.acknowledged]
    found = rest.broken_promises(acknowledged, stored)
    for chatter in soak.chatters:
        names = [("telegram", f"{chatter.chat}/{n}", "message") for n in chatter.written]
        found += [f"{name} is not in the inbox" for name in names if name not in stored.inbox]
    found += await judge_the_chats(soak, database)
    for watcher in soak.watchers:
        found += [
            f"{message} was shown {text!r} and is stored as {stored.said.get(message)!r}"
            for message, text in watcher.shown.items()
            if not stored.said.get(message, "").startswith(text)
        ]
    found += await judge_the_pace(soak, database)
    soak.note("acknowledged", len(acknowledged))
    soak.note("outcomes", await rest.outcomes(database))
    soak.note("parts", await rest.part_states(database))
    soak.note("rows", await rest.counted(database, rest.KEPT))
    soak.note("database", f"{await database.size_mb():.1f} MB")
    return found


async def judge_the_log(soak: Soak, database: rest.Database) -> list[str]:
    home = soak.gateway.home
    lines, broken = gauges.log_lines(home), gauges.tracebacks(home)
    soak.note("log lines", dict(lines.most_common(12)))
    found = [f"{times} tracebacks in the log: {kind}" for kind, times in broken.items()]
    if "Traceback" in soak.gateway.output and not found:
        found.append("a traceback was printed that is not in the log")
    strikes = 1 + soak.storm.struck.total() + soak.tally.counts["platform faults"]
    most = await rest.troubles(database) + LINES_PER_STRIKE * strikes
    if lines.total() > most:
        found.append(f"{lines.total()} lines in the log, over {most}")
    return found


@pytest.mark.chaos
@pytest.mark.timeout(SOAK_S + 1200)
@pytest.mark.usefixtures("told")
async def test_a_long_storm_leaves_nothing_behind(soak: Soak, database: rest.Database) -> None:
    await soak.warm_up()
    assert await soak.until_at_rest(database) == {}
    fresh = await soak.cost_at_rest()
    soak.note("fresh process", fresh)

    await soak.run(SOAK_S)
    broken = [f"stuck: {row}" for row in (await soak.until_at_rest(database)).items()]
    cost = await soak.cost_at_rest(fresh)
    soak.note("idle process", cost)
    broken += gauges.excess(cost, fresh)
    broken += [f"verify, live: {each}" for each in [await rest.verify(soak.gateway)] if each]
    code = await soak.gateway.terminate()
    broken += [f"it ended with {code}"] if code else []
    broken += [f"verify: {each}" for each in [await rest.verify(soak.gateway)] if each]
    broken += await judge(soak, database)
    broken += await judge_the_log(soak, database)
    broken += soak.tally.faults
    broken += soak.model.server.violations
    assert not broken, "\n".join(broken)
