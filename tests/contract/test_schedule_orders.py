"""Checks how people and agents order jobs, and that the pump starts their runs within bounds."""

import json
from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.errors import Rejected
from perdure.domain.ids import CallId, ConversationId
from perdure.domain.journal.events import ToolCall, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Repeat
from perdure.domain.people.menu import Menu
from perdure.domain.schedule.jobs import (
    JobKind,
    JobState,
    JobView,
    NewJob,
    ScheduleTerms,
)
from perdure.domain.schedule.recurrence import Cron, Every
from perdure.engine.foundation.wakes import Bus
from perdure.engine.schedule.pump import SchedulePump
from perdure.engine.watching.feed import Feed
from perdure.ports.records.history import Page
from perdure.ports.schedule.schedule import JobOwner
from perdure.ports.turns.tools import ToolCaller
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, settle
from perdure.testkit.simulator.system import VirtualClock
from perdure.tools.builtin.schedule import ScheduleTool

pytestmark = pytest.mark.usefixtures("everything_ends_sound")
TERMS = ScheduleTerms(agents=frozenset({"main"}), zone="Europe/Berlin")
MENU = Menu(schedule=TERMS)
EVERYTHING = Page(limit=100)
Jobs = Callable[[], Awaitable[list[JobView]]]


@pytest.fixture
def chat(store: Store, ada: Person) -> Person:
    return Person(store, ada.id, menu=MENU)


@pytest.fixture
def jobs(store: Store, ada: Person) -> Jobs:
    async def listed() -> list[JobView]:
        return await store.schedule.page(EVERYTHING, principal=ada.id)

    return listed


async def test_a_reminder_is_ordered_in_words_and_taken_back(
    chat: Person, jobs: Jobs, clock: VirtualClock
) -> None:
    said = await chat.says("/remind me every monday at 9 to water the plants")
    (job,) = await jobs()
    assert job.kind is JobKind.REMINDER
    assert job.prompt == "water the plants"
    assert (job.rule, job.timezone) == (Cron("0 9 * * 1"), "Europe/Berlin")
    assert "I will remind you Mon" in said.reply

    clock.advance(1)
    await chat.says("/timezone America/New_York")
    await chat.says("/jobs add every 15 minutes look at the mail")
    other = (await jobs())[1]
    assert (other.kind, other.rule, other.timezone) == (
        JobKind.PROMPT,
        Every(900),
        "America/New_York",
    )
    assert "look at the mail" in (await chat.says("/jobs")).reply
    assert (await chat.says(f"/jobs pause {other.id[-6:]}")).reply.startswith("Paused")
    assert (await jobs())[1].state is JobState.PAUSED
    assert "goes on" in (await chat.says("/jobs resume look at the mail")).reply
    assert (await chat.says(f"/jobs remove {job.id[-6:]}")).reply.startswith("Removed")
    assert [each.id for each in await jobs()] == [other.id]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/remind me to dance", "I find no time in that"),
        ("/remind me tomorrow at 9", "What is to be done then?"),
        ("/remind me on 1 january 2001 to party", "in the past"),
        ("/jobs fly away", "/jobs [add TIME"),
        ("/jobs pause nothing", "You have no job 'nothing'"),
        ("/timezone Mars/Base", "There is no time zone"),
    ],
)
async def test_a_wrong_order_says_what_is_right(
    chat: Person, jobs: Jobs, text: str, told: str
) -> None:
    assert told in (await chat.says(text)).reply
    assert await jobs() == []


async def test_a_job_that_runs_now_answers_here(chat: Person, store: Store) -> None:
    await chat.says("/jobs add every day at 9 report")
    await chat.says("/jobs run report")
    claimed = await claim_one(store)
    queued = claimed.events[0].event
    assert isinstance(queued, TurnQueued)
    assert queued.kind is TurnKind.SCHEDULED
    await settle(store, claimed, "All is well.")
    said = await claim_one(store)
    assert "All is well." in str(said.events[0].event)
    await settle(store, said, "All is well.")


class Agent:
    """Calls the tool `schedule` for a person."""

    def __init__(self, store: Store, clock: VirtualClock, caller: ToolCaller) -> None:
        self._tool = ScheduleTool(store.schedule, terms=lambda: TERMS, now_ms=clock.now_ms)
        self._caller = caller

    async def calls(self, number: int = 1, **arguments: str) -> str:
        call = ToolCall(
            id=CallId(f"call_{number}"),
            name="schedule",
            arguments=json.dumps(arguments),
            repeat=Repeat.REPEATABLE,
        )
        return await self._tool.call(call, self._caller)


async def test_an_agent_orders_a_job_once_however_often_it_calls(
    store: Store, clock: VirtualClock, chat: Person, jobs: Jobs
) -> None:
    accepted = await chat.says("remind me")
    caller = ToolCaller(
        principal=chat.id,
        conversation=accepted.conversation,
        session=accepted.session,
        turn=(await claim_one(store)).lease.turn,
    )
    agent = Agent(store, clock, caller)
    for _ in range(2):  # the answer to the first call was lost
        told = await agent.calls(
            action="add", when="tomorrow at 9", text="call mom", kind="reminder"
        )
        assert "It runs" in told
    (job,) = await jobs()
    assert job.conversation == "home"
    assert "call mom" in await agent.calls(action="list")
    assert job.id in await agent.calls(action="pause", job=job.id)
    assert (await jobs())[0].state is JobState.PAUSED
    assert "Removed" in await agent.calls(action="remove", job=job.id)
    assert await jobs() == []
    with pytest.raises(Rejected, match="nearest valid form"):
        await agent.calls(2, action="add", when="someday", text="x")


def pump_of(store: Store, clock: VirtualClock, *, concurrent: int) -> SchedulePump:
    return SchedulePump(
        store.schedule,
        Feed(),
        terms=lambda: TERMS,
        checklist=str,
        heartbeat_s=0,
        concurrent=concurrent,
        clock=clock,
        bus=Bus(),
        poll_s=None,
    )


async def ordered(store: Store, person: Person, count: int) -> ConversationId:
    place = await store.schedule.open_place("home", principal=person.id)
    owner = JobOwner(principal=person.id, conversation=place)
    for number in range(count):
        new = NewJob(prompt=f"job {number}", rule=Every(60))
        await store.schedule.add(new, owner, TERMS)
    return place


async def test_runs_leave_room_for_everybody(
    store: Store, clock: VirtualClock, ada: Person, bob: Person
) -> None:
    pump = pump_of(store, clock, concurrent=8)
    await ordered(store, ada, 10)
    await ordered(store, bob, 1)
    assert not await pump.step()
    clock.advance(61)
    while await pump.step():
        pass

    under_way = await store.schedule.under_way()
    assert under_way == {ada.id: 3, bob.id: 1}, "half of the node, and half of one's own share"
    while claimed := await store.turns.claim(limit=10):
        for each in claimed:
            await settle(store, each, "[SILENT]")
        await pump.step()
    assert await store.schedule.under_way() == {}
    found = await store.schedule.page(EVERYTHING, principal=None)
    assert {each.last_state for each in found} == {"settled"}


async def test_a_heartbeat_is_kept_where_the_operator_is_at_home(
    store: Store, clock: VirtualClock
) -> None:
    eve = await store.principals.ensure("eve", role="operator")
    await store.schedule.keep_heartbeat(1_800)
    assert await store.schedule.page(EVERYTHING, principal=None) == []
    await Person(store, eve.id).says("/home")
    for _ in range(2):
        await store.schedule.keep_heartbeat(1_800)
    (job,) = await store.schedule.page(EVERYTHING, principal=eve.id)
    assert (job.kind, job.rule, job.conversation) == (JobKind.HEARTBEAT, Every(1_800), "home")
    await store.schedule.keep_heartbeat(0)
    assert await store.schedule.page(EVERYTHING, principal=None) == []
    assert clock.now_ms() > 0
