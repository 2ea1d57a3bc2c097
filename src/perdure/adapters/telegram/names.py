"""Translates between Telegram's ids and the gateway's.

The number of a message is unique only in its chat, so an external id is `chat/message`. A chat is
named by its number, or by `@name` where a person typed that.
"""

import hashlib
import re
from typing import Final

from perdure.domain.errors import NotFound
from perdure.domain.ids import PartId

_NUMBER: Final = re.compile(r"-?\d{1,19}\Z")
_MESSAGE: Final = re.compile(r"(-?\d{1,19})/(\d{1,19})\Z")

ChatId = int | str


def message_name(chat: int, message: int) -> str:
    """Return the external id of a message."""
    return f"{chat}/{message}"


def message_of(external_id: str) -> tuple[int, int]:
    """Return the chat and the message that an external id or a receipt names. Raises `NotFound` if
    it names no message."""
    matched = _MESSAGE.match(external_id)
    if matched is None:
        raise NotFound(f"{external_id!r} names no message on Telegram; it cannot be changed there")
    return int(matched.group(1)), int(matched.group(2))


def chat_of(place: str) -> ChatId:
    """Return the chat of a place: its number, or its `@name`."""
    return int(place) if _NUMBER.match(place) else place


def is_private(place: str) -> bool:
    """Tell whether a place is a private chat. People have positive numbers, groups and channels
    negative ones."""
    return _NUMBER.match(place) is not None and not place.startswith("-")


def draft_number(key: PartId) -> int:
    """Return the number of a draft. It is the same at every call, so that Telegram animates one
    draft, and it is never zero, which Telegram does not accept."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") & 0x7FFF_FFFF
    return number or 1
