"""Checks when the tool calls of a turn go round: one call again and again, or several by turns, and
always with the same results."""

from itertools import count, cycle, islice

import msgspec
import pytest

from perdure.domain.ids import CallId, MediaId, MessageId, NodeId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Attachment,
    AttemptInterrupted,
    Recorded,
    SteerTaken,
    ToolCall,
    ToolFinished,
    TurnQueued,
    TurnStarted,
)
from perdure.domain.outcomes import CallEnding, Interruption, Outcome, StopReason
from perdure.domain.prompt.prompt import Note, ResultBlock, Role
from perdure.domain.tools.rounds import VAIN_MAX, VAIN_NOTE, VAIN_TOLD, told_in_vain, vain_rounds
from perdure.domain.turn.next_action import AskModel, Settle, TurnFacts, next_action
from perdure.domain.turn.recovery import Telling, messages_with_notes

TURN = TurnId("trn_1")
# A call by its name and arguments, and its result.
Made = tuple[str, str, str]
LOOK: Made = ("look", "{}", "nothing")
LIST: Made = ("list", "{}", "empty")
FIND: Made = ("find", '{"a": 1, "b": 2}', "none")
_numbers = count(1)


def round_of(*made: Made, ending: CallEnding = CallEnding.RETURNED) -> list[AnyEvent]:
    """Return a round: an answer that makes these calls, and their results."""
    calls = [
        ToolCall(id=CallId(f"call_{next(_numbers)}"), name=name, arguments=arguments)
        for name, arguments, _ in made
    ]
    said = AssistantSaid(
        turn=TURN,
        attempt=1,
        message=MessageId(f"msg_{next(_numbers)}"),
        text="",
        calls=tuple(calls),
    )
    results = [
        ToolFinished(turn=TURN, call=call.id, ending=ending, result=result)
        for call, (_, _, result) in zip(calls, made, strict=True)
    ]
    return [said, *results]


def rounds(*made: Made) -> list[AnyEvent]:
    """Return rounds of one call each."""
    return [event for each in made for event in round_of(each)]


def begun() -> list[AnyEvent]:
    queued = TurnQueued(turn=TURN, message=MessageId("msg_1"), text="look")
    return [queued, TurnStarted(turn=TURN, attempt=1, parent=None, node=NodeId("nod_1"))]


def going_round(times: int, *made: Made) -> list[AnyEvent]:
    """Return so many rounds, each with the next of these calls, and then the first again."""
    return rounds(*islice(cycle(made), times))


def after(events: list[AnyEvent]) -> object:
    return next_action([*begun(), *events], TurnFacts())


@pytest.mark.parametrize("made", [(LOOK,), (LOOK, LIST), (LOOK, LIST, FIND)], ids=len)
def test_a_turn_ends_when_its_calls_go_round_in_however_many_steps(made: tuple[Made, ...]) -> None:
    last = going_round(len(made) + VAIN_MAX, *made)
    before = going_round(len(made) + VAIN_MAX - 1, *made)

    assert vain_rounds(before) == VAIN_MAX - 1
    assert after(before) == AskModel()
    ended = after(last)
    assert isinstance(ended, Settle)
    assert (ended.outcome, ended.reason) == (Outcome.FAILED, StopReason.CALLS_REPEATED)


@pytest.mark.parametrize(
    "other",
    [
        ("look", "{}", "something"),
        ("look", '{"deep": true}', "nothing"),
        ("listen", "{}", "nothing"),
    ],
)
def test_a_new_result_a_new_argument_and_a_new_tool_begin_the_count_anew(other: Made) -> None:
    events = going_round(1 + VAIN_MAX - 1, LOOK)

    assert vain_rounds(events) == VAIN_MAX - 1
    assert vain_rounds([*events, *rounds(other)]) == 0
    assert vain_rounds([*events, *round_of(LOOK, other)]) == 0, "one of several is enough"
    assert vain_rounds([*events, *rounds(other, LOOK, other)]) == 2


def test_a_clock_is_never_in_vain() -> None:
    assert vain_rounds(rounds(*(("time", "{}", str(n)) for n in range(40)))) == 0


def test_the_same_arguments_written_otherwise_are_the_same_call() -> None:
    written = ("find", '{"b":2,"a":1}', "none")

    assert vain_rounds(rounds(FIND, written, FIND)) == 2


def test_a_failure_that_comes_again_is_in_vain_and_another_ending_is_not() -> None:
    failed = round_of(LOOK, ending=CallEnding.FAILED)

    assert vain_rounds([*rounds(LOOK), *failed]) == 0
    assert vain_rounds([*failed, *round_of(LOOK, ending=CallEnding.FAILED)]) == 1


def test_a_picture_that_differs_is_new_and_so_is_the_end_of_a_long_result() -> None:
    def made(**more: object) -> list[AnyEvent]:
        said, ended = round_of(LOOK)
        assert isinstance(ended, ToolFinished)
        return [said, msgspec.structs.replace(ended, **more)]

    first, second = (made(attachments=(Attachment(media=MediaId(m)),)) for m in "ab")
    begins, other = (made(whole=MediaId(m)) for m in "ab")

    assert vain_rounds([*first, *second]) == 0
    assert vain_rounds([*first, *made(attachments=(Attachment(media=MediaId("a")),))]) == 1
    assert vain_rounds([*begins, *other]) == 0


def test_a_persons_words_and_an_interruption_begin_the_count_anew() -> None:
    events = going_round(1 + VAIN_MAX, LOOK)
    words = SteerTaken(turn=TURN, message=MessageId("msg_9"), text="again, please")
    cut = AttemptInterrupted(turn=TURN, attempt=1, reason=Interruption.CRASH)

    assert vain_rounds([*events, words]) == 0
    assert vain_rounds([*events, cut]) == 0
    assert vain_rounds([*events, cut, *rounds(LOOK)]) == 1


def test_a_round_counts_once_all_of_its_results_are_there() -> None:
    first, (said, *results) = round_of(LOOK, LIST), round_of(LOOK, LIST)

    assert vain_rounds([*first, said, *results[:1]]) == 0
    assert vain_rounds([*first, said, *results]) == 1


def test_calls_that_an_external_agent_or_the_caller_makes_do_not_count() -> None:
    def not_ours(**more: bool) -> list[AnyEvent]:
        said, ended = round_of(LOOK)
        assert isinstance(said, AssistantSaid)
        calls = tuple(msgspec.structs.replace(each, **more) for each in said.calls)
        return [msgspec.structs.replace(said, calls=calls), ended]

    for flag in ("is_agents", "is_callers"):
        assert vain_rounds([e for _ in range(9) for e in not_ours(**{flag: True})]) == 0


def recorded(events: list[AnyEvent]) -> list[Recorded]:
    told = [*begun(), *events]
    return [
        Recorded(seq=seq, at=seq, session=SessionId("ses_1"), event=event)
        for seq, event in enumerate(told, start=1)
    ]


def test_the_model_is_told_once_behind_the_results_and_at_the_same_place_from_then_on() -> None:
    events = going_round(1 + VAIN_TOLD, LOOK)
    warned = messages_with_notes(recorded(events), Telling())
    later = messages_with_notes(recorded([*events, *rounds(LOOK)]), Telling())

    assert told_in_vain(events[:-1]) == []
    assert warned[-1].role is Role.USER
    assert [type(block) for block in warned[-1].blocks] == [ResultBlock, Note]
    assert warned[-1].blocks[-1] == Note(VAIN_NOTE)
    assert later[: len(warned)] == warned, "what was sent is sent again as it was"
    assert sum(Note(VAIN_NOTE) in message.blocks for message in later) == 1


def test_the_model_is_told_again_if_it_goes_round_again() -> None:
    other = ("look", "{}", "something")
    events = [*going_round(1 + VAIN_TOLD, LOOK), *rounds(other), *going_round(VAIN_TOLD, LOOK)]

    assert len(told_in_vain(events)) == 2
