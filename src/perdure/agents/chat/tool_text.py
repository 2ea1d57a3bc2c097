"""Brings tool calls of the history into a form that strict servers accept.

A model may have asked for a tool by an impossible name, or with arguments that are not JSON. The
journal keeps that call as it came, with its failed result. On the wire it must not make every later
request of the conversation invalid.
"""

import re
from typing import Final
from zlib import crc32

import msgspec

# The names and ids that strict servers accept.
NAME_MAX: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_object: Final = msgspec.json.Decoder(dict[str, object])


def tool_name(name: str) -> str:
    """Return a tool's name in characters and length that servers accept."""
    if _NAME.fullmatch(name):
        return name
    return _FOREIGN.sub("_", name)[:NAME_MAX] or "unknown"


def plain_id(call_id: str) -> str:
    """Return an id without special characters. A checksum keeps different ids different."""
    if _NAME.fullmatch(call_id):
        return call_id
    return f"{_FOREIGN.sub('_', call_id)[:48]}_{crc32(call_id.encode()):08x}"


def arguments_object(arguments: str) -> str:
    """Return the arguments if they are a JSON object, else an empty object."""
    try:
        _object.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return "{}"
    return arguments
