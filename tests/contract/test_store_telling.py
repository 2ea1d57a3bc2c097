"""Checks that the model is told of each interruption once in a conversation, and that errands are
told of none.

Whatever a test does, every session must be sound when it ends, including the sessions of errands.
"""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from perdure.domain.ids import MediaId, MessageId, TurnId
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    AttemptInterrupted,
    InterruptionAcknowledged,
    ToolFinished,
    TurnQueued,
)
from perdure.domain.journal.session_events import Compacted, TitleSet
from perdure.domain.kinds import ERRANDS, TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, Outcome, Repeat
from perdure.domain.people.menu import AgentOffer, Menu
from perdure.domain.prompt.prompt import Note, PromptMessage, ResultBlock, TextBlock
from perdure.domain.schedule.jobs import JobPolicy, JobSession, NewJob, ScheduleTerms
from perdure.domain.schedule.recurrence import Every
from perdure.domain.turn.recovery import Policy, Resume, Telling, acknowledgements
from perdure.ports.schedule.schedule import JobOwner
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    GO_ON,
    Person,
    claim_one,
    flush,
    next_request,
    only,
    piece,
    reply_id,
    said,
    settle,
    tool_call,
)

OpenStore = Callable[[], Awaitable[Store]]


pytestmark = pytest.mark.usefixtures("everything_ends_sound")


@pytest.fixture
async def ada(store: Store) -> Person:
    """Return a person whose next message replaces an interrupted answer, and whose agent has a
    memory."""
    principal = await store.principals.ensure("ada", role="member")
    policy = Policy(resume=Resume.WAIT, freshness_ms=0)
    menu = Menu(recovery=policy, agents={"main": AgentOffer(has_memory=True)})
    return Person(store, principal.id, menu=menu)


async def cut(store: Store, ada: Person, text: str = "work") -> Claimed:
    """Send a message and interrupt its answer, which then waits."""
    await ada.says(text)
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "half an ans")
    await store.turns.interrupt(claimed.lease, Interruption.SHUTDOWN, attempts_max=9)
    return claimed


async def reach(store: Store, claimed: Claimed, outcome: Outcome = Outcome.DONE) -> None:
    """Settle a turn whose model was told everything there was to tell."""
    settlement = Settlement(
        outcome=outcome,
        reason="stop",
        message=reply_id(claimed.lease),
        text="fine",
        context_tokens=1000,
        acknowledgements=tuple(acknowledgements(claimed.lease.turn, claimed.telling.interruptions)),
    )
    await store.turns.settle(claimed.lease, settlement)


async def next_turn(store: Store, ada: Person, text: str) -> Claimed:
    await ada.says(text)
    return await claim_one(store)


def turns_told(claimed: Claimed) -> list[TurnId | None]:
    """Return the interrupted turns that this one tells the model about."""
    return [each.turn for each in claimed.telling.interruptions]


def blocks(messages: tuple[PromptMessage, ...]) -> list[object]:
    return [block for message in messages for block in message.blocks]


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.FAILED])
async def test_a_branch_does_not_tell_again_what_was_told_before(
    store: Store, ada: Person, outcome: Outcome
) -> None:
    first = await cut(store, ada)
    told = await next_turn(store, ada, "what else?")
    assert turns_told(told) == [first.lease.turn]
    await reach(store, told, outcome)
    await ada.says("/branch")

    in_branch = await next_turn(store, ada, "and here?")

    assert in_branch.lease.session != first.lease.session
    assert in_branch.telling == Telling()


async def test_what_a_branch_has_told_is_not_told_where_it_happened(
    store: Store, ada: Person
) -> None:
    first = await cut(store, ada)
    await ada.says("/branch")
    in_branch = await next_turn(store, ada, "and here?")
    assert turns_told(in_branch) == [first.lease.turn]
    (told,) = acknowledgements(in_branch.lease.turn, in_branch.telling.interruptions)
    assert isinstance(told, InterruptionAcknowledged)
    assert told.session == first.lease.session
    await reach(store, in_branch)
    await ada.says("/resume")

    back = await next_turn(store, ada, "and there?")

    assert (back.lease.session, back.parent) == (first.lease.session, first.lease.turn)
    assert back.telling == Telling()


@pytest.mark.parametrize("commands", [("/undo",), ("/retry",), ("/undo", "/redo"), ("/branch",)])
async def test_an_interruption_stays_told_when_the_turn_that_told_it_is_left(
    store: Store, ada: Person, commands: tuple[str, ...]
) -> None:
    await cut(store, ada)
    await reach(store, await next_turn(store, ada, "what else?"), Outcome.FAILED)
    for command in commands:
        await ada.says(command)
    if commands[-1] != "/retry":
        await ada.says("go on")

    assert (await claim_one(store)).telling == Telling()


async def test_an_interruption_counts_as_told_with_the_first_words_that_are_shown(
    store: Store, ada: Person
) -> None:
    await cut(store, ada)
    second = await next_turn(store, ada, "what else?")
    told = acknowledgements(second.lease.turn, second.telling.interruptions)
    await store.turns.append(second.lease, told, piece=piece(second.lease, "Well"))
    await store.turns.interrupt(second.lease, Interruption.SHUTDOWN, attempts_max=9)

    third = await next_turn(store, ada, "and now?")

    assert turns_told(third) == [second.lease.turn], "the second one's own is told, the first's was"


async def test_a_turn_that_is_cut_twice_tells_each_time_of_the_last(
    store: Store, ada: Person
) -> None:
    # The model was told of the first interruption when the turn went on, but not of the second.
    await cut(store, ada)
    await store.nodes.resume(GO_ON, limit=9)
    second = await claim_one(store)
    told = acknowledgements(second.lease.turn, second.telling.interruptions)
    await store.turns.append(second.lease, told, piece=piece(second.lease, "And"))
    recorded = await store.turns.interrupt(second.lease, Interruption.CRASH, attempts_max=9)
    await store.nodes.resume(GO_ON, limit=9)

    third = await claim_one(store)

    assert third.telling.interruptions == (recorded[-1],)
    await reach(store, third)


async def test_what_never_reached_the_model_is_told_by_the_next(store: Store, ada: Person) -> None:
    first = await cut(store, ada)
    second = await next_turn(store, ada, "what else?")
    await settle(store, second, "", outcome=Outcome.FAILED)

    assert turns_told(await next_turn(store, ada, "hello?")) == [first.lease.turn]


async def test_a_retry_is_not_told_of_the_turn_that_it_replaces(store: Store, ada: Person) -> None:
    await cut(store, ada)
    await ada.says("/retry")

    assert (await claim_one(store)).telling == Telling()


async def test_what_no_model_worked_on_is_not_told(store: Store, ada: Person) -> None:
    # The result of an errand is said without a model, so its interruption cuts off no model's work.
    await ada.says("/background dig")
    await settle(store, await claim_one(store), "seven")
    result = await claim_one(store)
    assert only(TurnQueued, result.events)[0].kind == TurnKind.RESULT
    await store.turns.interrupt(result.lease, Interruption.SHUTDOWN, attempts_max=9)
    await store.nodes.resume(GO_ON, limit=9)
    again = await claim_one(store)
    assert only(AttemptInterrupted, again.events)
    await settle(store, again, "In the background: seven")

    assert (await next_turn(store, ada, "thanks")).telling == Telling()


async def test_a_call_in_a_branch_finds_the_note_ahead_of_the_message(
    store: Store, ada: Person
) -> None:
    # Two journals have equal numbers: the branch's own events get the same seq as the interruption.
    await ada.says("use a tool")
    first = await claim_one(store)
    call = tool_call("look", repeat=Repeat.PURE)
    await store.turns.append(first.lease, [said(first.lease, "Let me see.", calls=(call,))])
    await store.turns.interrupt(first.lease, Interruption.CRASH, attempts_max=9)
    await ada.says("/branch")
    second = await next_turn(store, ada, "look again")
    interruption = second.telling.interruptions[0].seq
    lease, events = second.lease, list(second.events)
    while events[-1].seq < interruption + 2:
        asked = tool_call(f"look_{len(events)}", repeat=Repeat.PURE)
        step = said(lease, "And this.", calls=(asked,))
        step = msgspec.structs.replace(step, message=MessageId(f"msg_{len(events)}"))
        seen = ToolFinished(
            turn=lease.turn, call=asked.id, ending=CallEnding.RETURNED, result="seen"
        )
        events += await store.turns.append(lease, [step])
        events += await store.turns.append(lease, [seen])
        so_far = msgspec.structs.replace(second, events=tuple(events))
        request = await next_request(store, so_far)
        found = blocks(request.messages)
        notes = [at for at, block in enumerate(found) if isinstance(block, Note)]
        assert len(notes) == 1
        assert found[notes[0] + 1] == TextBlock("look again")
        assert isinstance(found[-1], ResultBlock)
    await reach(store, second)


async def errand(store: Store, ada: Person, kind: TurnKind) -> Claimed:
    """Run an errand that looks back from an interrupted turn."""
    first = await cut(store, ada)
    match kind:
        case TurnKind.BACKGROUND:
            await ada.says("/stop")
            await ada.says("/background dig")
        case TurnKind.TITLE:
            await ada.says("/stop")
            await store.errands.entitle(first.lease.session, at=first.lease.turn, agent="")
        case TurnKind.MEMORY:
            await ada.says("/new")
        case TurnKind.SUMMARY:
            await reach(store, await next_turn(store, ada, "told"), Outcome.FAILED)
            await reach(store, await next_turn(store, ada, "more"), Outcome.FAILED)
            await ada.says("/compact the numbers")
        case TurnKind.SCHEDULED:
            await ada.says("/stop")
            place = await store.schedule.open_place("home", principal=ada.id)
            policy = JobPolicy(session=JobSession.CONVERSATION)
            new = NewJob(prompt="look at the mail", rule=Every(3_600), policy=policy)
            owner = JobOwner(principal=ada.id, conversation=place)
            job = await store.schedule.add(new, owner, TERMS)
            await store.schedule.run_now(job.id, TERMS, principal=ada.id)
        case _:
            raise AssertionError(f"a turn of kind {kind} looks back at nothing")
    claimed = await claim_one(store)
    assert only(TurnQueued, claimed.events)[0].kind == kind
    assert claimed.parent == first.lease.turn
    return claimed


TERMS = ScheduleTerms(agents=frozenset({"main"}), jobs_max=3)
LOOKING_BACK = [kind for kind in ERRANDS if kind not in (TurnKind.STICKER, TurnKind.DELEGATED)]


@pytest.mark.parametrize("kind", LOOKING_BACK)
async def test_an_errand_is_not_told_of_the_session_it_serves(
    store: Store, ada: Person, kind: TurnKind
) -> None:
    claimed = await errand(store, ada, kind)

    assert claimed.telling == Telling()
    await settle(store, claimed, "done")


@pytest.mark.parametrize("kind", LOOKING_BACK)
async def test_an_errand_that_was_cut_begins_anew(
    store: Store, ada: Person, kind: TurnKind
) -> None:
    claimed = await errand(store, ada, kind)
    before = await next_request(store, claimed)
    await flush(store, claimed.lease, "Half of it")
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=9)
    await store.nodes.resume(GO_ON, limit=9)

    again = await claim_one(store)

    assert again.lease.turn == claimed.lease.turn
    assert only(AssistantSaid, again.events) == []
    assert again.telling == Telling()
    assert await next_request(store, again) == before
    recorded = await settle(store, again, "All of it")
    assert [each.text for each in only(AssistantSaid, recorded)] == ["All of it"]
    assert [each.title for each in only(TitleSet, recorded)] in ([], ["All of it"])
    assert [each.summary for each in only(Compacted, recorded)] in ([], ["All of it"])
    assert only(TitleSet, recorded) or kind is not TurnKind.TITLE
    assert only(Compacted, recorded) or kind is not TurnKind.SUMMARY


@pytest.mark.parametrize("kind", [TurnKind.BACKGROUND, TurnKind.MEMORY])
async def test_what_an_errand_has_done_stays_done(
    store: Store, ada: Person, kind: TurnKind
) -> None:
    # The next attempt goes on from the results, with the same request that the interrupted attempt
    # made.
    claimed = await errand(store, ada, kind)
    lease, call = claimed.lease, tool_call("look", repeat=Repeat.PURE)
    found = ToolFinished(turn=lease.turn, call=call.id, ending=CallEnding.RETURNED, result="seven")
    done = await store.turns.append(lease, [said(lease, "Let me see.", calls=(call,)), found])
    so_far = msgspec.structs.replace(claimed, events=(*claimed.events, *done))
    before = await next_request(store, so_far)
    await store.turns.flush([piece(lease, "Half of it", of=MessageId("msg_half"))])
    await store.turns.interrupt(lease, Interruption.CRASH, attempts_max=9)
    await store.nodes.resume(GO_ON, limit=9)

    again = await claim_one(store)

    assert again.telling == Telling()
    assert await next_request(store, again) == before
    *_, asked, answered, results = before.messages
    assert isinstance(asked.blocks[-1], Note if kind is TurnKind.MEMORY else TextBlock)
    assert answered.blocks[0] == TextBlock("Let me see.")
    assert [type(block) for block in results.blocks] == [ResultBlock]
    await reach(store, again)


async def test_an_errand_that_has_given_a_file_hears_that_it_was_cut(
    store: Store, ada: Person
) -> None:
    # Without a note its own words would be the last ones, and no request may end with those.
    claimed = await errand(store, ada, TurnKind.BACKGROUND)
    file = Attachment(media=MediaId("med_1"), mime="text/plain", name="stones.txt")
    given = msgspec.structs.replace(said(claimed.lease, "Here it is."), attachments=(file,))
    await store.turns.append(claimed.lease, [given])
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=9)
    await store.nodes.resume(GO_ON, limit=9)

    again = await claim_one(store)

    assert turns_told(again) == [claimed.lease.turn]
    request = await next_request(store, again)
    assert [type(block) for block in request.messages[-1].blocks] == [Note]
    settlement = Settlement(outcome=Outcome.FAILED, reason="agent_error")
    await store.turns.settle(again.lease, settlement)


@pytest.mark.parametrize("end", ["given up", "stopped"])
async def test_a_background_request_that_ends_too_soon_is_told_as_such(
    store: Store, ada: Person, end: str
) -> None:
    # Text from before it was given up is not its answer; text from before a stop is shown.
    claimed = await errand(store, ada, TurnKind.BACKGROUND)
    await flush(store, claimed.lease, "Half of it")
    if end == "stopped":
        recorded = await store.inbox.stop(claimed.lease.turn, by=None)
    else:
        recorded = await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

    (result,) = [each for each in only(TurnQueued, recorded) if each.kind == TurnKind.RESULT]
    assert ("Half of it" in result.answer) == (end == "stopped")
    how = "(It ended as stopped" if end == "stopped" else "(It was interrupted too often"
    assert how in result.answer
    await reach(store, await claim_one(store))
