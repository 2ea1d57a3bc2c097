"""Shortens long texts in events and other values, for readers who want to know what happened but
not every word of it."""

from typing import Final, TypeVar

import msgspec

from perdure.domain.journal.events import Recorded

SHOWN_MAX: Final = 2_000
S = TypeVar("S", bound=msgspec.Struct)


def entry_in_short(recorded: Recorded) -> Recorded:
    """Return a journal entry with its long texts cut. Each of them says how long it is and where to
    find all of it."""
    place = f"/api/sessions/{recorded.session}/journal?after={recorded.seq - 1}&limit=1"
    event = struct_in_short(recorded.event, where=f"GET {place} has all of them")
    return msgspec.structs.replace(recorded, event=event)


def struct_in_short(value: S, *, where: str) -> S:
    """Return a value with its long texts cut, also those deep inside it."""
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    told = {name: _in_short(field, where) for name, field in fields.items()}
    changed = {name: field for name, field in told.items() if field is not fields[name]}
    return msgspec.structs.replace(value, **changed) if changed else value


def text_in_short(text: str, *, where: str) -> str:
    """Return a text, or its beginning with a note that says how long it is and where to find all of
    it."""
    if len(text) <= SHOWN_MAX:
        return text
    return f"{text[:SHOWN_MAX]}… [{SHOWN_MAX:,} of {len(text):,} characters; {where}]"


def _in_short(value: object, where: str) -> object:
    match value:
        case str():
            return text_in_short(value, where=where)
        case msgspec.Struct():
            return struct_in_short(value, where=where)
        case tuple():
            told = tuple(_in_short(each, where) for each in value)
            return told if any(a is not b for a, b in zip(told, value, strict=True)) else value
        case _:
            return value
