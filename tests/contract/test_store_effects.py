"""Checks the ledger of calls that must not be repeated and whose fate is unknown: none is
forgotten, and the agent is told once what a person has found out."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import CallId, TurnId
from perdure.domain.journal.events import (
    NoticePosted,
    Recorded,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.question_events import EffectMarked
from perdure.domain.journal.records import EffectView
from perdure.domain.outcomes import Busy, CallEnding, Interruption, NodeRequest, Outcome, Repeat
from perdure.domain.prompt.prompt import TextBlock
from perdure.domain.tools.asking import SHORT
from perdure.domain.turn.recovery import closed, may_have_happened
from perdure.ports.records.history import Page
from perdure.ports.turns.turns import Claimed
from perdure.store.operations.commands import permitting
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    GO_ON,
    Person,
    claim_one,
    message,
    next_request,
    only,
    said,
    settle,
    tool_call,
)
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
pytestmark = pytest.mark.usefixtures("everything_ends_sound")
FIRST = Page(limit=100)
CANARY = "canary-7702"
PAY = msgspec.structs.replace(tool_call("pay"), arguments=f'{{"to": "{CANARY}"}}')
LOOK = tool_call("look", repeat=Repeat.PURE)
SAVE = tool_call("save", repeat=Repeat.REPEATABLE)
LATER = tool_call("later")


async def begins(store: Store, person: Person, *calls: ToolCall) -> Claimed:
    """Begin a turn in which these calls have started. `later` is asked for, and has not started."""
    await person.says("pay the bill")
    claimed = await claim_one(store)
    lease = claimed.lease
    await store.turns.append(lease, [said(lease, "Sure.", calls=(*calls, LATER))])
    await store.turns.append(lease, [ToolStarted(turn=lease.turn, call=call.id) for call in calls])
    return claimed


async def ledger(store: Store) -> list[EffectView]:
    return await store.effects.page(FIRST, principal=None)


async def cut_by_stop(store: Store, claimed: Claimed, restart: OpenStore) -> Store:
    await store.inbox.stop(claimed.lease.turn, by=None)
    return store


async def cut_by_crash(store: Store, claimed: Claimed, restart: OpenStore) -> Store:
    store = await restart()
    await store.nodes.reap(attempts_max=3, limit=10)
    return store


async def cut_by_suspension(store: Store, claimed: Claimed, restart: OpenStore) -> Store:
    store = await restart()
    recorded = await store.nodes.reap(attempts_max=1, limit=10)
    assert [each.outcome for each in only(TurnSettled, recorded)] == [Outcome.SUSPENDED]
    return store


async def cut_by_drain(store: Store, claimed: Claimed, restart: OpenStore) -> Store:
    await store.turns.interrupt(
        claimed.lease, Interruption.SHUTDOWN, attempts_max=3, asked=NodeRequest.STOP
    )
    return store


async def cut_by_its_time_limit(store: Store, claimed: Claimed, restart: OpenStore) -> Store:
    turn = claimed.lease.turn
    ended = [closed(turn, PAY.id, CallEnding.UNKNOWN)]
    safe = [closed(turn, call.id, CallEnding.INTERRUPTED) for call in (LOOK, SAVE)]
    await store.turns.append(claimed.lease, [*ended, *safe])
    return store


CUTS = {
    "stop": cut_by_stop,
    "crash": cut_by_crash,
    "suspension": cut_by_suspension,
    "drain": cut_by_drain,
    "time limit": cut_by_its_time_limit,
}


@pytest.mark.parametrize("how", CUTS)
async def test_a_call_that_was_cut_is_noted_if_it_must_not_be_repeated(
    store: Store, ada: Person, restart: OpenStore, how: str, clock: VirtualClock
) -> None:
    claimed = await begins(store, ada, LOOK, PAY, SAVE)

    store = await CUTS[how](store, claimed, restart)

    (view,) = await ledger(store)
    assert (view.call, view.turn, view.session) == (
        PAY.id,
        claimed.lease.turn,
        claimed.lease.session,
    )
    assert (view.tool, view.arguments) == ("pay", PAY.arguments)
    assert (view.state, view.at, view.marked_by) == ("unknown", clock.now_ms(), "")


@pytest.mark.parametrize("how", ["stop", "crash", "suspension", "drain"])
async def test_people_are_told_once_of_a_call_that_was_cut(
    store: Store, ada: Person, restart: OpenStore, how: str
) -> None:
    claimed = await begins(store, ada, LOOK, PAY, SAVE)

    store = await CUTS[how](store, claimed, restart)

    record = await store.diagnostics.record(claimed.lease.session)
    short = PAY.id[-SHORT:]
    notices = [each.text for each in only(NoticePosted, record.events) if short in each.text]
    assert len(notices) == 1
    (line,) = notices[0].splitlines()
    assert f"/effects {short} happened" in line
    assert "pay" in line
    assert CANARY not in line, "what a call was given is for those who may look at it"


async def test_nobody_is_told_of_calls_that_may_be_repeated(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    claimed = await begins(store, ada, LOOK, SAVE)

    store = await cut_by_stop(store, claimed, restart)

    record = await store.diagnostics.record(claimed.lease.session)
    assert [each for each in only(NoticePosted, record.events) if "/effects" in each.text] == []


async def test_what_a_newer_message_cuts_is_noted_too(store: Store, ada: Person) -> None:
    await begins(store, ada, PAY)

    update = message(ada.id, "never mind", external_id="newer")
    await store.inbox.accept(msgspec.structs.replace(update, busy=Busy.INTERRUPT), queue_max=9)

    assert [view.call for view in await ledger(store)] == [PAY.id]


async def test_nothing_is_noted_twice(store: Store, ada: Person, restart: OpenStore) -> None:
    claimed = await begins(store, ada, PAY)
    for _ in range(3):
        store = await restart()
        await store.nodes.reap(attempts_max=9, limit=10)
        await store.nodes.resume(GO_ON, limit=10)
        claimed = await claim_one(store)

    await store.inbox.stop(claimed.lease.turn, by=None)

    assert [view.call for view in await ledger(store)] == [PAY.id]


async def test_a_call_that_returned_in_time_is_not_noted(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    claimed = await begins(store, ada, PAY)
    done = ToolFinished(
        turn=claimed.lease.turn, call=PAY.id, ending=CallEnding.RETURNED, result="paid"
    )
    await store.turns.append(claimed.lease, [done])

    store = await cut_by_crash(store, claimed, restart)

    assert await ledger(store) == []


async def test_a_call_that_was_only_refused_as_possibly_repeated_is_not_noted(
    store: Store, ada: Person
) -> None:
    # It never ran: an equal call before it may have happened, and that one is in the ledger.
    claimed = await begins(store, ada, PAY)
    lease = claimed.lease
    same = msgspec.structs.replace(PAY, id=CallId("call_again"))
    await store.turns.append(lease, [closed(lease.turn, PAY.id, CallEnding.UNKNOWN)])
    again = msgspec.structs.replace(said(lease, "", calls=(same,)), message="msg_again")
    await store.turns.append(lease, [again, closed(lease.turn, same.id, CallEnding.UNKNOWN)])

    assert [view.call for view in await ledger(store)] == [PAY.id]


# What a person has found out.


async def test_whoever_looks_says_whether_it_has_happened(
    store: Store, ada: Person, bob: Person, restart: OpenStore
) -> None:
    store = await cut_by_stop(store, await begins(store, ada, PAY), restart)

    marked = await store.effects.mark(PAY.id, has_happened=True, by=ada.id, principal=ada.id)
    again = await store.effects.mark(PAY.id, has_happened=True, by=bob.id, principal=None)

    assert (marked.state, marked.marked_by) == ("happened", "ada")
    assert again == marked, "the same word again changes nothing"
    with pytest.raises(Conflict) as refused:
        await store.effects.mark(PAY.id, has_happened=False, by=ada.id, principal=ada.id)
    assert refused.value.code == "already_marked"
    assert await ledger(store) == [marked]


async def test_the_newest_calls_are_listed_first_and_can_be_named_however_many_there_are(
    store: Store, ada: Person, restart: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permitting, "_KNOWN", 3)
    calls = [msgspec.structs.replace(PAY, id=CallId(f"call_pay{number}")) for number in range(5)]
    await cut_by_stop(store, await begins(store, ada, *calls), restart)

    listed = (await ada.says("/effects")).reply.splitlines()[1:]
    noted = (await ada.says("/effects pay4 not")).reply

    assert [line.split()[0] for line in listed] == ["l_pay4", "l_pay3", "l_pay2"]
    assert noted.startswith("Noted")


async def test_nothing_of_another_person_is_found_or_marked(
    store: Store, ada: Person, bob: Person, restart: OpenStore
) -> None:
    store = await cut_by_stop(store, await begins(store, ada, PAY), restart)
    refusals = []
    for call in (PAY.id, CallId("call_x")):
        with pytest.raises(NotFound) as refused:
            await store.effects.mark(call, has_happened=True, by=bob.id, principal=bob.id)
        refusals.append(refused.value.message.replace(call, ""))

    assert refusals[0] == refusals[1]
    assert CANARY not in refusals[0]
    assert await store.effects.page(FIRST, principal=bob.id) == []
    assert [view.state for view in await ledger(store)] == ["unknown"]


def told_in(recorded: list[Recorded]) -> list[tuple[type, ...]]:
    """Return the kind before each mark that an agent is told, and that of the mark."""
    kinds = [type(each.event) for each in recorded]
    return [
        (kinds[index - 1], kinds[index]) for index, kind in enumerate(kinds) if kind is EffectMarked
    ]


async def texts_of(store: Store, claimed: Claimed) -> list[str]:
    """Return what the request of a turn says of marked calls."""
    request = await next_request(store, claimed)
    blocks = [block for each in request.messages for block in each.blocks]
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    return [text for text in texts if "The person says that the earlier call" in text]


@pytest.mark.parametrize("has_happened", [True, False])
async def test_the_agent_is_told_at_the_beginning_of_the_next_turn_and_once(
    store: Store, ada: Person, restart: OpenStore, has_happened: bool
) -> None:
    store = await cut_by_stop(store, await begins(store, ada, PAY), restart)
    ada = Person(store, ada.id)
    ada._sent = 10
    await store.effects.mark(PAY.id, has_happened=has_happened, by=ada.id, principal=None)

    await ada.says("did it work?")
    claimed = await claim_one(store)

    events = list(claimed.events)
    assert told_in(events) == [(TurnStarted, EffectMarked)]
    (told,) = only(EffectMarked, events)
    assert (told.call, told.tool, told.has_happened, told.by) == (
        PAY.id,
        "pay",
        has_happened,
        ada.id,
    )
    (words,) = await texts_of(store, claimed)
    assert ("has happened" in words) is has_happened
    await settle(store, claimed)
    await ada.says("and now?")
    after = await claim_one(store)
    assert only(EffectMarked, after.events) == [], "it was told"
    await settle(store, after)


async def test_a_turn_that_begins_with_its_message_tells_it_too(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    store = await cut_by_stop(store, await begins(store, ada, PAY), restart)
    await store.effects.mark(PAY.id, has_happened=False, by=ada.id, principal=ada.id)

    update = message(ada.id, "did it work?", external_id="soon")
    received = await store.inbox.accept_and_start(update, queue_max=9)

    assert received.claimed is not None
    events = list(received.claimed.events)
    assert [type(each.event) for each in events] == [TurnQueued, TurnStarted, EffectMarked]
    record = await store.diagnostics.record(received.accepted.session)
    assert [each.seq for each in record.events] == list(range(1, len(record.events) + 1))
    assert [each.event for each in record.events[-3:]] == [each.event for each in events]
    assert len(await texts_of(store, received.claimed)) == 1


async def test_a_running_turn_is_told_between_two_steps(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    store = await cut_by_stop(store, await begins(store, ada, PAY), restart)
    ada = Person(store, ada.id)
    ada._sent = 10
    await ada.says("did it work?")
    claimed = await claim_one(store)
    assert await store.turns.take_steers(claimed.lease) == []

    await store.effects.mark(PAY.id, has_happened=True, by=ada.id, principal=ada.id)

    (told,) = only(EffectMarked, await store.turns.take_steers(claimed.lease))
    assert (told.turn, told.call) == (claimed.lease.turn, PAY.id)
    assert await store.turns.take_steers(claimed.lease) == [], "it was told"
    await settle(store, claimed)
    await ada.says("and now?")
    assert only(EffectMarked, (await claim_one(store)).events) == []


async def test_another_session_is_not_told(store: Store, ada: Person, restart: OpenStore) -> None:
    store = await cut_by_stop(store, await begins(store, ada, PAY), restart)
    await store.effects.mark(PAY.id, has_happened=True, by=ada.id, principal=ada.id)

    await Person(store, ada.id, place="work").says("hello")

    claimed = await claim_one(store)
    assert only(EffectMarked, claimed.events) == []
    await settle(store, claimed)


@pytest.mark.parametrize("has_happened", [True, False])
async def test_in_the_same_turn_a_mark_says_whether_an_equal_call_may_be_made(
    store: Store, ada: Person, restart: OpenStore, has_happened: bool
) -> None:
    store = await cut_by_crash(store, await begins(store, ada, PAY), restart)
    await store.nodes.resume(GO_ON, limit=10)
    claimed = await claim_one(store)
    same = msgspec.structs.replace(PAY, id=CallId("call_again"), arguments=f'{{"to":"{CANARY}"}}')
    events = [each.event for each in claimed.events]
    assert may_have_happened(same, events)

    await store.effects.mark(PAY.id, has_happened=has_happened, by=ada.id, principal=ada.id)

    told = await store.turns.take_steers(claimed.lease)
    assert may_have_happened(same, [*events, *(each.event for each in told)]) is has_happened


async def test_a_death_between_the_mark_and_the_turn_loses_nothing(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    store = await cut_by_stop(store, await begins(store, ada, PAY), restart)
    await store.effects.mark(PAY.id, has_happened=True, by=ada.id, principal=ada.id)
    store = await restart()
    ada = Person(store, ada.id)
    ada._sent = 10
    await ada.says("did it work?")
    await claim_one(store)
    store = await restart()
    await store.nodes.reap(attempts_max=9, limit=10)
    await store.nodes.resume(GO_ON, limit=10)

    claimed = await claim_one(store)

    assert len(only(EffectMarked, claimed.events)) == 1, "the turn knows it in each attempt"
    assert len(await texts_of(store, claimed)) == 1


# Results that come late.


async def test_a_late_result_is_kept_and_never_enters_the_turn(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    claimed = await begins(store, ada, PAY)
    store = await cut_by_stop(store, claimed, restart)
    before = await store.diagnostics.record(claimed.lease.session)

    paid = "paid " + "x" * 50_000
    await store.effects.late(claimed.lease.turn, PAY, CallEnding.RETURNED, paid)

    (view,) = await ledger(store)
    assert view.late_result.startswith("paid x")
    assert len(view.late_result) == 20_000
    assert view.state == "unknown", "a person decides what it means"
    assert await store.diagnostics.record(claimed.lease.session) == before


async def test_a_late_result_may_come_before_the_end_of_its_call_is_recorded(
    store: Store, ada: Person
) -> None:
    claimed = await begins(store, ada, PAY)

    await store.effects.late(claimed.lease.turn, PAY, CallEnding.RETURNED, "late")
    await store.inbox.stop(claimed.lease.turn, by=None)

    (view,) = await ledger(store)
    assert (view.call, view.late_result, view.state) == (PAY.id, "late", "unknown")


async def test_a_late_result_of_an_unknown_turn_is_dropped(store: Store) -> None:
    await store.effects.late(TurnId("trn_x"), PAY, CallEnding.RETURNED, "late")

    assert await ledger(store) == []


async def test_the_ledger_is_read_page_by_page(store: Store, ada: Person) -> None:
    for n in range(5):
        call = tool_call(f"c{n}")
        person = Person(store, ada.id, place=f"room {n}")
        await person.says("go")
        lease = (await claim_one(store)).lease
        started = ToolStarted(turn=lease.turn, call=call.id)
        await store.turns.append(lease, [said(lease, "", calls=(call,)), started])
        await store.inbox.stop(lease.turn, by=None)

    seen: list[str] = []
    after: tuple[int, str] | None = None
    while page := await store.effects.page(Page(limit=2, after=after), principal=ada.id):
        seen += [view.call for view in page]
        after = (page[-1].at, page[-1].call)

    assert seen == [f"call_c{n}" for n in range(5)]
