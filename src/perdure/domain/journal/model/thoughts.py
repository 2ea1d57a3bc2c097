"""Holds a model's reasoning as its server wants it back.

A server that reasons may refuse a request whose tool calls come without the reasoning that led to
them. So the reasoning is kept beside the calls, in the server's own form, which nobody else reads:
it is given back within the turn, to the same model only, and is left out of everything else.
"""

import msgspec


class Thought(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds one piece of reasoning. `kind` names the field or the block in which it came, and
    `body` is its JSON text. It stands after the first `text_at` characters of its message's text,
    and before the call number `call_at`."""

    kind: str
    body: str
    text_at: int = 0
    call_at: int = 0


class Thoughts(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the reasoning of one message. `thinker` names the wire, the server and the model that
    it came from: no other model may get it."""

    thinker: str
    pieces: tuple[Thought, ...]

    @property
    def bodies(self) -> str:
        """Return everything that was thought, so that it can be measured."""
        return "".join(each.body for each in self.pieces)
