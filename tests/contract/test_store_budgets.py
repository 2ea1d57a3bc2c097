"""Checks the `BudgetBook` port: room is reserved before it is spent, and every end of a turn gives
it back."""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from itertools import cycle

import msgspec
import pytest

from perdure.domain.address import Address
from perdure.domain.errors import Fenced
from perdure.domain.ids import QuestionId
from perdure.domain.journal.events import (
    AttemptInterrupted,
    TurnSettled,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.question_events import AnswerAwaited
from perdure.domain.outcomes import Interruption, Outcome
from perdure.domain.people.budgets import (
    Amount,
    Budget,
    BudgetRefusal,
    BudgetScope,
    BudgetUnit,
    DailyBudgets,
    day_of,
)
from perdure.domain.renewals import DAY_MS
from perdure.domain.turn.spent import Spent
from perdure.ports.turns.budgets import Reservation
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, Person, admitted, claim_one, message, only
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
HUNDRED = DailyBudgets(person=Budget(tokens=100))


async def begin(store: Store, person: Person, place: str = "home") -> Claimed:
    """Begin a turn of this person, in a conversation that has no other turn under way."""
    update = message(person.id, place=place, external_id=f"{place}-{store.node}")
    accepted = await store.inbox.accept(update, queue_max=9)
    (claimed,) = [c for c in await store.turns.claim(limit=1) if c.lease.turn == accepted.turn]
    return claimed


def room(claimed: Claimed, tokens: int, *, money: int | None = None) -> Reservation:
    return Reservation(
        lease=claimed.lease,
        principal=claimed.principal,
        conversation=claimed.conversation,
        agent="main",
        amount=Amount(tokens=tokens, money=money),
    )


async def has_room(store: Store, claimed: Claimed, tokens: int) -> bool:
    return await store.budgets.reserve(room(claimed, tokens), limits=HUNDRED) is None


async def end(store: Store, claimed: Claimed, tokens: int = 0, *, cost: int = 0) -> None:
    settlement = Settlement(
        outcome=Outcome.DONE,
        reason="stop",
        agent="main",
        usage=Usage(input_tokens=tokens, model_calls=1) if tokens else Usage(),
        cost=cost,
        is_reserved=True,
    )
    await store.turns.settle(claimed.lease, settlement)


async def test_of_a_hundred_at_once_ten_get_the_room_for_ten(
    peers: list[Store], ada: Person
) -> None:
    claimed = [await begin(peers[0], ada, f"room-{n}") for n in range(100)]

    answers = await asyncio.gather(
        *(
            store.budgets.reserve(room(each, 10), limits=HUNDRED)
            for each, store in zip(claimed, cycle(peers), strict=False)
        )
    )

    refused = [answer for answer in answers if answer is not None]
    assert len(refused) == 90
    assert all(r.reserved == 100 and r.spent == 0 and r.asked == 10 for r in refused)


async def test_while_turns_settle_no_room_is_seen_twice(peers: list[Store], ada: Person) -> None:
    # An amount that moves from reserved to spent must be counted in one of the two at every
    # instant.
    claimed = [await begin(peers[0], ada, f"room-{n}") for n in range(60)]

    async def work(each: Claimed, store: Store) -> bool:
        if not await has_room(store, each, 10):
            return False
        await end(store, each, 10)
        return True

    worked = await asyncio.gather(
        *(work(each, store) for each, store in zip(claimed, cycle(peers), strict=False))
    )

    assert sum(worked) == 10


@pytest.mark.parametrize("scope", list(BudgetScope))
async def test_each_scope_has_a_budget_of_its_own(
    store: Store, ada: Person, bob: Person, scope: BudgetScope
) -> None:
    limits = msgspec.structs.replace(DailyBudgets(), **{scope: Budget(tokens=100)})
    mine, other = await begin(store, ada), await begin(store, ada, "other")
    theirs = await begin(store, bob)
    wanted = {
        "the same": room(mine, 60),
        "conversation": room(other, 60),
        "person": room(theirs, 60),
        "agent": msgspec.structs.replace(room(theirs, 60), agent="other"),
    }

    refused = {
        name: await store.budgets.reserve(each, limits=limits) is not None
        for name, each in wanted.items()
    }

    assert refused == {
        "the same": False,
        "conversation": scope in (BudgetScope.PERSON, BudgetScope.AGENT),
        "person": scope is BudgetScope.AGENT,
        "agent": False,
    }


async def test_the_refusal_names_the_limit_that_is_in_the_way(store: Store, ada: Person) -> None:
    limits = DailyBudgets(person=Budget(tokens=100), conversation=Budget(money=50))
    claimed = await begin(store, ada)

    refused = await store.budgets.reserve(room(claimed, 10, money=60), limits=limits)

    assert refused == BudgetRefusal(
        scope=BudgetScope.CONVERSATION,
        unit=BudgetUnit.MONEY,
        limit=50,
        spent=0,
        reserved=0,
        asked=60,
    )
    assert await store.budgets.reserve(room(claimed, 10, money=50), limits=limits) is None


async def test_the_next_call_of_a_turn_raises_its_reservation(store: Store, ada: Person) -> None:
    first, second = await begin(store, ada), await begin(store, ada, "other")

    assert await has_room(store, first, 40)
    assert await has_room(store, first, 70)
    assert not await has_room(store, second, 40)
    assert await has_room(store, second, 30)
    assert not await has_room(store, first, 80)
    assert not await has_room(store, second, 31), "what was refused changed nothing"


async def test_a_settled_turn_is_charged_what_it_cost(store: Store, ada: Person) -> None:
    first, second = await begin(store, ada), await begin(store, ada, "other")
    assert await has_room(store, first, 90)

    await end(store, first, 20)

    assert not await has_room(store, second, 81)
    assert await has_room(store, second, 80)


async def test_a_day_ends_what_was_spent_and_not_what_is_reserved(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    first = await begin(store, ada)
    assert await has_room(store, first, 90)
    await end(store, first, 90)
    night = await begin(store, ada, "night")
    assert not await has_room(store, night, 20)

    clock.advance(DAY_MS / 1000)

    assert await has_room(store, night, 60)
    clock.advance(DAY_MS / 1000)
    morning = await begin(store, ada, "morning")
    assert not await has_room(store, morning, 50), "it settles today, and is charged today"
    await end(store, night, 30)
    assert not await has_room(store, morning, 71)
    assert await has_room(store, morning, 70)


async def test_a_crash_gives_the_room_back(store: Store, ada: Person, restart: OpenStore) -> None:
    lost = await begin(store, ada)
    assert await has_room(store, lost, 100)

    store = await restart()
    await store.nodes.reap(attempts_max=3, limit=10)

    await store.nodes.resume(GO_ON, limit=10)
    again = await claim_one(store)
    assert again.lease.turn == lost.lease.turn
    assert await has_room(store, again, 90)
    assert not await has_room(store, await begin(store, ada, "other"), 11)


async def test_a_drain_gives_the_room_back(store: Store, ada: Person) -> None:
    first, second = await begin(store, ada), await begin(store, ada, "other")
    assert await has_room(store, first, 100)

    await store.turns.interrupt(first.lease, Interruption.SHUTDOWN, attempts_max=3)

    assert await has_room(store, second, 100)


async def test_an_interrupted_attempt_is_charged_what_is_known_of_it(
    store: Store, ada: Person
) -> None:
    first = await begin(store, ada)
    assert await has_room(store, first, 70)
    spent = Spent(
        agent="main", usage=Usage(input_tokens=15, output_tokens=5, model_calls=1), cost=3
    )

    await store.turns.interrupt(first.lease, Interruption.SHUTDOWN, attempts_max=3, spent=spent)

    told = (await ada.says("/usage")).reply.splitlines()
    assert told[-1] == "You in all: 0 turns, 15 tokens in (0% cached), 5 out, cost 0.000003"
    second = await begin(store, ada, "other")
    assert not await has_room(store, second, 81)
    assert await has_room(store, second, 80)
    await end(store, second)
    await store.nodes.resume(GO_ON, limit=10)
    again = await claim_one(store)
    await end(store, again, 10, cost=2)
    told = (await ada.says("/usage")).reply.splitlines()
    assert told[-1] == "You in all: 1 turn, 25 tokens in (0% cached), 5 out, cost 0.000005"
    record = await store.diagnostics.record(again.lease.session)
    (interrupted,) = only(AttemptInterrupted, record.events)
    assert (interrupted.usage, interrupted.cost) == (spent.usage, spent.cost)
    (settled,) = only(TurnSettled, record.events)
    assert settled.usage == Usage(input_tokens=25, output_tokens=5, model_calls=2)
    assert settled.cost == 5


async def test_a_turn_that_asks_nothing_more_is_counted_for_its_earlier_attempts(
    store: Store, ada: Person
) -> None:
    first = await begin(store, ada)
    spent = Spent(agent="main", usage=Usage(input_tokens=15, model_calls=1))
    await store.turns.interrupt(first.lease, Interruption.RESTART, attempts_max=3, spent=spent)
    await store.nodes.resume(GO_ON, limit=10)

    await end(store, await claim_one(store))

    told = (await ada.says("/usage")).reply.splitlines()
    assert told[-1] == "You in all: 1 turn, 15 tokens in (0% cached), 0 out, price unknown"


async def test_stopping_a_turn_does_not_make_it_free(store: Store, ada: Person) -> None:
    first, second = await begin(store, ada), await begin(store, ada, "other")
    assert await has_room(store, first, 70)

    await store.inbox.stop(first.lease.turn, by=ada.id)

    assert not await has_room(store, second, 31)
    assert await has_room(store, second, 30)
    limits = DailyBudgets(person=Budget(tokens=100))
    refused = await store.budgets.reserve(room(second, 31), limits=limits)
    assert refused is not None
    assert (refused.spent, refused.reserved) == (70, 0), "charged once, and held no longer"


async def test_a_turn_that_was_taken_away_reserves_nothing(store: Store, ada: Person) -> None:
    first, second = await begin(store, ada), await begin(store, ada, "other")
    await store.inbox.stop(first.lease.turn, by=ada.id)

    with pytest.raises(Fenced):
        await has_room(store, first, 100)

    assert await has_room(store, second, 100)


async def test_usage_tells_what_was_spent_where(store: Store, ada: Person) -> None:
    usage = Usage(input_tokens=1000, output_tokens=50, cache_read_tokens=400, model_calls=1)
    for place, agent, cost in (("home", "main", 2500), ("other", "local", 0)):
        claimed = await begin(store, ada, place)
        settlement = Settlement(
            outcome=Outcome.DONE, reason="stop", agent=agent, usage=usage, cost=cost
        )
        await store.turns.settle(claimed.lease, settlement)

    accepted = await ada.says("/usage")

    assert accepted.reply.splitlines() == [
        "This conversation today: 1 turn, 1,000 tokens in (40% cached), 50 out, cost 0.0025",
        "This conversation in all: 1 turn, 1,000 tokens in (40% cached), 50 out, cost 0.0025",
        (
            "You today: 2 turns, 2,000 tokens in (40% cached), 100 out, cost 0.0025"
            " (price of 1,050 tokens unknown)"
        ),
        (
            "You in all: 2 turns, 2,000 tokens in (40% cached), 100 out, cost 0.0025"
            " (price of 1,050 tokens unknown)"
        ),
    ]


async def test_usage_of_a_day_is_not_that_of_all_days(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await end(store, await begin(store, ada), 30)
    clock.advance(DAY_MS / 1000)

    reply = (await ada.says("/usage")).reply.splitlines()

    assert reply == [
        "This conversation today: nothing",
        "This conversation in all: 1 turn, 30 tokens in (0% cached), 0 out, price unknown",
        "You today: nothing",
        "You in all: 1 turn, 30 tokens in (0% cached), 0 out, price unknown",
    ]


def _tokens(reply: str, line: str) -> int:
    """Return the tokens that a line of `/usage` names."""
    (told,) = [each for each in reply.splitlines() if each.startswith(f"{line}: ")]
    found = re.search(r"([\d,]+) tokens in", told)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.parametrize("seed", range(3))
async def test_a_conversation_never_shows_more_than_its_person_whatever_the_clock_does(
    store: Store, ada: Person, clock: VirtualClock, seed: int
) -> None:
    dice = random.Random(seed)
    spent: dict[int, dict[str, int]] = {}
    for nth in range(40):
        clock.jump(dice.choice((-3, -1, -0.5, 0, 0, 0.5, 1, 2)) * DAY_MS / 1000)
        place, tokens = dice.choice(("home", "other")), dice.randint(1, 50)
        update = message(ada.id, place=place, external_id=f"{seed}-{nth}")
        await store.inbox.accept(update, queue_max=9)
        await end(store, await claim_one(store), tokens)
        today = spent.setdefault(day_of(clock.now_ms()), {"home": 0, "other": 0})
        today[place] += tokens

        reply = (await ada.says("/usage")).reply

        assert _tokens(reply, "This conversation today") == today["home"]
        assert _tokens(reply, "You today") == sum(today.values())
        in_all = _tokens(reply, "This conversation in all")
        assert in_all == sum(each["home"] for each in spent.values())
        assert _tokens(reply, "You in all") == sum(sum(each.values()) for each in spent.values())


async def test_usage_says_so_where_several_people_spent(store: Store, ada: Person) -> None:
    group = Address(adapter="scripted", account="bot", place="group")
    grace = await admitted(store, "grace")
    reply = ""
    for nth, (person, text, tokens) in enumerate(
        ((ada.id, "hello", 30), (grace, "hello", 20), (ada.id, "/usage", 0))
    ):
        update = message(person, text, external_id=f"u{nth}")
        accepted = await store.inbox.accept(
            msgspec.structs.replace(update, address=group), queue_max=9
        )
        reply = accepted.reply
        if accepted.turn:
            await end(store, await claim_one(store), tokens)

    assert _tokens(reply, "This conversation today, 2 people") == 50
    assert _tokens(reply, "You today") == 30


@pytest.mark.parametrize("scope", list(BudgetScope))
async def test_what_was_read_and_written_is_gone_from_each_budget(
    store: Store, ada: Person, scope: BudgetScope
) -> None:
    limits = msgspec.structs.replace(DailyBudgets(), **{scope: Budget(tokens=100)})
    for _ in range(2):
        settlement = Settlement(
            outcome=Outcome.DONE,
            reason="stop",
            agent="main",
            usage=Usage(input_tokens=20, output_tokens=10, model_calls=1),
        )
        await ada.says("hello")
        await store.turns.settle((await claim_one(store)).lease, settlement)
    await ada.says("hello")
    claimed = await claim_one(store)

    refused = await store.budgets.reserve(room(claimed, 41), limits=limits)

    assert refused is not None
    assert (refused.scope, refused.spent) == (scope, 60)
    assert await store.budgets.reserve(room(claimed, 40), limits=limits) is None


async def test_the_costs_of_a_day_add_up(store: Store, ada: Person) -> None:
    limits = DailyBudgets(person=Budget(money=100))
    for _ in range(2):
        await end(store, await begin_again(store, ada), 1, cost=40)

    refused = await store.budgets.reserve(
        room(await begin_again(store, ada), 1, money=21), limits=limits
    )

    assert refused is not None
    assert refused.spent == 80


async def begin_again(store: Store, person: Person) -> Claimed:
    """Begin the next turn in this person's home."""
    await person.says("hello")
    return await claim_one(store)


async def test_a_turn_that_waits_for_an_answer_reserves_nothing(store: Store, ada: Person) -> None:
    # Nobody knows how long it waits, and its next call reserves again.
    waiting = await begin(store, ada)
    assert await has_room(store, waiting, 100)
    asked = AnswerAwaited(
        turn=waiting.lease.turn, attempt=1, question=QuestionId("qst_1"), text="Pay?", call=None
    )

    await store.turns.wait(waiting.lease, [asked])

    assert await has_room(store, await begin(store, ada, "other"), 100)
