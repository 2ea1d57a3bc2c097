"""Declares the part of Telegram's updates that we read.

All fields but the ids may be missing. Servers differ in what they leave out, and an update that
cannot be decoded is put aside unread.
"""

import msgspec
from msgspec import field


class User(msgspec.Struct, frozen=True):
    id: int
    is_bot: bool = False
    first_name: str | None = None
    last_name: str | None = None
    username: str | None = None
    language_code: str = ""


class Chat(msgspec.Struct, frozen=True):
    id: int
    type: str = "private"
    title: str | None = None
    first_name: str | None = None
    last_name: str | None = None

    @property
    def name(self) -> str:
        """Return a group's title, or the name of the person whose private chat it is."""
        return self.title or " ".join(filter(None, (self.first_name, self.last_name)))


class Entity(msgspec.Struct, frozen=True):
    """Marks a stretch of a text, counted in UTF-16 units."""

    type: str
    offset: int
    length: int
    url: str | None = None
    user: User | None = None


class File(msgspec.Struct, frozen=True):
    """Describes any kind of file. Which fields are set depends on the kind."""

    file_id: str
    file_unique_id: str = ""
    file_name: str | None = None
    mime_type: str | None = None
    file_size: int | None = None
    width: int = 0
    height: int = 0


class TelegramSticker(File, frozen=True):
    """Describes a sticker. An animated one has a file that only Telegram's own apps can show, and
    often a still thumbnail."""

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
    """Says who wrote a forwarded message. `type` is user, hidden_user, chat or channel."""

    type: str = ""
    sender_user: User | None = None
    sender_user_name: str | None = None
    sender_chat: Chat | None = None
    chat: Chat | None = None


class Message(msgspec.Struct, frozen=True):
    """Holds a message. Servers older than Bot API 7.0 give the origin of a forward in the
    `forward_*` fields after `forward_origin`."""

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
    migrate_to_chat_id: int | None = None
    migrate_from_chat_id: int | None = None
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
    """Holds a press of a button under one of our messages."""

    id: str
    sender: User = field(name="from")
    message: Message | None = None
    data: str | None = None


class StopPress(msgspec.Struct, frozen=True):
    """Holds a press of the stop button under a draft."""

    chat: Chat
    draft_id: int
    message_thread_id: int | None = None


class Membership(msgspec.Struct, frozen=True):
    """Says what somebody is in a chat now: member, administrator, left, kicked."""

    status: str = ""


class MembershipChange(msgspec.Struct, frozen=True):
    """Tells that the bot's own membership in a chat has changed."""

    chat: Chat
    new_chat_member: Membership = Membership()


class TelegramUpdate(msgspec.Struct, frozen=True):
    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    channel_post: Message | None = None
    edited_channel_post: Message | None = None
    callback_query: Click | None = None
    stopped_message_generation: StopPress | None = None
    my_chat_member: MembershipChange | None = None


# The kinds of updates that we ask for. Reactions have no effect; they only show that the connection
# works.
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
