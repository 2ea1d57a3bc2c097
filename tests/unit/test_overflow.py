"""Checks what is decided about a conversation that is longer than the model's window: what is
summarised, in which portions, and what the person is told if nothing helps."""

import pytest

from perdure.domain.ids import CallId, MessageId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    PromptExpanded,
    Recorded,
    ToolFinished,
    TurnQueued,
)
from perdure.domain.journal.model.options import NONE, Options
from perdure.domain.journal.session_events import Compacted, RoomSought, WindowExceeded
from perdure.domain.outcomes import CallEnding, Outcome, StopReason
from perdure.domain.prompt.portions import beginning, divided_at, portions
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.turn.endings import Audience, visible_reason
from perdure.domain.turn.next_action import (
    AskModel,
    LastAnswer,
    MakeRoom,
    Settle,
    TurnFacts,
    next_action,
)
from perdure.domain.turn.overflow import NOTHING_OLDER, too_long
from perdure.engine.models.roster import Backend, Roster
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent

TURN = TurnId("trn_now")
REFUSED = WindowExceeded(turn=TURN, agent="main", model="m", tokens=3000, window=2000)
WORDS = "of the sea and the wind " * 20  # about 130 tokens


def queued(text: str, turn: TurnId = TURN) -> TurnQueued:
    return TurnQueued(turn=turn, message=MessageId(f"msg_{turn}"), text=text)


def turn_of(name: str, text: str) -> list[Recorded]:
    turn = TurnId(name)
    said = AssistantSaid(turn=turn, attempt=1, message=MessageId(f"a_{name}"), text="Yes.")
    return recorded(queued(text, turn), said)


def recorded(*events: AnyEvent) -> list[Recorded]:
    session = SessionId("ses_1")
    return [Recorded(session=session, seq=n, at=0, event=e) for n, e in enumerate(events, 1)]


def summary(upto: str) -> list[Recorded]:
    made = Compacted(
        upto=TurnId(upto),
        message=MessageId("msg_s"),
        summary="They talked.",
        turns=3,
        tokens_before=900,
        tokens_after=30,
        errand=TURN,
    )
    return recorded(made)


CHAIN = [turn_of(f"t{number}", f"{number} {WORDS}") for number in range(4)]


@pytest.mark.parametrize(
    ("chain", "keep", "last"),
    [
        (CHAIN, 0, "t3"),
        (CHAIN, 200, "t2"),
        (CHAIN, 400, "t1"),
        (CHAIN, 9000, "t3"),
        ([summary("t0"), *CHAIN[1:]], 9000, "t3"),
        ([summary("t3")], 0, None),
    ],
)
def test_as_few_turns_are_summarised_as_it_takes_but_always_some(
    chain: list[list[Recorded]], keep: int, last: str | None
) -> None:
    assert divided_at(chain, keep_tokens=keep) == last


def test_a_summary_alone_is_summarised_only_again() -> None:
    assert divided_at([summary("t3")], keep_tokens=0, again=True) == "t3"


@pytest.mark.parametrize("tokens", [1, 20, 100])
@pytest.mark.parametrize("text", [WORDS * 3, "語" * 900, "a\n\nb" * 200, ""])
def test_portions_fit_and_lose_nothing(text: str, tokens: int) -> None:
    cut = list(portions(text, tokens_max=tokens))

    assert "".join(cut) == text
    assert all(tokens_of(each) <= max(tokens, 2) for each in cut)
    assert text.startswith(beginning(text, tokens_max=tokens))


def test_room_is_made_once_and_then_the_model_is_asked_again() -> None:
    known = TurnFacts()
    made: AnyEvent = RoomSought(turn=TURN, compaction=MessageId("msg_s"))

    assert next_action([queued("hi"), REFUSED], known) == MakeRoom()
    assert next_action([queued("hi"), REFUSED, made], known) == AskModel()
    assert next_action([queued("hi"), REFUSED, made, REFUSED], known) == AskModel()


def test_a_refusal_of_a_summary_makes_no_room() -> None:
    of_summary = WindowExceeded(turn=TURN, agent="a", model="m", tokens=9, is_summary=True)

    assert next_action([queued("hi"), of_summary], TurnFacts()) == AskModel()


def test_without_room_the_turn_fails_unless_another_agent_may_answer() -> None:
    sought = RoomSought(turn=TURN, problem=NOTHING_OLDER)
    events: list[AnyEvent] = [queued("hi"), REFUSED, sought]

    ending = next_action(events, TurnFacts())
    assert isinstance(ending, Settle)
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, StopReason.CONTEXT_EXCEEDED)
    assert NOTHING_OLDER in ending.detail
    assert next_action(events, TurnFacts(has_others=True)) == AskModel()


def test_the_second_refusal_ends_the_turn_and_names_what_is_too_long() -> None:
    made = RoomSought(turn=TURN, compaction=MessageId("msg_s"))
    heard = LastAnswer(reason=StopReason.CONTEXT_EXCEEDED, detail="http://host said no")

    ending = next_action([queued("Sing " + WORDS * 20), REFUSED, made], TurnFacts(heard=heard))

    assert isinstance(ending, Settle)
    told = visible_reason(ending.outcome, ending.reason, ending.detail, Audience.PEOPLE)
    assert told.startswith("the message “Sing of the sea and the wind")
    assert "2,000 tokens" in told
    assert "http" not in told
    full = visible_reason(ending.outcome, ending.reason, ending.detail, Audience.OPERATORS)
    assert full.startswith(told)
    assert "http://host said no" in full


def test_the_result_of_a_tool_may_be_too_long() -> None:
    result = ToolFinished(
        turn=TURN, call=CallId("c"), ending=CallEnding.RETURNED, result=WORDS * 20
    )

    assert "of a tool is too long" in too_long([queued("hi"), result, REFUSED])


def test_the_prompt_of_a_server_may_be_too_long() -> None:
    asked = queued("/sea__tide")
    expanded = PromptExpanded(turn=TURN, message=asked.message, name="sea__tide", text=WORDS * 20)

    assert too_long([asked, expanded, REFUSED]).startswith("the prompt sea__tide is too long")


def test_old_details_of_servers_are_not_shown_to_people() -> None:
    detail = "the conversation is too long for m (400) at http://host"

    told = visible_reason(Outcome.FAILED, StopReason.CONTEXT_EXCEEDED, detail, Audience.PEOPLE)

    assert "http" not in told


def backend(**more: object) -> Backend:
    tools = CountingTools([])
    known = {"name": "main", "kind": "chat", "model": "m", **more}
    return Backend(agent=ScriptedAgent(), tools=tools, **known)  # type: ignore[arg-type]


def test_a_named_window_takes_the_place_of_a_larger_one() -> None:
    roster = Roster({"main": backend(), "wide": backend(name="wide", context_tokens=1000)})

    roster.learn([("main", "m", 2000), ("main", "another", 10)])

    (main, wide) = roster.backends
    assert (main.context_tokens, main.window) == (2000, 2000)
    assert (wide.context_tokens, wide.window) == (1000, 0)
    roster.learn([("main", "m", 8000)])
    assert roster.backends[0].context_tokens == 8000


async def test_a_named_window_outlives_a_new_configuration() -> None:
    roster = Roster({"main": backend()})
    roster.learn([("main", "m", 2000)])

    await roster.replace({"main": backend()})

    assert roster.backends[0].context_tokens == 2000


@pytest.mark.parametrize(("window", "most"), [(0, None), (2000, 1000), (128_000, None)])
def test_an_answer_leaves_room_in_a_small_window(window: int, most: int | None) -> None:
    assert backend(window=window).fitting(NONE).max_tokens == most
    assert backend(window=window).fitting(Options(max_tokens=10)).max_tokens == 10
