"""Checks that the turn machine takes the legal lives of a turn and no other, and that each standing
has one name."""

import re
from itertools import product

import pytest

from perdure.domain.errors import Conflict, Corrupt
from perdure.domain.ids import CallId, MessageId, NodeId, QuestionId, SessionId, TurnId
from perdure.domain.journal.events import (
    AttemptInterrupted,
    NoticePosted,
    TurnEvent,
    TurnMoved,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.question_events import (
    AnswerAwaited,
    AnswerReceived,
    WaitEnded,
    WorkDelegated,
    WorkReturned,
)
from perdure.domain.journal.session_events import TitleSet
from perdure.domain.outcomes import Interruption, Outcome
from perdure.domain.turn.standing import OpenTurn, SessionStanding, after
from perdure.domain.turn.turn import LEGAL, State, Turn, evolve, opened, require

TURN = TurnId("trn_1")
EVENTS: dict[type[TurnEvent], TurnEvent] = {
    TurnStarted: TurnStarted(turn=TURN, attempt=2, parent=TurnId("trn_0"), node=NodeId("nod_1")),
    AttemptInterrupted: AttemptInterrupted(turn=TURN, attempt=2, reason=Interruption.CRASH),
    TurnRequeued: TurnRequeued(turn=TURN, reason=Interruption.CRASH),
    TurnSettled: TurnSettled(turn=TURN, outcome=Outcome.DONE),
    AnswerAwaited: AnswerAwaited(turn=TURN, attempt=2, question=QuestionId("qst_1"), text="Go on?"),
    AnswerReceived: AnswerReceived(turn=TURN, question=QuestionId("qst_1"), answer="yes"),
    WaitEnded: WaitEnded(turn=TURN),
    WorkDelegated: WorkDelegated(
        turn=TURN, attempt=2, call=CallId("call_1"), errand=TurnId("trn_2"), agent="coder"
    ),
    WorkReturned: WorkReturned(turn=TURN, call=CallId("call_1"), errand=TurnId("trn_2")),
}
# The events of a turn as letters: Started, Interrupted, Requeued, Settled (Z), Waits, is Answered,
# and its wait Ends. Work that is given away is waited for like an answer; see below.
LETTERS = dict(zip("SIRZWAE", EVENTS.values(), strict=False))
# An attempt must be interrupted, or ask and wait until its wait ends, before the next one can
# begin. While it waits, questions are asked and answered. A turn may end once, at any time, and
# nothing follows. A waiting turn is not interrupted.
LIFE = re.compile(r"(SIR|SW[WA]*E)*(S?|SI|SW[WA]*)Z?")
STORIES = ["".join(letters) for length in range(7) for letters in product(LETTERS, repeat=length)]


def test_evolve_takes_what_is_legal_and_nothing_else() -> None:
    # Tries all sequences of up to six events: each is a legal life, or refused.
    for story in STORIES:
        turn = Turn(id=TURN)
        try:
            for letter in story:
                turn = evolve(turn, LETTERS[letter])
        except Corrupt:
            assert not LIFE.fullmatch(story), f"{story} is a life, and was refused"
        else:
            assert LIFE.fullmatch(story), f"{story} is no life, and was taken"
            assert (turn.state is State.SETTLED) == story.endswith("Z")
            assert (turn.outcome is not None) == story.endswith("Z")


@pytest.mark.parametrize(("state", "kind"), list(product(State, EVENTS)))
def test_deciding_and_folding_agree(state: State, kind: type[TurnEvent]) -> None:
    # A decision that is allowed must give an event that may be recorded, with the same result.
    try:
        folded = evolve(Turn(id=TURN, state=state), EVENTS[kind]).state
    except Corrupt:
        with pytest.raises(Conflict) as refused:
            require(state, kind, turn=TURN)
        assert refused.value.code == f"already_{state}"
    else:
        assert require(state, kind, turn=TURN) is folded


def test_who_waits_for_an_answer_goes_back_to_the_line_or_ends_and_is_never_interrupted() -> None:
    exits = {kind: after for (state, kind), after in LEGAL.items() if state is State.WAITING}
    assert exits == {
        AnswerAwaited: State.WAITING,  # several questions are asked at once
        AnswerReceived: State.WAITING,
        WorkDelegated: State.WAITING,
        WorkReturned: State.WAITING,
        WaitEnded: State.QUEUED,
        TurnSettled: State.SETTLED,
    }


def test_work_that_is_given_away_is_waited_for_like_an_answer() -> None:
    for state in State:
        for work, question in ((WorkDelegated, AnswerAwaited), (WorkReturned, AnswerReceived)):
            assert LEGAL.get((state, work)) == LEGAL.get((state, question))


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
def test_only_what_the_turn_may_have_caused_counts(reason: Interruption) -> None:
    counts = {Interruption.CRASH, Interruption.DRAIN_TIMEOUT, Interruption.AGENT_LOST}
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
    standing = SessionStanding(session=SessionId("ses_1"), open_turns=turns, is_suspended=suspended)

    assert (standing.state, standing.turn, standing.queued) == (state, turn, queued)
    assert standing.resume_reason == reason


def test_the_tip_is_what_has_started_else_the_head() -> None:
    idle = SessionStanding(session=SessionId("ses_1"), head=TurnId("head"), open_turns=(QUEUED,))
    busy = SessionStanding(
        session=SessionId("ses_1"), head=TurnId("head"), open_turns=(RUNNING, QUEUED)
    )

    assert (idle.tip, busy.tip) == ("head", "running")


def test_a_standing_follows_its_events() -> None:
    second = TurnId("trn_2")
    standing = SessionStanding(session=SessionId("ses_1"))
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


def test_an_answered_turn_waits_in_line_and_is_not_resumed() -> None:
    standing = SessionStanding(session=SessionId("ses_1"))
    story = [
        (TurnQueued(turn=TURN, message=MessageId("m"), text=""), "running"),
        (EVENTS[TurnStarted], "running"),
        (EVENTS[AnswerAwaited], "waiting"),
        (EVENTS[AnswerAwaited], "waiting"),
        (EVENTS[AnswerReceived], "waiting"),
        (EVENTS[AnswerReceived], "waiting"),
        (EVENTS[WaitEnded], "running"),
        (EVENTS[TurnStarted], "running"),
    ]
    for event, state in story:
        standing = after(standing, event)
        assert (standing.state, standing.resume_reason) == (state, ""), event


def test_what_an_agent_asks_is_not_the_question_whether_to_continue() -> None:
    # The buttons below the conversation answer our question; an agent's question has its own.
    queued = TurnQueued(turn=TURN, message=MessageId("m"), text="")
    asked = NoticePosted(
        message=MessageId("n"),
        text="May I?",
        about=TURN,
        choices=("Allow", "Deny"),
        question=QuestionId("qst_1"),
    )
    standing = SessionStanding(session=SessionId("ses_1"))
    for event in (queued, EVENTS[TurnStarted], EVENTS[AnswerAwaited], asked):
        standing = after(standing, event)
        assert standing.choices == (), event
    assert standing.state == "waiting"


def test_a_standing_knows_its_title_and_the_question_it_waits_with() -> None:
    queued = TurnQueued(turn=TURN, message=MessageId("m"), text="")
    asked = NoticePosted(
        message=MessageId("n"), text="Go on?", about=TURN, choices=("continue", "drop")
    )
    interrupted = EVENTS[AttemptInterrupted]
    standing = SessionStanding(session=SessionId("ses_1"))
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
