"""Checks what a node logs about its own life: bad endings, and little else."""

import pytest
from structlog.testing import capture_logs

from perdure.app.life.life_log import DETAIL_MAX, LifeLog, tell_of_migrations
from perdure.domain.ids import CallId, MessageId, NodeId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    Recorded,
    ToolFinished,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.session_events import WindowExceeded
from perdure.domain.outcomes import CallEnding, Outcome, StopReason
from perdure.domain.turn.overflow import too_long
from perdure.store.migrations import Applied


def recorded(event: AnyEvent, at: int = 0) -> Recorded:
    return Recorded(session=SessionId("ses_1"), seq=1, at=at, event=event)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_bad_ending_is_one_line_with_reason_and_detail(outcome: Outcome) -> None:
    turn = TurnId("trn_1")
    started = TurnStarted(turn=turn, attempt=1, parent=None, node=NodeId("nod_1"))
    detail = "it\nsaid " + "no " * 1000
    settled = TurnSettled(turn=turn, outcome=outcome, reason="why", detail=detail, agent="main")
    chronicle = LifeLog()
    with capture_logs() as lines:
        chronicle.observe(recorded(started, at=1_000))
        chronicle.observe(recorded(settled, at=1_250))
    if outcome not in (Outcome.FAILED, Outcome.SUSPENDED, Outcome.INTERRUPTED):
        assert lines == []
        return
    (line,) = lines
    assert (line["event"], line["log_level"]) == (f"turn {outcome}", "warning")
    assert (line["turn"], line["session"], line["reason"]) == (turn, "ses_1", "why")
    assert line["ms"] == 250
    assert line["detail"].startswith("it said no no")
    assert len(line["detail"]) == DETAIL_MAX


def test_a_suspended_turn_says_what_that_means_though_its_ending_has_no_detail() -> None:
    settled = TurnSettled(turn=TurnId("trn_1"), outcome=Outcome.SUSPENDED, reason="crash")
    with capture_logs() as lines:
        LifeLog().observe(recorded(settled))
    (line,) = lines
    assert (line["event"], line["reason"]) == ("turn suspended", "crash")
    assert "interrupted too often" in line["detail"]


@pytest.mark.parametrize("words", ["my secret garden", "he said “yes” to\nmy secret”, twice"])
@pytest.mark.parametrize("of_a_tool", [True, False])
def test_a_turn_that_was_too_long_is_logged_without_its_words(words: str, of_a_tool: bool) -> None:
    turn = TurnId("trn_1")
    long = f"{words} " * 1000
    said = TurnQueued(turn=turn, message=MessageId("msg_1"), text="hi" if of_a_tool else long)
    found = ToolFinished(
        turn=turn,
        call=CallId("c"),
        ending=CallEnding.RETURNED,
        result=long if of_a_tool else "",
    )
    refused = WindowExceeded(turn=turn, agent="main", model="m", tokens=3000, window=2000)
    detail = too_long([said, found, refused], detail="the server said: it has “no” room")
    assert "secret" in detail

    with capture_logs() as lines:
        reason = StopReason.CONTEXT_EXCEEDED
        settled = TurnSettled(turn=turn, outcome=Outcome.FAILED, reason=reason, detail=detail)
        LifeLog().observe(recorded(settled))

    (line,) = lines
    what = "the result “…” of a tool" if of_a_tool else "the message “…”"
    assert line["detail"].startswith(f"{what} is too long for the model, whose window has 2,000")
    assert line["detail"].endswith("the server said: it has “no” room.")
    assert not any(word in line["detail"] for word in ("secret", "yes", "twice"))


def test_migrations_of_a_new_database_are_one_line_and_others_name_the_copy() -> None:
    with capture_logs() as lines:
        tell_of_migrations([])
        tell_of_migrations([Applied(n, "step", is_new=True) for n in (1, 2)])
        tell_of_migrations([Applied(3, "step", is_new=False, copy="perdure.db.before-0003")])
    assert [(line["event"], line.get("copy")) for line in lines] == [
        ("a new database was made", None),
        ("migration applied", "perdure.db.before-0003"),
    ]
