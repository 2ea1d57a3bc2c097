"""Telegram's ids in the gateway's words.

A message's number is unique only in its chat, so an external id is `chat/message`. A chat is named
by its number, or by `@name` where a person typed that.
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
    return f"{chat}/{message}"


def message_of(external_id: str) -> tuple[int, int]:
    """The chat and the message in it that an external id or a receipt stands for."""
    matched = _MESSAGE.match(external_id)
    if matched is None:
        raise NotFound(f"{external_id!r} names no message on Telegram; it cannot be changed there")
    return int(matched.group(1)), int(matched.group(2))


def chat_of(place: str) -> ChatId:
    return int(place) if _NUMBER.match(place) else place


def is_private(place: str) -> bool:
    """People have positive numbers, groups and channels negative ones."""
    return _NUMBER.match(place) is not None and not place.startswith("-")


def draft_number(key: PartId) -> int:
    """The same at every try, so that Telegram animates one draft; it must not be zero."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") & 0x7FFF_FFFF
    return number or 1
