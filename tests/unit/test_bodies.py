"""Checks that a parsed body is bounded in size, and that parsing takes time linear in its
length."""

import contextlib
import time
from collections.abc import Callable

import msgspec
import pytest

from perdure.domain.errors import Rejected
from perdure.web.http.bodies import (
    CONTAINERS_MAX,
    NESTING_MAX,
    SLICE_BYTES,
    insist_on_shallow,
    insist_on_small,
    whole_characters,
)
from perdure.web.http.forms import PARTS_MAX, boundary_of, parts_of

HEAD = b'Content-Disposition: form-data; name="f"; filename="a.txt"\r\n\r\n'


TRIES = 3


def spent_s(work: Callable[[], object]) -> float:
    """Return the processor time of one run."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def can_take_less(work: Callable[[], object], bound_s: float) -> bool:
    """Tell whether one of three runs takes less processor time: others use this machine too."""
    return any(spent_s(work) < bound_s for _ in range(TRIES))


def form(*parts: bytes, boundary: bytes = b"b") -> bytes:
    delimited = [b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts]
    return b"".join([*delimited, b"--" + boundary + b"--\r\n"])


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "piece", [b"\\n", b"\\ud800", b"\\ud83d\\ude00", b"\\u0041", b"\\\\", b"x"]
)
def test_half_characters_are_found_in_linear_time(piece: bytes) -> None:
    def work(size: int) -> Callable[[], object]:
        raw = b'{"text":"' + piece * (size // len(piece)) + b'\\ud800"}'
        return lambda: whole_characters(raw)

    small_s = min(spent_s(work(500_000)) for _ in range(TRIES))

    assert can_take_less(work(4_000_000), min(max(small_s, 0.005) * 40, 1.5))


def test_no_character_is_parted_where_a_body_is_sliced() -> None:
    for before in range(14):
        raw = b'"' + b"x" * (SLICE_BYTES - before) + b"\\ud83d\\ude00" * 4 + b'"'
        assert whole_characters(raw) == raw


def test_what_is_nested_too_deeply_is_refused() -> None:
    insist_on_shallow({"a": nested(NESTING_MAX - 2)})

    with pytest.raises(Rejected, match="nested too deeply"):
        insist_on_shallow({"a": nested(NESTING_MAX)})


@pytest.mark.parametrize(
    ("piece", "is_small"),
    [
        (b"[],", False),
        (b'{"a":"b"},', False),
        (b'{"[":[]},', False),
        (b'"[",', True),
        (b'"\\"[{",', True),
        (b'"\\\\",[],', False),
        (b'"\\\\\\"[",', True),
        (b"1,", True),
    ],
)
def test_a_body_may_hold_so_many_lists_and_objects(piece: bytes, *, is_small: bool) -> None:
    raw = b"[" + piece * CONTAINERS_MAX + b"1]"
    refused = contextlib.nullcontext() if is_small else pytest.raises(Rejected, match="lists and")
    with refused:
        insist_on_small(raw)
    insist_on_small(b"[" + piece * (CONTAINERS_MAX // 2 - 1) + b"1]")
    assert msgspec.json.decode(raw)


@pytest.mark.parametrize("piece", [b"[", b'"[', b"\\[", b'\\"[', b'"\\[', b'["'])
def test_lists_and_objects_are_counted_in_linear_time(piece: bytes) -> None:
    def work(size: int) -> Callable[[], object]:
        raw = piece * (size // len(piece))

        def count() -> None:
            with contextlib.suppress(Rejected):
                insist_on_small(raw)

        return count

    small_s = min(spent_s(work(1_000_000)) for _ in range(TRIES))

    assert can_take_less(work(8_000_000), min(max(small_s, 0.005) * 40, 1.5))


def test_a_form_is_taken_apart() -> None:
    file = b"two\r\nlines\r\n--not\r\n"
    body = b"preamble\r\n" + form(b"\r\nno headers", HEAD + file, HEAD)

    note, beans, empty = parts_of(body, boundary_of('multipart/form-data; boundary="b"'))

    assert (note.filename, note.data) == (None, b"no headers")
    assert (beans.filename, beans.data) == ("a.txt", file)
    assert empty.data == b""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\r\n" * 100,
        b"--b\r\n" + HEAD + b"no end",
        b"--b\r\n--b--",
        b"--bb\r\n" + HEAD + b"x\r\n--bb--",
        form(b"Content-Type: multipart/mixed; boundary=c\r\n\r\nx"),
        form(b"X: " + b"y" * 20_000 + b"\r\n\r\nx"),
        form(*[HEAD] * (PARTS_MAX + 1)),
    ],
)
def test_a_form_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(Rejected, match="the form cannot be read"):
        parts_of(body, "b")


@pytest.mark.parametrize(
    "body",
    [b"\r\n" * 5_000_000, form(*[HEAD] * 100_000), b"--b\r\n" * 1_500_000],
    ids=["empty lines", "parts", "delimiters"],
)
def test_a_hostile_form_is_refused_at_once(body: bytes) -> None:
    def read() -> None:
        with pytest.raises(Rejected):
            parts_of(body, "b")

    assert can_take_less(read, 0.2)
