"""Describes forwarded messages to people and models.

A forward holds the words of somebody else. The person who forwarded it does not vouch for them, so
a forward gives no command and answers no question. Its words are quoted line by line, below a line
that says whose they are. Whatever the words say, they cannot leave the quotation.

A person can type such a line too. So a message records which passages of its text were worded by
us. Anything that only looks like one of them is the person's own words.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from perdure.domain.text import harmless_line, storable

NAME_MAX: Final = 64
_BETWEEN: Final = "\n\n"


class ForwardOrigin(StrEnum):
    """Names who wrote a forwarded message first. HIDDEN: the platform does not say which account
    that was. GROUP: somebody who wrote in the name of a group."""

    PERSON = "person"
    HIDDEN = "hidden"
    CHANNEL = "channel"
    GROUP = "group"
    BOT = "bot"


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one forwarded message. `name` is only shown, and may be anything."""

    origin: ForwardOrigin = ForwardOrigin.HIDDEN
    name: str = ""
    text: str = ""


class Passage(msgspec.Struct, frozen=True, array_like=True):
    """Marks the characters of a text from `start` up to `end`, without `end`, as forwarded."""

    start: int
    end: int


class ForwardedText(NamedTuple):
    """Holds a text, and which passages of it were forwarded, in their order."""

    text: str
    passed_on: tuple[Passage, ...] = ()


_LEADS: Final = {
    ForwardOrigin.PERSON: ("Forwarded from {}", "Forwarded from somebody"),
    ForwardOrigin.HIDDEN: ("Forwarded from somebody called {}", "Forwarded from somebody"),
    ForwardOrigin.CHANNEL: ("Forwarded from the channel {}", "Forwarded from a channel"),
    ForwardOrigin.GROUP: ("Forwarded from the group {}", "Forwarded from a group"),
    ForwardOrigin.BOT: ("Forwarded from the bot {}", "Forwarded from a bot"),
}


def forward_text(forward: Forward) -> str:
    """Describe a forward to people and models: who wrote it, then each of its lines quoted."""
    named, nameless = _LEADS[forward.origin]
    name = harmless_line(forward.name)[:NAME_MAX]
    lead = named.format(name) if name else nameless
    return "\n".join([f"[{lead}]", *quoted_lines(forward.text)])


def quoted_lines(text: str) -> Iterable[str]:
    """Yield each line of a text with `> ` before it. Every line break that Unicode knows ends a
    line here, so that no line can begin without the mark."""
    return (f"> {line}" for line in storable(text).strip().splitlines())


def with_forwards(text: str, forwards: Iterable[Forward]) -> ForwardedText:
    """Return a person's own words, with the messages they forwarded below them."""
    passed_on = [
        ForwardedText(worded, (Passage(0, len(worded)),)) for worded in map(forward_text, forwards)
    ]
    return (
        one_below_the_other([ForwardedText(text), *passed_on]) if passed_on else ForwardedText(text)
    )


def one_below_the_other(texts: Iterable[ForwardedText]) -> ForwardedText:
    """Join texts by blank lines, and leave out the blank ones."""
    joined: list[str] = []
    passed_on: list[Passage] = []
    length = 0
    for text, passages in texts:
        if not text.strip():
            continue
        passed_on += [Passage(length + each.start, length + each.end) for each in passages]
        joined.append(text)
        length += len(text) + len(_BETWEEN)
    return ForwardedText(_BETWEEN.join(joined), tuple(passed_on))
