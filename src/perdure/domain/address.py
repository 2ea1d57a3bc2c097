"""Where a conversation lives.

An address is five typed columns, never a positional string: two chats can share a display name, a
separator or a topic and still be two addresses.
"""

import re
from collections.abc import Iterator

import msgspec

HTTP = "http"
GROUP = "group"
# No platform's ids have as many colons as this.
WORDS_MAX = 12


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """One place where people talk to an agent.

    `account` is the bot's stable id (over HTTP: the principal's), never its token. `thread` and
    `person` are empty where the platform or the configuration does not divide a place further.
    """

    adapter: str
    account: str
    place: str
    thread: str = ""
    person: str = ""

    @property
    def name(self) -> str:
        """The name people use: a plain word over HTTP, `telegram:123` elsewhere."""
        if self.adapter == HTTP:
            return self.place
        rest = [part for part in (self.place, self.thread, self.person) if part]
        return ":".join([self.adapter, *rest])


class AddressForm(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts of an address on a platform look like: a pattern for the whole of each part,
    and an example of a place. `pattern` is the place's. A platform's places have one spelling each:
    another one would be delivered to the same people and be a second conversation here."""

    pattern: str
    example: str
    thread: str = r"\S.*"
    person: str = r"\S.*"

    def takes(self, place: str, thread: str = "", person: str = "") -> bool:
        """Whether there can be such a place, such a thread in it, and such a person there; the
        last two may be empty."""
        return (
            re.fullmatch(self.pattern, place) is not None
            and (not thread or re.fullmatch(self.thread, thread) is not None)
            and (not person or re.fullmatch(self.person, person) is not None)
        )


def is_shared(address: Address, kind: str) -> bool:
    """Whether several people take part: a group whose members are not kept apart."""
    return kind == GROUP and not address.person


def readings(rest: str) -> Iterator[tuple[str, str, str]]:
    """The (place, thread, person) that a name may stand for, without its adapter. Ids may hold
    colons themselves, so there are several: the longest place first."""
    yield rest, "", ""
    words = rest.split(":")[:WORDS_MAX]
    for end in range(len(words) - 1, 0, -1):
        place, tail = ":".join(words[:end]), words[end:]
        yield place, ":".join(tail), ""
        yield place, "", ":".join(tail)
        for middle in range(1, len(tail)):
            yield place, ":".join(tail[:middle]), ":".join(tail[middle:])
