"""Tells a model where it is: the platform, the place and its kind, the person of a private chat,
and the time zone.

These facts change rarely, so they are part of the instructions. The time is not: it stands in a
line of ours before a message, if the day or the hour is another than at the message before it. The
line is made from the message's time in the journal, so an earlier message keeps its bytes, however
much later it is told again.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec

from perdure.domain.address import GROUP, HTTP, Address
from perdure.domain.ids import SessionId
from perdure.domain.journal.events import MessageJoined, Recorded, SteerTaken, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.schedule.zones import offset_name, zone_of
from perdure.domain.text import harmless_line

# Lines of times by the key of the message that each of them stands before.
Times = Mapping[tuple[SessionId, int], str]
NO_TIMES: Final[Times] = MappingProxyType({})

_WEBHOOK: Final = "webhook"
_NAME_MAX: Final = 100
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# Platforms whose names are not just written with a capital letter.
_PLATFORMS: Final = {HTTP: "web chat or HTTP API"}


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is known of the place that a turn's answer goes to. `kind` and `label` are what
    the platform says about it, and both may be empty; `person` is the name of a caller over
    HTTP."""

    kind: str = ""
    label: str = ""
    person: str = ""


NOWHERE: Final = Whereabouts()


def whereabouts_section(
    address: Address, known: Whereabouts, zone: str, *, platform: str = ""
) -> str:
    """Return where the model is, as a section of the instructions. The same facts always give the
    same text. `platform` is that of the adapter, if the adapter is not called after it."""
    platform = platform or address.adapter
    named = _PLATFORMS.get(platform, _line(platform).capitalize())
    return (
        "Where this conversation takes place (facts from the gateway; names are only names):\n"
        f"- platform: {named}\n"
        f"- place: {_place(address, known, platform)}\n"
        f"- time zone: {zone}; the time of a message stands in a line before it where the day or"
        " the hour is not that of the message before"
    )


def _place(address: Address, known: Whereabouts, platform: str) -> str:
    """Return the place and its kind in words."""
    label = _line(known.label)
    named = f' "{label}"' if label else ""
    if address.adapter == HTTP:
        told = f'private conversation "{_line(address.place)}"'
        return f"{told} with {_line(known.person)}" if known.person else told
    if platform == _WEBHOOK:
        return f"requests of a program{named}"
    if known.kind == GROUP:
        told = f"group{named}, where others read along"
        if address.person:
            return f"{told}; each has a conversation of their own"
        return f"{told}; this is one thread of it" if address.thread else told
    if known.kind:
        return f"private chat with {label}" if label else "private chat"
    return f"chat{named}"


def _line(name: str) -> str:
    """Return a name from outside as one harmless line that is not long."""
    return harmless_line(name.replace('"', "'"))[:_NAME_MAX].strip()


def times_of(events: Iterable[Recorded], zone: str, *, before: int = 0) -> tuple[Times, int]:
    """Return the lines of times for these messages, and the time of the last message. `before` is
    the time of the message before them, or 0. Without a zone there are no lines."""
    if not zone:
        return NO_TIMES, 0
    times: dict[tuple[SessionId, int], str] = {}
    for recorded in events:
        if _is_message(recorded):
            if not before or _hour(recorded.at, zone) != _hour(before, zone):
                times[recorded.key] = time_line(recorded.at, zone)
            before = recorded.at
    return times, before


def _is_message(recorded: Recorded) -> bool:
    """Tell whether the model is told this event as words from outside."""
    event = recorded.event
    if not isinstance(event, TurnQueued | MessageJoined | SteerTaken):
        return False
    is_sent = isinstance(event, TurnQueued) and event.kind == TurnKind.SENT
    return is_sent or bool(event.text.strip()) or bool(event.attachments)


def time_line(at: int, zone: str) -> str:
    """Return a time as a line before a message, with the zone's offset from UTC at that time."""
    then = _local(at, zone)
    return f"[{_DAYS[then.weekday()]}, {then:%Y-%m-%d %H:%M}, {offset_name(then)}]"


def _hour(at: int, zone: str) -> tuple[int, int, int, int]:
    then = _local(at, zone)
    return then.year, then.month, then.day, then.hour


def _local(at: int, zone: str) -> datetime:
    return datetime.fromtimestamp(at // 1000, tz=zone_of(zone) or UTC)
