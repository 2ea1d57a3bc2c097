"""Runs each chat platform for minutes, with faults on every kind of call, while the gateway is
killed.

People write numbered messages in private chats, groups and threads, and change some that wait. A
proxy between the gateway and the platform refuses, asks for patience, cuts connections and lets
calls hang. The gateway is killed and stopped at random, and when a call hangs. In the end
everything comes to rest without faults, and what was sent, stored and shown is compared: nothing
may be unexplained.

`PERDURE_STORM_MIN=0.7` makes it short, `PERDURE_SEED=17` draws the same traffic, faults and strikes
again, and `-k slack` runs one platform alone.
"""

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.fault.soak import gauges, rest
from tests.fault.storm.discord import DiscordStorm
from tests.fault.storm.judgement import Seen, judge
from tests.fault.storm.matrix import MatrixStorm
from tests.fault.storm.model import NumberedModel, words_in
from tests.fault.storm.platform import Spot, Stormy
from tests.fault.storm.slack import SlackStorm
from tests.fault.storm.stored import PARKED_SQL, read_stored
from tests.fault.storm.telegram import TelegramStorm
from tests.fault.storm.weather import Foul
from tests.fault.storm.writers import Writers
from tests.fault.strikes import Strikes

from perdure.app.wiring.system import SystemClock
from perdure.testkit.peers.discord.simcord_server import SimcordServer
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.slack.scripted_slack import ScriptedSlack
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.faulty_proxy import FaultyProxy
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
STORM_S = 60 * float(os.environ.get("PERDURE_STORM_MIN", "10"))
REST_S = 300.0
EXPLAINED = 8
CLOCK = SystemClock()


class Kills(Strikes):
    """Kills and stops the gateway, at random and while a call hangs. Each strike begins a new
    life."""

    between_s = (4.0, 30.0)

    def __init__(self, gateway: GatewayProcess, proxy: FaultyProxy, dice: random.Random) -> None:
        super().__init__(gateway, dice)
        self._proxy = proxy

    async def rage(self, seconds: float) -> None:
        once = (self.kill, self.kill, self.kill, self.kill_while_starting, self.stop)
        await self.strike((*once, self._kill_thrice), seconds)

    async def _kill_thrice(self) -> None:
        """Kill the gateway so often in a row that it gives up the running turn."""
        for _ in range(3):
            await self.kill()
            await self._gateway.pause(self._dice.uniform(0.5, 3.0))

    async def pause(self, seconds: float) -> None:
        self._proxy.hung.clear()
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._proxy.hung.wait()
                await super().pause(self._dice.uniform(0, 2.0))
        except TimeoutError:
            return

    async def start(self) -> None:
        self._proxy.life += 1
        await super().start()


class Storm:
    """Holds everything that takes part, and the table of what was seen."""

    def __init__(
        self, gateway: GatewayProcess, platform: Stormy, proxy: FaultyProxy, dice: random.Random
    ) -> None:
        self.gateway = gateway
        self.platform = platform
        self.proxy = proxy
        self.writers = Writers(platform, random.Random(dice.random()), CLOCK)
        self.kills = Kills(gateway, proxy, random.Random(dice.random()))
        self.database = rest.SqliteFile(gateway.home / "perdure.db")
        self.table: list[tuple[str, object]] = [("seed", os.environ["PERDURE_SEED"])]

    def note(self, what: str, seen: object) -> None:
        self.table.append((what, seen))

    async def run(self, seconds: float) -> None:
        """Let people write under faults and kills for so long."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.writers.write_until(over))
            await self.kills.rage(seconds)
            over.set()
        self.proxy.is_calm = True

    async def until_at_rest(self) -> dict[str, int]:
        """Wait until every message was heard and no row is unfinished. Returns what is left."""
        ends_at = CLOCK.monotonic_s() + REST_S
        while True:
            left = await rest.counted(self.database, rest.UNDER_WAY)
            left["not heard"] = len(await self._unheard())
            if not any(left.values()) or CLOCK.monotonic_s() > ends_at:
                return {name: number for name, number in left.items() if number}
            await CLOCK.sleep(0.5)

    async def _unheard(self) -> list[int]:
        stored = await read_stored(self.database)
        known = set(stored.inbox) | stored.ended
        sent = self.writers.sent
        return [each.number for each in sent if not each.is_deleted and each.name not in known]

    async def shown(self) -> dict[Spot, list[Seen]]:
        return {
            spot: [
                Seen(receipt, words_in(shown.text))
                for receipt, shown in await self.platform.shown(spot)
            ]
            for spot in self.platform.spots
        }


async def perdure(gateway: GatewayProcess, *arguments: str) -> str:
    """Run a verb on the gateway's home. Returns what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", "--home", str(gateway.home), "--json", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return out.decode() if process.returncode == 0 else f"exit {process.returncode}: {out.decode()}"


async def judge_the_parked(storm: Storm) -> list[str]:
    """Check that what is parked is listed, and that each part can be explained."""
    parked = {part for (part,) in await storm.database.rows(PARKED_SQL)}
    listed = await perdure(storm.gateway, "parked", "list", "--limit", "500")
    found = [f"{part} is parked and not listed" for part in parked if part not in listed]
    for part in random.Random(0).sample(sorted(parked), min(EXPLAINED, len(parked))):
        told = await perdure(storm.gateway, "explain", part)
        found += [f"explain {part}: {told[:200]}"] if part not in told else []
    return found


async def judge_all(storm: Storm) -> list[str]:
    stored, sent = await read_stored(storm.database), storm.writers.sent
    verdict = judge(sent, stored, await storm.shown(), storm.proxy.calls)
    over = sum(each.is_over_a_restart for each in storm.proxy.impatient)
    storm.note("sent", len(sent))
    edited, deleted = sum(each.is_edited for each in sent), sum(each.is_deleted for each in sent)
    storm.note("edited, deleted", f"{edited}, {deleted}")
    for what, number in sorted(verdict.counts.items()):
        storm.note(what, number)
    calls = f"{len(storm.proxy.impatient) - over} / {over}"
    storm.note("calls during a wait, same life / over a restart", calls)
    storm.note("kills and stops", dict(storm.kills.struck))
    storm.note("calls", len(storm.proxy.calls))
    storm.note("faults", {**storm.proxy.faults, **storm.writers.counts})
    storm.note("outcomes", await rest.outcomes(storm.database))
    storm.note("parts", await rest.part_states(storm.database))
    return verdict.broken + [str(each) for each in storm.proxy.impatient]


def configuration(model: NumberedModel, platform: Stormy, url: str) -> str:
    people = sorted({person for spot in platform.spots for person in spot.people})
    return (
        f'[agents.main]\nkind = "chat"\nbase_url = "{model.server.openai_url}"\n'
        'model = "scripted"\ncontext_tokens = 4000000\n[drain]\ntimeout_s = 3\n'
        "[limits]\nqueued_per_conversation = 50\n[sessions]\ntitles = false\n"
        f'{platform.section(url)}allow = {json.dumps(people)}\nbusy = "queue"\nmention = false\n'
    )


@asynccontextmanager
async def telegram(_: NewPeer) -> AsyncIterator[Stormy]:
    async with BotApi(CLOCK) as api:
        yield TelegramStorm(api)


@asynccontextmanager
async def slack(_: NewPeer) -> AsyncIterator[Stormy]:
    async with ScriptedSlack(CLOCK) as server:
        yield await SlackStorm.on(server)


@asynccontextmanager
async def discord(_: NewPeer) -> AsyncIterator[Stormy]:
    async with SimcordServer() as server:
        yield DiscordStorm(server)


@asynccontextmanager
async def matrix(new_peer: NewPeer) -> AsyncIterator[Stormy]:
    async with new_peer.synapse() as server, server.control() as control:
        yield await MatrixStorm.on(control)


@pytest.fixture(params=[telegram, slack, discord, matrix], ids=lambda peer: peer.__name__)
async def platform(request: pytest.FixtureRequest, new_peer: NewPeer) -> AsyncIterator[Stormy]:
    async with request.param(new_peer) as platform:
        yield platform


@pytest.fixture
async def storm(platform: Stormy, gateway_factory: StartGateway, seed: int) -> AsyncIterator[Storm]:
    dice = random.Random(seed)
    model = NumberedModel(random.Random(dice.random()), long_words=platform.long_words)
    weather = Foul(random.Random(dice.random()))
    proxy = FaultyProxy(platform.url, platform.rules, weather, clock=CLOCK)
    proxy.is_calm = True
    async with model.server, proxy:
        gateway = await gateway_factory(toml=configuration(model, platform, proxy.url))
        await platform.ready()
        proxy.is_calm = False
        yield Storm(gateway, platform, proxy, dice)
        await gateway.kill()


@pytest.fixture
def told(storm: Storm, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Print the table at the end of the run, whether the test passes or not, and write all calls in
    order to a file beside the gateway's home."""
    yield
    path = storm.gateway.home.with_name("calls.log")
    path.write_text("".join(f"{call}\n" for call in storm.proxy.calls))
    storm.note("all calls", path)
    width = max(len(what) for what, _ in storm.table)
    record_property("table", "\n".join(f"{what:<{width}}  {seen}" for what, seen in storm.table))


@pytest.mark.chaos
@pytest.mark.timeout(STORM_S + 900)
@pytest.mark.usefixtures("told")
async def test_what_was_sent_is_stored_and_shown(storm: Storm) -> None:
    await storm.run(STORM_S)
    broken = [f"stuck: {row}" for row in (await storm.until_at_rest()).items()]
    broken += await judge_the_parked(storm)
    broken += [f"verify, live: {each}" for each in [await rest.verify(storm.gateway)] if each]
    code = await storm.gateway.terminate()
    broken += [f"it ended with {code}"] if code else []
    broken += [f"verify: {each}" for each in [await rest.verify(storm.gateway)] if each]
    broken += await judge_all(storm)
    broken += [f"in the log: {kind}" for kind in gauges.tracebacks(storm.gateway.home)]
    assert not broken, "\n".join(broken)
