"""Every (state, event) pair of a turn is legal or refused; every standing has one name."""

from itertools import product

import pytest

from perdure.domain.errors import Conflict, Corrupt
from perdure.domain.events import (
    AttemptInterrupted,
    NoticePosted,
    TitleSet,
    TurnEvent,
    TurnMoved,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.ids import MessageId, NodeId, SessionId, TurnId
from perdure.domain.outcomes import Interruption, Outcome
from perdure.domain.standing import OpenTurn, Standing, after
from perdure.domain.turn import LEGAL, State, Turn, evolve, opened, require

TURN = TurnId("trn_1")
EVENTS: dict[type[TurnEvent], TurnEvent] = {
    TurnStarted: TurnStarted(turn=TURN, attempt=2, parent=TurnId("trn_0"), node=NodeId("nod_1")),
    AttemptInterrupted: AttemptInterrupted(turn=TURN, attempt=2, reason=Interruption.CRASH),
    TurnRequeued: TurnRequeued(turn=TURN, reason=Interruption.CRASH),
    TurnSettled: TurnSettled(turn=TURN, outcome=Outcome.DONE),
}
# Written out a second time on purpose: a change of the machine must be made twice.
EXPECTED = {
    (State.QUEUED, TurnStarted): State.RUNNING,
    (State.QUEUED, TurnSettled): State.SETTLED,
    (State.RUNNING, TurnSettled): State.SETTLED,
    (State.RUNNING, AttemptInterrupted): State.INTERRUPTED,
    (State.WAITING, TurnSettled): State.SETTLED,
    (State.WAITING, AttemptInterrupted): State.INTERRUPTED,
    (State.INTERRUPTED, TurnRequeued): State.QUEUED,
    (State.INTERRUPTED, TurnSettled): State.SETTLED,
}
PAIRS = list(product(State, EVENTS))


@pytest.mark.parametrize(("state", "kind"), PAIRS)
def test_evolve_takes_what_is_legal_and_nothing_else(state: State, kind: type[TurnEvent]) -> None:
    turn = Turn(id=TURN, state=state)
    if (state, kind) in EXPECTED:
        assert evolve(turn, EVENTS[kind]).state is EXPECTED[state, kind]
    else:
        with pytest.raises(Corrupt, match="not possible"):
            evolve(turn, EVENTS[kind])


@pytest.mark.parametrize(("state", "kind"), PAIRS)
def test_require_decides_the_same(state: State, kind: type[TurnEvent]) -> None:
    if (state, kind) in EXPECTED:
        assert require(state, kind, turn=TURN) is EXPECTED[state, kind]
    else:
        with pytest.raises(Conflict) as refused:
            require(state, kind, turn=TURN)
        assert refused.value.code == f"already_{state}"


def test_the_table_is_the_whole_machine() -> None:
    assert LEGAL == EXPECTED
    assert all(state is not State.SETTLED for state, _ in LEGAL), "nothing follows the end"
    reachable = {State.QUEUED} | set(LEGAL.values())
    assert set(State) - reachable == {State.WAITING}, "waiting begins with approvals"


def test_a_turns_life_is_folded() -> None:
    turn = opened(TurnQueued(turn=TURN, message=MessageId("msg_1"), text="hi"))
    assert turn == Turn(id=TURN)

    for event in (EVENTS[TurnStarted], EVENTS[AttemptInterrupted]):
        turn = evolve(turn, event)
    assert (turn.attempts, turn.parent, turn.interruption) == (2, "trn_0", Interruption.CRASH)

    for event in (EVENTS[TurnRequeued], EVENTS[TurnStarted], EVENTS[TurnSettled]):
        turn = evolve(turn, event)
    assert (turn.state, turn.outcome, turn.interruption) == (
        State.SETTLED,
        Outcome.DONE,
        None,
    )


@pytest.mark.parametrize("reason", Interruption)
def test_only_what_nobody_planned_counts(reason: Interruption) -> None:
    counts = {Interruption.CRASH, Interruption.DRAIN_TIMEOUT}
    assert reason.counts_towards_limit == (reason in counts)


def open_turn(name: str, state: State = State.QUEUED, *, attempts: int = 0) -> OpenTurn:
    return OpenTurn(id=TurnId(name), state=state, attempts=attempts, reason="crash")


QUEUED = open_turn("queued")
RUNNING = open_turn("running", State.RUNNING, attempts=1)
WAITING = open_turn("waiting", State.WAITING, attempts=1)
INTERRUPTED = open_turn("interrupted", State.INTERRUPTED, attempts=1)
REQUEUED = open_turn("requeued", attempts=1)


@pytest.mark.parametrize(
    ("turns", "suspended", "state", "turn", "queued", "reason"),
    [
        ((), False, "idle", None, 0, ""),
        ((), True, "suspended", None, 0, ""),
        ((RUNNING,), True, "suspended", "running", 0, ""),
        ((QUEUED,), False, "running", "queued", 1, ""),
        ((RUNNING, QUEUED), False, "running", "running", 1, ""),
        ((WAITING, QUEUED), False, "waiting", "waiting", 1, ""),
        ((INTERRUPTED,), False, "resume_pending", "interrupted", 0, "crash"),
        ((INTERRUPTED, QUEUED), False, "resume_pending", "interrupted", 1, "crash"),
        ((REQUEUED,), False, "resume_pending", "requeued", 1, "crash"),
        ((REQUEUED, QUEUED), False, "resume_pending", "requeued", 2, "crash"),
        ((QUEUED, RUNNING), False, "running", "running", 1, ""),
    ],
)
def test_a_standing_has_one_name(  # the order of precedence, row by row
    turns: tuple[OpenTurn, ...],
    suspended: bool,
    state: str,
    turn: str | None,
    queued: int,
    reason: str,
) -> None:
    standing = Standing(session=SessionId("ses_1"), open_turns=turns, is_suspended=suspended)

    assert (standing.state, standing.turn, standing.queued) == (state, turn, queued)
    assert standing.resume_reason == reason


def test_the_tip_is_what_has_started_else_the_head() -> None:
    idle = Standing(session=SessionId("ses_1"), head=TurnId("head"), open_turns=(QUEUED,))
    busy = Standing(session=SessionId("ses_1"), head=TurnId("head"), open_turns=(RUNNING, QUEUED))

    assert (idle.tip, busy.tip) == ("head", "running")


def test_a_standing_follows_its_events() -> None:
    second = TurnId("trn_2")
    standing = Standing(session=SessionId("ses_1"))
    story = [
        (TurnQueued(turn=TURN, message=MessageId("m"), text=""), "running", None),
        (EVENTS[TurnStarted], "running", None),
        (TurnQueued(turn=second, message=MessageId("n"), text=""), "running", None),
        (EVENTS[AttemptInterrupted], "resume_pending", None),
        (EVENTS[TurnRequeued], "resume_pending", None),
        (EVENTS[TurnStarted], "running", None),
        (EVENTS[TurnSettled], "running", TURN),
        (TurnSettled(turn=second, outcome=Outcome.STOPPED), "idle", TURN),
    ]
    for event, state, head in story:
        standing = after(standing, event)
        assert (standing.state, standing.head) == (state, head), event

    waiting = after(standing, TurnQueued(turn=second, message=MessageId("n"), text=""))
    assert after(waiting, TurnMoved(turn=second, to=SessionId("ses_2"))) == standing
    suspended = after(standing, TurnSettled(turn=TURN, outcome=Outcome.SUSPENDED))
    assert suspended.state == "suspended"


def test_a_standing_knows_its_title_and_the_question_it_waits_with() -> None:
    queued = TurnQueued(turn=TURN, message=MessageId("m"), text="")
    asked = NoticePosted(
        message=MessageId("n"), text="Go on?", about=TURN, choices=("continue", "drop")
    )
    interrupted = EVENTS[AttemptInterrupted]
    standing = Standing(session=SessionId("ses_1"))
    story = [
        (queued, ()),
        (EVENTS[TurnStarted], ()),
        (interrupted, ()),
        (asked, ("continue", "drop")),
        (TitleSet(title="Beans"), ("continue", "drop")),
        (EVENTS[TurnRequeued], ()),
        (EVENTS[TurnStarted], ()),
        (interrupted, ()),
    ]
    for event, choices in story:
        standing = after(standing, event)
        assert standing.choices == choices, event
    assert standing.title == "Beans"
