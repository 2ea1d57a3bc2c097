"""Checks that the next action of a turn is always defined, and that following it comes to an
end."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.content.forwards import Passage
from perdure.domain.errors import Corrupt
from perdure.domain.ids import CallId, MessageId, NodeId, QuestionId, TurnId
from perdure.domain.inbound.named_prompts import NO_PROMPT, PromptFound
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    PromptExpanded,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnAmended,
    TurnEvent,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived, WaitEnded
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, Outcome, StopReason
from perdure.domain.turn.next_action import (
    AskModel,
    Await,
    ExpandPrompt,
    LastAnswer,
    RunCalls,
    Say,
    Settle,
    TurnFacts,
    asks_for_our_tools,
    next_action,
    open_calls,
    open_questions,
    our_open_calls,
    started_calls,
    steps_taken,
)
from perdure.domain.turn.recovery import closed
from perdure.domain.turn.turn import State, Turn, evolve, opened

TURN = TurnId("trn_1")
STEPS_MAX = 4
# Where each attempt is cut: before it writes anything, or after this many writes.
cuts = st.lists(st.integers(0, 6), max_size=3)
# How many tools each model call asks for. The model call after the last of them answers.
asked = st.lists(st.integers(0, 3), max_size=6)


def call(number: int) -> ToolCall:
    return ToolCall(id=CallId(f"call_{number}"), name="look", arguments="{}")


def question(about: ToolCall) -> AnswerAwaited:
    return AnswerAwaited(
        turn=TURN, attempt=1, question=QuestionId(f"qst_{about.id}"), text="May I?", call=about.id
    )


class Story:
    """Runs a turn by what `next_action` says, with attempts that are cut short."""

    def __init__(self, asks: list[int], cuts: list[int], *, events: Sequence[AnyEvent]) -> None:
        self.events = list(events)
        self.ran: list[CallId] = []
        self.model_calls = 0
        self._asks = iter(asks)
        self._cuts = iter(cuts)
        self._numbers = count(100 * len(self.events))
        self._left: int | None = None
        self.known = TurnFacts(steps_max=STEPS_MAX)

    def run(self) -> None:
        """Go on where the events end, as a process does that finds them, until nothing is left."""
        self._go_on()
        for _ in range(200):
            action = next_action(self.events, self.known)
            if action is None:
                return
            self._follow(action)
        pytest.fail(f"it does not end: {self.events}")

    def _go_on(self) -> None:
        match life_of(self.events).state:
            case State.SETTLED:
                return
            case State.RUNNING:
                self._interrupt()
            case State.INTERRUPTED:
                self.events.append(TurnRequeued(turn=TURN, reason=Interruption.CRASH))
            case State.WAITING:
                self._answer()
            case State.QUEUED:
                pass
        self._start()

    def _start(self) -> None:
        attempt = life_of(self.events).attempts + 1
        started = TurnStarted(turn=TURN, attempt=attempt, parent=None, node=NodeId("nod_1"))
        self.events.append(started)
        self._left = next(self._cuts, None)

    def _interrupt(self) -> None:
        """Close what had begun, and put the turn back in line."""
        attempt = life_of(self.events).attempts
        begun = started_calls(self.events)
        cut = [each for each in open_calls(self.events) if each.id in begun]
        self.events += [closed(TURN, each.id, CallEnding.UNKNOWN) for each in cut]
        reason = Interruption.CRASH
        self.events.append(AttemptInterrupted(turn=TURN, attempt=attempt, reason=reason))
        self.events.append(TurnRequeued(turn=TURN, reason=reason))

    def _answer(self) -> None:
        """Answer all questions that are open, the last one first."""
        asked = open_questions(self.events)
        for each in asked[::-1]:
            self.events.append(AnswerReceived(turn=TURN, question=each.question, answer="yes"))
        self.events.append(WaitEnded(turn=TURN))

    def _write(self, *events: AnyEvent) -> bool:
        """Write the events and return True. If the attempt is cut first, begin the next attempt and
        return False."""
        if self._left is None or self._left > 0:
            self.events += events
            self._left = None if self._left is None else self._left - 1
            return True
        self._interrupt()
        self.known = msgspec.structs.replace(self.known, heard=None)
        self._start()
        return False

    def _follow(self, action: object) -> None:
        match action:
            case AskModel():
                self._ask()
            case RunCalls(calls=calls):
                for each in calls:
                    if not self._run(each):
                        return
            case Await(questions=asked):
                assert asked, "it waits for something"
                if self._write(*asked):
                    self._answer()
                    self._start()
            case Say(reason=reason):
                self._write(TurnSettled(turn=TURN, outcome=Outcome.DONE, reason=reason))
            case Settle(outcome=outcome, reason=reason):
                self._write(TurnSettled(turn=TURN, outcome=outcome, reason=reason))
            case _:
                pytest.fail(f"nobody knows how to do {action}")

    def _ask(self) -> None:
        self.model_calls += 1
        calls = tuple(call(next(self._numbers)) for _ in range(next(self._asks, 0)))
        if not calls:
            heard = LastAnswer(reason=StopReason.STOP)
            self.known = msgspec.structs.replace(self.known, heard=heard)
            return
        message = MessageId(f"msg_{next(self._numbers)}")
        said = AssistantSaid(turn=TURN, attempt=1, message=message, text="", calls=calls)
        if self._write(said):
            # A person must be asked about every second call.
            more = tuple(question(each) for each in calls[1::2])
            questions = (*self.known.questions, *more)
            self.known = msgspec.structs.replace(self.known, questions=questions)

    def _run(self, each: ToolCall) -> bool:
        if not self._write(ToolStarted(turn=TURN, call=each.id)):
            return False
        self.ran.append(each.id)
        return self._write(
            ToolFinished(turn=TURN, call=each.id, ending=CallEnding.RETURNED, result="ok")
        )


def queued(**more: object) -> TurnQueued:
    return msgspec.convert({"turn": TURN, "message": "msg_0", "text": "hi", **more}, TurnQueued)


def life_of(events: Sequence[AnyEvent]) -> Turn:
    """Fold the turn by the machine. Raises `Corrupt` if an event is not legal."""
    first = events[0]
    assert isinstance(first, TurnQueued)
    turn = opened(first)
    for event in events[1:]:
        if isinstance(event, TurnEvent):
            turn = evolve(turn, event)
    return turn


def told(asks: list[int], cuts: list[int]) -> Story:
    story = Story(asks, cuts, events=[queued()])
    story.run()
    return story


def prefixes(story: Story) -> Iterator[list[AnyEvent]]:
    return (story.events[:length] for length in range(1, len(story.events) + 1))


@given(asked, cuts)
def test_a_turn_that_is_followed_settles_and_its_story_is_a_life(
    asks: list[int], cuts: list[int]
) -> None:
    story = told(asks, cuts)

    assert life_of(story.events).state is State.SETTLED
    assert open_calls(story.events) == ()


@given(asked, cuts)
def test_no_call_runs_twice_and_each_has_one_result(asks: list[int], cuts: list[int]) -> None:
    story = told(asks, cuts)

    assert len(set(story.ran)) == len(story.ran)
    results = [event.call for event in story.events if isinstance(event, ToolFinished)]
    assert len(set(results)) == len(results)


@given(asked, cuts)
def test_every_prefix_has_a_next_action_and_only_a_settled_one_has_none(
    asks: list[int], cuts: list[int]
) -> None:
    story = told(asks, cuts)
    known = msgspec.structs.replace(story.known, heard=None)

    for events in prefixes(story):
        action = next_action(events, known)
        is_settled = any(isinstance(event, TurnSettled) for event in events)
        assert (action is None) == is_settled


@given(asked, cuts, asked, cuts)
def test_from_every_prefix_the_turn_goes_on_until_it_is_settled(
    asks: list[int], cuts: list[int], asks_then: list[int], cuts_then: list[int]
) -> None:
    """Check that a new attempt can begin anywhere, and runs nothing that has run before."""
    story = told(asks, cuts)

    for events in prefixes(story):
        again = Story(asks_then, cuts_then, events=events)
        again.known = msgspec.structs.replace(story.known, heard=None)
        again.run()

        assert again.events[: len(events)] == events
        assert life_of(again.events).state is State.SETTLED
        assert open_calls(again.events) == ()
        began = [event.call for event in again.events if isinstance(event, ToolStarted)]
        results = [event.call for event in again.events if isinstance(event, ToolFinished)]
        assert len(set(began)) == len(began)
        assert len(set(results)) == len(results)


@given(asked, cuts)
def test_a_turn_whose_answer_has_come_goes_on_with_the_call(
    asks: list[int], cuts: list[int]
) -> None:
    story = told(asks, cuts)
    known = msgspec.structs.replace(story.known, heard=None)

    for events in prefixes(story):
        if not isinstance(events[-1], AnswerReceived | WaitEnded):
            continue
        action = next_action(events, known)
        if waited := open_questions(events):
            assert action == Await(waited), "it goes on after the last answer only"
        else:
            asked = {each.call for each in events if isinstance(each, AnswerAwaited)}
            assert isinstance(action, RunCalls)
            assert {each.id for each in action.calls} <= asked
            assert action.calls == our_open_calls(events)


@given(asked, cuts)
def test_a_turn_asks_about_all_its_calls_at_once_after_the_free_ones(
    asks: list[int], cuts: list[int]
) -> None:
    story = told(asks, cuts)
    known = msgspec.structs.replace(story.known, heard=None)

    for events in prefixes(story):
        action = next_action(events, known)
        if isinstance(action, Await):
            left = our_open_calls(events)
            assert {each.call for each in action.questions} <= {each.id for each in left}
            if not open_questions(events):
                assert [each.call for each in action.questions] == [each.id for each in left]


@given(asked, cuts)
def test_no_call_that_somebody_must_be_asked_about_runs_before_the_answer(
    asks: list[int], cuts: list[int]
) -> None:
    story = told(asks, cuts)

    about = {each.call: each.question for each in story.known.questions}
    answered: set[QuestionId] = set()
    for event in story.events:
        if isinstance(event, AnswerReceived):
            answered.add(event.question)
        if isinstance(event, ToolStarted) and event.call in about:
            assert about[event.call] in answered


@given(asked, cuts)
def test_the_model_is_not_asked_while_a_call_or_a_question_is_open(
    asks: list[int], cuts: list[int]
) -> None:
    story = told(asks, cuts)
    known = msgspec.structs.replace(story.known, heard=None)

    for events in prefixes(story):
        if isinstance(next_action(events, known), AskModel):
            assert open_calls(events) == ()
            assert steps_taken(events) < STEPS_MAX


@given(st.integers(1, 3))
def test_between_a_result_and_the_next_model_call_nothing_is_repeated(calls: int) -> None:
    # An attempt that is cut at this point goes on with the model call and not with the tool's.
    story = told([calls], [1 + 2 * calls])

    assert len(story.ran) == calls


def test_what_never_started_is_run_by_the_next_attempt() -> None:
    story = told([2], [1])

    assert len(story.ran) == 2
    assert story.model_calls == 2, "one that asked for the calls, one that answered"


def test_what_a_refused_person_wants_is_settled_before_anything_else() -> None:
    known = TurnFacts(refusal="access ended")
    assert next_action([queued(answer="42")], known) == Settle(
        outcome=Outcome.REFUSED, reason="access ended"
    )


def test_what_is_known_is_said_without_asking() -> None:
    said = next_action([queued(answer="42", finish="length")], TurnFacts())
    assert said == Say(text="42", reason=StopReason.LENGTH)


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (StopReason.STOP, Outcome.DONE),
        (StopReason.TOOL_CALLS, Outcome.DONE),
        (StopReason.PROVIDER_CUT, Outcome.FAILED),
        (StopReason.BUDGET, Outcome.REFUSED),
    ],
)
def test_how_the_last_call_ended_is_how_the_turn_ends(reason: StopReason, outcome: Outcome) -> None:
    known = TurnFacts(heard=LastAnswer(reason=reason, detail="why"))
    assert next_action([queued()], known) == Settle(outcome=outcome, reason=reason, detail="why")


def test_too_many_steps_end_the_turn_and_an_interruption_begins_the_count_anew() -> None:
    step = AssistantSaid(turn=TURN, attempt=1, message=MessageId("m"), text="", calls=(call(1),))
    result = ToolFinished(turn=TURN, call=CallId("call_1"), ending=CallEnding.RETURNED, result="")
    events: list[AnyEvent] = [queued(), step, result]
    ended = next_action(events, TurnFacts(steps_max=1))
    assert isinstance(ended, Settle)
    assert (ended.outcome, ended.reason) == (Outcome.FAILED, StopReason.STEPS_EXCEEDED)

    events.append(AttemptInterrupted(turn=TURN, attempt=1, reason=Interruption.CRASH))
    assert next_action(events, TurnFacts(steps_max=1)) == AskModel()


def test_only_our_own_tools_are_run_here() -> None:
    ours, theirs = call(1), msgspec.structs.replace(call(2), is_callers=True)
    assert asks_for_our_tools(StopReason.TOOL_CALLS, (ours,))
    assert asks_for_our_tools(StopReason.TOOL_CALLS, (theirs, ours))
    assert not asks_for_our_tools(StopReason.TOOL_CALLS, (theirs,))
    assert not asks_for_our_tools(StopReason.TOOL_CALLS, ())
    assert not asks_for_our_tools(StopReason.STOP, (ours,))


def test_calls_of_the_callers_own_tools_are_left_open_and_end_the_turn() -> None:
    ours, theirs = call(1), msgspec.structs.replace(call(2), is_callers=True)
    asks = AssistantSaid(
        turn=TURN, attempt=1, message=MessageId("m"), text="", calls=(theirs, ours)
    )
    events: list[AnyEvent] = [queued(tools="[]"), asks]
    assert next_action(events, TurnFacts()) == RunCalls((ours,)), "ours runs first"

    events.append(ToolFinished(turn=TURN, call=ours.id, ending=CallEnding.RETURNED, result="done"))
    ended = next_action(events, TurnFacts())
    assert ended == Settle(outcome=Outcome.DONE, reason=StopReason.TOOL_CALLS)
    assert open_calls(events) == (theirs,)


SAID = AssistantSaid(turn=TURN, attempt=1, message=MessageId("m"), text="A beginning.")
EXPANDED = PromptExpanded(turn=TURN, message=MessageId("msg_0"), name="sea__tide", text="Tell it.")
FOUND = PromptFound(name="sea__tide", text="Tell it.")


def test_a_prompt_is_looked_for_once_before_the_model_is_asked() -> None:
    asked = queued(text="/sea__tide Brest")
    amended = TurnAmended(turn=TURN, message=asked.message, text="/sea__tide Dover")

    assert next_action([asked], TurnFacts()) == ExpandPrompt("/sea__tide Brest")
    assert next_action([asked, amended], TurnFacts()) == ExpandPrompt("/sea__tide Dover")
    assert next_action([asked], TurnFacts(prompt=NO_PROMPT)) == AskModel()
    assert next_action([asked, EXPANDED], TurnFacts()) == AskModel(), "after a crash"
    assert next_action([asked, EXPANDED], TurnFacts(prompt=FOUND)) == AskModel()
    assert next_action([asked, SAID], TurnFacts()) == AskModel(), "it was asked as it was typed"


@pytest.mark.parametrize(
    "asked",
    [
        {"text": "hello"},
        {"text": "/sea__tide Brest", "kind": TurnKind.SUMMARY},
        {"text": "/sea__tide Brest", "kind": TurnKind.MEMORY},
        {"text": "/sea__tide Brest", "passed_on": (Passage(0, 16),)},
    ],
    ids=["nothing named", "a summary", "memories", "a forward"],
)
def test_no_prompt_is_looked_for_where_no_person_has_named_one(asked: dict[str, Any]) -> None:
    assert not isinstance(next_action([queued(**asked)], TurnFacts()), ExpandPrompt)


def test_a_prompt_that_cannot_be_had_ends_the_turn() -> None:
    asked = queued(text="/sea__tide")
    wrong = PromptFound(name="sea__tide", problem="it needs place", is_mistake=True)
    away = PromptFound(name="sea__tide", problem="the server is down")

    assert next_action([asked], TurnFacts(prompt=wrong)) == Settle(
        outcome=Outcome.REFUSED, reason=StopReason.INVALID_REQUEST, detail="it needs place"
    )
    assert next_action([asked], TurnFacts(prompt=away)) == Settle(
        outcome=Outcome.FAILED, reason=StopReason.PROMPT_FAILED, detail="the server is down"
    )


def test_a_turn_begins_with_its_message() -> None:
    with pytest.raises(Corrupt):
        next_action([], TurnFacts())
