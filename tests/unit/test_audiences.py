"""Checks what people read about an ending over HTTP, and what operators read about it."""

import msgspec
import pytest

from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.events import AssistantSaid, Recorded
from perdure.domain.journal.model.thoughts import Thought, Thoughts
from perdure.domain.journal.transcript import Entry
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.turn.endings import Audience
from perdure.domain.turn.watching import OutcomeNews, Position, Told
from perdure.web.api.events import FRAMES_MAX, Frames
from perdure.web.audiences import as_told, event_as_told

INTERNAL = "http://10.0.0.7:8000/v1 refused the key"
FAILED = OutcomeNews(
    turn=TurnId("trn_1"),
    outcome=Outcome.FAILED,
    reason=StopReason.PROVIDER_REJECTED,
    detail=INTERNAL,
)


def test_people_read_no_internals_and_operators_do() -> None:
    assert as_told(FAILED, Audience.OPERATORS).detail == INTERNAL
    told = as_told(FAILED, Audience.PEOPLE).detail
    assert told
    assert INTERNAL not in told


def test_everybody_reads_the_ending_in_a_sentence() -> None:
    for audience in Audience:
        ending = as_told(FAILED, audience).ending
        assert ending == "The model's server refused the request. /retry asks again."


@pytest.mark.parametrize(
    ("outcome", "reason", "text", "words"),
    [
        (Outcome.DONE, StopReason.STOP, "", "answered nothing"),
        (Outcome.DONE, StopReason.STOP, "Well.", ""),
        (Outcome.DONE, StopReason.LENGTH, "Well", "/continue"),
        (Outcome.FAILED, StopReason.PROVIDER_UNREACHABLE, "Well", "cannot be reached"),
        (Outcome.FAILED, StopReason.CONTEXT_EXCEEDED, "", "/compact"),
        (Outcome.REFUSED, StopReason.BUDGET, "", "no room"),
        (Outcome.SUSPENDED, "", "", "too often"),
    ],
)
def test_each_ending_says_what_happened(
    outcome: Outcome, reason: str, text: str, words: str
) -> None:
    entry = Entry(
        id="msg_1",
        role="assistant",
        text=text,
        turn=TurnId("trn_1"),
        at=1,
        outcome=outcome,
        reason=reason,
        detail="no room" if outcome is Outcome.REFUSED else "",
    )
    ending = as_told(entry, Audience.PEOPLE).ending

    assert words in ending
    assert bool(words) == bool(ending)


def test_an_entry_that_ends_nothing_is_told_as_it_is() -> None:
    entry = Entry(id="msg_1", role="user", text="", turn=TurnId("trn_1"), at=1)

    assert as_told(entry, Audience.PEOPLE) is entry


def test_only_operators_read_what_a_model_thought() -> None:
    thoughts = Thoughts(thinker="m", pieces=(Thought(kind="reasoning", body='"hm"'),))
    said = AssistantSaid(
        turn=TurnId("trn_1"), attempt=1, message=MessageId("msg_1"), text="Well.", thoughts=thoughts
    )
    stored = Recorded(session=SessionId("ses_1"), seq=1, at=0, event=said)

    assert event_as_told(stored, Audience.OPERATORS) == stored
    told = event_as_told(stored, Audience.PEOPLE).event
    assert told == msgspec.structs.replace(said, thoughts=None)


def test_a_frame_that_was_made_for_operators_is_not_given_to_people() -> None:
    frames = Frames()
    told: Told = (Position(1, 1), FAILED)

    assert INTERNAL.encode() in frames.of(told, Audience.OPERATORS)
    assert INTERNAL.encode() not in frames.of(told, Audience.PEOPLE)
    assert INTERNAL.encode() in frames.of(told, Audience.OPERATORS)


def test_only_so_many_frames_are_kept() -> None:
    frames = Frames()
    for number in range(FRAMES_MAX + 50):
        frames.of((Position(1, number), FAILED), Audience.PEOPLE)

    assert len(frames._kept) == FRAMES_MAX
