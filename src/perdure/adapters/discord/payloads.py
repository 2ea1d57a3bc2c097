"""What Discord says, as far as we listen: shapes that are read at the edge and nothing else.

Every field that Discord may leave out has a default, and unknown fields are passed over, so that a
new version of its objects is no failure of ours.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec


class User(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    username: str = ""
    global_name: str | None = None
    bot: bool = False


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """`user` stands in interactions and where a member is asked for, not beside a message."""

    nick: str | None = None
    roles: tuple[str, ...] = ()
    user: User | None = None


class DiscordAttachment(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    filename: str = ""
    content_type: str | None = None
    size: int = 0
    url: str = ""


class DiscordSticker(msgspec.Struct, frozen=True, kw_only=True):
    """`format_type`: PNG, APNG, Lottie, GIF, counted from 1."""

    id: str = ""
    name: str = ""
    format_type: int = 0


class Quoted(msgspec.Struct, frozen=True, kw_only=True):
    """The message that a reply answers."""

    author: User
    content: str = ""


class Forwarded(msgspec.Struct, frozen=True, kw_only=True):
    """What stood in a message when it was forwarded. Discord leaves out who wrote it."""

    content: str = ""
    flags: int = 0
    mentions: tuple[User, ...] = ()
    attachments: tuple[DiscordAttachment, ...] = ()
    sticker_items: tuple[DiscordSticker, ...] = ()


class MessageSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    message: Forwarded


class Emoji(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    id: str | None = None


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    emoji: Emoji
    me: bool = False


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """`guild_id` and `member` come with the gateway's events only."""

    id: str
    channel_id: str
    author: User
    type: int = 0
    flags: int = 0
    guild_id: str = ""
    member: Member | None = None
    webhook_id: str | None = None
    content: str = ""
    edited_timestamp: str | None = None
    mentions: tuple[User, ...] = ()
    mention_roles: tuple[str, ...] = ()
    attachments: tuple[DiscordAttachment, ...] = ()
    sticker_items: tuple[DiscordSticker, ...] = ()
    message_snapshots: tuple[MessageSnapshot, ...] = ()
    referenced_message: Quoted | None = None
    reactions: tuple[Reaction, ...] = ()

    @property
    def every_attachment(self) -> tuple[DiscordAttachment, ...]:
        """Its own and those of what it forwards."""
        forwarded = (each.message.attachments for each in self.message_snapshots)
        return sum(forwarded, self.attachments)


class Changed(Message, frozen=True, kw_only=True):
    """A message as it stands after a change, which may be nobody's edit: a link was unfurled."""


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """Discord does not say who deleted it, nor whose it was."""

    id: str
    channel_id: str
    guild_id: str = ""


class BulkDeleted(msgspec.Struct, frozen=True, kw_only=True):
    ids: tuple[str, ...]
    channel_id: str
    guild_id: str = ""

    @property
    def each(self) -> list[Deleted]:
        where = {"channel_id": self.channel_id, "guild_id": self.guild_id}
        return [Deleted(id=message, **where) for message in self.ids]


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: int = 0
    name: str | None = None
    guild_id: str = ""
    parent_id: str | None = None
    owner_id: str | None = None


OptionValue = str | int | float | bool | None


class Option(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    value: OptionValue = None


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen from the menu of commands (`name`) or among buttons (`custom_id`)."""

    name: str = ""
    options: tuple[Option, ...] = ()
    custom_id: str = ""


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    token: str
    application_id: str
    type: int
    channel_id: str = ""
    channel: Channel | None = None
    guild_id: str = ""
    member: Member | None = None
    user: User | None = None
    data: Chosen | None = None


class Application(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A session has begun anew: what happened before it is not told."""

    application: Application


class GuildCame(msgspec.Struct, frozen=True, kw_only=True):
    """A server and its channels are known from here on."""

    id: str


class Unread(msgspec.Struct, frozen=True):
    """A frame that is not shaped as Discord says. Sent again it is the same, and so is its name."""

    frame: str
    why: str

    @property
    def name(self) -> str:
        return f"frame/{hashlib.sha256(self.frame.encode()).hexdigest()[:32]}"


GatewayEvent = Ready | GuildCame | Message | Changed | Deleted | BulkDeleted | Interaction | Unread

_EVENTS: Final[Mapping[str, type[GatewayEvent]]] = {
    "READY": Ready,
    "GUILD_CREATE": GuildCame,
    "MESSAGE_CREATE": Message,
    "MESSAGE_UPDATE": Changed,
    "MESSAGE_DELETE": Deleted,
    "MESSAGE_DELETE_BULK": BulkDeleted,
    "INTERACTION_CREATE": Interaction,
}


class _Frame(msgspec.Struct, frozen=True):
    t: str | None = None
    d: msgspec.Raw = msgspec.Raw(b"null")


def event_of(frame: str) -> GatewayEvent | None:
    """What one frame of the gateway tells, or None where we do not listen. Raises
    `msgspec.DecodeError` for what is not shaped as Discord says."""
    head = msgspec.json.decode(frame, type=_Frame)
    kind = _EVENTS.get(head.t or "")
    return None if kind is None else msgspec.json.decode(head.d, type=kind)


class GatewayLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect, and how often that may still be done."""

    class Starts(msgspec.Struct, frozen=True, kw_only=True):
        remaining: int = 1
        reset_after: float = 0

    url: str
    session_start_limit: Starts = Starts()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an answer that is no success; `is_foreign` if it is none of Discord's."""

    code: int = 0
    message: str = ""
    retry_after: float | None = None
    is_global: bool = msgspec.field(name="global", default=False)
    errors: msgspec.Raw = msgspec.Raw(b"")
    is_foreign: bool = False
