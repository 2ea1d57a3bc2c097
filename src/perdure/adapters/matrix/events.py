"""What a homeserver sends, as far as we read it.

Anybody can put anything into an event, so events stay raw inside a sync response and are decoded
one by one: a malformed one is nobody's message, and never holds up the others.
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
    """`limited`: events between the last sync and these were left out."""

    events: tuple[Raw, ...] = ()
    limited: bool = False
    prev_batch: str = ""


class RoomSummary(msgspec.Struct, frozen=True):
    heroes: tuple[str, ...] | None = field(default=None, name="m.heroes")
    joined: int | None = field(default=None, name="m.joined_member_count")


class JoinedRoom(msgspec.Struct, frozen=True):
    state: EventList = EventList()
    timeline: Timeline = Timeline()
    summary: RoomSummary = RoomSummary()


class InvitedRoom(msgspec.Struct, frozen=True):
    invite_state: EventList = EventList()


class RoomUpdates(msgspec.Struct, frozen=True):
    join: dict[str, JoinedRoom] = {}
    invite: dict[str, InvitedRoom] = {}
    leave: dict[str, Raw] = {}


class DeviceLists(msgspec.Struct, frozen=True):
    changed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Sync(msgspec.Struct, frozen=True):
    next_batch: str
    rooms: RoomUpdates = RoomUpdates()
    account_data: EventList = EventList()
    to_device: EventList = EventList()
    device_lists: DeviceLists = DeviceLists()
    device_one_time_keys_count: dict[str, int] = {}


class HistoryPage(msgspec.Struct, frozen=True):
    """Of a room's history. No `end`: there is nothing further back."""

    chunk: tuple[Raw, ...] = ()
    end: str = ""


class _Relations(msgspec.Struct, frozen=True):
    replaced: Raw = field(default=_ABSENT, name=REPLACE)


class Unsigned(msgspec.Struct, frozen=True):
    """`membership` is what we were in the room when this was sent."""

    membership: str = ""
    redacted_because: Raw = _ABSENT
    relations: _Relations | None = field(default=None, name="m.relations")


class MatrixEvent(msgspec.Struct, frozen=True):
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
        """The last edit of it, where the server tells."""
        relations = self.unsigned.relations
        return relations.replaced if relations and bytes(relations.replaced) else None

    @property
    def is_redacted(self) -> bool:
        return bool(bytes(self.unsigned.redacted_because))


class InReplyTo(msgspec.Struct, frozen=True):
    event_id: str = ""


class Relation(msgspec.Struct, frozen=True):
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
    """A file of an encrypted room: where its sealed bytes are, and what opens them."""

    url: str
    key: _Key
    iv: str
    hashes: _Hashes


class FileFacts(msgspec.Struct, frozen=True):
    mimetype: str = ""
    size: int = 0
    thumbnail_url: str = ""


class Words(msgspec.Struct, frozen=True):
    """What an edit says now."""

    body: str = ""
    msgtype: str = ""
    mentions: Mentions | None = field(default=None, name="m.mentions")
    formatted_body: str | None = None


class ForwardedFacts(msgspec.Struct, frozen=True):
    """What a client tells of a message that it passes on."""

    sender: str = ""


class MessageContent(msgspec.Struct, frozen=True):
    """`filename` beside another `body`: the body is a caption. Most clients copy what they pass on
    and say nothing of it; those that do say so mark it with `m.forwarded` (MSC2723, MSC2730)."""

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
    """None when it is not of that shape: somebody's mischief, or a client's bug. Numbers in quotes
    pass."""
    try:
        return msgspec.json.decode(raw, type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def all_of(raws: Iterable[Raw]) -> tuple[MatrixEvent, ...]:
    found = (decoded(raw, MatrixEvent) for raw in raws)
    return tuple(event for event in found if event is not None)


def raw_of(value: object) -> Raw:
    """A value of the library's, as it would have come over the wire."""
    return Raw(json.dumps(value).encode())
