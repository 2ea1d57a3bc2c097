"""What a person did on a platform, in the words that all platforms share.

An adapter translates and hands over; it neither decides who may speak nor where a conversation
begins. That is done once, for all of them.
"""

from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.content.forwards import Forward
from perdure.domain.content.stickers import Sticker
from perdure.domain.kinds import UpdateKind

# How many characters of a text are looked at for whom it speaks to, before anybody has decided
# whether its sender may speak. No platform takes longer messages.
SCANNED_MAX: Final = 65_536


class PlaceKind(StrEnum):
    """PRIVATE: one person and the bot. GROUP: others read along."""

    PRIVATE = "private"
    GROUP = "group"


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is the platform's stable one; `name` is only shown, and may be anything."""

    id: str
    name: str = ""
    is_bot: bool = False
    roles: tuple[str, ...] = ()


class FileReference(msgspec.Struct, frozen=True, kw_only=True):
    """A file that came along, still on the platform: what `fetch` needs to bring it, and what the
    platform says of it. `is_voice`: spoken to us, rather than attached. Of a `sticker` the
    reference is that of a picture, and empty where there is none."""

    reference: str
    mime: str = ""
    name: str = ""
    size: int = 0
    is_voice: bool = False
    sticker: Sticker | None = None


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a person did.

    `kind` is one of `domain/inbound/updates.py`: message, edit or delete; of the last two `target`
    is the external id of the message they speak of. `external_id` is unique within the bot's
    account: the adapter adds the place where the platform's id is per place. `is_addressed`: it
    mentions the bot, answers it, or is a command for it. `album` groups what was sent as one.
    `quote` is the text of the message that it replies to, where the platform tells. `forwards` are
    messages that the person passed on: `text` and `is_addressed` speak of the person's own words
    only, while `files` may have come either way. `agent` is who answers, where the configuration of
    this place names another than the platform's.
    """

    kind: UpdateKind = UpdateKind.MESSAGE
    external_id: str
    place: str
    place_kind: PlaceKind
    sender: Sender
    thread: str = ""
    label: str = ""
    text: str = ""
    is_addressed: bool = False
    files: tuple[FileReference, ...] = ()
    album: str = ""
    target: str = ""
    quote: str = ""
    forwards: tuple[Forward, ...] = ()
    agent: str = ""


def envelope_of(arrival: Arrival) -> Arrival:
    """Return an arrival without what is made by reading it: text, quote, forwards, files, label.
    What is left is enough to decide whether its sender may speak."""
    return msgspec.structs.replace(arrival, text="", quote="", forwards=(), files=(), label="")


def is_wordless(arrival: Arrival) -> bool:
    """Say whether an arrival is a message in which nothing was said and nothing was sent."""
    has_words = arrival.text.strip() or arrival.forwards
    return arrival.kind == UpdateKind.MESSAGE and not has_words and not arrival.files
