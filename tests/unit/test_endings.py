"""Checks what people are told about how a turn ended, and what only operators are told."""

import pytest

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import TurnSettled
from perdure.domain.journal.model.reach import AT_ONCE, Missed, Reach
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.turn.endings import (
    Audience,
    ending_text,
    reach_as_told,
    reached,
    standing_in,
    visible_reason,
)

TURN = TurnId("trn_1")
SECRET = "http://10.0.0.7:8000/v1 refused the key (401); check api_key of agent main"
FAILURES = [reason for reason in StopReason if not reason.is_finish]
FOR_EVERYBODY = (StopReason.BUDGET, StopReason.CONTENT_REFUSED, StopReason.INVALID_REQUEST)


def ending(
    outcome: Outcome,
    reason: str,
    *,
    detail: str = "",
    audience: Audience = Audience.PEOPLE,
    has_text: bool = True,
    is_silent: bool = False,
) -> str:
    return ending_text(
        outcome,
        reason,
        detail,
        turn=TURN,
        audience=audience,
        has_text=has_text,
        is_silent=is_silent,
    )


@pytest.mark.parametrize("reason", [each for each in FAILURES if each not in FOR_EVERYBODY])
def test_people_are_told_what_happened_and_no_internals(reason: StopReason) -> None:
    text = ending(Outcome.FAILED, reason, detail=SECRET)

    assert "http" not in text
    assert "api_key" not in text
    assert "main" not in text
    assert "/retry" in text
    assert TURN in text
    assert visible_reason(Outcome.FAILED, reason, SECRET, Audience.PEOPLE)


@pytest.mark.parametrize("reason", [each for each in FAILURES if each not in FOR_EVERYBODY])
def test_operators_are_told_all_and_where_there_is_more(reason: StopReason) -> None:
    text = ending(Outcome.FAILED, reason, detail=SECRET, audience=Audience.OPERATORS)

    assert SECRET in text
    assert f"perdure explain {TURN}" in text


@pytest.mark.parametrize("reason", FOR_EVERYBODY)
def test_what_a_person_has_asked_for_is_explained_to_them(reason: StopReason) -> None:
    assert visible_reason(Outcome.FAILED, reason, "too much", Audience.PEOPLE) == "too much"
    assert ending(Outcome.REFUSED, reason, detail="too much") == "too much"
    for audience in Audience:
        assert TURN not in ending(Outcome.FAILED, reason, detail="too much", audience=audience)


def test_a_reason_that_nobody_knows_is_told_to_operators_only() -> None:
    assert SECRET not in visible_reason(Outcome.FAILED, "brand new", SECRET, Audience.PEOPLE)
    assert visible_reason(Outcome.DONE, "stop", SECRET, Audience.PEOPLE) == ""


@pytest.mark.parametrize(
    ("reason", "has_text", "is_silent", "words"),
    [
        ("stop", True, False, ""),
        ("stop", False, True, "answered nothing."),
        ("stop", True, True, "answered nothing more"),
        ("length", True, False, "/continue"),
        ("length", False, True, "/retry"),
        ("content_filter", True, False, "held back the rest"),
        ("content_filter", False, True, "held it back"),
    ],
)
def test_an_answer_that_is_not_whole_says_so(
    reason: str, *, has_text: bool, is_silent: bool, words: str
) -> None:
    text = ending(Outcome.DONE, reason, has_text=has_text, is_silent=is_silent)

    assert (words in text) if words else not text


def test_how_an_answer_failed_depends_on_whether_there_is_one() -> None:
    cut = StopReason.PROVIDER_CUT
    assert "The answer ends here" in ending(Outcome.FAILED, cut, detail="x")
    assert "There is no answer" in ending(Outcome.FAILED, cut, detail="x", has_text=False)


@pytest.mark.parametrize("why", ["is the server running?", "it is down!", "it failed.", "wait …"])
def test_a_reason_that_ends_as_a_sentence_gets_no_full_stop(why: str) -> None:
    text = ending(Outcome.FAILED, "agent_error", detail=why, audience=Audience.OPERATORS)

    assert f"{why} /retry" in text


GONE = Missed(agent="main", reason=StopReason.PROVIDER_UNREACHABLE, detail=SECRET)


def test_an_answer_of_another_agent_names_both() -> None:
    note = standing_in("spare", Reach(missed=(GONE,)), Audience.PEOPLE)

    assert note == "Answered by spare: main was away (the model's server cannot be reached)."
    assert SECRET in standing_in("spare", Reach(missed=(GONE,)), Audience.OPERATORS)
    assert standing_in("main", Reach(missed=(GONE,)), Audience.PEOPLE) == ""
    assert standing_in("main", AT_ONCE, Audience.PEOPLE) == ""


@pytest.mark.parametrize(
    ("outcome", "agent", "lines"),
    [
        (
            Outcome.DONE,
            "spare",
            ["waited 7 s for an agent", "Answered by spare: main was away (…)."],
        ),
        (Outcome.DONE, "main", ["waited 7 s for an agent", "main was away (…) before it answered"]),
        (Outcome.FAILED, "main", ["waited 7 s for an agent"]),
        (Outcome.FAILED, "spare", ["waited 7 s for an agent", "main was away (…)"]),
    ],
)
def test_what_it_took_is_explained(outcome: Outcome, agent: str, lines: list[str]) -> None:
    reach = Reach(missed=(GONE,), waited_s=7)
    settled = TurnSettled(turn=TURN, outcome=outcome, agent=agent, reach=reach)

    told_so = reached(settled, Audience.PEOPLE)

    assert told_so == [line.replace("…", "the model's server cannot be reached") for line in lines]


def test_why_an_agent_did_not_answer_is_for_operators() -> None:
    reach = Reach(missed=(GONE,))

    assert SECRET not in repr(reach_as_told(reach, Audience.PEOPLE))
    assert reach_as_told(reach, Audience.OPERATORS) == reach


def test_a_refusal_says_itself_how_to_try_again() -> None:
    detail = "the model's server refuses the picture: too dark; /retry sends it again"
    text = ending(Outcome.FAILED, StopReason.CONTENT_REFUSED, detail=detail)

    assert text.count("/retry") == 1
