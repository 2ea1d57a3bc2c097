"""Checks when the instructions for the start run: once for a start, in the operator's home, in a
session of their own, and never again within ten minutes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.content.silence import NOTHING_TO_SAY
from perdure.domain.errors import Conflict
from perdure.domain.ids import TurnId
from perdure.domain.journal.events import TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Interruption, Outcome
from perdure.domain.schedule.boot import BOOT, BOOT_AGAIN_MS, BOOT_FILE, BootState
from perdure.domain.schedule.jobs import ScheduleTerms
from perdure.domain.turn.recovery import Policy, Resume
from perdure.ports.records.history import Page
from perdure.ports.schedule.schedule import Booted
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, settle
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
pytestmark = pytest.mark.usefixtures("everything_ends_sound")
TERMS = ScheduleTerms(agents=frozenset({"main"}))
GO_ON = Policy(freshness_ms=0)
ORDERS = "Look at the mail."


@pytest.fixture
async def eve(store: Store) -> Person:
    """Return an operator."""
    return Person(store, (await store.principals.ensure("eve", role="operator")).id)


async def boot(store: Store, policy: Policy = GO_ON) -> Booted:
    return await store.schedule.boot(ORDERS, TERMS, policy)


async def ends(store: Store, text: str = "No mail.", outcome: Outcome = Outcome.DONE) -> TurnId:
    """Let the run that is ready end. Returns its turn."""
    claimed = await claim_one(store)
    queued = claimed.events[0].event
    assert isinstance(queued, TurnQueued)
    assert (queued.kind, queued.text) == (TurnKind.SCHEDULED, ORDERS)
    assert claimed.parent is None, "it knows nothing of the conversation"
    await settle(store, claimed, text, outcome=outcome)
    return claimed.lease.turn


async def test_without_a_home_conversation_nothing_runs(store: Store, ada: Person) -> None:
    await ada.says("/home")
    assert await boot(store) == Booted(state=BootState.NO_HOME), "a member's home is not enough"
    assert await store.schedule.page(Page(limit=9), principal=None) == []


async def test_a_start_runs_it_once_in_a_session_of_its_own(store: Store, eve: Person) -> None:
    home = (await eve.says("/home")).session
    booted = await boot(store)
    again = await boot(store)

    assert (booted.state, again.state) == (BootState.STARTED, BootState.UNDER_WAY)
    assert await ends(store) == booted.turn
    said = await claim_one(store)
    queued = said.events[0].event
    assert isinstance(queued, TurnQueued)
    assert (said.lease.session, queued.kind) == (home, TurnKind.SENT)
    assert (queued.text, queued.answer) == ("", "No mail."), "the prompt is not said there"
    await settle(store, said, queued.answer)
    (run,) = await store.schedule.runs(BOOT, before=None, limit=9, principal=None)
    assert (run.outcome, run.delivery) == ("done", "here")
    (job,) = await store.schedule.page(Page(limit=9), principal=None)
    assert (job.name, job.state, job.next_at) == (BOOT_FILE, "done", None)


async def test_ten_minutes_pass_between_the_end_of_a_run_and_the_next(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.says("/home")
    await boot(store)
    clock.advance(1_200)
    assert (await boot(store)).state is BootState.UNDER_WAY, "however long it takes"
    await ends(store, NOTHING_TO_SAY)

    clock.advance(BOOT_AGAIN_MS / 1000 - 1)
    assert (await boot(store)).state is BootState.TOO_SOON
    clock.jump(-600)
    assert (await boot(store)).state is BootState.TOO_SOON, "also if the clock was set back"
    clock.jump(600)
    clock.advance(2)
    assert (await boot(store)).state is BootState.STARTED
    assert await ends(store, NOTHING_TO_SAY)
    assert len(await store.schedule.runs(BOOT, before=None, limit=9, principal=None)) == 2


async def test_silence_is_not_said_and_a_failure_is(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    home = await eve.says("/home")
    await boot(store)
    await ends(store, NOTHING_TO_SAY)
    assert await store.turns.claim(limit=1) == []
    clock.advance(3_600)
    await boot(store)
    await ends(store, "", Outcome.FAILED)
    page = await store.archive.noticed(home.session, limit=9)
    assert page.entries[-1].text.startswith(f"The job '{BOOT_FILE}' has run and ended as failed")


async def test_it_does_not_wait_for_a_turn_that_was_not_interrupted(
    store: Store, eve: Person
) -> None:
    await eve.says("/home")
    await eve.says("a long question")
    claimed = await claim_one(store)
    assert (await boot(store, Policy())).state is BootState.STARTED, "it was not interrupted"
    await ends(store, NOTHING_TO_SAY)
    await settle(store, claimed)


@pytest.mark.parametrize(
    ("policy", "is_resumed", "expected"),
    [
        (GO_ON, True, BootState.WAITS),
        (GO_ON, False, BootState.WAITS),
        (Policy(resume=Resume.ASK), False, BootState.STARTED),
    ],
    ids=["resumed", "not yet resumed", "left to a person"],
)
async def test_an_interrupted_turn_goes_first_if_it_goes_on(
    store: Store, eve: Person, policy: Policy, is_resumed: bool, expected: BootState
) -> None:
    await eve.says("/home")
    await eve.says("a long question")
    claimed = await claim_one(store)
    await store.turns.interrupt(claimed.lease, Interruption.RESTART, attempts_max=3)
    if is_resumed:
        await store.nodes.resume(policy, limit=9)

    assert (await boot(store, policy)).state is expected
    if expected is BootState.STARTED:
        await ends(store, NOTHING_TO_SAY)
        return
    await store.nodes.resume(policy, limit=9)
    again = await claim_one(store)
    assert (await boot(store, policy)).state is expected, "while it goes on"
    await settle(store, again)
    assert (await boot(store, policy)).state is BootState.STARTED
    await ends(store, NOTHING_TO_SAY)


async def test_a_platform_that_is_gone_is_named(store: Store, eve: Person) -> None:
    away = Person(store, eve.id, adapter="gone", place="42")
    await away.says("/home")
    with pytest.raises(Conflict, match="there is no platform 'gone' any more"):
        await boot(store)
    assert await store.schedule.page(Page(limit=9), principal=None) == []


async def test_nodes_that_start_together_start_one_run(
    store: Store, eve: Person, open_store: OpenStore
) -> None:
    await eve.says("/home")
    if store.nodes.lease_s is None:
        others = [store]
    else:
        others = [await open_store() for _ in range(2)]
        for each in others:
            await each.nodes.join(name="other")
    found = await asyncio.gather(*(boot(each) for each in (store, *others)))
    assert [each.state for each in found].count(BootState.STARTED) == 1
    await ends(store, NOTHING_TO_SAY)
