"""What Slack sends, as far as it matters here. What it may leave out, it may also send as null."""

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
    """Something shown below a message; of another message that was forwarded, `is_share`, of one
    that a link leads to, `is_msg_unfurl`."""

    text: str | None = None
    fallback: str | None = None
    is_share: bool | None = None
    is_msg_unfurl: bool | None = None
    author_id: str | None = None
    author_name: str | None = None
    bot_id: str | None = None
    files: tuple[File, ...] | None = None


class Metadata(msgspec.Struct, frozen=True):
    event_type: str = ""
    event_payload: dict[str, object] = {}


class Reaction(msgspec.Struct, frozen=True):
    name: str
    users: tuple[str, ...] = ()


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
    streaming_state: str | None = None
    edited: Edited | None = None
    files: tuple[File, ...] | None = None
    attachments: tuple[SlackAttachment, ...] | None = None
    metadata: Metadata | None = None
    reactions: tuple[Reaction, ...] | None = None


class SlackEvent(Message, frozen=True, kw_only=True):
    """A message, or that one was changed or deleted."""

    type: str
    channel: str = ""
    deleted_ts: str | None = None
    message: Message | None = None
    previous_message: Message | None = None


class Typed(msgspec.Struct, frozen=True):
    type: str = ""


class EventCallback(msgspec.Struct, frozen=True):
    """What comes by the Events API, and inside an envelope of Socket Mode."""

    type: str = ""
    challenge: str = ""
    event: msgspec.Raw = msgspec.Raw(b"{}")


class SlashCommand(msgspec.Struct, frozen=True):
    """A slash command. It is no message: it has no `ts` and belongs to no thread."""

    command: str
    channel_id: str
    user_id: str
    trigger_id: str
    user_name: str = ""
    text: str = ""


class Named(msgspec.Struct, frozen=True):
    id: str
    name: str | None = None


class BlockAction(msgspec.Struct, frozen=True):
    action_id: str = ""
    value: str | None = None
    action_ts: str = ""


class Click(msgspec.Struct, frozen=True):
    """Somebody used what stands in a message."""

    user: Named
    channel: Named | None = None
    message: Message | None = None
    actions: tuple[BlockAction, ...] = ()


class SocketEnvelope(msgspec.Struct, frozen=True):
    type: str = ""
    envelope_id: str = ""
    reason: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")
