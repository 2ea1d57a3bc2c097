"""What somebody passed on instead of writing it, and how that is told.

A forward holds the words of somebody else. The person who passed it on vouches for nothing in it,
so it gives no command and answers no question. Its words are quoted line by line, below a line that
says whose they are: whatever the words say, they cannot leave the quotation.

A person can type such a line too. So a message says which passages of its text we have worded; what
only looks like one of them is the person's own words.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from perdure.domain.text import one_line, storable

NAME_MAX: Final = 64
_BETWEEN: Final = "\n\n"


class ForwardOrigin(StrEnum):
    """Who wrote it first. HIDDEN: the platform does not say which account that was. GROUP: somebody
    who wrote in the name of a group."""

    PERSON = "person"
    HIDDEN = "hidden"
    CHANNEL = "channel"
    GROUP = "group"
    BOT = "bot"


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """One message that was passed on. `name` is only shown, and may be anything."""

    origin: ForwardOrigin = ForwardOrigin.HIDDEN
    name: str = ""
    text: str = ""


class Passage(msgspec.Struct, frozen=True, array_like=True):
    """The characters of a text from `start` up to `end`, which were passed on."""

    start: int
    end: int


class ForwardedText(NamedTuple):
    """A text, and which passages of it were passed on, in their order."""

    text: str
    passed_on: tuple[Passage, ...] = ()


_LEADS: Final = {
    ForwardOrigin.PERSON: ("Forwarded from {}", "Forwarded from somebody"),
    ForwardOrigin.HIDDEN: ("Forwarded from somebody called {}", "Forwarded from somebody"),
    ForwardOrigin.CHANNEL: ("Forwarded from the channel {}", "Forwarded from a channel"),
    ForwardOrigin.GROUP: ("Forwarded from the group {}", "Forwarded from a group"),
    ForwardOrigin.BOT: ("Forwarded from the bot {}", "Forwarded from a bot"),
}


def told(forward: Forward) -> str:
    """Word a forward for people and models: who wrote it, then every line of it quoted."""
    named, nameless = _LEADS[forward.origin]
    name = one_line(forward.name)[:NAME_MAX]
    lead = named.format(name) if name else nameless
    return "\n".join([f"[{lead}]", *quoted(forward.text)])


def quoted(text: str) -> Iterable[str]:
    """Yield each line of a text behind a mark. Every kind of line break that Unicode knows ends a
    line here, so that none of them can begin a line without the mark."""
    return (f"> {line}" for line in storable(text).strip().splitlines())


def with_forwards(text: str, forwards: Iterable[Forward]) -> ForwardedText:
    """Return a person's own words and below them what they passed on with them."""
    passed_on = [
        ForwardedText(worded, (Passage(0, len(worded)),)) for worded in map(told, forwards)
    ]
    return (
        one_below_the_other([ForwardedText(text), *passed_on]) if passed_on else ForwardedText(text)
    )


def one_below_the_other(texts: Iterable[ForwardedText]) -> ForwardedText:
    """Join texts by blank lines, without those that say nothing."""
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
