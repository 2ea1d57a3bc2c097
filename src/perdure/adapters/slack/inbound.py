"""Translates Slack's events, commands and clicks into arrivals. Pure.

A mention in a channel comes twice, as a message and as a mention event; both become the same
arrival. A mention outside a thread begins a thread: the conversation continues below that message.
In private only the person begins threads.

Each event is translated in two steps. The envelope reads nothing of the text except whom it
mentions. The whole arrival is made only after it is decided that the sender may speak.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from perdure.adapters.slack.names import MessageName, is_private
from perdure.adapters.slack.payloads import (
    BlockAction,
    Click,
    File,
    Message,
    SlackAttachment,
    SlackEvent,
    SlashCommand,
)
from perdure.adapters.slack.render import ACTION, QUESTION_ACTION
from perdure.adapters.slack.text.reading import mentioned, read
from perdure.domain.content.forwards import Forward, ForwardOrigin
from perdure.domain.inbound.arrivals import (
    SCANNED_MAX,
    Arrival,
    FileReference,
    PlaceKind,
    Press,
    Sender,
)
from perdure.domain.inbound.commands import command_in
from perdure.domain.kinds import UpdateKind
from perdure.ports.platform.buttons import press_in

# Messages of these subtypes are written by somebody. Other subtypes tell of joins, topics, pins.
_WRITTEN: Final = frozenset(
    {None, "bot_message", "file_share", "me_message", "message_share", "thread_broadcast"}
)
# Slack leaves this in the place of a deleted message that has replies.
_TOMBSTONE: Final = "tombstone"
# Modes of files that cannot be fetched: deleted, or hidden by the limits of a free workspace.
_GONE: Final = frozenset({"tombstone", "hidden_by_limit"})
_VOICE: Final = "slack_audio"
# Begins the reference to a file of which Slack told only the id.
BY_ID: Final = "file:"


class Bot(msgspec.Struct, frozen=True, kw_only=True):
    """Says who the bot is on Slack."""

    team: str
    user: str
    bot_id: str = ""
    name: str = ""

    @property
    def account(self) -> str:
        """Return the account id: the same user id may exist in two workspaces."""
        return f"{self.team}/{self.user}"


def people_in(event: SlackEvent) -> tuple[str, ...]:
    """Return the ids of the people whose names the whole arrival needs."""
    message = event.message or event
    shared = _shared(message)
    texts = (message.text, *(each.text or each.fallback for each in shared))
    authors = (each.author_id or "" for each in shared)
    ids = (message.user or "", *authors, *(id_ for text in texts for id_ in mentioned(text or "")))
    return tuple(dict.fromkeys(each for each in ids if each))


def envelope_of(event: SlackEvent, bot: Bot) -> Arrival | None:
    """Return the envelope of an event, or None if no person did it or the bot did."""
    match event.subtype:
        case "message_changed":
            return _changed(event, bot)
        case "message_deleted" if event.previous_message is not None:
            return _deleted(event, event.previous_message, event.deleted_ts or "", bot)
        case _:
            return _written(event, bot)


def of_event(event: SlackEvent, bot: Bot, names: Mapping[str, str]) -> Arrival | None:
    """Return the whole arrival of an event, or None where it has no envelope."""
    envelope = envelope_of(event, bot)
    if envelope is None:
        return None
    known = envelope.sender
    sender = msgspec.structs.replace(known, name=known.name or names.get(known.id, ""))
    if envelope.kind == UpdateKind.DELETE:
        return msgspec.structs.replace(envelope, sender=sender)
    said = event.message if envelope.kind == UpdateKind.EDIT and event.message else event
    return msgspec.structs.replace(
        envelope,
        sender=sender,
        text=read(said.text or "", bot=bot.user, names=names),
        files=_files(said) if envelope.kind == UpdateKind.MESSAGE else (),
        forwards=_forwards(said, names),
    )


def _written(event: SlackEvent, bot: Bot) -> Arrival | None:
    sender = _sender(event, bot)
    if event.subtype not in _WRITTEN or sender is None or not event.ts:
        return None
    return Arrival(
        external_id=MessageName(event.channel, event.ts).external_id,
        place=event.channel,
        place_kind=_kind(event.channel),
        sender=sender,
        thread=_thread(event, event.channel, bot),
        is_addressed=_is_addressed(event, bot) or event.type == "app_mention",
        reply_to=_replied_to(event, event.channel, bot),
        begins_thread=_begins_thread(event, event.channel, bot),
        own_thread="" if is_private(event.channel) or _is_in_thread(event) else event.ts,
    )


def _changed(event: SlackEvent, bot: Bot) -> Arrival | None:
    """Return the envelope of an edit, or None if the message changed without one."""
    now, before = event.message, event.previous_message
    if now is None:
        return None
    if now.subtype == _TOMBSTONE:
        return _deleted(event, before or now, now.ts, bot)
    sender = _sender(now, bot)
    # Link previews and new replies change a message too, but then `edited` stays the same.
    if sender is None or now.edited is None or (before and before.edited == now.edited):
        return None
    target = MessageName(event.channel, now.ts).external_id
    return Arrival(
        kind=UpdateKind.EDIT,
        external_id=f"{target}/{now.edited.ts}",
        target=target,
        place=event.channel,
        place_kind=_kind(event.channel),
        sender=sender,
        # An edit that adds or removes a mention does not move the message to another conversation,
        # so the thread is that of the message before the edit.
        thread=_thread(before or now, event.channel, bot),
        is_addressed=_is_addressed(now, bot),
        reply_to=_replied_to(now, event.channel, bot),
    )


def _deleted(event: SlackEvent, before: Message, ts: str, bot: Bot) -> Arrival | None:
    """Return the envelope of a deletion. Slack does not say who deleted the message, so its author
    counts as the one who did."""
    sender = _sender(before, bot)
    if sender is None or not ts:
        return None
    target = MessageName(event.channel, ts).external_id
    return Arrival(
        kind=UpdateKind.DELETE,
        external_id=f"{target}/deleted",
        target=target,
        place=event.channel,
        place_kind=_kind(event.channel),
        sender=sender,
        thread=_thread(before, event.channel, bot),
        is_addressed=_is_addressed(before, bot),
    )


def command_envelope(command: SlashCommand) -> Arrival:
    """Return the envelope of a slash command."""
    return Arrival(
        external_id=f"{command.channel_id}/command/{command.trigger_id}",
        place=command.channel_id,
        place_kind=_kind(command.channel_id),
        sender=Sender(id=command.user_id, name=command.user_name),
        is_addressed=True,
    )


def of_command(command: SlashCommand) -> Arrival:
    """Return a slash command as a message.

    `/stop` is a command of ours, and so is `/perdure stop`. `/perdure hello` is the message
    `hello`.
    """
    words = f"{command.command} {command.text}".strip()
    if not _is_ours(words):
        words = command.text.strip() or "/help"
        words = f"/{words}" if _is_ours(f"/{words}") else words
    return msgspec.structs.replace(command_envelope(command), text=words)


def click_envelope(click: Click) -> Arrival | None:
    """Return the envelope of a click, or None if the button is not ours."""
    action = _action(click)
    if action is None or click.channel is None:
        return None
    channel, message = click.channel.id, click.message or Message()
    is_reply = bool(message.thread_ts) and message.thread_ts != message.ts
    return Arrival(
        # Two people may press at the same instant.
        external_id=f"{channel}/click/{message.ts}/{click.user.id}/{action.action_ts}",
        place=channel,
        place_kind=_kind(channel),
        sender=Sender(id=click.user.id, name=click.user.name or ""),
        thread=(message.thread_ts or "") if is_reply else "",
        is_addressed=True,
        press=_press(action),
    )


def of_click(click: Click) -> Arrival | None:
    """Return a click as a message with the button's word. The press of a question's button has no
    text."""
    envelope, action = click_envelope(click), _action(click)
    if envelope is None or action is None:
        return None
    word = "" if envelope.press else action.value or ""
    return msgspec.structs.replace(envelope, text=word)


def _action(click: Click) -> BlockAction | None:
    """Return the first of our own buttons that was clicked. Slack reports one for each click."""
    prefixes = (ACTION, QUESTION_ACTION)
    ours = (each for each in click.actions if each.action_id.startswith(prefixes) and each.value)
    return next(ours, None)


def _press(action: BlockAction) -> Press | None:
    """Return what was pressed, if the button is under a question. A button that says a word may
    say any word, also one that looks like the data of a question's button."""
    return press_in(action.value) if action.action_id.startswith(QUESTION_ACTION) else None


def _is_ours(words: str) -> bool:
    """Tell whether the words are one of the gateway's commands."""
    typed = command_in(words)
    return typed is not None and typed.command is not None


def _kind(channel: str) -> PlaceKind:
    return PlaceKind.PRIVATE if is_private(channel) else PlaceKind.GROUP


def _sender(message: Message, bot: Bot) -> Sender | None:
    """Return the author of a message, or None if it is the bot itself or nobody. Of a person the
    event holds only the id; their name has to be asked for."""
    if message.user == bot.user or (message.bot_id and message.bot_id == bot.bot_id):
        return None
    if message.user:
        return Sender(id=message.user, is_bot=bool(message.bot_id))
    if message.bot_id:
        return Sender(id=message.bot_id, name=message.username or "", is_bot=True)
    return None


def _thread(message: Message, channel: str, bot: Bot) -> str:
    """Return the thread of a message. A mention in a channel begins one of its own."""
    if _is_in_thread(message):
        return message.thread_ts or ""
    return message.ts if _begins_thread(message, channel, bot) else ""


def _is_in_thread(message: Message) -> bool:
    return bool(message.thread_ts) and message.thread_ts != message.ts


def _begins_thread(message: Message, channel: str, bot: Bot) -> bool:
    """Tell whether a message begins a thread: it is in a channel, and mentions the bot."""
    return not _is_in_thread(message) and not is_private(channel) and _mentions(message, bot)


def _replied_to(message: Message, channel: str, bot: Bot) -> str:
    """Return the external id of the bot's message below which a message was written, or an empty
    string."""
    parent = message.thread_ts
    is_below_ours = _is_below_ours(message, bot) and parent != message.ts
    return MessageName(channel, parent).external_id if parent and is_below_ours else ""


def _is_below_ours(message: Message, bot: Bot) -> bool:
    """Tell whether a message is in a thread that the bot began. Slack names who began it, or sends
    the first message along."""
    begun_by = message.parent_user_id or (message.root.user if message.root else None)
    return begun_by == bot.user


def _mentions(message: Message, bot: Bot) -> bool:
    return bot.user in mentioned((message.text or "")[:SCANNED_MAX])


def _is_addressed(message: Message, bot: Bot) -> bool:
    """Tell whether a message mentions the bot, or is in a thread that the bot began."""
    return _mentions(message, bot) or _is_below_ours(message, bot)


def _file(file: File) -> FileReference:
    return FileReference(
        reference=file.url_private_download or file.url_private or f"{BY_ID}{file.id}",
        mime=file.mimetype or "",
        name=file.name or file.title or "",
        size=file.size or 0,
        is_voice=file.subtype == _VOICE,
    )


def _files(message: Message) -> tuple[FileReference, ...]:
    """Return the files of a message, and of the messages that it forwards or links to."""
    passed_on = [file for each in _shared(message) for file in each.files or ()]
    every = (*(message.files or ()), *passed_on)
    return tuple(_file(file) for file in every if file.mode not in _GONE)


def _shared(message: Message) -> list[SlackAttachment]:
    """Return the messages that came with this one: forwarded, or shown below a link to them."""
    return [each for each in message.attachments or () if each.is_share or each.is_msg_unfurl]


def _forwards(message: Message, names: Mapping[str, str]) -> tuple[Forward, ...]:
    return tuple(_forward(each, names) for each in _shared(message))


def _forward(shared: SlackAttachment, names: Mapping[str, str]) -> Forward:
    """Return a forwarded message with its author, who may be a person, a bot or unknown."""
    name = names.get(shared.author_id or "") or shared.author_name or ""
    is_person = bool(shared.author_id) and not shared.bot_id
    origin = (
        ForwardOrigin.PERSON
        if is_person
        else ForwardOrigin.BOT
        if shared.bot_id
        else ForwardOrigin.HIDDEN
    )
    # `fallback` also names the time and the author, so it is used only if there is no text.
    text = shared.text if shared.text is not None else shared.fallback
    return Forward(origin=origin, name=name, text=read(text or "", bot="", names=names))
