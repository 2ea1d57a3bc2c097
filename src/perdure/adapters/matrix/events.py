"""Declares the part of a homeserver's answers that we read.

Anybody can put anything into an event. So events stay raw inside a sync response and are decoded
one by one: a malformed event does not hold up the others.
"""

import json
from collections.abc import Iterable
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Raw, field

MESSAGE: Final = "m.room.message"
STICKER: Final = "m.sticker"
ENCRYPTED: Final = "m.room.encrypted"
REDACTION: Final = "m.room.redaction"
MEMBER: Final = "m.room.member"
REACTION: Final = "m.reaction"
ENCRYPTION: Final = "m.room.encryption"

REPLACE: Final = "m.replace"
THREAD: Final = "m.thread"

_EMPTY: Final = Raw(b"{}")
_ABSENT: Final = Raw()
Decoded = TypeVar("Decoded")


class EventList(msgspec.Struct, frozen=True):
    events: tuple[Raw, ...] = ()


class Timeline(msgspec.Struct, frozen=True):
    """Holds the newest events of a room. `limited`: the server left out events between the last
    sync and these."""

    events: tuple[Raw, ...] = ()
    limited: bool = False
    prev_batch: str = ""


class RoomSummary(msgspec.Struct, frozen=True):
    """Holds the number of members and those who stand for a room without a name. None means
    unchanged."""

    heroes: tuple[str, ...] | None = field(default=None, name="m.heroes")
    joined: int | None = field(default=None, name="m.joined_member_count")


class JoinedRoom(msgspec.Struct, frozen=True):
    state: EventList = EventList()
    timeline: Timeline = Timeline()
    summary: RoomSummary = RoomSummary()


class InvitedRoom(msgspec.Struct, frozen=True):
    invite_state: EventList = EventList()


class RoomUpdates(msgspec.Struct, frozen=True):
    """Holds the changes of a sync by room id: rooms we are in, are invited to, and have left."""

    join: dict[str, JoinedRoom] = {}
    invite: dict[str, InvitedRoom] = {}
    leave: dict[str, Raw] = {}


class DeviceLists(msgspec.Struct, frozen=True):
    changed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Sync(msgspec.Struct, frozen=True):
    """Holds one answer of `/sync`. `next_batch` is the position from which to ask next."""

    next_batch: str
    rooms: RoomUpdates = RoomUpdates()
    account_data: EventList = EventList()
    to_device: EventList = EventList()
    device_lists: DeviceLists = DeviceLists()
    device_one_time_keys_count: dict[str, int] = {}


class HistoryPage(msgspec.Struct, frozen=True):
    """Holds one page of a room's history. Without `end` there is nothing older."""

    chunk: tuple[Raw, ...] = ()
    end: str = ""


class _Relations(msgspec.Struct, frozen=True):
    replaced: Raw = field(default=_ABSENT, name=REPLACE)


class Unsigned(msgspec.Struct, frozen=True):
    """Holds what the server adds to an event. `membership` is what we were in the room when the
    event was sent ("join", "invite")."""

    membership: str = ""
    redacted_because: Raw = _ABSENT
    relations: _Relations | None = field(default=None, name="m.relations")


class MatrixEvent(msgspec.Struct, frozen=True):
    """Holds an event, with its content still undecoded. Only state events have a `state_key`."""

    type: str
    sender: str = ""
    event_id: str = ""
    state_key: str | None = None
    redacts: str = ""
    origin_server_ts: int = 0
    content: Raw = _EMPTY
    unsigned: Unsigned = Unsigned()

    @property
    def newest(self) -> Raw | None:
        """Return the last edit of the event, if the server adds it."""
        relations = self.unsigned.relations
        return relations.replaced if relations and bytes(relations.replaced) else None

    @property
    def is_redacted(self) -> bool:
        """Tell whether the event was deleted."""
        return bool(bytes(self.unsigned.redacted_because))


class InReplyTo(msgspec.Struct, frozen=True):
    event_id: str = ""


class Relation(msgspec.Struct, frozen=True):
    """Says how a message relates to an earlier one: it edits it, stands in its thread, or answers
    it."""

    rel_type: str = ""
    event_id: str = ""
    key: str = ""
    is_falling_back: bool = False
    in_reply_to: InReplyTo | None = field(default=None, name="m.in_reply_to")


class Mentions(msgspec.Struct, frozen=True):
    user_ids: tuple[str, ...] = ()


class _Key(msgspec.Struct, frozen=True):
    k: str


class _Hashes(msgspec.Struct, frozen=True):
    sha256: str


class SealedFile(msgspec.Struct, frozen=True):
    """Holds where the encrypted bytes of a file are, and the key that decrypts them."""

    url: str
    key: _Key
    iv: str
    hashes: _Hashes


class FileFacts(msgspec.Struct, frozen=True):
    mimetype: str = ""
    size: int = 0
    thumbnail_url: str = ""


class Words(msgspec.Struct, frozen=True):
    """Holds the new text of an edit."""

    body: str = ""
    msgtype: str = ""
    mentions: Mentions | None = field(default=None, name="m.mentions")
    formatted_body: str | None = None


class ForwardedFacts(msgspec.Struct, frozen=True):
    """Holds what a client says about the origin of a forwarded message."""

    sender: str = ""


class MessageContent(msgspec.Struct, frozen=True):
    """Holds the content of a message. If `filename` differs from `body`, the body is a caption.
    Most clients copy a forwarded message and do not mark it; the others use `m.forwarded` (MSC2723,
    MSC2730)."""

    body: str = ""
    msgtype: str = ""
    formatted_body: str | None = None
    filename: str | None = None
    url: str | None = None
    file: SealedFile | None = None
    info: Raw = _EMPTY
    mentions: Mentions | None = field(default=None, name="m.mentions")
    relates_to: Relation | None = field(default=None, name="m.relates_to")
    new_content: Words | None = field(default=None, name="m.new_content")
    voice: Raw = field(default=_ABSENT, name="org.matrix.msc3245.voice")
    forwarded: Raw = field(default=_ABSENT, name="m.forwarded")


class RedactionContent(msgspec.Struct, frozen=True):
    redacts: str = ""


class MemberContent(msgspec.Struct, frozen=True):
    membership: Literal["invite", "join", "knock", "leave", "ban"]
    displayname: str | None = None
    is_direct: bool = False


class RoomNameContent(msgspec.Struct, frozen=True):
    name: str | None = None


class AliasContent(msgspec.Struct, frozen=True):
    alias: str | None = None


class AccountData(msgspec.Struct, frozen=True):
    type: str
    content: Raw = _EMPTY


def decoded(raw: Raw, shape: type[Decoded]) -> Decoded | None:
    """Decode a raw value. Returns None when it does not have that shape, by intent or by a client's
    bug. Numbers in quotes are accepted."""
    try:
        return msgspec.json.decode(raw, type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def all_of(raws: Iterable[Raw]) -> tuple[MatrixEvent, ...]:
    """Decode events, and leave out those that are malformed."""
    found = (decoded(raw, MatrixEvent) for raw in raws)
    return tuple(event for event in found if event is not None)


def raw_of(value: object) -> Raw:
    """Encode a value of the encryption library as it would have come over the wire."""
    return Raw(json.dumps(value).encode())
