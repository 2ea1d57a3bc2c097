"""Checks that every reachable history gives a request that strict providers take, in stable
bytes."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.content.forwards import (
    Forward,
    ForwardOrigin,
    forward_text,
    one_below_the_other,
    with_forwards,
)
from perdure.domain.errors import Corrupt
from perdure.domain.ids import CallId, MessageId, NodeId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Attachment,
    AttemptInterrupted,
    Recorded,
    ToolCall,
    ToolFinished,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, Outcome
from perdure.domain.prompt.prompt import (
    CallBlock,
    MediaBlock,
    Note,
    PromptBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    Window,
    assemble,
    assert_valid,
    extend,
    messages_of,
    weave,
)
from perdure.domain.prompt.whereabouts import times_of
from perdure.domain.turn.errands import instruction
from perdure.domain.turn.recovery import (
    Telling,
    messages_with_notes,
    telling_before,
    telling_own,
)

words = st.text("abc \n", min_size=1, max_size=5)
shown = words | st.just("")


@st.composite
def steps(draw: st.DrawFn, turn: TurnId, prefix: str) -> list[AnyEvent]:
    """Draw some steps of one attempt. Each step says something, calls tools and gets their
    results."""
    events: list[AnyEvent] = []
    for n in range(draw(st.integers(0, 3))):
        count = draw(st.integers(0, 2))
        calls = tuple(
            ToolCall(id=CallId(f"{prefix}{n}-{c}"), name="t", arguments="{}") for c in range(count)
        )
        message = MessageId(f"msg_{prefix}{n}")
        events.append(
            AssistantSaid(turn=turn, attempt=1, message=message, text=draw(shown), calls=calls)
        )
        endings = [draw(st.sampled_from(CallEnding)) for _ in calls]
        events += [
            ToolFinished(turn=turn, call=call.id, ending=ending, result=draw(shown))
            for call, ending in zip(calls, endings, strict=True)
        ]
    return events


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Recorded]:
    """Draw one turn as the journal may hold it: attempts cut anywhere, and each call closed."""
    turn = TurnId(f"trn_{number}")
    text = draw(words.filter(str.strip))
    events: list[AnyEvent] = [TurnQueued(turn=turn, message=MessageId(f"msg_{number}"), text=text)]
    for attempt in range(draw(st.integers(1, 3))):
        events.append(TurnStarted(turn=turn, attempt=1, parent=None, node=NodeId("n")))
        events += draw(steps(turn, f"{number}-{attempt}-"))
        events.append(
            AttemptInterrupted(turn=turn, attempt=1, reason=draw(st.sampled_from(Interruption)))
        )
    events.append(TurnSettled(turn=turn, outcome=draw(st.sampled_from(Outcome))))
    return [
        Recorded(session=SessionId("ses"), seq=seq, at=0, event=event)
        for seq, event in enumerate(events, start=1)
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[list[Recorded]]:
    return [draw(turns(number)) for number in range(draw(st.integers(1, 4)))]


def encode(message: PromptMessage) -> bytes:
    return repr(message).encode()


def window_of(history: Sequence[list[Recorded]]) -> Window:
    return extend(Window(), [m for turn in history for m in messages_of(turn)], encode=encode)


QUESTION = PromptMessage(role=Role.USER, blocks=(TextBlock("and now?"),))
NOTE = PromptMessage(role=Role.USER, blocks=(Note("[restarted]"),))


@given(histories())
def test_any_history_and_one_more_message_is_a_valid_request(
    history: list[list[Recorded]],
) -> None:
    request = assemble(window_of(history), [QUESTION])

    assert request.messages[-1].role is Role.USER
    assert request.messages[-1].blocks[-1] == TextBlock("and now?")


def until_cut(turn: list[Recorded]) -> list[Recorded]:
    """Return the turn as it was when its last attempt had just ended."""
    cuts = [n for n, each in enumerate(turn, 1) if isinstance(each.event, AttemptInterrupted)]
    return turn[: cuts[-1]]


def blocks_of(messages: Sequence[PromptMessage]) -> list[PromptBlock]:
    return [block for message in messages for block in message.blocks]


@given(histories())
def test_a_resumed_turn_ends_with_its_note(history: list[list[Recorded]]) -> None:
    *before, last = history
    cut = until_cut(last)

    telling = telling_own(cut, Telling(), told_seq=0)
    request = assemble(window_of(before), messages_with_notes(cut, telling))

    assert isinstance(request.messages[-1].blocks[-1], Note)
    assert sum(isinstance(block, Note) for block in blocks_of(request.messages)) == 1


def test_a_note_waits_until_every_call_has_its_result() -> None:
    # The next attempt runs a call that had not started when the process died. A note between the
    # call and its result would make the request invalid.
    turn, call = TurnId("trn_1"), ToolCall(id=CallId("call_1"), name="t", arguments="{}")
    begun = TurnStarted(turn=turn, attempt=1, parent=None, node=NodeId("n"))
    said = AssistantSaid(turn=turn, attempt=1, message=MessageId("msg_2"), text="", calls=(call,))
    events: list[AnyEvent] = [
        TurnQueued(turn=turn, message=MessageId("msg_1"), text="look"),
        begun,
        said,
        AttemptInterrupted(turn=turn, attempt=1, reason=Interruption.CRASH),
        begun,
        ToolFinished(turn=turn, call=call.id, ending=CallEnding.RETURNED, result="trees"),
    ]
    recorded = [
        Recorded(session=SessionId("ses"), seq=seq, at=0, event=event)
        for seq, event in enumerate(events, start=1)
    ]
    telling = Telling(interruptions=(recorded[3],))

    messages = messages_with_notes(recorded, telling)

    assert_valid(messages, begins=True)
    assert [type(block) for block in messages[-1].blocks] == [ResultBlock, Note]


@given(histories(), st.data())
def test_what_happened_in_another_session_is_told_ahead_of_the_message(
    history: list[list[Recorded]], data: st.DataObject
) -> None:
    # Each journal has its own numbers, and they may be equal. Only the turn's own events may decide
    # where its notes stand.
    *before, last = history
    elsewhere = until_cut(data.draw(turns(9)))
    telling = telling_before(elsewhere, Telling(), told_seq=0)
    offset = data.draw(st.integers(-len(elsewhere), len(elsewhere)))
    moved = [
        msgspec.structs.replace(each, session=SessionId("branch"), seq=each.seq + offset)
        for each in last
    ]
    done = next(n for n, each in enumerate(moved) if isinstance(each.event, AttemptInterrupted))
    window = window_of([*before, elsewhere])
    known = 0
    for length in range(1, done + 1):
        messages = messages_with_notes(moved[:length], telling)
        if messages[-1].role is Role.USER and not has_open_call(moved[:length]):
            request = assemble(window, messages)
            found = blocks_of(messages)
            assert isinstance(found[0], Note)
            assert sum(isinstance(block, Note) for block in found) == 1
            assert blocks_of(request.messages)[-len(found) :] == found
            known += 1
    assert known


def has_open_call(turn: Sequence[Recorded]) -> bool:
    asked = [c.id for r in turn if isinstance(r.event, AssistantSaid) for c in r.event.calls]
    return len(asked) != sum(isinstance(r.event, ToolFinished) for r in turn)


@given(
    turns(1), st.sampled_from([TurnKind.MEMORY, TurnKind.SUMMARY]), st.sampled_from(["", "focus"])
)
def test_the_order_of_an_errand_stays_where_it_was_given(
    turn: list[Recorded], errand: TurnKind, text: str
) -> None:
    # The order stays, whatever the errand has done since and however often it was cut: if the order
    # came last, a model that obeys what it reads last would begin again after each result.
    queued = turn[0].event
    assert isinstance(queued, TurnQueued)
    ordered = msgspec.structs.replace(queued, kind=errand, text=text)
    errands_turn = [msgspec.structs.replace(turn[0], event=ordered), *turn[1:]]
    order = instruction(ordered)
    assert order is not None
    begins = ([TextBlock(text)] if text else []) + [order]
    for length in range(1, len(errands_turn) + 1):
        so_far = errands_turn[:length]
        telling = telling_own(so_far, Telling(), told_seq=0)

        found = blocks_of(messages_with_notes(so_far, telling))

        assert found[: len(begins)] == begins
        assert found.count(order) == 1


@given(histories())
def test_nothing_said_is_lost_or_reordered(history: list[list[Recorded]]) -> None:
    final, newest = weave(None, [m for turn in history for m in messages_of(turn)])
    blocks = [
        block for message in [*final, *([newest] if newest else [])] for block in message.blocks
    ]

    said = [
        text
        for turn in history
        for recorded in turn
        if isinstance(recorded.event, TurnQueued | AssistantSaid)
        and (text := recorded.event.text).strip()
    ]
    called = [
        call.id
        for turn in history
        for recorded in turn
        if isinstance(recorded.event, AssistantSaid)
        for call in recorded.event.calls
    ]
    assert [block.text for block in blocks if isinstance(block, TextBlock)] == said
    assert [block.id for block in blocks if isinstance(block, CallBlock)] == called
    assert [block.call for block in blocks if isinstance(block, ResultBlock)] == called


@given(histories())
def test_growing_a_window_turn_by_turn_is_the_same_as_at_once(
    history: list[list[Recorded]],
) -> None:
    grown = Window()
    for turn in history:
        grown = extend(grown, messages_of(turn), encode=encode)

    assert grown == window_of(history)


@given(histories(), st.data())
def test_the_bytes_of_an_earlier_request_begin_every_later_one(
    history: list[list[Recorded]], data: st.DataObject
) -> None:
    earlier = data.draw(st.integers(0, len(history)))

    before = assemble(window_of(history[:earlier]), [QUESTION])
    after = assemble(window_of(history), [QUESTION])

    assert after.prefix.startswith(before.prefix)


@st.composite
def days(draw: st.DrawFn) -> list[list[Recorded]]:
    """Return a history whose messages come minutes, hours or days after each other, also after the
    clock was set back."""
    history, at = draw(histories()), draw(st.integers(0, 2_000_000_000_000))
    later: list[list[Recorded]] = []
    for turn in history:
        told = []
        for recorded in turn:
            at += draw(st.sampled_from([0, 60_000, 3_000_000, 7_200_000, 90_000_000, -4_000_000]))
            seq = sum(len(each) for each in later) + recorded.seq
            told.append(msgspec.structs.replace(recorded, seq=seq, at=max(at, 1)))
        later.append(told)
    return later


@given(days(), st.sampled_from(["UTC", "UTC+05:30", "UTC-11:00"]), st.data())
def test_a_change_of_the_day_or_hour_leaves_earlier_bytes_as_they_were(
    history: list[list[Recorded]], zone: str, data: st.DataObject
) -> None:
    earlier = data.draw(st.integers(0, len(history)))
    times, last = times_of((each for turn in history for each in turn), zone)
    told = [message for turn in history for message in messages_of(turn, times=times)]
    at_once = extend(Window(at=last), told, encode=encode)

    grown, begun = Window(), b""
    for number, turn in enumerate(history):
        if number == earlier:
            begun = assemble(grown, [QUESTION]).prefix
        own, at = times_of(turn, zone, before=grown.at)
        grown = msgspec.structs.replace(grown, at=at)
        grown = extend(grown, messages_of(turn, times=own), encode=encode)

    assert grown == at_once
    assert assemble(grown, [QUESTION]).prefix.startswith(begun)


@given(histories())
def test_notes_never_reach_the_window(history: list[list[Recorded]]) -> None:
    assemble(window_of(history), [NOTE, QUESTION])

    assert b"Note" not in window_of(history).encoded


def user(*texts: str) -> PromptMessage:
    return PromptMessage(role=Role.USER, blocks=tuple(TextBlock(text) for text in texts))


def assistant(*blocks: TextBlock | CallBlock) -> PromptMessage:
    return PromptMessage(role=Role.ASSISTANT, blocks=blocks)


CALL = CallBlock(id="c", name="t", arguments="{}")
RESULT = ResultBlock(call="c", text="ok", is_error=False)
ANSWER = PromptMessage(role=Role.USER, blocks=(RESULT,))
HI = TextBlock("hi")


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "end with a user"),
        ([user("a"), assistant(HI)], "end with a user"),
        ([assistant(HI), user("a")], "begin with a user"),
        ([user("a"), user("b")], "side by side"),
        ([user("a"), assistant(HI), assistant(HI), user("b")], "side by side"),
        ([user("a"), assistant(CALL), user("b")], "answered by"),
        ([user("a"), assistant(HI), ANSWER], "answered by"),
        (
            [user("a"), assistant(CALL), PromptMessage(role=Role.USER, blocks=(RESULT, RESULT))],
            "by",
        ),
        ([user("a"), assistant(CALL, CALL), ANSWER], "twice"),
        ([user("a"), assistant(CALL), PromptMessage(role=Role.USER, blocks=(HI, RESULT))], "first"),
        ([user(" ")], "blank"),
        ([PromptMessage(role=Role.USER, blocks=())], "blank"),
        ([PromptMessage(role=Role.USER, blocks=(HI, CALL))], "wrong role"),
        ([ANSWER], "answered by"),
    ],
)
def test_what_a_strict_provider_refuses_is_refused_here(
    messages: list[PromptMessage], complaint: str
) -> None:
    with pytest.raises(Corrupt, match=complaint):
        assert_valid(messages, begins=True)


def test_a_kept_window_counts_what_it_holds() -> None:
    picture = MediaBlock(attachment=Attachment(mime="image/png"), data=b"x" * 50_000)
    window = Window(newest=PromptMessage(role=Role.USER, blocks=(TextBlock("y" * 10_000), picture)))

    assert window.size > 60_000
    assert Window().size > 0, "many small ones are much as well"


lines = st.sampled_from(
    ["", "hi", "[Eve]", "[Forwarded from Bob]", " [Forwarded from Bob]", "> hi"]
)
own_words = st.lists(lines, max_size=4).map("\n".join)
forwards = st.lists(
    st.builds(Forward, origin=st.sampled_from(ForwardOrigin), name=own_words, text=own_words),
    max_size=2,
)


@given(st.lists(st.tuples(own_words, forwards), min_size=1, max_size=3))
def test_in_a_group_only_what_was_passed_on_is_told_as_such(
    said: list[tuple[str, list[Forward]]],
) -> None:
    # This holds however many messages became one, and whatever people typed in between.
    words = one_below_the_other(with_forwards(text, passed_on) for text, passed_on in said)
    turn = TurnId("trn_1")
    queued = TurnQueued(
        turn=turn, message=MessageId("msg_1"), text=words.text, sender="Eve",
        passed_on=words.passed_on,
    )  # fmt: skip
    (message,) = messages_of([Recorded(session=SessionId("ses"), seq=1, at=0, event=queued)])
    (block,) = message.blocks

    assert isinstance(block, TextBlock)
    ours = [line for line in block.text.splitlines() if line.lstrip().startswith("[")]
    leads = [forward_text(each).splitlines()[0] for _, passed_on in said for each in passed_on]
    assert ours == ["[Eve]", *leads]
    for _, passed_on in said:
        assert all(forward_text(each) in block.text for each in passed_on)
