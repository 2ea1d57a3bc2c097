"""Tool calls of the history in a form that strict servers take.

A model may once have asked for a tool by an impossible name or with arguments that are no JSON.
That call stands in the journal as it came, with the failed result it got; on the wire it must not
make every later request of the conversation invalid.
"""

import re
from typing import Final
from zlib import crc32

import msgspec

NAME_MAX: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_object: Final = msgspec.json.Decoder(dict[str, object])


def tool_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    return _FOREIGN.sub("_", name)[:NAME_MAX] or "unknown"


def plain_id(call_id: str) -> str:
    """An id without special characters; different ids stay different."""
    if _NAME.fullmatch(call_id):
        return call_id
    return f"{_FOREIGN.sub('_', call_id)[:48]}_{crc32(call_id.encode()):08x}"


def arguments_object(arguments: str) -> str:
    """The arguments if they are a JSON object, else an empty one."""
    try:
        _object.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return "{}"
    return arguments
