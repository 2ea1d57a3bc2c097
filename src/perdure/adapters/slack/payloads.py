"""Declares the shapes of what Slack sends, as far as it is read.

Slack may send null for any field that it may also leave out, so such fields allow None.
"""

import msgspec


class Edited(msgspec.Struct, frozen=True):
    ts: str = ""


class File(msgspec.Struct, frozen=True):
    id: str = ""
    name: str | None = None
    title: str | None = None
    mimetype: str | None = None
    size: int | None = None
    subtype: str | None = None
    mode: str | None = None
    url_private: str | None = None
    url_private_download: str | None = None


class SlackAttachment(msgspec.Struct, frozen=True):
    """Holds something shown below a message. `is_share` marks a forwarded message, `is_msg_unfurl`
    a message that a link in the text points to."""

    text: str | None = None
    fallback: str | None = None
    is_share: bool | None = None
    is_msg_unfurl: bool | None = None
    author_id: str | None = None
    author_name: str | None = None
    bot_id: str | None = None
    files: tuple[File, ...] | None = None


class Metadata(msgspec.Struct, frozen=True):
    """Holds data that an app attached to its own message. People do not see it."""

    event_type: str = ""
    event_payload: dict[str, object] = {}


class Reaction(msgspec.Struct, frozen=True):
    name: str
    users: tuple[str, ...] = ()


class ThreadRoot(msgspec.Struct, frozen=True):
    """Holds the message at which a thread begins, as it comes with an answer that was also sent to
    the channel."""

    user: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    ts: str = ""
    user: str | None = None
    bot_id: str | None = None
    username: str | None = None
    user_team: str | None = None
    team: str | None = None
    subtype: str | None = None
    text: str | None = None
    thread_ts: str | None = None
    parent_user_id: str | None = None
    root: ThreadRoot | None = None
    streaming_state: str | None = None
    edited: Edited | None = None
    files: tuple[File, ...] | None = None
    attachments: tuple[SlackAttachment, ...] | None = None
    metadata: Metadata | None = None
    reactions: tuple[Reaction, ...] | None = None


class SlackEvent(Message, frozen=True, kw_only=True):
    """Holds a new message, or tells that a message was changed or deleted."""

    type: str
    channel: str = ""
    deleted_ts: str | None = None
    message: Message | None = None
    previous_message: Message | None = None


class Typed(msgspec.Struct, frozen=True):
    """Reads only the type of a payload, before the rest is decoded."""

    type: str = ""


class ChannelGone(msgspec.Struct, frozen=True):
    """Tells that a channel is no more, or that somebody has left it."""

    type: str
    channel: str
    user: str | None = None


class EventCallback(msgspec.Struct, frozen=True):
    """Holds an event as the Events API sends it, alone or inside an envelope of Socket Mode."""

    type: str = ""
    challenge: str = ""
    event: msgspec.Raw = msgspec.Raw(b"{}")


class SlashCommand(msgspec.Struct, frozen=True):
    """Holds a slash command. It is no message: it has no `ts` and belongs to no thread."""

    command: str
    channel_id: str
    user_id: str
    trigger_id: str
    user_name: str = ""
    text: str = ""


class Named(msgspec.Struct, frozen=True):
    """Names a person or a channel."""

    id: str
    name: str | None = None


class BlockAction(msgspec.Struct, frozen=True):
    action_id: str = ""
    value: str | None = None
    action_ts: str = ""


class Click(msgspec.Struct, frozen=True):
    """Tells that somebody used a button or another element of a message."""

    user: Named
    channel: Named | None = None
    message: Message | None = None
    actions: tuple[BlockAction, ...] = ()


class SocketEnvelope(msgspec.Struct, frozen=True):
    """Wraps one payload of Socket Mode. `envelope_id` is what has to be acknowledged."""

    type: str = ""
    envelope_id: str = ""
    reason: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")
