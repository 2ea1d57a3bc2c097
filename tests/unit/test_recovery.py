"""Checks what becomes of an interrupted turn, case by case."""

import msgspec
import pytest

from perdure.domain.ids import CallId, MessageId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    Recorded,
    SteerAccepted,
    SteerTaken,
    ToolCall,
    TurnQueued,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, NodeRequest, Repeat
from perdure.domain.prompt.prompt import Note
from perdure.domain.turn.announcing import Drain, UnderWay, shutdown_text, too_old_text
from perdure.domain.turn.recovery import (
    Fate,
    Policy,
    Resume,
    Telling,
    closed,
    fate,
    has_untaken_steers,
    may_have_happened,
    messages_with_notes,
    question_text,
    why,
)

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("resume", "age_ms", "alone", "followed"),
    [
        (Resume.CONTINUE, 0, Fate.GOES_ON, Fate.GOES_ON),
        (Resume.CONTINUE, HOUR_MS, Fate.GOES_ON, Fate.GOES_ON),
        (Resume.CONTINUE, HOUR_MS + 1, Fate.TOO_OLD, Fate.MAKES_WAY),
        (Resume.ASK, 0, Fate.ASKS, Fate.MAKES_WAY),
        (Resume.ASK, HOUR_MS + 1, Fate.TOO_OLD, Fate.MAKES_WAY),
        (Resume.WAIT, 0, Fate.WAITS, Fate.MAKES_WAY),
        (Resume.WAIT, HOUR_MS + 1, Fate.WAITS, Fate.MAKES_WAY),
    ],
)
def test_what_has_been_said_since_is_the_next_message(
    resume: Resume, age_ms: int, alone: Fate, followed: Fate
) -> None:
    policy = Policy(resume=resume, freshness_ms=HOUR_MS)

    assert fate(policy, kind=TurnKind.MESSAGE, age_ms=age_ms, is_followed=False) is alone
    assert fate(policy, kind=TurnKind.MESSAGE, age_ms=age_ms, is_followed=True) is followed


@pytest.mark.parametrize("resume", list(Resume))
@pytest.mark.parametrize("is_followed", [False, True])
def test_what_nobody_watches_over_always_goes_on(resume: Resume, is_followed: bool) -> None:
    policy = Policy(resume=resume, freshness_ms=1)

    assert fate(policy, kind=TurnKind.CALL, age_ms=2, is_followed=is_followed) is Fate.GOES_ON


def test_without_a_limit_nothing_is_too_old() -> None:
    policy = Policy(freshness_ms=0)

    assert fate(policy, kind=TurnKind.MESSAGE, age_ms=10**12, is_followed=True) is Fate.GOES_ON


IN_TIME = "if the gateway is back within an hour"
LATER = "if it is back later"
GOES_ON = "it goes on by itself afterwards"
IS_ASKED = "you will be asked afterwards whether it should go on"
NEXT = "your next message goes on from here"
SINCE = "what was said since is answered"
AFTERWARDS = [
    # What people are told of a turn that the drain cuts short, if it may be interrupted once more.
    (Policy(), UnderWay(), [IN_TIME, GOES_ON, LATER, NEXT]),
    (Policy(), UnderWay(is_followed=True), [IN_TIME, GOES_ON, LATER, SINCE]),
    (Policy(freshness_ms=0), UnderWay(), [GOES_ON]),
    (Policy(resume=Resume.ASK), UnderWay(), [IN_TIME, IS_ASKED, LATER, NEXT]),
    (Policy(resume=Resume.ASK, freshness_ms=0), UnderWay(), [IS_ASKED]),
    (Policy(resume=Resume.ASK), UnderWay(is_followed=True), [SINCE]),
    (Policy(resume=Resume.WAIT), UnderWay(), [NEXT]),
    (Policy(resume=Resume.WAIT), UnderWay(is_followed=True), [SINCE]),
    *((Policy(resume=resume), UnderWay(kind=TurnKind.CALL), [GOES_ON]) for resume in Resume),
]


@pytest.mark.parametrize(("policy", "turn", "said"), AFTERWARDS)
def test_a_drain_promises_what_the_policy_does_and_no_more(
    policy: Policy, turn: UnderWay, said: list[str]
) -> None:
    text = shutdown_text(policy, Drain(), turn)

    promises = [each for each in (IN_TIME, GOES_ON, IS_ASKED, LATER, NEXT, SINCE) if each in text]
    assert promises == said
    assert "given up" not in text


@pytest.mark.parametrize("resume", list(Resume))
@pytest.mark.parametrize("kind", [TurnKind.MESSAGE, TurnKind.CALL])
@pytest.mark.parametrize(
    ("strikes", "timeout_s", "is_given_up"),
    [(0, 30, False), (1, 30, False), (2, 30, True), (3, 30, True), (2, 0, False)],
)
def test_the_last_interruption_that_is_allowed_is_said_to_be_the_last(
    resume: Resume, kind: TurnKind, strikes: int, timeout_s: float, is_given_up: bool
) -> None:
    # Only a drain that ran out of time counts as an interruption: one that does not wait at all
    # does not.
    policy, turn = Policy(resume=resume, attempts_max=3), UnderWay(kind=kind, strikes=strikes)

    text = shutdown_text(policy, Drain(timeout_s=timeout_s), turn)

    assert ("given up" in text) == ("/retry" in text) == is_given_up
    assert ("goes on" in text or "asked" in text) == (not is_given_up)


@pytest.mark.parametrize(
    ("freshness_s", "words"),
    [(3600, "an hour"), (7200, "2 hours"), (90, "90 seconds"), (60, "a minute"), (1, "a second")],
)
def test_a_limit_is_told_in_words(freshness_s: int, words: str) -> None:
    policy = Policy(freshness_ms=freshness_s * 1000)

    assert f"back within {words}," in shutdown_text(policy, Drain(), UnderWay())
    assert f"more than {words} ago" in too_old_text(policy, Interruption.CRASH, NodeRequest.NOTHING)


@pytest.mark.parametrize("reason", list(Interruption))
@pytest.mark.parametrize("asked", list(NodeRequest))
def test_only_a_restart_is_told_as_one(reason: Interruption, asked: NodeRequest) -> None:
    is_late = reason is Interruption.DRAIN_TIMEOUT
    is_restart = reason is Interruption.RESTART or (is_late and asked is NodeRequest.RESTART)

    for text in (why(reason, asked), question_text(reason, asked)):
        assert ("restarted" in text) == is_restart


def test_what_is_about_to_happen_is_called_by_its_name() -> None:
    for asked, name in ((NodeRequest.RESTART, "restart"), (NodeRequest.STOP, "stop")):
        text = shutdown_text(Policy(), Drain(asked=asked), UnderWay())
        assert text.startswith(f"The gateway is about to {name}.")


def call(name: str, arguments: str, number: int = 2) -> ToolCall:
    return ToolCall(id=CallId(f"call_{number}"), name=name, arguments=arguments, repeat=Repeat.ONCE)


@pytest.mark.parametrize(
    ("name", "arguments", "ending", "is_the_same"),
    [
        ("pay", '{"to":"bob","sum":10}', CallEnding.UNKNOWN, True),
        ("pay", '{ "sum": 10, "to": "bob" }', CallEnding.UNKNOWN, True),
        ("pay", '{"to":"bob","sum":11}', CallEnding.UNKNOWN, False),
        ("ask", '{"to":"bob","sum":10}', CallEnding.UNKNOWN, False),
        ("pay", '{"to":"bob","sum":10}', CallEnding.INTERRUPTED, False),
        ("pay", '{"to":"bob","sum":10}', CallEnding.FAILED, False),
        ("pay", "no JSON", CallEnding.UNKNOWN, False),
    ],
)
def test_a_call_of_unknown_fate_is_recognized_however_it_is_written(
    name: str, arguments: str, ending: CallEnding, is_the_same: bool
) -> None:
    turn, made = TurnId("trn_1"), call("pay", '{"to":"bob","sum":10}', 1)
    said = AssistantSaid(turn=turn, attempt=1, message=MessageId("msg_1"), text="", calls=(made,))
    result = closed(turn, made.id, CallEnding.UNKNOWN)
    events: list[AnyEvent] = [said, msgspec.structs.replace(result, ending=ending)]

    assert may_have_happened(call(name, arguments), events) is is_the_same


@pytest.mark.parametrize(
    ("taken", "has_more"), [((), True), (("one",), True), (("one", "two"), False)]
)
def test_a_turn_has_messages_to_take_until_it_has_taken_all_of_them(
    taken: tuple[str, ...], has_more: bool
) -> None:
    turn = TurnId("trn_1")
    events: list[AnyEvent] = [
        SteerAccepted(turn=turn, message=MessageId(text), text=text) for text in ("one", "two")
    ]
    events += [SteerTaken(turn=turn, message=MessageId(text), text=text) for text in taken]
    recorded = [
        Recorded(session=SessionId("ses_1"), seq=seq, at=1, event=event)
        for seq, event in enumerate(events, 1)
    ]

    assert has_untaken_steers(recorded) is has_more


@pytest.mark.parametrize("ending", [CallEnding.UNKNOWN, CallEnding.INTERRUPTED])
def test_the_model_is_told_which_calls_it_may_make_again(ending: CallEnding) -> None:
    turn, made = TurnId("trn_1"), call("pay", "{}", 1)
    events: list[AnyEvent] = [
        TurnQueued(turn=turn, message=MessageId("msg_0"), text="pay"),
        AssistantSaid(turn=turn, attempt=1, message=MessageId("msg_1"), text="", calls=(made,)),
        closed(turn, made.id, ending),
        AttemptInterrupted(turn=turn, attempt=1, reason=Interruption.CRASH, tail="", alive_at=1),
    ]
    recorded = [
        Recorded(session=SessionId("ses_1"), seq=seq, at=1, event=event)
        for seq, event in enumerate(events, 1)
    ]

    told = messages_with_notes(recorded, Telling(interruptions=(recorded[-1],)))
    (note,) = [block.text for block in told[-1].blocks if isinstance(block, Note)]

    assert ("ask the person first" in note) is (ending is CallEnding.UNKNOWN)
    assert ("may be made again" in note) is (ending is CallEnding.INTERRUPTED)


def note_told(events: list[AnyEvent], interruption: AttemptInterrupted, *, next_turn: bool) -> str:
    """Return the note about an interruption, in a request of its own turn or of the next one."""
    own = [
        Recorded(session=SessionId("ses_1"), seq=seq, at=1, event=event)
        for seq, event in enumerate([*events, interruption], 1)
    ]
    newer = TurnQueued(turn=TurnId("trn_2"), message=MessageId("msg_9"), text="rather this")
    if next_turn:
        turn = [Recorded(session=SessionId("ses_1"), seq=len(own) + 1, at=2, event=newer)]
        telling = Telling(interruptions=(own[-1],), before=tuple(own))
    else:
        turn, telling = own, Telling(interruptions=(own[-1],))
    blocks = [each for message in messages_with_notes(turn, telling) for each in message.blocks]
    (note,) = [block.text for block in blocks if isinstance(block, Note)]
    return note


@pytest.mark.parametrize("next_turn", [False, True])
@pytest.mark.parametrize("has_steer", [False, True])
@pytest.mark.parametrize("has_text", [False, True])
def test_the_note_says_what_was_shown_and_what_to_do(
    has_text: bool, has_steer: bool, next_turn: bool
) -> None:
    turn = TurnId("trn_1")
    shown = AssistantSaid(
        turn=turn, attempt=1, message=MessageId("msg_1"), text="One, tw", is_interrupted=True
    )
    whole = msgspec.structs.replace(shown, is_interrupted=False)
    steer = SteerTaken(turn=turn, message=MessageId("msg_2"), text="in French")
    events: list[AnyEvent] = [
        TurnQueued(turn=turn, message=MessageId("msg_0"), text="count"),
        *([steer] if has_steer else []),
        shown if has_text else whole,
    ]
    crash = AttemptInterrupted(turn=turn, attempt=1, reason=Interruption.CRASH, tail="", alive_at=1)

    note = note_told(events, crash, next_turn=next_turn)

    assert ("The person has seen your text above." in note) is has_text
    assert ("tool results above" in note) is False
    assert ("has priority over the interrupted work" in note) is next_turn
    assert ("with the person's latest message in mind" in note) is (has_steer and not next_turn)
    assert ("without repeating yourself" in note) is (not has_steer and not next_turn)


@pytest.mark.parametrize("reason", [Interruption.DRAIN_TIMEOUT, Interruption.CRASH])
def test_results_that_are_there_are_not_asked_for_again(reason: Interruption) -> None:
    turn, made = TurnId("trn_1"), call("look", "{}", 1)
    result = closed(turn, made.id, CallEnding.UNKNOWN)
    events: list[AnyEvent] = [
        TurnQueued(turn=turn, message=MessageId("msg_0"), text="look"),
        AssistantSaid(turn=turn, attempt=1, message=MessageId("msg_1"), text="", calls=(made,)),
        msgspec.structs.replace(result, ending=CallEnding.RETURNED),
    ]
    ended = AttemptInterrupted(turn=turn, attempt=1, reason=reason, tail="", alive_at=1)

    note = note_told(events, ended, next_turn=False)

    assert "do not make those calls again" in note
    assert ("while you were still working" in note) is (reason is Interruption.DRAIN_TIMEOUT)
    assert "The person has seen your text above." not in note
