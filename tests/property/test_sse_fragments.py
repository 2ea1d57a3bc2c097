"""Checks that a stream gives the same answer however the network cuts it, and that a broken stream
is never a success."""

from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.agents.chat.answer.answer import Garbage
from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.intake import AnswerIntake
from perdure.agents.chat.sse import EVENT_BYTES_MAX, EventSplitter, TooLong
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentCall
from perdure.testkit.models.model_script import (
    ScriptedAnswer,
    ScriptedDialect,
    ScriptedRequest,
    call_tools,
    say,
)
from perdure.testkit.models.model_wire import anthropic_stream, openai_stream

STREAMS = {ScriptedDialect.OPENAI: openai_stream, ScriptedDialect.ANTHROPIC: anthropic_stream}
FINISH = {
    ScriptedDialect.OPENAI: b'"finish_reason":"',
    ScriptedDialect.ANTHROPIC: b'"stop_reason":"',
}
NOTHING = ModelRequest(instructions="", prefix=b"", messages=())

texts = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6)
calls = st.lists(
    st.tuples(
        st.uuids().map(str),
        st.sampled_from(["look", "wait"]),
        st.dictionaries(st.text(max_size=4), st.text(max_size=6), max_size=2).map(
            lambda value: msgspec.json.encode(value).decode()
        ),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda call: call[0],
)


def answers() -> st.SearchStrategy[ScriptedAnswer]:
    spoken = texts.map(lambda chunks: say(chunks=chunks))
    called = st.builds(
        lambda made, fragments, interleaved: call_tools(
            made, text="Let me look.", fragments=fragments, interleaved=interleaved
        ),
        calls,
        st.integers(1, 4),
        st.booleans(),
    )
    return spoken | called


def stream(answer: ScriptedAnswer, dialect: ScriptedDialect) -> bytes:
    body: dict[str, Any] = {"stream_options": {"include_usage": True}}
    request = ScriptedRequest(1, dialect, "m", [], stream=True, body=body, body_bytes=8)
    opening, chunks, closing = STREAMS[dialect](answer, request)
    return opening + b": a comment\n\n" + b"".join(chunks) + closing


class Outcome(NamedTuple):
    """Holds everything that can be read from an answer, for comparison."""

    text: str
    reason: StopReason | None
    calls: tuple[AgentCall, ...]
    usage: Usage
    is_over: bool
    is_garbage: bool


def outcome(pieces: list[bytes], dialect: ScriptedDialect) -> Outcome:
    """Read the pieces. Returns everything the answer holds after them, and whether it was
    garbage."""
    intake = AnswerIntake(DIALECTS[dialect])
    answer, said, is_garbage = intake.answer, "", False
    try:
        for piece in pieces:
            if piece:
                intake.feed(piece)
                said += answer.drain()
        intake.close()
    except Garbage:
        is_garbage = True
    said += answer.drain() + answer.rest()
    whole = tuple(answer.calls.whole(NOTHING))
    return Outcome(said, answer.outcome(), whole, answer.usage, answer.is_over, is_garbage)


def split(data: bytes, at: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[a:b] for a, b in pairwise(borders)]


@pytest.mark.parametrize("dialect", list(ScriptedDialect))
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@given(answer=answers(), at=st.lists(st.integers(0, 1 << 20), max_size=40))
@settings(max_examples=50, deadline=None)
def test_fragments_do_not_change_the_answer(
    dialect: ScriptedDialect, line_end: bytes, answer: ScriptedAnswer, at: list[int]
) -> None:
    data = stream(answer, dialect).replace(b"\n", line_end)

    whole = outcome([data], dialect)

    assert whole.text == answer.text.replace("\0", "\ufffd")
    assert [(c.id, c.name, c.arguments) for c in whole.calls] == [
        (c.id, c.name, c.arguments) for c in answer.calls
    ]
    assert whole.is_over
    assert not whole.is_garbage
    assert outcome(split(data, at), dialect) == whole
    assert outcome([data[i : i + 1] for i in range(len(data))], dialect) == whole


@pytest.mark.parametrize("dialect", list(ScriptedDialect))
@given(answer=answers())
@settings(max_examples=12, deadline=None)
def test_every_border_gives_the_same_answer(
    dialect: ScriptedDialect, answer: ScriptedAnswer
) -> None:
    data = stream(answer, dialect)
    whole = outcome([data], dialect)

    for border in range(len(data) + 1):
        assert outcome([data[:border], data[border:]], dialect) == whole


@pytest.mark.parametrize("dialect", list(ScriptedDialect))
@given(answer=answers())
@settings(max_examples=12, deadline=None)
def test_a_cut_is_a_finish_only_after_the_marker(
    dialect: ScriptedDialect, answer: ScriptedAnswer
) -> None:
    data = stream(answer, dialect)
    text = answer.text.replace("\0", "\ufffd")
    # The marker counts only from the blank line that ends its event.
    marker = data.index(b"\n\n", data.index(FINISH[dialect])) + 2

    for cut in range(len(data) + 1):
        got = outcome([data[:cut]], dialect)
        assert text.startswith(got.text)
        assert not got.is_garbage
        assert (got.reason is not None) == (cut >= marker)
        if cut >= marker:
            assert got.text == text
            assert got.reason is (StopReason.TOOL_CALLS if answer.calls else StopReason.STOP)
            assert len(got.calls) == len(answer.calls)


@pytest.mark.parametrize("dialect", list(ScriptedDialect))
@given(answer=answers(), at=st.integers(0, 1 << 20), junk=st.binary(min_size=1, max_size=30))
@settings(deadline=None)
def test_junk_anywhere_raises_nothing_but_garbage(
    dialect: ScriptedDialect, answer: ScriptedAnswer, at: int, junk: bytes
) -> None:
    data = stream(answer, dialect)
    place = at % len(data)

    outcome([data[:place] + junk + data[place:]], dialect)
    outcome([data[:place] + junk], dialect)
    outcome([junk], dialect)


@given(lines=st.lists(st.text(alphabet="ab {}:", max_size=5), min_size=1, max_size=4))
def test_data_over_several_lines_is_one_event(lines: list[str]) -> None:
    splitter = EventSplitter()
    block = "".join(f"data:{line}\nid: 7\n" for line in lines) + "\n"

    assert splitter.feed(block.encode()) == ["\n".join(lines).strip().encode()]


def test_an_event_without_end_is_refused_at_its_bound() -> None:
    splitter = EventSplitter()
    piece = b"data: " + b"x" * 1_000_000

    def flood() -> None:
        for _ in range(EVENT_BYTES_MAX // len(piece) + 2):
            assert splitter.feed(piece) == []

    with pytest.raises(TooLong):
        flood()
