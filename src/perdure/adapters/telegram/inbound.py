"""Translates Telegram's updates into arrivals. Pure.

An update that does not concern us becomes None and is acknowledged like any other: a service
message, a message of the bot itself, a command that names another bot. Telegram tells bots about
edits, but never about deletions.

For every update there is an envelope, for which only the bot's name and a command are searched in
the text. The whole arrival is made once it is decided that the sender may speak.
"""

import hashlib
from typing import Final

import msgspec

from perdure.adapters.telegram.hearing.contents import (
    description,
    files_of,
    first_words,
    is_said,
    rich_words,
)
from perdure.adapters.telegram.hearing.reading import Addressing, addressing, read
from perdure.adapters.telegram.hearing.updates import (
    Chat,
    Click,
    Entity,
    Message,
    StopPress,
    TelegramUpdate,
    User,
)
from perdure.adapters.telegram.names import message_name
from perdure.domain.content.forwards import Forward, ForwardOrigin
from perdure.domain.inbound.arrivals import (
    SCANNED_MAX,
    Arrival,
    FileReference,
    PlaceKind,
    Sender,
    departure,
    relocation,
)
from perdure.domain.inbound.commands import command_in
from perdure.domain.kinds import UpdateKind
from perdure.ports.platform.buttons import press_in

# Stands for the bot where no name shall be removed from a text.
_NOBODY: Final = User(id=0)
# What the bot is in a chat that it has left, or was thrown out of.
_GONE: Final = ("left", "kicked")


def envelope_of(update: TelegramUpdate, me: User) -> Arrival | None:
    """Return what the decision about an update needs. Returns None where it does not concern us."""
    if (message := update.message or update.channel_post) is not None:
        return _moved(message) or _message(message, me)
    if (edited := update.edited_message or update.edited_channel_post) is not None:
        return _edit(edited, me)
    if update.callback_query is not None:
        return _click(update.callback_query)
    if update.stopped_message_generation is not None:
        return _stop(update.stopped_message_generation, update.update_id)
    if (change := update.my_chat_member) is not None and change.new_chat_member.status in _GONE:
        return departure(str(change.chat.id))
    return None


def arrival_of(update: TelegramUpdate, me: User) -> Arrival | None:
    """Return the whole arrival. Returns None where there is no envelope, or where it has no
    content."""
    envelope = envelope_of(update, me)
    if envelope is None:
        return None
    if update.callback_query is not None:
        chat = update.callback_query.message
        label = (chat.chat.name if chat else "") or envelope.sender.name
        word = "" if envelope.press else _word(update.callback_query)
        return msgspec.structs.replace(envelope, label=label, text=word)
    if (stop := update.stopped_message_generation) is not None:
        return msgspec.structs.replace(envelope, label=stop.chat.name, text="/stop")
    if envelope.kind in (UpdateKind.LEFT, UpdateKind.MOVED):
        return envelope
    posted = update.message or update.channel_post
    edited = update.edited_message or update.edited_channel_post
    message = posted or edited
    return _read(envelope, message, me) if message is not None else None


def _read(envelope: Arrival, message: Message, me: User) -> Arrival | None:
    """Return the envelope with its text, files and quote. Telegram's own `/start` becomes
    `/help`."""
    forward = _forward(message)
    # Forwarded words address the person they were first written to, so no name is removed.
    own_words = read(*_text(message), me if forward is None else _NOBODY)
    said = "\n".join(filter(None, (own_words, description(message))))
    files = files_of(message)
    if not (said or files or envelope.is_addressed):
        return None
    arrival = msgspec.structs.replace(
        envelope,
        label=message.chat.name or envelope.sender.name,
        text="/help" if said == "/start" or said.startswith("/start ") else said,
        files=files,
        quote=_quote(message),
        quoted_from=_quoted_from(message, me),
        quoted_files=_quoted_files(message, me),
    )
    if forward is None:
        return arrival
    # On Telegram a person cannot add words of their own to a forward.
    forwards = (msgspec.structs.replace(forward, text=said),)
    return msgspec.structs.replace(arrival, text="", forwards=forwards)


def _moved(message: Message) -> Arrival | None:
    """Return that a group has become a supergroup, which has another number. Telegram tells it in
    both, and each time names the other one. Returns None for any other message."""
    if message.migrate_to_chat_id is not None:
        return relocation(str(message.chat.id), str(message.migrate_to_chat_id))
    if message.migrate_from_chat_id is not None:
        return relocation(str(message.migrate_from_chat_id), str(message.chat.id))
    return None


def _message(message: Message, me: User) -> Arrival | None:
    """Return the envelope of a message, or None where it does not concern us."""
    is_ours = message.sender is not None and message.sender.id == me.id
    called = Addressing() if _is_forward(message) else _addressing(message, me)
    is_for_us = called.is_named or _answers(message, me)
    is_for_another = not is_for_us and (called.names_another or _answers_another_bot(message, me))
    if is_ours or called.is_for_another or not is_said(message):
        return None
    return Arrival(
        external_id=message_name(message.chat.id, message.message_id),
        place=str(message.chat.id),
        place_kind=_place_kind(message.chat),
        label=_group(message.chat),
        thread=_thread(message),
        sender=_sender(message),
        is_addressed=is_for_us or (called.is_for_us and not is_for_another),
        is_for_another=is_for_another,
        album=message.media_group_id or "",
        reply_to=_replied_to(message),
    )


def _addressing(message: Message, me: User) -> Addressing:
    """Return whom a person's own words address. A command that we know addresses us."""
    text, marks = _text(message)
    called = addressing(text, marks, me)
    is_known = _is_known_command((text or first_words(message))[:SCANNED_MAX])
    return msgspec.structs.replace(called, is_for_us=called.is_for_us or is_known)


def _edit(message: Message, me: User) -> Arrival | None:
    """Return the envelope of an edit. Its id contains a digest of the message."""
    envelope = _message(message, me)
    # A live location is edited all the time, and nobody has written anything.
    if envelope is None or message.location is not None:
        return None
    # Dates are in whole seconds, and two edits may have the same. The digest tells them apart.
    told = msgspec.structs.replace(message, reply_to_message=None)
    digest = hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:12]
    return msgspec.structs.replace(
        envelope,
        kind=UpdateKind.EDIT,
        external_id=f"{envelope.external_id}/edit/{message.edit_date or 0}/{digest}",
        target=envelope.external_id,
    )


def _click(click: Click) -> Arrival | None:
    """Return the envelope of a click on a button, or None where its message is unknown."""
    message = click.message
    if message is None or not click.data:
        return None
    return Arrival(
        external_id=f"{message.chat.id}/click/{click.id}",
        place=str(message.chat.id),
        place_kind=_place_kind(message.chat),
        label=_group(message.chat),
        thread=_thread(message),
        sender=_person(click.sender),
        is_addressed=True,
        press=press_in(click.data),
    )


def _word(click: Click) -> str:
    """Return the text of the clicked button. A long text does not fit into the data that comes
    back."""
    keyboard = click.message.reply_markup if click.message else None
    for row in keyboard.inline_keyboard if keyboard else ():
        for button in row:
            if button.callback_data == click.data:
                return button.text
    return click.data or ""


def _stop(stop: StopPress, update: int) -> Arrival:
    """Return the envelope of a press of the stop button. Only private chats show drafts, and there
    the chat's number is the person's. The id contains the update's number, because a resumed answer
    shows the same draft again."""
    chat = str(stop.chat.id)
    return Arrival(
        external_id=f"{chat}/stop/{stop.draft_id}/{update}",
        place=chat,
        place_kind=_place_kind(stop.chat),
        thread=str(stop.message_thread_id or ""),
        sender=Sender(id=chat, name=stop.chat.name),
        is_addressed=True,
    )


def _forward(message: Message) -> Forward | None:
    """Return where a message was forwarded from, without its text. Returns None if it was not
    forwarded."""
    origin = message.forward_origin
    if origin is not None:
        user, chat = origin.sender_user, origin.sender_chat or origin.chat
        name = origin.sender_user_name or ""
    elif message.forward_date is not None:
        user, chat = message.forward_from, message.forward_from_chat
        name = message.forward_sender_name or ""
    else:
        return None
    if user is not None:
        return Forward(
            origin=ForwardOrigin.BOT if user.is_bot else ForwardOrigin.PERSON,
            name=_person(user).name,
        )
    if chat is not None:
        is_channel = chat.type == "channel"
        return Forward(
            origin=ForwardOrigin.CHANNEL if is_channel else ForwardOrigin.GROUP, name=chat.name
        )
    return Forward(name=name)


def _is_forward(message: Message) -> bool:
    return message.forward_origin is not None or message.forward_date is not None


def _text(message: Message) -> tuple[str, tuple[Entity, ...]]:
    """Return the text or caption, and the marks that Telegram put on it."""
    if message.text:
        return message.text, message.entities or ()
    return message.caption or "", message.caption_entities or ()


def _sender(message: Message) -> Sender:
    """Return who wrote a message: a person, or the group or channel in whose name an administrator
    wrote. In the second case `from` is a placeholder that all of Telegram shares."""
    if message.sender_chat is not None or message.sender is None:
        chat = message.sender_chat or message.chat
        return Sender(id=str(chat.id), name=chat.name)
    return _person(message.sender)


def _person(user: User) -> Sender:
    name = " ".join(filter(None, (user.first_name, user.last_name)))
    return Sender(
        id=str(user.id),
        name=name or user.username or "",
        is_bot=user.is_bot,
        language=user.language_code,
    )


def _place_kind(chat: Chat) -> PlaceKind:
    return PlaceKind.PRIVATE if chat.type == "private" else PlaceKind.GROUP


def _group(chat: Chat) -> str:
    """Return the title of a group, or an empty string for a private chat."""
    return chat.name if _place_kind(chat) is PlaceKind.GROUP else ""


def _thread(message: Message) -> str:
    """Return the topic of a message. Outside of topics, the number only marks a chain of
    replies."""
    return str(message.message_thread_id or "") if message.is_topic_message else ""


def _is_known_command(text: str) -> bool:
    command = command_in(text)
    return command is not None and command.command is not None


def _answers(message: Message, me: User) -> bool:
    """Tell whether a message answers one of ours."""
    earlier = _answered(message)
    return earlier is not None and earlier.sender is not None and earlier.sender.id == me.id


def _answers_another_bot(message: Message, me: User) -> bool:
    """Tell whether a message answers one of another bot."""
    earlier = _answered(message)
    author = earlier.sender if earlier is not None else None
    return author is not None and author.is_bot and author.id != me.id


def _replied_to(message: Message) -> str:
    """Return the external id of the message that this one answers, or an empty string."""
    earlier = _answered(message)
    return message_name(earlier.chat.id, earlier.message_id) if earlier is not None else ""


def _answered(message: Message) -> Message | None:
    """Return the message that this one answers. In a topic, every message replies to the one that
    opened the topic, which may be ours and does not count."""
    earlier = message.reply_to_message
    return earlier if earlier is not None and earlier.forum_topic_created is None else None


def _quote(message: Message) -> str:
    """Return the words that a reply refers to."""
    if message.quote is not None:
        return message.quote.text
    earlier = message.reply_to_message
    if earlier is None:
        return ""
    return earlier.text or earlier.caption or rich_words(earlier)


def _quoted_from(message: Message, me: User) -> str:
    """Return who wrote the message that a reply refers to, and where they had it from. Returns an
    empty string if it is the bot's own."""
    earlier = _answered(message)
    if earlier is None or _answers(message, me):
        return ""
    forward = _forward(earlier)
    name = _sender(earlier).name
    return name if forward is None else f"{name}, forwarded from {forward.name or 'somebody'},"


def _quoted_files(message: Message, me: User) -> tuple[FileReference, ...]:
    """Return the files of the message that a reply refers to, unless they are the bot's own."""
    earlier = _answered(message)
    return () if earlier is None or _answers(message, me) else files_of(earlier)
