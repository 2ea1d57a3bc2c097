"""Describes what a person did on a platform, in the words that all platforms share.

An adapter translates this and hands it over. It decides neither who may speak nor where a
conversation begins: that is decided once, for all adapters.
"""

from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.content.forwards import Forward
from perdure.domain.content.stickers import Sticker
from perdure.domain.ids import QuestionId
from perdure.domain.kinds import UpdateKind

# How many characters of a text are searched for whom it addresses, before it is decided whether
# its sender may speak. No platform takes longer messages.
SCANNED_MAX: Final = 65_536


class PlaceKind(StrEnum):
    """Says who is in a place. PRIVATE: one person and the bot. GROUP: others read along."""

    PRIVATE = "private"
    GROUP = "group"


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Names who did it. `id` is the stable id on the platform; `name` is only shown, and may be
    anything. `language` is the tag of the language in which they use the platform."""

    id: str
    name: str = ""
    is_bot: bool = False
    roles: tuple[str, ...] = ()
    language: str = ""


class FileReference(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a file of a message that is still on the platform: `reference` is what `fetch`
    needs to bring it, the rest is what the platform says about it. `is_voice`: it was recorded as a
    message, not attached. For a `sticker`, the reference is that of its picture, and empty if there
    is none."""

    reference: str
    mime: str = ""
    name: str = ""
    size: int = 0
    is_voice: bool = False
    sticker: Sticker | None = None


class Press(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a person pressed a button under a question of the gateway: which question, and the
    number of the choice among those that were offered, from 0."""

    question: QuestionId
    choice: int


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one thing that a person did.

    `kind` is message, edit, delete, left or moved; for edits and deletions, `target` is the
    external id of the message that they are about. With `left` the bot is not in the place any
    more, and nothing but the place counts (`departure`). With `moved` nothing counts but the place
    and `moved_to`, the id that it has now (`relocation`). `external_id` is unique within the bot's
    account: the adapter adds the place if the platform's ids are unique only per place.
    `is_addressed`: it mentions the bot, answers it, or is a command for it. `is_for_another`: it
    does that with another bot, as far as the platform can tell. Messages with the same `album` were
    sent as one. `quote` is the text of the message that it replies to, if the platform tells,
    `quoted_from` says who wrote that, and `quoted_files` are its files. `forwards` are messages
    that the person forwarded: `text` and `is_addressed` are about the person's own words only,
    while `files` may belong to either. `agent` names who answers if the configuration of this place
    names another agent than the platform's. `press` is set if it is the press of a button under a
    question, and `reply_to` is the external id of the message that it replies to, if the platform
    tells.
    `begins_thread`: its thread is a new one, below this message. `own_thread` is the thread that it
    could begin. The label of a group stands in the envelope too, if the platform tells it with the
    message. `deliver_to` is the address on a platform to which the answer is also sent.
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
    press: Press | None = None
    reply_to: str = ""
    begins_thread: bool = False
    own_thread: str = ""
    is_for_another: bool = False
    quoted_from: str = ""
    quoted_files: tuple[FileReference, ...] = ()
    moved_to: str = ""
    deliver_to: str = ""


def departure(place: str) -> Arrival:
    """Return the arrival that tells that the bot is not in a place any more."""
    return Arrival(
        kind=UpdateKind.LEFT,
        external_id=f"{place}/left",
        place=place,
        place_kind=PlaceKind.GROUP,
        sender=Sender(id=""),
    )


def relocation(place: str, moved_to: str) -> Arrival:
    """Return the arrival that tells that a place has another id now."""
    return Arrival(
        kind=UpdateKind.MOVED,
        external_id=f"{place}/moved",
        place=place,
        place_kind=PlaceKind.GROUP,
        sender=Sender(id=""),
        moved_to=moved_to,
    )


def envelope_of(arrival: Arrival) -> Arrival:
    """Return an arrival without what is only made by reading it: text, quote, forwards, files, and
    the label of a private place. The rest is enough to decide whether its sender may speak."""
    label = arrival.label if arrival.place_kind is PlaceKind.GROUP else ""
    unread = msgspec.structs.replace(arrival, text="", quote="", forwards=(), files=(), label=label)
    return msgspec.structs.replace(unread, quoted_from="", quoted_files=())


def is_bare_call(arrival: Arrival) -> bool:
    """Tell whether somebody has called the bot in a group without saying anything."""
    return arrival.is_addressed and arrival.place_kind is PlaceKind.GROUP and is_wordless(arrival)


def is_wordless(arrival: Arrival) -> bool:
    """Tell whether an arrival is a message in which nothing was said and nothing was sent."""
    has_words = arrival.text.strip() or arrival.forwards
    is_said = has_words or arrival.files or arrival.press is not None
    return arrival.kind == UpdateKind.MESSAGE and not is_said
