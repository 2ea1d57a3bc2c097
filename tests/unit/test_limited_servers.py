"""Plays turns against servers that refuse calls, in virtual time, and measures how long turns wait.

Some servers refuse single calls at random: that may cost the refused call its wait, and the others
nothing. Others have a limit: it is used well, shared by all, and hardly ever overrun.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import pytest

from perdure.domain.ids import PrincipalId
from perdure.domain.outcomes import StopReason
from perdure.domain.turn.stream import Stopped
from perdure.engine.models.places import AgentPlaces
from perdure.engine.models.reaching import Reaching
from perdure.engine.models.roster import Backend
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.system import VirtualClock

DONE = Stopped(reason=StopReason.STOP)
AWAY = Stopped(reason=StopReason.PROVIDER_UNREACHABLE, detail="nothing answers", may_retry=True)
BROKEN = Stopped(
    reason=StopReason.PROVIDER_ERROR, detail="it failed (500)", may_retry=True, status=500
)
REFUSAL_S = 0.04
PATIENCE_S = 60

Reply = Callable[[float], Stopped]


def limited(wait_s: float | None) -> Stopped:
    return Stopped(
        reason=StopReason.PROVIDER_ERROR,
        detail="too many",
        may_retry=True,
        status=429,
        retry_after_s=wait_s,
    )


def at_random(share: float) -> Reply:
    dice = random.Random(1)
    return lambda _: limited(1) if dice.random() < share else DONE


def in_each_second(most: int, wait_s: float | None) -> Reply:
    taken: Counter[int] = Counter()

    def reply(now: float) -> Stopped:
        taken[int(now)] += 1
        return DONE if taken[int(now)] <= most else limited(wait_s)

    return reply


def a_bucket(most: int, wait_s: float | None) -> Reply:
    """Take this many calls in a second on average, and as many at once."""
    left, seen_at = float(most), 0.0

    def reply(now: float) -> Stopped:
        nonlocal left, seen_at
        left, seen_at = min(most, left + (now - seen_at) * most), now
        if left < 1:
            return limited(wait_s)
        left -= 1
        return DONE

    return reply


def closed_after(most: int, closed_s: float) -> Reply:
    """Take this many calls, refuse all for some time, and begin again."""
    taken, closed_until = 0, -1.0

    def reply(now: float) -> Stopped:
        nonlocal taken, closed_until
        if now < closed_until:
            return limited(max(closed_until - now, 1))
        taken += 1
        if taken <= most:
            return DONE
        taken, closed_until = 0, now + closed_s
        return limited(closed_s)

    return reply


class Seen(msgspec.Struct, frozen=True):
    """Holds what a play has shown: the calls and whether they were taken, and how long each turn
    waited apart from its answer."""

    calls: list[tuple[float, bool]]
    waits_s: list[float]

    def waited_s(self, share: float) -> float:
        return sorted(self.waits_s)[min(int(share * len(self.waits_s)), len(self.waits_s) - 1)]

    @property
    def refused(self) -> list[float]:
        return [at for at, is_taken in self.calls if not is_taken]

    @property
    def taken(self) -> list[float]:
        return [at for at, is_taken in self.calls if is_taken]


def arrivals(rate: float, seconds: float) -> list[float]:
    """Return when turns arrive by chance, so many in a second on average."""
    dice, at, found = random.Random(5), 0.0, list[float]()
    while (at := at + dice.expovariate(rate)) < seconds:
        found.append(at)
    return found


async def play(reply: Reply, begin: Sequence[float], answer_s: float) -> Seen:
    """Let turns begin at these instants, until all are answered. The first word of an answer comes
    after `answer_s`."""
    clock = VirtualClock()
    reaching = Reaching(clock, AgentPlaces(lambda _: None))
    backend = Backend(
        name="main",
        kind="s",
        agent=ScriptedAgent(),
        tools=CountingTools([]),
        patience_s=PATIENCE_S,
    )
    seen = Seen([], [])

    async def tell(_: Stopped) -> None:
        return

    async def turn(at: float) -> None:
        await clock.sleep(at)
        quest = reaching.quest([backend], tell, reaching.places.visitor(PrincipalId("prn_1")))
        while await quest.next() is not None:
            stopped = reply(clock.monotonic_s())
            is_taken = stopped.reason.is_finish
            seen.calls.append((clock.monotonic_s(), is_taken))
            await clock.sleep(answer_s if is_taken else REFUSAL_S)
            quest.hears(backend, stopped)
            if is_taken:
                seen.waits_s.append(clock.monotonic_s() - at - answer_s)
                break
            quest.ended(backend, stopped)
        quest.over()

    turns = [asyncio.ensure_future(turn(at)) for at in begin]
    while not all(each.done() for each in turns):
        for _ in range(12):
            await asyncio.sleep(0)
        if clock.next_wake_s is not None:
            clock.advance(max(clock.next_wake_s - clock.monotonic_s(), 0.0))
    await asyncio.gather(*turns)
    assert len(seen.waits_s) == len(begin), "not all turns were answered"
    return seen


@pytest.mark.parametrize("answer_s", [0.04, 1, 10])
@pytest.mark.parametrize("rate", [2, 15, 60])
@pytest.mark.parametrize(("share", "late"), [(0.01, 0.98), (0.03, 0.9), (0.1, 0.75)])
async def test_random_refusals_cost_nobody_but_the_refused(
    share: float, late: float, rate: float, answer_s: float
) -> None:
    seen = await play(at_random(share), arrivals(rate, 40), answer_s)

    assert seen.waited_s(0.5) < 0.05
    assert seen.waited_s(late) < 0.5
    assert seen.waited_s(1) < 10


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1])
async def test_a_crowd_at_a_server_that_refuses_at_random_is_answered_at_once(share: float) -> None:
    seen = await play(at_random(share), [0.0] * 200 + arrivals(5, 20), 0.5)

    assert seen.waited_s(0.85) < 0.6
    assert seen.waited_s(1) < 4


LIMITS = [in_each_second, a_bucket]


@pytest.mark.parametrize("wait_s", [1, None], ids=["named", "unnamed"])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("most", "refused"), [(5, 0.25), (60, 0.08)])
async def test_a_limit_is_used_well_and_hardly_overrun(
    most: int, refused: float, limit: Callable[[int, float | None], Reply], wait_s: float | None
) -> None:
    # A third more turns come than the server takes, for 40 seconds.
    begin = arrivals(most * 4 / 3, 40)
    seen = await play(limit(most, wait_s), begin, 0.04)

    assert len(seen.taken) / seen.taken[-1] > 0.8 * most
    assert len(seen.refused) < refused * len(seen.calls)
    ideal_s = len(begin) / most - 40
    assert seen.waited_s(1) < 2 * ideal_s + 5


@pytest.mark.parametrize("wait_s", [1, None], ids=["named", "unnamed"])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("most", [5, 60])
async def test_below_a_limit_hardly_anybody_waits(
    most: int, limit: Callable[[int, float | None], Reply], wait_s: float | None
) -> None:
    seen = await play(limit(most, wait_s), arrivals(most * 0.8, 40), 0.04)

    assert seen.waited_s(0.5) < 1
    assert seen.waited_s(0.95) < 3


@pytest.mark.parametrize("answer_s", [0.04, 10])
@pytest.mark.parametrize("wait_s", [1, None], ids=["named", "unnamed"])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("most", [5, 60])
async def test_a_crowd_is_let_through_at_the_rate_that_the_server_takes(
    most: int,
    limit: Callable[[int, float | None], Reply],
    wait_s: float | None,
    answer_s: float,
) -> None:
    seen = await play(limit(most, wait_s), [0.0] * (5 * most), answer_s)

    # The first rush tells how many the server takes. It then takes a second's worth in a second.
    assert len([at for at in seen.refused if at > 0]) <= 2
    assert sum(wait < 5.5 for wait in seen.waits_s) >= 0.99 * len(seen.waits_s)


@pytest.mark.parametrize("rate", [2, 5, 15])
async def test_no_call_is_made_while_a_closed_server_has_named_a_wait(rate: float) -> None:
    seen = await play(closed_after(round(50 * rate), 20), arrivals(rate, 120), 0.5)

    begun = [at for before, at in pairwise([-20.0, *seen.refused]) if at - before > 5]
    during = [at for at in seen.refused if all(at - since > 2 for since in begun)]
    assert begun
    assert during == []
    assert len(seen.refused) <= 7 * len(begun)
    assert seen.waited_s(0.5) < 12
    assert seen.waited_s(1) < 45


@pytest.mark.parametrize(("rate", "answer_s"), [(15, 0.04), (5, 10)])
async def test_a_server_that_is_back_after_twenty_seconds_answers_all_soon(
    rate: float, answer_s: float
) -> None:
    seen = await play(lambda now: AWAY if 5 <= now < 25 else DONE, arrivals(rate, 40), answer_s)

    assert seen.waited_s(1) < 30
    assert len(seen.refused) < 15 + rate * answer_s


@pytest.mark.parametrize(("answer_s", "half_s"), [(0.04, 4), (0.3, 5), (2, 8)])
async def test_absences_of_a_server_that_also_fails_at_random_are_soon_made_up_for(
    answer_s: float, half_s: float
) -> None:
    # It is away for ten seconds in twenty, and of the other calls more than one in ten fails.
    dice = random.Random(1)

    def reply(now: float) -> Stopped:
        if any(since <= now < until for since, until in ((10, 14), (20, 22), (26, 30))):
            return AWAY
        roll = dice.random()
        return limited(1) if roll < 0.03 else BROKEN if roll < 0.11 else DONE

    seen = await play(reply, arrivals(20, 45), answer_s)

    assert seen.waited_s(0.5) < half_s
    assert seen.waited_s(1) < 35
    assert seen.taken[-1] < 50
