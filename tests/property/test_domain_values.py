"""Checks that ids sort by time, that text is made storable once, and that positions can be read
back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.address import WORDS_MAX, Address, readings
from perdure.domain.errors import Rejected
from perdure.domain.ids import RANDOM_BYTES, mint
from perdure.domain.text import REPLACEMENT, storable
from perdure.domain.turn.watching import Position, position

times = st.integers(0, 2**48 - 1)
randomness = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)
# Platforms do send lone surrogates and U+0000.
wild = st.text(st.characters(exclude_categories=[]) | st.sampled_from("\x00\ud800\udc00a"))
positions = st.builds(
    Position,
    st.integers(0, 999_999),
    st.integers(0, 10**10 - 1),
    st.integers(0, 99),
    st.integers(0, 10**9 - 1),
)


@given(times, times, randomness, randomness)
def test_ids_sort_by_the_time_they_were_minted(a: int, b: int, x: bytes, y: bytes) -> None:
    first, second = (mint("trn", now_ms=t, randomness=r) for t, r in ((a, x), (b, y)))

    assert len(first) == len(second) == len("trn_") + 26
    assert (first < second) == ((a, x) < (b, y))
    assert (first == second) == ((a, x) == (b, y))


@given(wild)
def test_storable_text_is_storable_and_stays_as_it_is(text: str) -> None:
    kept = storable(text)

    assert storable(kept) == kept
    assert "\x00" not in kept
    assert kept.encode("utf-8").decode("utf-8") == kept


@given(wild)
def test_storable_changes_only_what_it_must(text: str) -> None:
    kept = storable(text)

    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert len(kept) == len(whole), "pairs are joined, nothing is dropped"
    for before, after in zip(whole, kept, strict=True):
        is_impossible = before == "\x00" or "\ud800" <= before <= "\udfff"
        assert after == (REPLACEMENT if is_impossible else before)


@given(positions)
def test_a_position_reads_back(at: Position) -> None:
    assert position(str(at)) == at


@given(positions, positions)
def test_positions_sort_as_text(a: Position, b: Position) -> None:
    assert (str(a) < str(b)) == (a < b)


@pytest.mark.parametrize("text", ["", "1", "1-2-3", "1-2-3-4-5", "a-b-c-d", "1-2-3-", "-1-2-3-4"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match="event id"):
        position(text)


words = st.text("ab!@", min_size=1, max_size=3)
named = st.lists(words, min_size=1, max_size=WORDS_MAX // 3).map(":".join)


@given(named, named | st.just(""), named | st.just(""))
def test_a_name_can_be_read_as_the_address_it_was_made_from(
    place: str, thread: str, person: str
) -> None:
    address = Address(adapter="x", account="y", place=place, thread=thread, person=person)
    rest = address.name.removeprefix("x:")

    read = list(readings(rest))

    assert (place, thread, person) in read
    assert read[0] == (rest, "", "")
    for found in read:
        assert ":".join(part for part in found if part) == rest
