"""Builds and reads external ids and receipts, and marks the names of uploaded files.

A message is identified by its channel and its `ts`, which is unique only within the channel.
"""

import re
from hashlib import sha256
from typing import Final

import msgspec

from perdure.domain.ids import PartId

_MESSAGE: Final = re.compile(r"([^/]+)/(\d+\.\d+)\Z")
_FILE: Final = re.compile(r"([^/]+)/(F[A-Z0-9]+)\Z")
_KEY_DIGITS: Final = 10
_MARK: Final = re.compile(rf"[0-9a-f]{{{_KEY_DIGITS}}}")


class MessageName(msgspec.Struct, frozen=True):
    """Identifies a message."""

    channel: str
    ts: str

    @property
    def external_id(self) -> str:
        return f"{self.channel}/{self.ts}"


def message_of(external_id: str) -> MessageName | None:
    """Return the message of an external id, or None if it is a click or a command."""
    found = _MESSAGE.match(external_id)
    return MessageName(found[1], found[2]) if found else None


def file_of(receipt: str) -> str:
    """Return the id of the file that a receipt stands for, or an empty string."""
    found = _FILE.match(receipt)
    return found[2] if found else ""


def file_receipt(channel: str, file: str) -> str:
    """Return the receipt of an upload."""
    return f"{channel}/{file}"


def is_private(channel: str) -> bool:
    """Tell whether a channel is a direct conversation between one person and the bot."""
    return channel.startswith("D")


def marked(name: str, key: PartId) -> str:
    """Return a file's name with a mark that identifies its part.

    A message with a file carries no metadata, so the mark is how the part is found again. People
    see the title of the file; this name is only used when they save it.
    """
    stem, dot, ending = name.rpartition(".")
    return f"{stem}.{_mark(key)}.{ending}" if dot and stem else f"{name}.{_mark(key)}"


def is_marked(name: str, key: PartId) -> bool:
    """Tell whether a file's name has the mark of this part."""
    return _mark(key) in name.split(".")


def has_mark(name: str) -> bool:
    """Tell whether a file's name has the mark of any part."""
    return any(_MARK.fullmatch(piece) for piece in name.split("."))


def _mark(key: PartId) -> str:
    return sha256(key.encode()).hexdigest()[:_KEY_DIGITS]
