"""Checks what a node logs about its own life: bad endings, and little else."""

import pytest
from structlog.testing import capture_logs

from perdure.app.life.life_log import DETAIL_MAX, LifeLog, tell_of_migrations
from perdure.domain.ids import NodeId, SessionId, TurnId
from perdure.domain.journal.events import AnyEvent, Recorded, TurnSettled, TurnStarted
from perdure.domain.outcomes import Outcome
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


def test_migrations_of_a_new_database_are_one_line_and_others_name_the_copy() -> None:
    with capture_logs() as lines:
        tell_of_migrations([])
        tell_of_migrations([Applied(n, "step", is_new=True) for n in (1, 2)])
        tell_of_migrations([Applied(3, "step", is_new=False, copy="perdure.db.before-0003")])
    assert [(line["event"], line.get("copy")) for line in lines] == [
        ("a new database was made", None),
        ("migration applied", "perdure.db.before-0003"),
    ]
