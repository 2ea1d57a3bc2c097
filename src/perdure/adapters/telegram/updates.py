"""The part of Telegram's updates that is read here.

Everything but the ids may be missing: servers differ in what they leave out, and one update that
does not fit would otherwise stand in the way of all that follow it.
"""

import msgspec
from msgspec import field


class User(msgspec.Struct, frozen=True):
    id: int
    is_bot: bool = False
    first_name: str | None = None
    last_name: str | None = None
    username: str | None = None


class Chat(msgspec.Struct, frozen=True):
    id: int
    type: str = "private"
    title: str | None = None
    first_name: str | None = None
    last_name: str | None = None

    @property
    def name(self) -> str:
        """A group's title, or the name of the person whose private chat it is."""
        return self.title or " ".join(filter(None, (self.first_name, self.last_name)))


class Entity(msgspec.Struct, frozen=True):
    """A stretch of a text, counted in UTF-16 units."""

    type: str
    offset: int
    length: int
    url: str | None = None
    user: User | None = None


class File(msgspec.Struct, frozen=True):
    """Any kind of file; which fields are set depends on the kind."""

    file_id: str
    file_unique_id: str = ""
    file_name: str | None = None
    mime_type: str | None = None
    file_size: int | None = None
    width: int = 0
    height: int = 0


class TelegramSticker(File, frozen=True):
    """One that moves has a file that only Telegram's own programs can show, and often a thumbnail
    that stands still."""

    file_id: str = ""
    emoji: str | None = None
    set_name: str | None = None
    is_animated: bool = False
    is_video: bool = False
    thumbnail: File | None = None


class Location(msgspec.Struct, frozen=True):
    latitude: float
    longitude: float
    live_period: int | None = None


class Venue(msgspec.Struct, frozen=True):
    title: str = ""
    address: str = ""


class Contact(msgspec.Struct, frozen=True):
    phone_number: str = ""
    first_name: str = ""
    last_name: str | None = None


class PollOption(msgspec.Struct, frozen=True):
    text: str = ""


class Poll(msgspec.Struct, frozen=True):
    question: str = ""
    options: tuple[PollOption, ...] = ()


class Dice(msgspec.Struct, frozen=True):
    emoji: str = ""
    value: int = 0


class Task(msgspec.Struct, frozen=True):
    text: str = ""


class Checklist(msgspec.Struct, frozen=True):
    title: str = ""
    tasks: tuple[Task, ...] = ()


class TextQuote(msgspec.Struct, frozen=True):
    text: str = ""


class Button(msgspec.Struct, frozen=True):
    text: str = ""
    callback_data: str | None = None


class Keyboard(msgspec.Struct, frozen=True):
    inline_keyboard: tuple[tuple[Button, ...], ...] = ()


class ForwardOrigin(msgspec.Struct, frozen=True):
    """Who wrote a forwarded message: `type` is user, hidden_user, chat or channel."""

    type: str = ""
    sender_user: User | None = None
    sender_user_name: str | None = None
    sender_chat: Chat | None = None
    chat: Chat | None = None


class Message(msgspec.Struct, frozen=True):
    """Servers older than Bot API 7.0 tell the origin of a forward in the fields after
    `forward_origin`."""

    message_id: int
    chat: Chat
    sender: User | None = field(name="from", default=None)
    sender_chat: Chat | None = None
    message_thread_id: int | None = None
    is_topic_message: bool | None = None
    edit_date: int | None = None
    text: str | None = None
    entities: tuple[Entity, ...] | None = None
    caption: str | None = None
    caption_entities: tuple[Entity, ...] | None = None
    media_group_id: str | None = None
    reply_to_message: "Message | None" = None
    quote: TextQuote | None = None
    forward_origin: ForwardOrigin | None = None
    forward_from: User | None = None
    forward_from_chat: Chat | None = None
    forward_sender_name: str | None = None
    forward_date: int | None = None
    forum_topic_created: object = None
    reply_markup: Keyboard | None = None
    photo: tuple[File, ...] | None = None
    document: File | None = None
    voice: File | None = None
    audio: File | None = None
    video: File | None = None
    video_note: File | None = None
    animation: File | None = None
    sticker: TelegramSticker | None = None
    location: Location | None = None
    venue: Venue | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    dice: Dice | None = None
    checklist: Checklist | None = None
    story: object = None
    rich_message: object = None


class Click(msgspec.Struct, frozen=True):
    """A press of a button under one of our messages."""

    id: str
    sender: User = field(name="from")
    message: Message | None = None
    data: str | None = None


class StopPress(msgspec.Struct, frozen=True):
    """A press of the stop button under a draft."""

    chat: Chat
    draft_id: int
    message_thread_id: int | None = None


class TelegramUpdate(msgspec.Struct, frozen=True):
    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    channel_post: Message | None = None
    edited_channel_post: Message | None = None
    callback_query: Click | None = None
    stopped_message_generation: StopPress | None = None


# What we ask to be told. Reactions and membership are not acted upon; they show that the bot lives.
KINDS = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "message_reaction",
    "my_chat_member",
    "stopped_message_generation",
)
