"""Defines addresses, which say where a conversation lives.

An address is five typed columns, never one string that is taken apart again. So two chats that
share a display name, a separator or a topic still have two addresses.
"""

import re
from collections.abc import Iterator

import msgspec

HTTP = "http"
GROUP = "group"
# How many words between colons a name is read by. No platform's ids have as many.
WORDS_MAX = 12


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Names one place where people talk to an agent.

    `account` is the bot's stable id (over HTTP: the principal's), never its token. `thread` and
    `person` are empty if neither the platform nor the configuration divides the place further.
    """

    adapter: str
    account: str
    place: str
    thread: str = ""
    person: str = ""

    @property
    def name(self) -> str:
        """Return the name that people use: a plain word over HTTP, `telegram:123` elsewhere."""
        if self.adapter == HTTP:
            return self.place
        rest = [part for part in (self.place, self.thread, self.person) if part]
        return ":".join([self.adapter, *rest])


class AddressForm(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the addresses of a platform. `pattern` is what a whole place must match, `thread`
    and `person` are what those parts must match, and `example` is a place. Each place has exactly
    one spelling: a second one would reach the same people, and yet be a second conversation
    here."""

    pattern: str
    example: str
    thread: str = r"\S.*"
    person: str = r"\S.*"

    def takes(self, place: str, thread: str = "", person: str = "") -> bool:
        """Tell whether these can be a place of the platform, a thread in it and a person there. The
        last two may be empty."""
        return (
            re.fullmatch(self.pattern, place) is not None
            and (not thread or re.fullmatch(self.thread, thread) is not None)
            and (not person or re.fullmatch(self.person, person) is not None)
        )


def is_shared(address: Address, kind: str) -> bool:
    """Tell whether several people take part: it is a group, and its members do not each have a
    conversation of their own."""
    return kind == GROUP and not address.person


def readings(rest: str) -> Iterator[tuple[str, str, str]]:
    """Yield each (place, thread, person) that a name without its adapter may stand for, the longest
    place first. There are several, because ids may contain colons themselves."""
    yield rest, "", ""
    words = rest.split(":")[:WORDS_MAX]
    for end in range(len(words) - 1, 0, -1):
        place, tail = ":".join(words[:end]), words[end:]
        yield place, ":".join(tail), ""
        yield place, "", ":".join(tail)
        for middle in range(1, len(tail)):
            yield place, ":".join(tail[:middle]), ":".join(tail[middle:])
