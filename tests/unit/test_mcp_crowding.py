"""Checks what counts as a message of too many values, however its bytes come."""

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.tools.mcp.wire.crowding import SMALL_BYTES, WEIGHT_MAX, Crowd, is_crowded

MANY = WEIGHT_MAX + 1


def weighed(message: bytes, size: int, *, is_of_events: bool) -> bool:
    """Tell whether a message is too large if it comes in pieces of this size."""
    crowd = Crowd(is_of_events=is_of_events)
    pieces = (message[at : at + size] for at in range(0, len(message), size))
    return any(crowd.is_too_large_with(each) for each in pieces)


@pytest.mark.parametrize(
    "message",
    [
        b"[" + b"1," * MANY + b"1]",
        b"[" + b"{}," * MANY + b"1]",
        b"[" * MANY,
        b'""' * MANY,
        b"[" + b'"\\"",' * MANY + b"1]",
        b"[" + b'"\\\\",' * MANY + b"1]",
        b"[" + b"1,\r\n" * MANY + b"1]",
    ],
)
@pytest.mark.parametrize("size", [SMALL_BYTES, 1_001, 7])
def test_many_values_are_too_many_however_they_come(message: bytes, size: int) -> None:
    assert is_crowded(message)
    assert weighed(message, size, is_of_events=False)
    assert weighed(b"data: " + message, size, is_of_events=True)


def test_empty_lines_end_no_message_that_is_alone() -> None:
    message = b"[" + b"1,\r\r" * MANY + b"1]"
    assert is_crowded(message)
    assert weighed(message, SMALL_BYTES, is_of_events=False)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_comment_in_a_stream_of_events_begins_no_text(end: bytes) -> None:
    message = b': "' + end + b"data: [" + b"1," * MANY
    assert weighed(message, 7, is_of_events=True)


@pytest.mark.parametrize(
    "message",
    [
        json.dumps({"text": ',{["\\ \n' * MANY}).encode(),
        b'{"data": "' + b"A" * 10_000_000 + b'"}',
        json.dumps([{"name": "a", "description": "b" * 90, "of": [1, 2]}] * 5_000).encode(),
    ],
)
@pytest.mark.parametrize("size", [SMALL_BYTES, 1_001])
def test_a_long_text_is_one_value_whatever_it_says(message: bytes, size: int) -> None:
    assert not is_crowded(message)
    assert not weighed(message, size, is_of_events=False)
    assert not weighed(message, size, is_of_events=True)


def test_a_message_that_is_over_counts_no_more() -> None:
    events = b"data: [1,1,1]\n\n" * MANY
    assert not weighed(events, SMALL_BYTES, is_of_events=True)
    assert not weighed(events.replace(b"\n", b"\r\n"), SMALL_BYTES + 1, is_of_events=True)
    assert weighed(events.replace(b"\n\n", b"\n"), SMALL_BYTES, is_of_events=True)


def cuts(message: bytes, places: list[int]) -> Iterator[bytes]:
    bounds = [0, *sorted(place % (len(message) + 1) for place in places), len(message)]
    return (message[a:b] for a, b in pairwise(bounds))


@given(
    st.lists(st.sampled_from([b'"', b"\\", b",", b"[", b"\n", b"\r", b"a"]), max_size=60),
    st.lists(st.integers(0, 60), max_size=8),
    st.booleans(),
)
def test_where_a_message_is_cut_does_not_matter(
    signs: list[bytes], places: list[int], is_of_events: bool
) -> None:
    message = b"".join(signs)
    whole, cut = Crowd(is_of_events=is_of_events), Crowd(is_of_events=is_of_events)
    # The end shows what is still held back.
    whole.is_too_large_with(message + b"x")
    for piece in [*cuts(message, places), b"x"]:
        cut.is_too_large_with(piece)
    assert vars(cut) == vars(whole)
