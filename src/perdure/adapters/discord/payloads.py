"""Declares the shapes of what Discord sends, as far as it is read.

Every field that Discord may leave out has a default, and unknown fields are ignored, so that
additions to Discord's objects do not break the adapter.
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
    """Describes a person in a server. `user` is set in interactions and when a member is asked for,
    but not beside a message."""

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
    """Describes a sticker. `format_type` is 1 for PNG, 2 for APNG, 3 for Lottie, 4 for GIF."""

    id: str = ""
    name: str = ""
    format_type: int = 0


class Quoted(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the message that a reply answers."""

    author: User
    content: str = ""
    attachments: tuple[DiscordAttachment, ...] = ()


class MessageReference(msgspec.Struct, frozen=True, kw_only=True):
    """Names another message. `type` is 0 for the message that a reply answers, and 1 for one that
    was forwarded."""

    type: int = 0
    channel_id: str | None = None
    message_id: str | None = None


class Forwarded(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a forwarded message's content at the time it was forwarded, without its author."""

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
    """Holds a message. `guild_id` and `member` are set only in events of the gateway."""

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
    message_reference: MessageReference | None = None
    referenced_message: Quoted | None = None
    reactions: tuple[Reaction, ...] = ()

    @property
    def every_attachment(self) -> tuple[DiscordAttachment, ...]:
        """Return the message's own attachments and those of the messages that it forwards."""
        forwarded = (each.message.attachments for each in self.message_snapshots)
        return sum(forwarded, self.attachments)


class Changed(Message, frozen=True, kw_only=True):
    """Holds a message after a change. It is not always an edit: Discord also adds link previews."""


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """Names a deleted message. Discord says neither who deleted it nor who wrote it."""

    id: str
    channel_id: str
    guild_id: str = ""


class BulkDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Names the messages of one channel that were deleted together."""

    ids: tuple[str, ...]
    channel_id: str
    guild_id: str = ""

    @property
    def each(self) -> list[Deleted]:
        """Return one deletion for each message."""
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
    """Holds a choice: a command with `name` and `options`, or a button with `custom_id`."""

    name: str = ""
    options: tuple[Option, ...] = ()
    custom_id: str = ""


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a command from the menu or a click. `token` allows answers in the bot's name."""

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
    """Tells that a new session began. Discord does not deliver what happened before it."""

    application: Application


class GuildCame(msgspec.Struct, frozen=True, kw_only=True):
    """Tells that a server and its channels are known from now on."""

    id: str


class GuildGone(msgspec.Struct, frozen=True, kw_only=True):
    """Tells that the bot is not in a server any more, or that Discord cannot serve it for a while.
    `channels` are those that the server had; the adapter adds them."""

    id: str
    unavailable: bool = False
    channels: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Return the channels in which the bot is not any more."""
        return () if self.unavailable else self.channels


class ChannelGone(msgspec.Struct, frozen=True, kw_only=True):
    """Tells that a channel was deleted."""

    id: str

    @property
    def places(self) -> tuple[str, ...]:
        """Return the channel."""
        return (self.id,)


class Unread(msgspec.Struct, frozen=True):
    """Holds a frame that could not be decoded."""

    frame: str
    why: str

    @property
    def name(self) -> str:
        """Return an id made from the content, so that the same frame sent again has the same id."""
        return f"frame/{hashlib.sha256(self.frame.encode()).hexdigest()[:32]}"


GatewayEvent = (
    Ready
    | GuildCame
    | GuildGone
    | ChannelGone
    | Message
    | Changed
    | Deleted
    | BulkDeleted
    | Interaction
    | Unread
)

# The events that are read, by their name in a frame. All others are ignored.
_EVENTS: Final[Mapping[str, type[GatewayEvent]]] = {
    "READY": Ready,
    "GUILD_CREATE": GuildCame,
    "GUILD_DELETE": GuildGone,
    "CHANNEL_DELETE": ChannelGone,
    "MESSAGE_CREATE": Message,
    "MESSAGE_UPDATE": Changed,
    "MESSAGE_DELETE": Deleted,
    "MESSAGE_DELETE_BULK": BulkDeleted,
    "INTERACTION_CREATE": Interaction,
}


class _Frame(msgspec.Struct, frozen=True):
    """Holds a frame of the gateway: `t` names the event, and `d` is its content."""

    t: str | None = None
    d: msgspec.Raw = msgspec.Raw(b"null")


def event_of(frame: str) -> GatewayEvent | None:
    """Decode one frame of the gateway. Returns None for an event that is not read. Raises
    `msgspec.DecodeError` if the frame does not have the documented shape."""
    head = msgspec.json.decode(frame, type=_Frame)
    kind = _EVENTS.get(head.t or "")
    return None if kind is None else msgspec.json.decode(head.d, type=kind)


class GatewayLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the websocket's URL, and how many new sessions may still be started."""

    class Starts(msgspec.Struct, frozen=True, kw_only=True):
        remaining: int = 1
        reset_after: float = 0

    url: str
    session_start_limit: Starts = Starts()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the body of a response that is no success. `is_foreign` if Discord did not write it."""

    code: int = 0
    message: str = ""
    retry_after: float | None = None
    is_global: bool = msgspec.field(name="global", default=False)
    errors: msgspec.Raw = msgspec.Raw(b"")
    is_foreign: bool = False
