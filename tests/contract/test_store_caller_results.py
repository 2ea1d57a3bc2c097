"""Checks the `Inbox` port: results of a program's own tool calls come with its next message, once,
and every request after them is one that strict providers take."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from perdure.domain.errors import Conflict, Rejected
from perdure.domain.ids import CallId
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.events import ToolCall, ToolFinished, TurnQueued, TurnStarted
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, CallEnding, Outcome, StopReason
from perdure.domain.prompt.prompt import PromptBlock, ResultBlock, TextBlock
from perdure.domain.tools.callers import NO_RESULT, CallerResult
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    assert_sound,
    claim_one,
    message,
    next_request,
    only,
    question_about,
    said,
    settle,
    tool_call,
)

LOOK = msgspec.structs.replace(tool_call("look"), is_callers=True)
LISTEN = msgspec.structs.replace(tool_call("listen"), is_callers=True)
QUEUE_MAX = 1000


class Program:
    """Sends calls as a program does that brings tools."""

    def __init__(self, store: Store, person: Person) -> None:
        self.store = store
        self.person = person
        self._sent = 0

    async def says(
        self, text: str = "", *results: tuple[ToolCall | str, str], key: str = "", **more: Any
    ) -> Accepted:
        self._sent += 1
        update = message(
            self.person.id, text, external_id=key or f"call-{self._sent}", kind=UpdateKind.CALL
        )
        sent = tuple(
            CallerResult(call=call.id if isinstance(call, ToolCall) else CallId(call), text=words)
            for call, words in results
        )
        update = msgspec.structs.replace(update, results=sent, tools="[]", **more)
        return await self.store.inbox.accept(update, queue_max=QUEUE_MAX)

    async def asks(self, *calls: ToolCall) -> Claimed:
        """Run a turn that leaves these calls to its caller."""
        await self.says("look around")
        claimed = await claim_one(self.store)
        await left(self.store, claimed, calls)
        return claimed


async def left(store: Store, claimed: Claimed, calls: Sequence[ToolCall]) -> None:
    """Settle a turn with calls that its caller answers."""
    settlement = Settlement(
        outcome=Outcome.DONE,
        reason=StopReason.TOOL_CALLS,
        message=said(claimed.lease, "").message,
        calls=tuple(calls),
    )
    await store.turns.settle(claimed.lease, settlement)


@pytest.fixture
def program(store: Store, ada: Person) -> Program:
    return Program(store, ada)


async def told(store: Store, claimed: Claimed) -> list[PromptBlock]:
    """Return what the newest message of a turn's request says."""
    request = await next_request(store, claimed)
    return list(request.messages[-1].blocks)


def results(*texts: str, calls: Sequence[ToolCall] = (LOOK, LISTEN)) -> list[ResultBlock]:
    return [
        ResultBlock(call=call.id, text=text, is_error=text == NO_RESULT)
        for call, text in zip(calls, texts, strict=False)
    ]


async def test_results_are_events_of_the_turn_they_came_with(
    store: Store, program: Program
) -> None:
    await program.asks(LOOK, LISTEN)
    accepted = await program.says("and now?", (LISTEN, "waves"), (LOOK, "blue"))
    claimed = await claim_one(store)

    kinds = [type(each.event) for each in claimed.events]
    assert kinds == [TurnQueued, ToolFinished, ToolFinished, TurnStarted]
    found = only(ToolFinished, claimed.events)
    assert [(each.name, each.result, each.is_callers) for each in found] == [
        ("listen", "waves", True),
        ("look", "blue", True),
    ]
    assert list(only(ToolFinished, accepted.recorded)) == list(found)
    assert await told(store, claimed) == [*results("blue", "waves"), TextBlock("and now?")]
    await settle(store, claimed)
    await assert_sound(store, accepted.session)


async def test_a_turn_that_begins_at_once_has_its_results(store: Store, program: Program) -> None:
    await program.asks(LOOK)
    update = message(program.person.id, "", external_id="now", kind=UpdateKind.CALL)
    sent = (CallerResult(call=LOOK.id, text="blue"),)
    update = msgspec.structs.replace(update, results=sent)
    received = await store.inbox.accept_and_start(update, queue_max=QUEUE_MAX)

    assert received.claimed is not None
    assert await told(store, received.claimed) == results("blue")
    await settle(store, received.claimed)
    await assert_sound(store, received.accepted.session)


async def test_a_call_that_nobody_answered_is_told_so_for_good(
    store: Store, program: Program
) -> None:
    await program.asks(LOOK, LISTEN)
    await program.says("", (LOOK, "blue"))
    first = await claim_one(store)
    assert await told(store, first) == results("blue", NO_RESULT)
    await settle(store, first)

    await program.says("", (LISTEN, "waves"))
    second = await claim_one(store)
    late = "[The result of an earlier call of listen, which came late:]\nwaves"
    assert await told(store, second) == [TextBlock(late)]
    before = await next_request(store, first)
    assert before.messages[-1].blocks == tuple(results("blue", NO_RESULT))
    await settle(store, second)
    await assert_sound(store, second.lease.session)


async def test_a_message_that_came_first_gets_the_place_behind_the_calls(
    store: Store, program: Program, ada: Person
) -> None:
    await program.asks(LOOK)
    await ada.says("hello")
    await program.says("", (LOOK, "blue"))
    first = await claim_one(store)
    assert await told(store, first) == [*results(NO_RESULT), TextBlock("hello")]
    await settle(store, first)
    second = await claim_one(store)
    assert "blue" in str(await told(store, second))
    await settle(store, second)
    await assert_sound(store, second.lease.session)


async def test_results_without_a_call_are_refused_and_nothing_is_stored(
    store: Store, program: Program
) -> None:
    with pytest.raises(Rejected, match="preceding message with 'tool_calls'"):
        await program.says("", (LOOK, "blue"))
    asked = await program.asks(LOOK)
    for wrong in [(("call_x", "?"),), ((LOOK, "blue"), ("call_x", "?"))]:
        with pytest.raises(Rejected, match="call_x"):
            await program.says("hello", *wrong)
    with pytest.raises(Rejected, match="twice"):
        await program.says("", (LOOK, "blue"), (LOOK, "grey"))
    record = await store.diagnostics.record(asked.lease.session)
    assert [turn.id for turn in record.turns] == [asked.lease.turn]


async def test_a_call_is_answered_once(store: Store, program: Program) -> None:
    await program.asks(LOOK)
    await program.says("", (LOOK, "blue"))
    with pytest.raises(Rejected, match="answered before"):
        await program.says("", (LOOK, "grey"))
    await settle(store, await claim_one(store))
    with pytest.raises(Rejected, match="answered before"):
        await program.says("", (LOOK, "blue"))

    await program.says("sure?", (LOOK, "blue"))
    claimed = await claim_one(store)
    assert only(ToolFinished, claimed.events) == []
    assert await told(store, claimed) == [TextBlock("sure?")]


async def test_a_result_may_be_sent_again_after_its_turn_has_failed(
    store: Store, program: Program
) -> None:
    await program.asks(LOOK)
    await program.says("", (LOOK, "blue"))
    await settle(store, await claim_one(store), "", outcome=Outcome.FAILED)
    await program.says("", (LOOK, "blue"))
    claimed = await claim_one(store)
    first, again = await told(store, claimed)
    assert first == results("blue")[0]
    assert "blue" in str(again)
    await settle(store, claimed)
    await assert_sound(store, claimed.lease.session)


async def test_the_same_results_are_the_same_call_until_it_is_answered(
    store: Store, program: Program
) -> None:
    await program.asks(LOOK)
    both = await asyncio.gather(*(program.says("", (LOOK, "blue")) for _ in range(2)))
    assert len({each.turn for each in both}) == 1
    assert sorted(each.is_duplicate for each in both) == [False, True]
    await settle(store, await claim_one(store))
    await assert_sound(store, both[0].session)


async def test_a_key_tells_results_apart(store: Store, program: Program) -> None:
    await program.asks(LOOK, LISTEN)
    first = await program.says("", (LOOK, "blue"), key="k")
    assert (await program.says("", (LOOK, "blue"), key="k")).turn == first.turn
    with pytest.raises(Conflict):
        await program.says("", (LOOK, "grey"), key="k")


async def test_a_call_repeats_one_whose_turn_has_waited_for_a_person(
    store: Store, program: Program
) -> None:
    first = await program.says("pay")
    claimed = await claim_one(store)
    pay = tool_call("pay")
    await store.turns.append(claimed.lease, [said(claimed.lease, "", calls=(pay,))])
    apart = await program.says("pay")
    assert apart.turn != first.turn, "nobody was asked yet, so somebody may say it again"
    await store.turns.wait(claimed.lease, [question_about(claimed.lease, pay)])
    again = await program.says("pay")
    assert (again.turn, again.is_duplicate) == (first.turn, True)
    assert (await program.says("pay more")).turn not in (first.turn, apart.turn)


async def test_results_never_become_a_steer_or_a_command(store: Store, program: Program) -> None:
    await program.asks(LOOK)
    running = await program.says("and?")
    await claim_one(store)
    steered = await program.says("/stop", (LOOK, "blue"), busy=Busy.STEER)
    assert (steered.command, steered.queue_position) == ("", 1)
    assert steered.turn != running.turn


async def test_retry_brings_the_results_again(store: Store, program: Program, ada: Person) -> None:
    asked = await program.asks(LOOK)
    await program.says("", (LOOK, "blue"))
    first = await claim_one(store)
    request = await next_request(store, first)
    await settle(store, first)
    await ada.says("/retry")
    again = await claim_one(store)
    assert (await next_request(store, again)).messages == request.messages
    await settle(store, again)

    await ada.says("/undo")
    await program.says("", (LOOK, "grey"))
    claimed = await claim_one(store)
    assert claimed.parent == asked.lease.turn
    assert await told(store, claimed) == results("grey")
    await settle(store, claimed)
    await assert_sound(store, claimed.lease.session)


async def test_a_branch_knows_which_calls_are_open(
    store: Store, program: Program, ada: Person
) -> None:
    asked = await program.asks(LOOK)
    await ada.says("/branch")
    accepted = await program.says("", (LOOK, "blue"))
    assert accepted.session != asked.lease.session
    claimed = await claim_one(store)
    assert await told(store, claimed) == results("blue")
    await settle(store, claimed)
    await assert_sound(store, accepted.session)


async def test_calls_of_both_kinds_end_as_each_should(store: Store, program: Program) -> None:
    """Check that the agent's call is answered here, and that the caller's stays open."""
    await program.says("look around")
    claimed = await claim_one(store)
    own = tool_call("own")
    await store.turns.append(claimed.lease, [said(claimed.lease, "", calls=(own, LOOK))])
    finished = ToolFinished(
        turn=claimed.lease.turn, call=own.id, ending=CallEnding.RETURNED, result="mine"
    )
    await store.turns.append(claimed.lease, [finished])
    ending = Settlement(outcome=Outcome.DONE, reason=StopReason.TOOL_CALLS)
    ended = (await store.turns.settle(claimed.lease, ending)).recorded
    assert only(ToolFinished, ended) == []

    await program.says("", (LOOK, "blue"))
    again = await claim_one(store)
    framed, *rest = await told(store, again)
    assert isinstance(framed, ResultBlock)
    assert (framed.call, rest) == (own.id, results("blue"))
    await settle(store, again)
    await assert_sound(store, again.lease.session)


async def test_a_stopped_turn_leaves_no_call_open(store: Store, program: Program) -> None:
    accepted = await program.says("look around")
    claimed = await claim_one(store)
    await store.turns.append(claimed.lease, [said(claimed.lease, "", calls=(LOOK,))])
    assert accepted.turn is not None
    await store.inbox.stop(accepted.turn, by=None)
    with pytest.raises(Rejected, match="no call of that id"):
        await program.says("", (LOOK, "blue"))
    await assert_sound(store, accepted.session)
