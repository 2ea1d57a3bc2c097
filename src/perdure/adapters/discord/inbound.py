"""Translates Discord's messages and interactions into arrivals. Pure.

On Discord, threads and forum posts are channels of their own: here their parent channel is the
place, and they are the thread. Message ids are unique in all of Discord, but every request about a
message also needs its channel, so an external id is `channel/message`.

Each event is translated in two steps. The envelope reads nothing of the text except whom it
mentions. The whole arrival is made only after it is decided that the sender may speak.
"""

import re
from typing import Final

import msgspec

from perdure.adapters.discord.payloads import (
    Changed,
    Deleted,
    DiscordAttachment,
    DiscordSticker,
    Forwarded,
    Interaction,
    Member,
    Message,
    Quoted,
    User,
)
from perdure.domain.content import stickers
from perdure.domain.content.forwards import Forward
from perdure.domain.inbound.arrivals import SCANNED_MAX, Arrival, FileReference, PlaceKind, Sender
from perdure.domain.kinds import UpdateKind
from perdure.ports.platform.buttons import press_in

# Only messages of these types are written by somebody. The other types tell of joins, pins and
# boosts.
_REPLY: Final = 19
_WRITTEN: Final = frozenset({0, _REPLY})
# The type of the reference by which a reply names the message that it answers.
_TO_ANSWERED: Final = 0
# The message flag that marks a voice message, and the two interaction types that are read.
_VOICE_MESSAGE: Final = 1 << 13
_COMMAND: Final = 2
_CLICK: Final = 3
# Begins the file reference of a sticker's image. For other files a reference begins with the
# channel and message that they came with.
STICKER: Final = "sticker/"
# The image format of each sticker type. Lottie (3) is missing: it is no image.
_PICTURES: Final = {1: "png", 2: "png", 4: "gif"}
_CUSTOM_EMOJI: Final = re.compile(r"<a?(:\w+:)\d+>")
_MENTION: Final = re.compile(r"<@!?([^<>]+)>")


class ChannelPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Says where a channel's messages belong.

    `own_role` is the role that Discord made for the bot: a mention of it is a mention of the bot.
    `role_names` are the names of the sender's roles. `opener` is who opened the thread: messages in
    a post that the bot opened count as answers to the bot.
    """

    place: str
    thread: str = ""
    kind: PlaceKind = PlaceKind.GROUP
    label: str = ""
    own_role: str = ""
    role_names: tuple[str, ...] = ()
    opener: str = ""


def external_id(channel: str, message: str) -> str:
    """Return the external id of a message."""
    return f"{channel}/{message}"


def message_at(external: str) -> tuple[str, str] | None:
    """Return the channel and message of an external id, or None if it is no message.

    Commands from the menu and clicks have external ids too, but cannot be replied to or reacted to.
    """
    channel, _, message = external.partition("/")
    is_message = channel.isdecimal() and message.isdecimal()
    return (channel, message) if is_message else None


def sender_of(user: User, member: Member | None, place: ChannelPlace, *, is_bot: bool) -> Sender:
    """Return the sender, with the name that the server shows, and with roles by id and by name."""
    nick = member.nick if member else None
    return Sender(
        id=user.id,
        name=nick or user.global_name or user.username,
        is_bot=is_bot,
        roles=(*(member.roles if member else ()), *place.role_names),
    )


def envelope_of(message: Message, *, account: str, place: ChannelPlace) -> Arrival | None:
    """Return the envelope of a message or an edit, or None if nobody wrote it or the bot did."""
    if message.author.id == account or message.type not in _WRITTEN:
        return None
    is_edit = isinstance(message, Changed)
    if is_edit and message.edited_timestamp is None:
        return None
    own_id = external_id(message.channel_id, message.id)
    is_bot = message.author.bot or message.webhook_id is not None
    envelope = Arrival(
        external_id=own_id,
        place=place.place,
        place_kind=place.kind,
        sender=sender_of(message.author, message.member, place, is_bot=is_bot),
        thread=place.thread,
        own_thread=message.id if place.kind is PlaceKind.GROUP and not place.thread else "",
        label=place.label,
        is_addressed=_is_addressed(message, account=account, place=place),
        is_for_another=_is_for_another(message, account=account, place=place),
        reply_to=_replied_to(message),
    )
    if not is_edit:
        return envelope
    # A change that is not an edit, such as a link preview, repeats the last edit's timestamp. So
    # its external id is the same, and the inbox takes it for the same event.
    return msgspec.structs.replace(
        envelope,
        kind=UpdateKind.EDIT,
        external_id=f"{own_id}/{message.edited_timestamp}",
        target=own_id,
    )


def arrival_of(message: Message, *, account: str, place: ChannelPlace) -> Arrival | None:
    """Return the whole arrival of a message or an edit, or None where it has no envelope."""
    envelope = envelope_of(message, account=account, place=place)
    if envelope is None:
        return None
    quoted = message.referenced_message
    return msgspec.structs.replace(
        envelope,
        label=place.label,
        text=_text(message, account=account, place=place),
        files=_files(message),
        quote=quoted.content if quoted else "",
        quoted_from=_quoted_from(quoted, account=account),
        quoted_files=_quoted_files(message, account=account),
        forwards=tuple(_forward(each.message) for each in message.message_snapshots),
    )


def deletion_of(deleted: Deleted, *, place: ChannelPlace, sender: Sender) -> Arrival:
    """Return the arrival that tells of a deletion."""
    target = external_id(deleted.channel_id, deleted.id)
    return Arrival(
        kind=UpdateKind.DELETE,
        external_id=f"{target}/deleted",
        place=place.place,
        place_kind=place.kind,
        sender=sender,
        thread=place.thread,
        label=place.label,
        target=target,
    )


def interaction_envelope(interaction: Interaction, *, place: ChannelPlace) -> Arrival | None:
    """Return the envelope of a command from the menu or a click, or None for anything else."""
    user = interaction.user or (interaction.member.user if interaction.member else None)
    chosen = interaction.data
    if user is None or chosen is None or interaction.type not in {_COMMAND, _CLICK}:
        return None
    return Arrival(
        # The letter `i` keeps it apart from messages: `message_at` refuses it.
        external_id=external_id(interaction.channel_id, f"i{interaction.id}"),
        place=place.place,
        place_kind=place.kind,
        sender=sender_of(user, interaction.member, place, is_bot=user.bot),
        thread=place.thread,
        label=place.label,
        is_addressed=True,
        press=press_in(chosen.custom_id) if is_click(interaction) else None,
    )


def interaction_of(interaction: Interaction, *, place: ChannelPlace) -> Arrival | None:
    """Return the whole arrival. A command becomes the text `/name words`, a click its button's
    word. The press of a question's button has no text."""
    envelope = interaction_envelope(interaction, place=place)
    if envelope is None:
        return None
    text = "" if envelope.press else _said(interaction)
    if not (text or envelope.press):
        return None
    return msgspec.structs.replace(envelope, label=place.label, text=text)


def is_click(interaction: Interaction) -> bool:
    return interaction.type == _CLICK


def button_id(index: int, word: str) -> str:
    """Return the id of a button that is under no question. It carries the word that a click says,
    and Discord allows it 100 characters."""
    return f"{index}:{word}"[:100]


def _said(interaction: Interaction) -> str:
    """Return the text that an interaction stands for, or an empty string."""
    chosen = interaction.data
    if chosen is None:
        return ""
    if interaction.type == _CLICK:
        return chosen.custom_id.partition(":")[2]
    if interaction.type != _COMMAND:
        return ""
    words = [str(option.value) for option in chosen.options if option.value is not None]
    return " ".join([f"/{chosen.name}", *words])


def _is_addressed(message: Message, *, account: str, place: ChannelPlace) -> bool:
    """Tell whether a message mentions the bot or its role, replies to it, or is in its thread."""
    quoted = message.referenced_message
    return (
        account in _MENTION.findall(message.content[:SCANNED_MAX])
        or (quoted is not None and quoted.author.id == account)
        or (place.own_role != "" and place.own_role in message.mention_roles)
        or place.opener == account
    )


def _is_for_another(message: Message, *, account: str, place: ChannelPlace) -> bool:
    """Tell whether a message mentions another bot or replies to it, and does not address ours."""
    quoted = message.referenced_message
    bots = {user.id for user in message.mentions if user.bot}
    if quoted is not None and quoted.author.bot:
        bots.add(quoted.author.id)
    is_ours = _is_addressed(message, account=account, place=place)
    return bool(bots - {account}) and not is_ours


def _quoted_from(quoted: Quoted | None, *, account: str) -> str:
    """Return who wrote the message that a reply answers, or an empty string if the bot did."""
    if quoted is None or quoted.author.id == account:
        return ""
    return quoted.author.global_name or quoted.author.username


def _quoted_files(message: Message, *, account: str) -> tuple[FileReference, ...]:
    """Return the files of the message that a reply answers, unless they are the bot's own."""
    quoted, answered = message.referenced_message, message_at(_replied_to(message))
    if quoted is None or answered is None or quoted.author.id == account:
        return ()
    return tuple(_file(each, answered, is_voice=False) for each in quoted.attachments)


def _replied_to(message: Message) -> str:
    """Return the external id of the message that a reply answers, or an empty string."""
    named = message.message_reference
    if message.type != _REPLY or named is None or named.type != _TO_ANSWERED:
        return ""
    channel = named.channel_id or message.channel_id
    return external_id(channel, named.message_id) if named.message_id else ""


def _text(message: Message, *, account: str, place: ChannelPlace) -> str:
    """Return the text without the mention of the bot, and with people and emoji by their names."""
    text = message.content.replace(f"<@{account}>", "").replace(f"<@!{account}>", "")
    if place.own_role:
        text = text.replace(f"<@&{place.own_role}>", "")
    return _words(text, message)


def _words(text: str, message: Message | Forwarded) -> str:
    """Replace mentions of people and custom emoji by their names."""
    names = {user.id: f"@{user.global_name or user.username}" for user in message.mentions}
    text = _MENTION.sub(lambda found: names.get(found[1], found[0]), text)
    return _CUSTOM_EMOJI.sub(r"\1", text).strip()


def _forward(snapshot: Forwarded) -> Forward:
    return Forward(text=_words(snapshot.content, snapshot))


def _files(message: Message) -> tuple[FileReference, ...]:
    """Return the files and stickers of a message, and of the messages that it forwards."""
    snapshots = [each.message for each in message.message_snapshots]
    sources: list[Message | Forwarded] = [message, *snapshots]
    here = (message.channel_id, message.id)
    files = [
        _file(attachment, here, is_voice=bool(source.flags & _VOICE_MESSAGE))
        for source in sources
        for attachment in source.attachments
    ]
    stuck = [_sticker(sticker) for source in sources for sticker in source.sticker_items]
    return (*files, *stuck)


def _sticker(sticker: DiscordSticker) -> FileReference:
    """Return the reference to a sticker's image. A Lottie sticker has none, so it is empty."""
    ending = _PICTURES.get(sticker.format_type, "")
    return FileReference(
        reference=f"{STICKER}{sticker.id}.{ending}" if ending and sticker.id.isdecimal() else "",
        mime=f"image/{ending}" if ending else "",
        name=f"sticker {sticker.name}".rstrip(),
        sticker=stickers.Sticker(id=sticker.id, name=sticker.name),
    )


def _file(
    attachment: DiscordAttachment, message: tuple[str, str], *, is_voice: bool
) -> FileReference:
    """Return the reference to a file of the message with this channel and id."""
    # Discord's file URLs expire within a day, so the URL is asked for when the file is fetched.
    return FileReference(
        reference=f"{message[0]}/{message[1]}/{attachment.id}",
        mime=(attachment.content_type or "").partition(";")[0],
        name=attachment.filename,
        size=attachment.size,
        is_voice=is_voice,
    )
