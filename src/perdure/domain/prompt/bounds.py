"""Limits how much a model may say: in one answer, and in all answers of a turn.

A server may send whatever it likes, so an answer is measured while it arrives. Text and tool calls
are counted together in bytes of UTF-8, and calls by their number as well.
"""

from typing import Final

import msgspec


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what one answer may contain at most, and what all answers of a turn may contain
    together."""

    answer_bytes: int = 4_000_000
    answer_calls: int = 128
    turn_bytes: int = 16_000_000
    turn_calls: int = 1_000


class AnswerRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Says how much room is left for the next answer of a turn, which has said `said_bytes` and
    `said_calls` already."""

    bounds: Bounds = Bounds()
    said_bytes: int = 0
    said_calls: int = 0

    @property
    def bytes(self) -> int:
        """Return how many bytes the next answer may have."""
        return min(self.bounds.answer_bytes, self.bounds.turn_bytes - self.said_bytes)

    @property
    def calls(self) -> int:
        """Return how many calls the next answer may have."""
        return min(self.bounds.answer_calls, self.bounds.turn_calls - self.said_calls)

    def after(self, *, said_bytes: int, calls: int) -> "AnswerRoom":
        """Return the room that is left after another answer."""
        return AnswerRoom(
            bounds=self.bounds,
            said_bytes=self.said_bytes + said_bytes,
            said_calls=self.said_calls + calls,
        )

    def too_long(self) -> str:
        """Say that an answer is too long, and which setting allows longer answers."""
        bounds = self.bounds
        if self.bytes < bounds.answer_bytes:
            return _beyond(
                "the answers of this turn took", bounds.turn_bytes, "bytes", "turn_bytes"
            )
        return _beyond("the answer took", bounds.answer_bytes, "bytes", "answer_bytes")

    def too_many(self) -> str:
        """Say that an answer asks for too many calls, and which setting allows more."""
        bounds = self.bounds
        if self.calls < bounds.answer_calls:
            return _beyond("this turn asked for", bounds.turn_calls, "tool calls", "turn_calls")
        return _beyond("the answer asked for", bounds.answer_calls, "tool calls", "answer_calls")


ROOM: Final = AnswerRoom()


class Measure:
    """Counts what has arrived of one answer. `excess` says in words what was too much, and is empty
    as long as nothing was."""

    __slots__ = ("bytes", "calls", "excess", "room")

    def __init__(self, room: AnswerRoom) -> None:
        self.room = room
        self.bytes = 0
        self.calls = 0
        self.excess = ""

    def text(self, text: str) -> str:
        """Count a piece of text, and return the part of it that still fits."""
        fitting = cut(text, bytes_max=self.room.bytes - self.bytes)
        self.add(text)
        return fitting

    def add(self, piece: str) -> None:
        """Count a piece of a tool call. Nothing is returned, because a part of a call is of no
        use."""
        self.bytes += utf8_size(piece)
        if self.bytes > self.room.bytes:
            self.exceed(self.room.too_long())

    def count_calls(self, calls: int) -> None:
        """Record how many calls the answer has."""
        self.calls = calls
        if calls > self.room.calls:
            self.exceed(self.room.too_many())

    def exceed(self, words: str) -> None:
        """Keep the first words that say what was too much."""
        self.excess = self.excess or words

    def room_after(self) -> AnswerRoom:
        """Return what is left for the answer after this one."""
        return self.room.after(said_bytes=self.bytes, calls=self.calls)


def utf8_size(text: str) -> int:
    """Return how many bytes a text takes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, *, bytes_max: int) -> str:
    """Return the longest beginning of a text that takes at most `bytes_max` bytes."""
    if utf8_size(text) <= bytes_max:
        return text
    head = text[: max(bytes_max, 0)].encode("utf-8", "surrogatepass")
    return head[: max(bytes_max, 0)].decode("utf-8", "ignore")


def _beyond(what: str, allowed: int, unit: str, setting: str) -> str:
    return f"{what} more than the {allowed:,} {unit} that [limits] {setting} allows"
