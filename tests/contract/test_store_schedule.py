"""Checks the port of jobs: each occurrence has one row and at most one turn, whatever happens."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.content.silence import NOTHING_TO_SAY
from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.journal.events import NoticePosted, TurnQueued
from perdure.domain.journal.model.usage import Usage
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome
from perdure.domain.people.sharing import EQUAL, FairShares
from perdure.domain.schedule.jobs import (
    JobChange,
    JobKind,
    JobPolicy,
    JobSession,
    JobState,
    JobView,
    MissedPolicy,
    NewJob,
    Overlap,
    RunState,
    RunView,
    ScheduleTerms,
)
from perdure.domain.schedule.policy import OVER_BUDGET
from perdure.domain.schedule.recurrence import Every, Once
from perdure.ports.records.history import Page
from perdure.ports.schedule.schedule import Fired, JobOwner
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, settle
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
pytestmark = pytest.mark.usefixtures("everything_ends_sound")
TERMS = ScheduleTerms(agents=frozenset({"main"}), jobs_max=3)
HOUR = Every(3_600)
PAGE = Page(limit=100)


class Desk:
    """Orders jobs for one person, and lets time pass."""

    def __init__(self, store: Store, clock: VirtualClock, person: PrincipalId) -> None:
        self.store = store
        self.clock = clock
        self.person = person

    async def orders(
        self,
        prompt: str = "look at the mail",
        *,
        rule: Every | Once = HOUR,
        kind: JobKind = JobKind.PROMPT,
        agent: str = "",
        turn: TurnId | None = None,
        policy: JobPolicy | None = None,
    ) -> JobView:
        place = await self.store.schedule.open_place("home", principal=self.person)
        owner = JobOwner(principal=self.person, conversation=place, turn=turn)
        new = NewJob(prompt=prompt, rule=rule, kind=kind, agent=agent, policy=policy or JobPolicy())
        return await self.store.schedule.add(new, owner, TERMS)

    async def passes(self, hours: float = 1) -> None:
        self.clock.advance(hours * 3600)

    async def fires(self, job: JobView, *, terms: ScheduleTerms = TERMS) -> Fired:
        return await self.store.schedule.fire(job.id, terms)

    async def runs(self, job: JobView) -> list[RunView]:
        return await self.store.schedule.runs(job.id, before=None, limit=100, principal=None)

    async def states(self, job: JobView) -> list[str]:
        return [str(each.state) for each in await self.runs(job)][::-1]

    async def view(self, job: JobView) -> JobView:
        return await self.store.schedule.one(job.id, principal=None)

    async def answers(self, text: str = "fine", outcome: Outcome = Outcome.DONE) -> list[object]:
        """Let the run that is ready end, and say what it brings back."""
        claimed = await claim_one(self.store)
        assert claimed.events[0].event.kind is TurnKind.SCHEDULED  # type: ignore[union-attr]
        recorded = await settle(self.store, claimed, text, outcome=outcome)
        return [each.event for each in recorded if each.turn != claimed.lease.turn]

    async def is_said(self) -> str:
        """Let the result be said that is ready, and return it."""
        claimed = await claim_one(self.store)
        queued = claimed.events[0].event
        assert isinstance(queued, TurnQueued)
        assert queued.kind is TurnKind.RESULT
        await settle(self.store, claimed, queued.answer)
        return queued.answer


@pytest.fixture
def desk(store: Store, clock: VirtualClock, ada: Person) -> Desk:
    return Desk(store, clock, ada.id)


async def test_a_due_job_starts_one_turn_and_moves_on(desk: Desk) -> None:
    job = await desk.orders()
    assert await desk.store.schedule.due(limit=9, shares=EQUAL) == []
    assert (await desk.fires(job)).turn is None

    await desk.passes()
    (due,) = await desk.store.schedule.due(limit=9, shares=EQUAL)
    fired = await desk.fires(job)
    again = await desk.fires(job)

    assert due.job == job.id
    assert fired.turn is not None
    assert again.turn is None
    (run,) = await desk.runs(job)
    assert (run.due_at, run.state, run.turn) == (job.next_at, RunState.QUEUED, fired.turn)
    assert (await desk.view(job)).next_at == (job.next_at or 0) + 3_600_000


async def test_the_result_is_brought_whole_into_the_conversation(desk: Desk) -> None:
    job = await desk.orders()
    await desk.passes()
    await desk.fires(job)
    await desk.answers("Two letters, one of them from the bank.")

    assert (await desk.runs(job))[0].delivery == "pending"
    assert await desk.is_said() == "Two letters, one of them from the bank."
    (run,) = await desk.runs(job)
    assert (run.state, run.outcome, run.delivery) == (RunState.SETTLED, Outcome.DONE, "here")


async def test_silence_is_not_said(desk: Desk) -> None:
    job = await desk.orders()
    await desk.passes()
    await desk.fires(job)

    assert await desk.answers(NOTHING_TO_SAY) == []
    assert (await desk.runs(job))[0].delivery == "silent"
    assert await desk.store.turns.claim(limit=1) == []


async def test_a_failed_run_is_told_and_after_some_the_job_is_paused(desk: Desk) -> None:
    job = await desk.orders(policy=JobPolicy(failures_max=2))
    told = []
    for _ in range(2):
        await desk.passes()
        await desk.fires(job)
        told += await desk.answers("", Outcome.FAILED)
    words = [each.text for each in told if isinstance(each, NoticePosted)]

    assert ["has run and ended as failed" in each for each in words] == [True, True, False]
    assert "is paused: 2 runs in a row have failed" in words[-1]
    view = await desk.view(job)
    assert (view.state, view.next_at) == (JobState.PAUSED, None)
    await desk.passes(5)
    assert await desk.store.schedule.due(limit=9, shares=EQUAL) == []

    resumed = await desk.store.schedule.change(
        job.id, JobChange(is_paused=False), TERMS, principal=desk.person
    )
    assert resumed.state is JobState.ACTIVE
    assert (resumed.next_at or 0) > desk.clock.now_ms()
    assert await desk.states(job) == ["settled", "settled"]


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        (Overlap.SKIP, ["queued", "skipped"]),
        (Overlap.QUEUE, ["queued", "claimed"]),
        (Overlap.REPLACE, ["settled", "queued"]),
    ],
)
async def test_what_becomes_of_a_run_that_meets_another(
    desk: Desk, overlap: Overlap, states: list[str]
) -> None:
    job = await desk.orders(policy=JobPolicy(overlap=overlap))
    for _ in range(2):
        await desk.passes()
        await desk.fires(job)

    assert await desk.states(job) == states
    if overlap is Overlap.REPLACE:
        assert (await desk.runs(job))[1].outcome == Outcome.SUPERSEDED
    if overlap is Overlap.QUEUE:
        await desk.answers()
        assert await desk.store.schedule.next_due_ms() == desk.clock.now_ms()
        assert (await desk.fires(job)).turn is not None
        assert await desk.states(job) == ["settled", "queued"]


@pytest.mark.parametrize(
    ("policy", "hours", "states"),
    [
        (JobPolicy(missed=MissedPolicy.SKIP), 3.5, ["missed"] * 3),
        (JobPolicy(missed=MissedPolicy.LATEST), 3.5, ["missed"] * 2 + ["queued"]),
        (JobPolicy(missed=MissedPolicy.LATEST, catch_up_s=60), 3.5, ["missed"] * 3),
        (JobPolicy(missed=MissedPolicy.ALL, catch_up_s=86_400), 3.5, ["queued"] + ["claimed"] * 2),
    ],
)
async def test_missed_occurrences_are_made_up_for_as_the_job_says(
    desk: Desk, policy: JobPolicy, hours: float, states: list[str]
) -> None:
    job = await desk.orders(policy=policy)
    await desk.passes(hours)
    fired = await desk.fires(job)

    assert await desk.states(job) == states
    told = [each.event.text for each in fired.recorded if isinstance(each.event, NoticePosted)]
    assert bool(told) == ("missed" in states)
    assert all("has missed" in each for each in told)
    assert (await desk.view(job)).next_at == (job.next_at or 0) + 3 * 3_600_000


async def test_after_a_long_outage_the_newest_runs_and_the_count_has_a_bound(desk: Desk) -> None:
    job = await desk.orders(rule=Every(60))
    await desk.passes(24 * 30)
    fired = await desk.fires(job)

    states = await desk.states(job)
    assert fired.turn is not None
    assert states[-1] == "queued"
    assert "more than 100 runs" in str(fired.recorded)
    assert (await desk.view(job)).next_at == desk.clock.now_ms() + 60_000


async def test_a_one_shot_runs_once_and_is_done(desk: Desk) -> None:
    job = await desk.orders(rule=Once(desk.clock.now_ms() + 60_000), kind=JobKind.REMINDER)
    await desk.passes()
    await desk.fires(job)
    claimed = await claim_one(desk.store)
    queued = claimed.events[0].event
    assert isinstance(queued, TurnQueued)
    assert queued.answer == "look at the mail", "a reminder asks no model"
    await settle(desk.store, claimed, queued.answer)

    assert await desk.is_said() == "look at the mail"
    assert (await desk.view(job)).state is JobState.DONE
    assert await desk.store.schedule.next_due_ms() is None


async def test_what_lies_in_the_past_is_refused(desk: Desk) -> None:
    with pytest.raises(Rejected, match="lies in the past"):
        await desk.orders(rule=Once(desk.clock.now_ms() - 1))


async def test_a_clock_that_is_set_back_repeats_nothing(desk: Desk) -> None:
    job = await desk.orders()
    await desk.passes()
    await desk.fires(job)
    await desk.answers(NOTHING_TO_SAY)
    desk.clock.jump(-2 * 3600)
    await desk.passes()
    assert (await desk.fires(job)).turn is None
    await desk.passes(0.99)
    assert (await desk.fires(job)).turn is None
    await desk.passes(1.02)
    assert (await desk.fires(job)).turn is not None
    assert len(await desk.runs(job)) == 2


async def test_a_clock_that_was_far_ahead_stops_no_job(desk: Desk) -> None:
    job = await desk.orders()
    desk.clock.jump(365 * 86_400)
    await desk.fires(job)
    await desk.answers(NOTHING_TO_SAY)
    desk.clock.jump(-365 * 86_400)

    assert await desk.store.schedule.mend_clock() == 1
    assert await desk.store.schedule.mend_clock() == 0
    assert (await desk.view(job)).next_at == job.next_at


async def test_jobs_per_person_are_bounded(desk: Desk) -> None:
    jobs = [await desk.orders() for _ in range(3)]
    with pytest.raises(Rejected, match="one person may have 3 jobs"):
        await desk.orders()
    await desk.store.schedule.remove(jobs[0].id, principal=desk.person)
    await desk.orders()


async def test_each_sees_only_their_own(desk: Desk, bob: Person) -> None:
    job = await desk.orders()
    schedule = desk.store.schedule
    assert await schedule.page(PAGE, principal=bob.id) == []
    assert [each.id for each in await schedule.page(PAGE, principal=desk.person)] == [job.id]
    for asks in (
        schedule.one(job.id, principal=bob.id),
        schedule.runs(job.id, before=None, limit=9, principal=bob.id),
        schedule.remove(job.id, principal=bob.id),
        schedule.change(job.id, JobChange(name="mine"), TERMS, principal=bob.id),
        schedule.run_now(job.id, TERMS, principal=bob.id),
    ):
        with pytest.raises(NotFound):
            await asks


async def test_a_run_by_hand_is_beside_the_schedule(desk: Desk) -> None:
    job = await desk.orders()
    fired = await desk.store.schedule.run_now(job.id, TERMS, principal=desk.person)
    assert fired.turn is not None
    with pytest.raises(Conflict, match="is under way"):
        await desk.store.schedule.run_now(job.id, TERMS, principal=desk.person)
    await desk.answers(NOTHING_TO_SAY)
    assert (await desk.view(job)).next_at == job.next_at


async def test_a_run_orders_no_jobs_unless_it_was_allowed_to(desk: Desk) -> None:
    for may in (False, True):
        job = await desk.orders(policy=JobPolicy(may_schedule=may))
        fired = await desk.store.schedule.run_now(job.id, TERMS, principal=None)
        if may:
            await desk.orders("again", turn=fired.turn)
        else:
            with pytest.raises(Rejected, match="orders no jobs"):
                await desk.orders("again", turn=fired.turn)
        await desk.answers(NOTHING_TO_SAY)


async def test_a_job_without_its_agent_is_paused_and_that_is_told(desk: Desk) -> None:
    job = await desk.orders(agent="main")
    await desk.passes()
    fired = await desk.fires(job, terms=ScheduleTerms(agents=frozenset({"other"})))

    (told,) = [each.event for each in fired.recorded if isinstance(each.event, NoticePosted)]
    assert "there is no agent 'main' any more" in told.text
    assert (await desk.view(job)).state is JobState.PAUSED
    assert await desk.states(job) == ["skipped"]


async def test_a_job_whose_person_may_not_speak_is_paused(desk: Desk) -> None:
    job = await desk.orders()
    await desk.passes()
    fired = await desk.fires(job)
    assert fired.turn is not None
    await desk.store.turns.turn_away(fired.turn, "access ended: nobody is served here any more")

    view = await desk.view(job)
    assert view.state is JobState.PAUSED
    assert view.why.startswith("access ended")


async def test_an_empty_checklist_asks_no_model(desk: Desk) -> None:
    job = await desk.orders("", kind=JobKind.HEARTBEAT)
    await desk.passes()
    assert (await desk.fires(job)).turn is None
    await desk.passes()
    full = ScheduleTerms(checklist="# Today\n- [x] done\n- water the plants")
    assert (await desk.fires(job, terms=full)).turn is not None
    assert await desk.states(job) == ["skipped", "queued"]
    claimed = await claim_one(desk.store)
    assert "water the plants" in str(claimed.events[0].event)
    await settle(desk.store, claimed, NOTHING_TO_SAY)


async def test_runs_share_the_session_of_their_job_for_a_while(desk: Desk) -> None:
    job = await desk.orders()
    sessions = []
    for _ in range(22):
        await desk.passes()
        fired = await desk.fires(job)
        sessions.append(fired.recorded[-1].session)
        await desk.answers(NOTHING_TO_SAY)
    assert len(set(sessions[:20])) == 1
    assert len(set(sessions)) == 2


async def test_a_run_may_know_the_conversation(desk: Desk, ada: Person) -> None:
    await ada.says("my cat is called Ada")
    await settle(desk.store, await claim_one(desk.store), "A fine name.")
    job = await desk.orders(policy=JobPolicy(session=JobSession.CONVERSATION))
    await desk.passes()
    await desk.fires(job)
    claimed = await claim_one(desk.store)
    assert claimed.parent is not None
    await settle(desk.store, claimed, NOTHING_TO_SAY)


async def test_quiet_hours_the_end_and_the_budget_are_kept(desk: Desk) -> None:
    quiet = await desk.orders(policy=JobPolicy(quiet="00:00-23:59"))
    ended = await desk.orders(policy=JobPolicy(ends_at=desk.clock.now_ms() + 3_600_000))
    await desk.passes()
    assert (await desk.fires(quiet)).turn is None
    assert (await desk.runs(quiet))[0].reason == "it fell into the quiet hours"
    assert (await desk.fires(ended)).turn is not None
    assert (await desk.view(ended)).state is JobState.DONE
    await desk.answers(NOTHING_TO_SAY)


async def test_a_job_that_has_used_up_its_tokens_waits_for_the_next_day(desk: Desk) -> None:
    await desk.passes(4)  # the day is young
    job = await desk.orders(policy=JobPolicy(tokens_daily=100))
    await desk.passes()
    await desk.fires(job)
    used = Usage(input_tokens=70, output_tokens=40, model_calls=1)
    await settle(desk.store, await claim_one(desk.store), NOTHING_TO_SAY, usage=used)

    await desk.passes()
    assert (await desk.fires(job)).turn is None
    (skipped, *_) = await desk.runs(job)
    assert (skipped.state, skipped.reason) == (RunState.SKIPPED, OVER_BUDGET)
    assert (await desk.view(job)).state is JobState.ACTIVE
    await desk.passes(24)
    assert (await desk.fires(job)).turn is not None
    await desk.answers(NOTHING_TO_SAY)


async def test_jitter_delays_a_run_and_not_the_instant_that_it_stands_for(desk: Desk) -> None:
    began = desk.clock.now_ms()
    job = await desk.orders(policy=JobPolicy(jitter_s=600))
    due = began + 3_600_000
    fires = await desk.store.schedule.next_due_ms()
    assert fires is not None
    assert due < fires <= due + 600_000
    assert (await desk.view(job)).next_at == due, "people are shown the instant"

    desk.clock.advance((fires - 1 - began) / 1000)
    assert (await desk.fires(job)).turn is None
    desk.clock.advance(0.001)
    assert (await desk.fires(job)).turn is not None
    (run,) = await desk.runs(job)
    assert run.due_at == due
    await desk.answers(NOTHING_TO_SAY)
    assert (await desk.view(job)).next_at == due + 3_600_000


async def test_the_due_are_chosen_fairly_and_within_bounds(desk: Desk, bob: Person) -> None:
    other = Desk(desk.store, desk.clock, bob.id)
    jobs = [await desk.orders() for _ in range(3)]
    late = await other.orders()
    await desk.passes()
    schedule = desk.store.schedule

    both = await schedule.due(limit=2, shares=EQUAL)
    assert {each.principal for each in both} == {desk.person, bob.id}
    full = FairShares(in_use={desk.person: 2}, most=2)
    assert [each.job for each in await schedule.due(limit=9, shares=full)] == [late.id]
    await desk.fires(jobs[0])
    assert await schedule.under_way() == {desk.person: 1}
    await desk.answers(NOTHING_TO_SAY)


async def test_two_nodes_that_find_the_same_job_due_start_one_run(
    desk: Desk, open_store: OpenStore
) -> None:
    job = await desk.orders()
    await desk.passes()
    other = await open_store()
    nodes = (desk.store, other) if await _are_both_open(desk.store) else (other, other)
    desk.store = other
    fired = await asyncio.gather(*(node.schedule.fire(job.id, TERMS) for node in nodes))

    assert sum(each.turn is not None for each in fired) == 1
    assert await desk.states(job) == ["queued"]
    await desk.answers(NOTHING_TO_SAY)


async def _are_both_open(store: Store) -> bool:
    """Tell whether the first node still has the database: on SQLite the second one has it alone."""
    try:
        await store.schedule.next_due_ms()
    except Exception:  # noqa: BLE001 - a closed store says so in its own way
        return False
    return True
