"""Checks how tools and results of a program that asks are told beside the agent's own, and how long
such a program waits."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from perdure.domain.errors import Rejected, Transient
from perdure.domain.ids import CallId, MessageId, NodeId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    Recorded,
    ToolCall,
    ToolFinished,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import CallEnding, Interruption, Outcome, StopReason
from perdure.domain.prompt.history import history_of, open_after
from perdure.domain.prompt.prompt import (
    CallBlock,
    Note,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    assert_valid,
    weave,
)
from perdure.domain.tools.callers import NO_RESULT, CallerResult, left_open, merged_tools, names_in
from perdure.domain.turn.recovery import Telling, messages_with_notes
from perdure.ports.gateway import Ended, Grown
from perdure.web.openai.completions_wire import read_completion
from perdure.web.openai.replies import heard

OWN = (
    '[{"type":"function","function":{"name":"memory"}},'
    '{"type":"function","function":{"name":"look","description":"ours"}}]'
)
BROUGHT = '[{"function": {"name": "look"},  "type": "function"}, {"odd": 1}]'
SESSION = SessionId("ses_1")
LOOK = ToolCall(id=CallId("call_1"), name="look", arguments="{}", is_callers=True)
NOTHING_TOLD = Telling()
OURS = ToolCall(id=CallId("call_2"), name="memory", arguments="{}")


def test_tools_that_stand_alone_stay_as_they_are() -> None:
    assert merged_tools("", BROUGHT) == BROUGHT
    assert merged_tools(OWN, "") == OWN
    assert merged_tools("", "") == ""


def test_tools_of_both_are_written_as_they_came_and_the_callers_win() -> None:
    merged = merged_tools(OWN, BROUGHT)
    memory = '{"type":"function","function":{"name":"memory"}}'
    assert (
        merged == f'[{memory},{{"function": {{"name": "look"}},  "type": "function"}},{{"odd": 1}}]'
    )
    assert names_in(merged) == {"memory", "look"}
    assert merged_tools('[{"function":{"name":"look"}}]', BROUGHT) == BROUGHT


def turn(number: int, events: Sequence[AnyEvent]) -> list[Recorded]:
    return [
        Recorded(session=SESSION, seq=100 * number + n, at=0, event=event)
        for n, event in enumerate(events)
    ]


def asking(number: int = 1, *, calls: tuple[ToolCall, ...] = (LOOK,)) -> list[Recorded]:
    """Return a turn that leaves its open calls to the caller."""
    name = TurnId(f"trn_{number}")
    said = AssistantSaid(turn=name, attempt=1, message=MessageId("m"), text="", calls=calls)
    ours = [
        ToolFinished(turn=name, call=call.id, ending=CallEnding.RETURNED, result="mine")
        for call in calls
        if not call.is_callers
    ]
    settled = TurnSettled(turn=name, outcome=Outcome.DONE, reason=StopReason.TOOL_CALLS)
    return turn(number, [*begun(name, "look"), said, *ours, settled])


def answering(number: int, text: str, *results: tuple[CallId, str]) -> list[Recorded]:
    """Return a turn that has come with these results, and has begun."""
    name = TurnId(f"trn_{number}")
    queued, started = begun(name, text)
    return turn(number, [queued, *(finished(name, *each) for each in results), started])


def begun(name: TurnId, text: str) -> list[AnyEvent]:
    return [
        TurnQueued(turn=name, message=MessageId(f"msg_{name}"), text=text),
        TurnStarted(turn=name, attempt=1, parent=None, node=NodeId("n")),
    ]


def finished(name: TurnId, call: CallId, text: str) -> ToolFinished:
    return ToolFinished(
        turn=name,
        call=call,
        ending=CallEnding.RETURNED,
        result=text,
        is_callers=True,
        name="look",
    )


def told(
    before: list[list[Recorded]], own: list[Recorded], telling: Telling = NOTHING_TOLD
) -> list[PromptMessage]:
    """Return the messages of a request, after checking them."""
    messages = messages_with_notes(own, telling, before=open_after(before))
    final, newest = weave(None, [*history_of(before), *messages])
    assert newest is not None
    assert_valid([*final, newest], begins=True)
    return [*final, newest]


def test_results_of_the_agent_and_the_caller_stand_in_one_message() -> None:
    _, asked, answered = told([asking(calls=(OURS, LOOK))], answering(2, "and?", (LOOK.id, "blue")))

    assert [block.name for block in asked.blocks if isinstance(block, CallBlock)] == [
        "memory",
        "look",
    ]
    ours, theirs, words = answered.blocks
    assert isinstance(ours, ResultBlock)
    assert ours.text != "mine", "what the agent's tool said is framed"
    assert theirs == ResultBlock(call=LOOK.id, text="blue", is_error=False)
    assert words == TextBlock("and?")


def test_a_note_about_an_interruption_follows_the_results() -> None:
    asked = asking()
    cut = AttemptInterrupted(turn=TurnId("trn_1"), attempt=1, reason=Interruption.CRASH)
    telling = Telling((Recorded(session=SESSION, seq=150, at=0, event=cut),), tuple(asked))

    last = told([asked], answering(2, "and?", (LOOK.id, "blue")), telling)[-1]

    assert [type(block) for block in last.blocks] == [ResultBlock, Note, TextBlock]


def test_a_call_without_its_result_is_closed_by_whatever_follows() -> None:
    last = told([asking()], answering(2, "never mind"))[-1]
    assert last.blocks[0] == ResultBlock(call=LOOK.id, text=NO_RESULT, is_error=True)

    again = told([asking(), answering(2, "never mind")], answering(3, "", (LOOK.id, "blue")))[-1]
    assert again.role is Role.USER
    assert "blue" in str(again.blocks[-1])


def test_only_a_turn_that_is_done_leaves_calls_to_its_caller() -> None:
    *open_turn, _ = asking(calls=(OURS, LOOK))
    assert left_open(open_turn) == ()
    assert left_open(asking(calls=(OURS, LOOK))) == (LOOK,)
    assert open_after([]) == ()


def tool(call: object = "call_1", content: object = "blue") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": content}


USER: dict[str, Any] = {"role": "user", "content": "and?"}
EARLIER: list[dict[str, Any]] = [
    {"role": "user", "content": "look"},
    {"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": "look"}}]},
]


def test_in_a_conversation_the_results_at_the_end_are_new() -> None:
    parts = [{"type": "text", "text": "grey"}]
    read = read_completion([*EARLIER, tool(), tool("call_2", parts)], has_conversation=True)
    assert read.results == (
        CallerResult(call=CallId("call_1"), text="blue"),
        CallerResult(call=CallId("call_2"), text="grey"),
    )
    assert (read.text, read.context) == ("", "")

    both = read_completion([tool(content=None), USER], has_conversation=True)
    assert (both.text, both.results) == ("and?", (CallerResult(call=CallId("call_1"), text=""),))

    answered = [*EARLIER, tool(), {"role": "assistant", "content": "Blue."}, USER]
    assert read_completion(answered, has_conversation=True).results == ()


def test_without_a_conversation_results_are_context() -> None:
    read = read_completion([*EARLIER, tool()], has_conversation=False)
    assert (read.results, read.text) == ((), "")
    assert '"blue"' in read.context


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([tool(), tool()], "twice"),
        ([tool(call=None)], "tool_call_id"),
        ([tool(call="")], "tool_call_id"),
        (
            [tool(content=[{"type": "image_url", "image_url": {"url": "https://x.example"}}])],
            "text",
        ),
        ([*EARLIER], "last message"),
        ([*EARLIER, {"role": "user", "content": "  "}], "empty"),
    ],
)
def test_what_cannot_be_the_new_message_is_refused(messages: list[Any], complaint: str) -> None:
    with pytest.raises(Rejected, match=complaint):
        read_completion(messages, has_conversation=True)


ENDED = Ended(outcome=Outcome.DONE, reason="stop", detail="", usage=Usage())


async def growing(*pieces: Grown, works_s: float = 0.0) -> AsyncGenerator[Grown, None]:
    """Yield these pieces, and work for so long before the last of them. Without an end the turn
    waits for ever."""
    for number, piece in enumerate(pieces, start=1):
        if number == len(pieces):
            await asyncio.sleep(works_s)
        yield piece
    await asyncio.Event().wait()


async def test_a_program_waits_for_a_turn_that_works_however_long_that_takes() -> None:
    pieces = [Grown("a", is_waiting=True), Grown("b"), Grown("c", ENDED)]
    assert await heard(growing(*pieces, works_s=0.5), wait_s=0.4) == ("abc", ENDED)


async def test_a_program_does_not_wait_for_ever_for_a_person() -> None:
    with pytest.raises(Transient) as refused:
        await heard(growing(Grown("a", is_waiting=True)), wait_s=0.01)
    assert (refused.value.code, refused.value.retryable) == ("waiting", True)
