"""Checks whom a turn asks, when it asks again, and how waiting turns share what a provider takes.

The clock is moved by hand. A `Provider` takes calls like a real one: it is there or away, and takes
a limited number of calls in a second.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import count, pairwise

import pytest

from perdure.domain.ids import PrincipalId
from perdure.domain.journal.model.reach import AT_ONCE
from perdure.domain.outcomes import StopReason
from perdure.domain.turn.stream import AgentText, Stopped
from perdure.engine.models.places import AgentPlaces, Visitor
from perdure.engine.models.reaching import TELL_AFTER_S, Reaching, reach_after
from perdure.engine.models.roster import Backend
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.system import VirtualClock

AWAY = Stopped(reason=StopReason.PROVIDER_UNREACHABLE, detail="nothing answers", may_retry=True)
WRONG = Stopped(reason=StopReason.PROVIDER_REJECTED, detail="wrong key", status=401)
ODD = Stopped(reason=StopReason.PROVIDER_REJECTED, detail="temperature is odd", status=400)
DONE = Stopped(reason=StopReason.STOP)


def limited(wait_s: float | None) -> Stopped:
    return Stopped(
        reason=StopReason.PROVIDER_ERROR,
        detail="too many",
        may_retry=True,
        status=429,
        retry_after_s=wait_s,
    )


def backend_of(name: str, *, patience_s: float = 60, account: str = "") -> Backend:
    return Backend(
        name=name,
        kind="s",
        agent=ScriptedAgent(),
        tools=CountingTools([]),
        patience_s=patience_s,
        account=account,
    )


class Provider:
    """Answers each call by what holds at that instant. `calls` are the instants of all calls."""

    def __init__(
        self,
        clock: VirtualClock,
        reply: Callable[[float], Stopped] = lambda _: DONE,
        *,
        takes_s: float = 0,
    ) -> None:
        self.clock = clock
        self.reply = reply
        self.takes_s = takes_s
        self.calls: list[float] = []

    def ask(self) -> Stopped:
        now = self.clock.monotonic_s()
        self.calls.append(now)
        return self.reply(now)


def per_second(count: int, *, wait_s: float | None) -> Callable[[float], Stopped]:
    """Make the replies of a provider that takes `count` calls in each second and refuses the
    others."""
    taken: Counter[int] = Counter()

    def reply(now: float) -> Stopped:
        taken[int(now)] += 1
        return DONE if taken[int(now)] <= count else limited(wait_s)

    return reply


class World:
    """Runs turns that ask providers, by a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.most: dict[str, int] = {}
        self.reaching = Reaching(self.clock, AgentPlaces(self.most.get))
        self.ended: list[tuple[int, str, float]] = []
        self.told: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def now(self) -> float:
        return self.clock.monotonic_s()

    def anybody(self) -> Visitor:
        return self.reaching.places.visitor(PrincipalId("prn_1"))

    def turn(self, number: int, *providers: tuple[Backend, Provider]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._turn(number, *providers))
        self.tasks.append(task)
        return task

    async def _turn(self, number: int, *providers: tuple[Backend, Provider]) -> None:
        async def tell(_: Stopped) -> None:
            self.told.append(number)

        by_name = {backend.name: provider for backend, provider in providers}
        quest = self.reaching.quest([backend for backend, _ in providers], tell, self.anybody())
        outcome = "unasked"
        while (backend := await quest.next()) is not None:
            stopped = by_name[backend.name].ask()
            await self.clock.sleep(by_name[backend.name].takes_s)
            quest.hears(backend, stopped)
            outcome = backend.name if stopped.reason.is_finish else "failed"
            if stopped.reason.is_finish:
                break
            quest.ended(backend, stopped)
        quest.over()
        self.ended.append((number, outcome, self.now()))

    async def pass_time(self, seconds: float, step_s: float = 0.01) -> None:
        for _ in range(round(seconds / step_s)):
            await self.settle()
            self.clock.advance(step_s)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    @property
    def answered(self) -> list[int]:
        return [number for number, outcome, _ in self.ended if outcome not in ("failed", "unasked")]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    for task in world.tasks:
        task.cancel()
    await asyncio.gather(*world.tasks, return_exceptions=True)


async def test_a_model_that_is_away_for_a_while_answers_everybody_when_it_is_back(
    world: World,
) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda now: AWAY if now < 20 else DONE)
    for number in range(150):
        world.turn(number, (backend, provider))
        await world.pass_time(0.1, 0.05)
    await world.pass_time(25, 0.05)

    assert len(world.answered) == 150
    assert sum(at < 20 for at in provider.calls) < 20
    # The turns do not all come back at the same moment.
    tenths = Counter(int(at * 10) for at in provider.calls if at >= 20)
    assert max(tenths.values()) <= 6
    assert world.answered == sorted(world.answered)
    assert max(at for _, _, at in world.ended) < 32


async def test_a_wait_ends_with_the_patience_of_the_agent(world: World) -> None:
    backend = backend_of("main", patience_s=10)
    provider = Provider(world.clock, lambda _: AWAY)
    world.turn(1, (backend, provider))
    await world.pass_time(30)

    ((_, outcome, at),) = world.ended
    assert outcome == "failed"
    assert 9.5 < at <= 10.1
    gaps = [later - sooner for sooner, later in pairwise(provider.calls)]
    assert 5 <= len(provider.calls) < 8
    assert gaps[0] < 1 < gaps[2]


async def test_a_server_that_is_back_at_the_last_moment_is_still_asked(world: World) -> None:
    backend = backend_of("main", patience_s=3)
    provider = Provider(world.clock, lambda now: AWAY if now < 2.9 else DONE)
    world.turn(1, (backend, provider))
    await world.pass_time(5)

    assert world.answered == [1]


async def test_a_server_that_is_slow_to_fail_is_not_asked_after_the_time_is_up(
    world: World,
) -> None:
    backend = backend_of("main", patience_s=10)
    quest = world.reaching.quest([backend], _silent, world.anybody())
    ends: list[float] = []

    async def try_for_long() -> None:
        while await quest.next() is not None:
            await world.clock.sleep(4)
            quest.ended(backend, AWAY)
        ends.append(world.now())

    world.tasks.append(asyncio.ensure_future(try_for_long()))
    await world.pass_time(30)

    assert len(ends) == 1
    assert ends[0] <= 10 + 4


async def test_without_patience_there_is_one_try(world: World) -> None:
    backend = backend_of("main", patience_s=0)
    provider = Provider(world.clock, lambda _: AWAY)
    for number in range(3):
        world.turn(number, (backend, provider))
        await world.pass_time(0.1)

    assert [outcome for _, outcome, _ in world.ended] == ["failed"] * 3
    assert len(provider.calls) == 3


async def test_what_is_refused_for_good_is_not_asked_again(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda _: ODD)
    world.turn(1, (backend, provider))
    await world.settle()

    assert world.ended == [(1, "failed", 0.0)]
    assert len(provider.calls) == 1


async def test_a_person_is_told_once_after_a_few_seconds(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda now: AWAY if now < 30 else DONE)
    world.turn(1, (backend, provider))
    await world.pass_time(TELL_AFTER_S - 0.5)
    assert world.told == []

    await world.pass_time(1)
    assert world.told == [1]

    await world.pass_time(40)
    assert world.told == [1]
    assert world.answered == [1]


async def test_a_short_absence_is_not_worth_a_word(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda now: AWAY if now < 2 else DONE)
    world.turn(1, (backend, provider))
    await world.pass_time(10)

    assert world.answered == [1]
    assert world.told == []


async def test_those_that_stand_in_are_asked_before_anybody_waits(world: World) -> None:
    main, spare, last = backend_of("main"), backend_of("spare"), backend_of("last")
    away = [(backend, Provider(world.clock, lambda _: AWAY)) for backend in (main, spare)]
    world.turn(1, *away, (last, Provider(world.clock)))
    await world.settle()

    assert world.ended == [(1, "last", 0.0)]


async def test_an_agent_that_failed_rests_while_another_stands_in(world: World) -> None:
    main, spare = backend_of("main"), backend_of("spare")
    primary = Provider(world.clock, lambda now: AWAY if now < 60 else DONE)
    providers = [(main, primary), (spare, Provider(world.clock))]
    for number in range(400):
        world.turn(number, *providers)
        await world.pass_time(0.25, 0.05)

    assert len(world.answered) == 400
    assert all(at - number * 0.25 < 0.1 for number, _, at in world.ended)
    # The primary is tried again after 5, 10, 20 and 40 seconds, by one turn each time.
    assert sum(at < 60 for at in primary.calls) == 4
    assert {outcome for _, outcome, at in world.ended if at > 80} == {"main"}


@pytest.mark.parametrize("failure", [WRONG, Stopped(reason=StopReason.PROVIDER_TIMEOUT)])
async def test_a_failure_that_would_come_again_is_not_had_by_every_turn(
    world: World, failure: Stopped
) -> None:
    main, spare = backend_of("main"), backend_of("spare")
    primary = Provider(world.clock, lambda _: failure)
    for number in range(10):
        world.turn(number, (main, primary), (spare, Provider(world.clock)))
        await world.pass_time(0.1)

    assert len(primary.calls) == 1
    assert {outcome for _, outcome, _ in world.ended} == {"spare"}


async def test_calls_that_fail_together_count_once(world: World) -> None:
    backend = backend_of("main")
    quests = [world.reaching.quest([backend], _silent, world.anybody()) for _ in range(50)]
    for quest in quests:
        assert await quest.next() is backend
    await world.pass_time(1)
    for quest in quests:
        quest.ended(backend, AWAY)
    provider = Provider(world.clock)
    world.turn(1, (backend, provider))
    await world.pass_time(0.7)

    assert world.answered == [1]


@pytest.mark.parametrize("failure", [AWAY, WRONG], ids=["away", "wrong"])
async def test_one_turn_finds_out_whether_an_agent_is_back(world: World, failure: Stopped) -> None:
    main, spare = backend_of("main"), backend_of("spare")
    first = world.reaching.quest([main, spare], _silent, world.anybody())
    assert await first.next() is main
    first.ended(main, failure)
    await world.pass_time(6)

    backends = [
        await world.reaching.quest([main, spare], _silent, world.anybody()).next() for _ in range(5)
    ]
    assert backends == [main, spare, spare, spare, spare]


async def test_a_request_that_is_refused_says_nothing_about_the_next(world: World) -> None:
    main, spare = backend_of("main"), backend_of("spare")
    primary = Provider(world.clock, lambda _: ODD)
    for number in range(5):
        world.turn(number, (main, primary), (spare, Provider(world.clock)))
        await world.pass_time(0.1)

    assert len(primary.calls) == 5


async def test_where_all_are_away_the_first_that_is_back_answers(world: World) -> None:
    main, spare = backend_of("main"), backend_of("spare")
    providers = [
        (main, Provider(world.clock, lambda _: AWAY)),
        (spare, Provider(world.clock, lambda now: AWAY if now < 12 else DONE)),
    ]
    world.turn(1, *providers)
    await world.pass_time(30)

    ((_, outcome, at),) = world.ended
    assert outcome == "spare"
    assert 12 <= at < 18


async def test_a_call_that_hangs_does_not_keep_the_others_waiting_for_ever(world: World) -> None:
    # A slow model says nothing for a while after it is back. The others must not fail because of
    # that.
    backend = backend_of("main", patience_s=20)
    first = world.reaching.quest([backend], _silent, world.anybody())
    assert await first.next() is backend
    first.ended(backend, AWAY)
    went: list[Backend | None] = []

    async def hang() -> None:
        went.append(await world.reaching.quest([backend], _silent, world.anybody()).next())

    world.tasks += [asyncio.ensure_future(hang()) for _ in range(12)]
    await world.pass_time(3)
    assert len(went) == 2
    await world.pass_time(5)

    assert went == [backend] * 12


async def _silent(_: Stopped) -> None:
    return


@pytest.mark.parametrize("wait_s", [5.0, 1.0, None])
async def test_a_limit_is_shared_fairly_by_those_who_wait(
    world: World, wait_s: float | None
) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, per_second(60, wait_s=wait_s))
    for number in range(300):
        world.turn(number, (backend, provider))
    await world.pass_time(50)

    assert len(world.answered) == 300
    tenths = Counter(int(at * 10) for at in provider.calls if at > 0.05)
    assert max(tenths.values()) <= 8
    if wait_s == 5:
        assert all(at >= 5 for at in provider.calls[300:])
        assert max(at for _, _, at in world.ended) < 12
        assert world.answered == sorted(world.answered)


async def test_a_line_that_is_too_fast_for_the_server_becomes_slower(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, per_second(10, wait_s=2))
    for number in range(200):
        world.turn(number, (backend, provider))
    await world.pass_time(59)

    assert len(world.answered) == 200
    # In the first rush 190 calls are refused, and almost none after it.
    assert len(provider.calls) - 200 - 190 < 8
    assert max(at for _, _, at in world.ended) < 35


@pytest.mark.parametrize("every", [10, 30])
async def test_a_server_that_refuses_a_call_now_and_then_is_not_throttled(
    world: World, every: int
) -> None:
    # It takes any number of calls, and still refuses some: that says nothing about a rate.
    backend, calls = backend_of("main"), count(1)
    provider = Provider(
        world.clock, lambda _: DONE if next(calls) % every else limited(1), takes_s=0.2
    )
    began = {}
    for number in range(600):
        began[number] = world.now()
        world.turn(number, (backend, provider))
        await world.pass_time(0.06, step_s=0.02)  # seventeen turns a second
    await world.pass_time(10)

    assert sorted(world.answered) == list(range(600))
    took = sorted(at - began[number] for number, _, at in world.ended)
    assert took[300] < 2
    assert took[-1] < 10


async def test_where_many_calls_are_refused_one_that_gets_through_ends_no_wait(
    world: World,
) -> None:
    # Of the calls that are under way together every second is refused, so there is a limit.
    backend, calls = backend_of("main"), count(1)
    reply = lambda now: limited(5) if now < 1 and next(calls) % 2 else DONE  # noqa: E731
    provider = Provider(world.clock, reply, takes_s=0.5)
    for number in range(60):
        world.turn(number, (backend, provider))
        await world.pass_time(0.01)
    await world.pass_time(20)

    assert len(world.answered) == 60
    assert all(at >= 5 for at in provider.calls[60:])


async def test_fresh_turns_go_to_the_end_of_the_line(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, per_second(10, wait_s=5))
    for number in range(60):
        world.turn(number, (backend, provider))
    await world.pass_time(4)
    for number in range(60, 80):
        world.turn(number, (backend, provider))
    await world.pass_time(30)

    assert sorted(world.answered) == list(range(80))
    assert min(world.answered.index(number) for number in range(60, 80)) >= 55


async def test_agents_of_one_account_share_its_limit(world: World) -> None:
    main, small = backend_of("main", account="a"), backend_of("small", account="a")
    other = backend_of("other", account="b")
    provider = Provider(world.clock, lambda now: limited(5) if now < 1 else DONE)
    world.turn(1, (main, provider))
    await world.settle()
    world.turn(2, (small, provider))
    world.turn(3, (other, Provider(world.clock)))
    await world.settle()

    assert len(provider.calls) == 1
    assert world.answered == [3]
    await world.pass_time(12)
    assert world.answered == [3, 1, 2]


async def test_a_wait_that_is_longer_than_the_patience_is_left_to_the_person(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda _: limited(3600))
    for number in range(2):
        world.turn(number, (backend, provider))
        await world.settle()

    assert [outcome for _, outcome, _ in world.ended] == ["failed", "failed"]
    assert world.now() == 0


async def test_a_wait_ends_early_when_somebody_gets_through(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda now: limited(50) if now < 10 else DONE)
    world.turn(1, (backend, provider))
    await world.pass_time(20)
    hasty = backend_of("main", patience_s=1)
    world.turn(2, (hasty, provider))
    await world.pass_time(0.1)

    assert world.answered == [2, 1]


async def test_a_limit_is_over_when_nobody_waits_and_a_call_gets_through(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda now: limited(30) if now < 1 else DONE)
    world.turn(1, (backend, provider))
    await world.pass_time(31)
    assert world.answered == [1]

    for number in range(2, 6):
        world.turn(number, (backend, provider))
    await world.settle()
    assert world.answered == [1, 2, 3, 4, 5]


async def test_one_who_leaves_the_line_makes_room(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda now: AWAY if now < 3 else DONE)
    tasks = [world.turn(number, (backend, provider)) for number in range(4)]
    await world.pass_time(1)
    for task in tasks[:3]:
        task.cancel()
    await world.pass_time(10)

    assert world.answered == [3]


async def test_what_it_took_is_told_in_the_order_of_asking(world: World) -> None:
    main, spare = backend_of("main"), backend_of("spare")
    quest = world.reaching.quest([main, spare], _silent, world.anybody())
    assert await quest.next() is main
    quest.ended(main, AWAY)
    assert await quest.next() is spare
    quest.hears(spare, AgentText("hello"))

    reach = reach_after(AT_ONCE, quest, DONE)
    assert [(each.agent, each.reason) for each in reach.missed] == [("main", AWAY.reason)]
    assert reach.waited_s == 0


BROKEN = Stopped(
    reason=StopReason.PROVIDER_ERROR, detail="it failed (500)", may_retry=True, status=500
)


async def test_a_request_that_breaks_its_server_keeps_nobody_else_waiting(world: World) -> None:
    backend = backend_of("main")
    broken, healthy = Provider(world.clock, lambda _: BROKEN), Provider(world.clock)
    world.turn(0, (backend, broken))
    for number in range(1, 200):
        await world.pass_time(0.1)
        world.turn(number, (backend, healthy))
    await world.settle()

    assert world.answered == list(range(1, 200))
    assert all(at - number * 0.1 < 0.01 for number, _, at in world.ended)
    assert 5 <= len(broken.calls) < 10


async def test_a_server_that_fails_for_all_is_not_asked_by_all(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda now: BROKEN if now < 20 else DONE)
    for number in range(100):
        world.turn(number, (backend, provider))
        await world.pass_time(0.1, 0.05)
    await world.pass_time(25, 0.05)

    assert len(world.answered) == 100
    assert sum(at < 20 for at in provider.calls) < 20


NO_DESCRIPTOR = Stopped(
    reason=StopReason.OUT_OF_DESCRIPTORS, detail="out of file descriptors", may_retry=True
)


@pytest.mark.parametrize("patience_s", [0, 60])
async def test_a_call_that_we_cannot_make_waits_until_we_can(
    world: World, patience_s: float
) -> None:
    backend = backend_of("main", patience_s=patience_s)
    provider = Provider(world.clock, lambda now: NO_DESCRIPTOR if now < 300 else DONE)
    for number in range(5):
        world.turn(number, (backend, provider))
    await world.pass_time(299, step_s=0.1)
    assert world.ended == []
    assert len(provider.calls) < 5 * 100

    await world.pass_time(10, step_s=0.1)

    assert sorted(world.answered) == list(range(5))


async def test_a_call_that_we_could_not_make_says_nothing_about_the_agent(world: World) -> None:
    backend = backend_of("main")
    provider = Provider(world.clock, lambda now: NO_DESCRIPTOR if now < 1 else AWAY)
    world.turn(1, (backend, provider))
    await world.pass_time(0.1)

    assert not world.reaching.rest(backend).is_resting
    await world.pass_time(100, step_s=0.1)
    assert [outcome for _, outcome, _ in world.ended] == ["failed"]
    # The time without a descriptor did not count against the agent's patience.
    assert world.ended[0][2] > 60


async def test_the_wait_for_a_place_does_not_use_up_the_patience(world: World) -> None:
    backend = backend_of("main", patience_s=10)
    world.most["main"] = 1
    provider = Provider(world.clock, lambda now: AWAY if now < 32 else DONE, takes_s=6)
    for number in range(5):
        world.turn(number, (backend, Provider(world.clock, takes_s=6)))
    world.turn(5, (backend, provider))
    await world.pass_time(60, 0.05)

    assert provider.calls[0] >= 30
    assert world.answered == [0, 1, 2, 3, 4, 5]


async def test_calls_that_waited_for_a_place_respect_a_limit_that_came_meanwhile(
    world: World,
) -> None:
    backend = backend_of("main")
    world.most["main"] = 2
    provider = Provider(
        world.clock, lambda now: limited(20) if 1 <= now < 20 else DONE, takes_s=0.9
    )
    for number in range(20):
        world.turn(number, (backend, provider))
    await world.pass_time(59, 0.05)

    refused = [at for at in provider.calls if 1 <= at < 20]
    assert len(refused) <= 4, "only calls that were under way were refused"
    assert sorted(world.answered) == list(range(20))


async def test_where_another_agent_stands_in_nobody_waits_for_a_place_at_one_that_is_away(
    world: World,
) -> None:
    main, spare = backend_of("main"), backend_of("spare")
    world.most["main"] = 1
    primary = Provider(world.clock, lambda _: AWAY, takes_s=2)
    for number in range(10):
        world.turn(number, (main, primary), (spare, Provider(world.clock)))
    await world.pass_time(4)

    assert len(world.answered) == 10
    assert len(primary.calls) == 1
