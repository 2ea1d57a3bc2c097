"""Collects the reasoning of one answer in the form in which its server wants it back.

On the OpenAI wire it comes as text, in a field whose name differs between servers, as a list of
objects (`DETAILS`), or as a signature beside a tool call (`EXTRA`). On the Anthropic wire it comes
as blocks, each with a signature over its content. A block, a field or an object may come in many
pieces; what is given back holds it whole, with every field that the server sent, and in the same
order.
"""

from dataclasses import dataclass, field
from io import StringIO
from typing import Final

import msgspec

from perdure.domain.journal.model.thoughts import Thought, Thoughts

DETAILS: Final = "reasoning_details"
EXTRA: Final = "extra_content"
# The fields of a detail that grow from piece to piece. All others are complete when they come.
_GROWING: Final = ("text", "summary", "data")
_json: Final = msgspec.json.Encoder().encode


class _Place(msgspec.Struct, frozen=True):
    """Says where in its message a thought stands."""

    text_at: int = 0
    call_at: int = 0


@dataclass(slots=True)
class _Block:
    """Holds one block while its pieces arrive."""

    kind: str
    place: _Place
    fields: dict[str, StringIO] = field(default_factory=dict)

    def grow(self, name: str, piece: str) -> None:
        self.fields.setdefault(name, StringIO()).write(piece)

    def whole(self) -> Thought:
        fields = {name: grown.getvalue() for name, grown in self.fields.items()}
        return _made(self.kind, {"type": self.kind} | fields, self.place)


@dataclass(slots=True)
class _Detail:
    """Holds one object of a list while its pieces arrive."""

    fields: dict[str, object] = field(default_factory=dict)
    grown: dict[str, StringIO] = field(default_factory=dict)

    def is_continued_by(self, piece: dict[str, object]) -> bool:
        """Tell whether a piece belongs to this object: it has the same type and the same number or,
        without a number, this one is text that nothing has signed yet."""
        if piece.get("type") != self.fields.get("type"):
            return False
        if piece.get("index") is not None or self.fields.get("index") is not None:
            return piece.get("index") == self.fields.get("index")
        return "data" not in self.grown and not self.fields.get("signature")

    def grow(self, piece: dict[str, object]) -> None:
        for name, value in piece.items():
            if name in _GROWING and isinstance(value, str):
                self.grown.setdefault(name, StringIO()).write(value)
                self.fields.setdefault(name, "")
            elif value is not None or name not in self.fields:
                self.fields[name] = value

    def whole(self) -> dict[str, object]:
        return self.fields | {name: grown.getvalue() for name, grown in self.grown.items()}


@dataclass(slots=True)
class Reasoning:
    """Collects what a model thinks while it answers."""

    _words: dict[str, StringIO] = field(default_factory=dict)
    _details: list[_Detail] = field(default_factory=list)
    _blocks: dict[int, _Block] = field(default_factory=dict)
    _extras: list[Thought] = field(default_factory=list)

    def clear(self) -> None:
        """Drop everything, because the answer is too long."""
        self._words.clear()
        self._details.clear()
        self._blocks.clear()
        self._extras.clear()

    def add_words(self, name: str, piece: str) -> None:
        """Take a piece of the text in the field with this name."""
        self._words.setdefault(name, StringIO()).write(piece)

    def add_detail(self, piece: dict[str, object]) -> None:
        """Take an object of a list, or a piece of one."""
        if not self._details or not self._details[-1].is_continued_by(piece):
            self._details.append(_Detail())
        self._details[-1].grow(piece)

    def add_extra(self, value: object, *, call_at: int) -> None:
        """Take what came beside the tool call with this number, such as a signature."""
        self._extras.append(_made(EXTRA, value, _Place(call_at=call_at)))

    def begin_block(self, index: int, kind: str, *, text_at: int, call_at: int) -> None:
        """Begin a block, which stands at this place of the message."""
        self._blocks[index] = _Block(kind, _Place(text_at, call_at))

    def grow_block(self, index: int, name: str, piece: str) -> None:
        """Take a piece of a field of a block. A piece for a block that never began is dropped."""
        if index in self._blocks:
            self._blocks[index].grow(name, piece)

    def whole(self, thinker: str) -> Thoughts | None:
        """Return everything that came, or None if nothing did."""
        words = [_made(name, grown.getvalue()) for name, grown in self._words.items()]
        details = [_made(DETAILS, [each.whole() for each in self._details])]
        blocks = [block.whole() for block in self._blocks.values()]
        pieces = (*words, *(details if self._details else ()), *blocks, *self._extras)
        return Thoughts(thinker=thinker, pieces=pieces) if pieces else None


_HERE: Final = _Place()


def _made(kind: str, value: object, place: _Place = _HERE) -> Thought:
    body = _json(value).decode()
    return Thought(kind=kind, body=body, text_at=place.text_at, call_at=place.call_at)
