"""Slack's names for things, as external ids and back.

A message is known by its channel and its `ts`, which is unique within the channel only.
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
    channel: str
    ts: str

    @property
    def external_id(self) -> str:
        return f"{self.channel}/{self.ts}"


def message_of(external_id: str) -> MessageName | None:
    """The message that an external id speaks of; none where it is a click or a command."""
    found = _MESSAGE.match(external_id)
    return MessageName(found[1], found[2]) if found else None


def file_of(receipt: str) -> str:
    """The file that a receipt stands for, or nothing."""
    found = _FILE.match(receipt)
    return found[2] if found else ""


def file_receipt(channel: str, file: str) -> str:
    return f"{channel}/{file}"


def is_private(channel: str) -> bool:
    """Whether only one person and the bot are there."""
    return channel.startswith("D")


def marked(name: str, key: PartId) -> str:
    """A file's name that tells which part it is: a message with a file carries no metadata. People
    see the file's title; this is only what it is called on their disk."""
    stem, dot, ending = name.rpartition(".")
    return f"{stem}.{_mark(key)}.{ending}" if dot and stem else f"{name}.{_mark(key)}"


def is_marked(name: str, key: PartId) -> bool:
    return _mark(key) in name.split(".")


def has_mark(name: str) -> bool:
    """Whether a file's name tells of some part."""
    return any(_MARK.fullmatch(piece) for piece in name.split("."))


def _mark(key: PartId) -> str:
    return sha256(key.encode()).hexdigest()[:_KEY_DIGITS]
