"""Performs effects on Discord, one at a time: posts, edits, deletions, uploads, reactions.

A new message would show twice if its request were repeated, so it carries a nonce made from the
part's key: Discord shows a message with a repeated nonce only once. A forum post takes no nonce;
see `forums.py`.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import assert_never
from urllib.parse import quote

import msgspec

from perdure.adapters.discord.bodies import (
    CLICK_TAKEN,
    COMMAND_TAKEN,
    ChangedMessage,
    NewMessage,
    Shown,
    changed_message,
    new_message,
    offered_commands,
    voice_message,
)
from perdure.adapters.discord.forums import Forums, begin_thread, name_of
from perdure.adapters.discord.inbound import STICKER, external_id, is_click, message_at
from perdure.adapters.discord.payloads import Interaction, Message
from perdure.adapters.discord.render import plain
from perdure.adapters.discord.wire import (
    NO_CHANNEL,
    NO_VOICE,
    NOT_FOR_MESSAGES,
    File,
    Rest,
    RestRequest,
    path,
)
from perdure.domain.address import Address
from perdure.domain.delivery import GONE
from perdure.domain.errors import NotFound, Permanent
from perdure.domain.reading.sound import seconds_of
from perdure.ports.platform.adapter import (
    Delete,
    Edit,
    Effect,
    Post,
    Preview,
    React,
    Receipt,
    ThreadGone,
    Unrenderable,
    Upload,
)
from perdure.ports.system.clock import Clock


def channel_of(address: Address) -> str:
    """Return the channel of an address: a thread is a channel of its own."""
    return address.thread or address.place


class Effects:
    """Performs effects, shows previews, acknowledges interactions, and fetches files."""

    def __init__(self, rest: Rest, clock: Clock, *, cdn_url: str) -> None:
        self._rest = rest
        self._cdn_url = cdn_url.rstrip("/")
        self._forums = Forums(rest, clock)

    async def perform(self, effect: Effect) -> Receipt:
        match effect:
            case Post():
                return Receipt(external_id=await self._post(effect))
            case Upload():
                return Receipt(external_id=await self._upload(effect))
            case Edit():
                body = changed_message(
                    effect.text,
                    choices=effect.choices,
                    question=effect.question,
                    is_plain=effect.is_plain,
                )
                with _telling_of_rendering(is_plain=effect.is_plain):
                    await self._change(effect.receipt, body)
                return Receipt(external_id=effect.receipt)
            case Delete():
                await self._delete(effect.receipt)
                return Receipt(external_id=GONE)
            case React():
                await self._react(effect.external_id, effect.emoji)
                return Receipt(external_id=effect.external_id)
            case _:
                assert_never(effect)

    async def preview(self, preview: Preview) -> str:
        """Show a growing answer. Returns the receipt of its message."""
        if preview.receipt:
            await self._change(preview.receipt, changed_message(preview.text))
            return preview.receipt
        return await self._post(
            Post(
                key=preview.key,
                address=preview.address,
                text=preview.text,
                reply_to=preview.reply_to,
            )
        )

    async def typing(self, address: Address) -> None:
        where = path("channels", channel_of(address), "typing")
        typing = RestRequest(verb="Discord, typing", method="POST", path=where)
        try:
            await self._rest.call(typing)
        except (NotFound, Permanent) as error:
            is_missing = error.code == NO_CHANNEL and bool(address.thread)
            if not is_missing or not await begin_thread(self._rest, address):
                raise
            await self._rest.call(typing)

    async def acknowledge(self, interaction: Interaction) -> None:
        """Tell Discord that a command or a click was taken. Discord allows three seconds for the
        first request."""
        callback = path("interactions", interaction.id, interaction.token, "callback")
        body = CLICK_TAKEN if is_click(interaction) else COMMAND_TAKEN
        verb = "Discord, acknowledging an interaction"
        await self._rest.call(RestRequest(verb=verb, method="POST", path=callback, body=body))
        # A command gets a placeholder that only its sender sees. It is deleted at once, because the
        # real answer is a message.
        if not is_click(interaction):
            token = (interaction.application_id, interaction.token)
            original = path("webhooks", *token, "messages", "@original")
            await self._rest.call(RestRequest(verb=verb, method="DELETE", path=original))

    async def offer_commands(self, application: str) -> None:
        """Put our commands on Discord's menu. This replaces all commands that were there."""
        where = path("applications", application, "commands")
        verb = "Discord, offering commands"
        body = offered_commands()
        await self._rest.call(RestRequest(verb=verb, method="PUT", path=where, body=body))

    async def file(self, reference: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a file or of a sticker's image."""
        url = await self._url(reference)
        async for chunk in self._rest.download(url):
            yield chunk

    async def _url(self, reference: str) -> str:
        """Return a file's current URL. Raises `Permanent` if the file or its message is gone."""
        if reference.startswith(STICKER):
            return f"{self._cdn_url}/stickers/{quote(reference.removeprefix(STICKER))}"
        channel, _, rest = reference.partition("/")
        message, _, attachment = rest.partition("/")
        try:
            found = await self._message(channel, message)
        except NotFound as error:
            raise Permanent(
                "the message that the file came with is gone; ask for it to be sent again"
            ) from error
        url = next((each.url for each in found.every_attachment if each.id == attachment), "")
        if not url:
            raise Permanent("the file is not with its message any more; ask for it again")
        return url

    async def _post(self, post: Post) -> str:
        body = new_message(
            post.text,
            key=post.key,
            reply_to=_answered(post.reply_to, post.address),
            choices=post.choices,
            question=post.question,
            is_plain=post.is_plain,
        )
        with _telling_of_rendering(is_plain=post.is_plain):
            shown = await self._send(post, body, name=name_of(post.text))
        receipt = external_id(shown.channel_id, shown.id)
        if _words(shown.content) != _words(body.content):
            # Discord answers a known nonce with the message that it already shows. If that holds
            # other text (a preview posted it with less), it is brought up to date with an edit.
            whole = changed_message(
                post.text,
                choices=post.choices,
                question=post.question,
                is_plain=post.is_plain,
            )
            await self._change(receipt, whole)
        return receipt

    async def _upload(self, upload: Upload) -> str:
        reply_to = _answered(upload.reply_to, upload.address)
        file = File(name=upload.name, mime=upload.mime, data=upload.data)
        name = name_of(upload.caption, upload.name)
        if upload.is_voice:
            try:
                body = voice_message(
                    key=upload.key,
                    reply_to=reply_to,
                    name=upload.name,
                    seconds=seconds_of(upload.data),
                )
                shown = await self._send(upload, body, file, name=name)
                return external_id(shown.channel_id, shown.id)
            except Permanent as refused:
                # The bot may send files in this channel, but no voice messages.
                if refused.code != NO_VOICE:
                    raise
        body = new_message(upload.caption, key=upload.key, reply_to=reply_to)
        try:
            shown = await self._send(upload, body, file, name=name)
        except Unrenderable:
            # Discord refused the formatting and showed nothing, so the caption is sent as plain
            # text.
            content = plain(upload.caption)
            body = msgspec.structs.replace(body, content=content)
            shown = await self._send(upload, body, file, name=name)
        return external_id(shown.channel_id, shown.id)

    async def _send(
        self,
        effect: Post | Upload,
        body: NewMessage,
        file: File | None = None,
        *,
        name: str,
        is_begun: bool = False,
    ) -> Shown:
        """Send a message; begin its thread if there is none below the question yet, or open a post
        if the channel is a forum. Returns the shown message.

        Raises `ThreadGone` if the thread is deleted or closed, `Permanent` if the channel is
        deleted.
        """
        channel = _goes_to(effect)
        try:
            if not self._forums.is_known(channel):
                return await self._message_into(channel, body, file)
        except (NotFound, Permanent) as error:
            if error.code == NO_CHANNEL and channel == effect.address.thread:
                if not is_begun and await begin_thread(self._rest, effect.address):
                    return await self._send(effect, body, file, name=name, is_begun=True)
                raise ThreadGone(f"{error}; the thread is deleted or closed") from error
            if isinstance(error, NotFound):
                raise Permanent(f"{error}; the channel is gone, so drop this part") from error
            if error.code != NOT_FOR_MESSAGES or not await self._forums.finds(channel):
                raise
        return await self._forums.open(
            channel, body, name=name, file=file, is_repeat=effect.is_repeat
        )

    async def _message_into(self, channel: str, body: NewMessage, file: File | None) -> Shown:
        request = RestRequest(
            verb="Discord, sending a message",
            method="POST",
            path=path("channels", channel, "messages"),
            body=body,
            file=file,
            is_repeatable=False,
        )
        return await self._rest.ask(request, Shown)

    async def _change(self, receipt: str, body: ChangedMessage) -> None:
        where = path("channels", *_at(receipt, "messages"))
        await self._rest.call(
            RestRequest(verb="Discord, editing a message", method="PATCH", path=where, body=body)
        )

    async def _delete(self, receipt: str) -> None:
        """Delete a message; one that is gone already is no failure."""
        where = path("channels", *_at(receipt, "messages"))
        try:
            await self._rest.call(
                RestRequest(verb="Discord, deleting a message", method="DELETE", path=where)
            )
        except NotFound:
            return

    async def _react(self, external: str, emoji: str) -> None:
        """Leave exactly one reaction of the bot on a message, or none if `emoji` is empty.

        The bot's other reactions are removed, so every repetition ends the same, also in another
        process. Nothing is done if the message is gone, or if it is a command from the menu, which
        is no message.
        """
        at = message_at(external)
        if at is None:
            return
        channel, message = at
        try:
            found = await self._message(channel, message)
        except NotFound:
            return
        ours = {
            each.emoji.name if not each.emoji.id else f"{each.emoji.name}:{each.emoji.id}"
            for each in found.reactions
            if each.me and each.emoji.name
        }
        for other in sorted(ours - {emoji}, key=str):
            await self._mark("DELETE", channel, message, str(other))
        if emoji and emoji not in ours:
            await self._mark("PUT", channel, message, emoji)

    async def _mark(self, method: str, channel: str, message: str, emoji: str) -> None:
        where = path("channels", channel, "messages", message, "reactions", emoji, "@me")
        await self._rest.call(RestRequest(verb="Discord, reacting", method=method, path=where))

    async def _message(self, channel: str, message: str) -> Message:
        where = path("channels", channel, "messages", message)
        request = RestRequest(verb="Discord, reading a message", method="GET", path=where)
        return await self._rest.ask(request, Message)


@contextmanager
def _telling_of_rendering(*, is_plain: bool) -> Iterator[None]:
    """Turn a refusal of plain text into `Permanent`: there is no simpler form to try."""
    try:
        yield
    except Unrenderable as error:
        if not is_plain:
            raise
        raise Permanent(error.message) from error


def _goes_to(effect: Post | Upload) -> str:
    """Return the channel for a part. If the part before it opened a forum post, that post."""
    before = message_at(effect.after) if not effect.address.thread else None
    return before[0] if before else channel_of(effect.address)


def _at(external: str, between: str) -> tuple[str, str, str]:
    """Return the path parts of a message. Raises `NotFound` if the id is no message's."""
    found = message_at(external)
    if found is None:
        raise NotFound(f"Discord has no message {external}; it cannot be changed or marked")
    return found[0], between, found[1]


def _answered(reply_to: str, address: Address) -> str:
    """Return the message to reply to, or an empty string if it is in another channel: Discord
    allows replies only within one channel."""
    found = message_at(reply_to)
    return found[1] if found and found[0] == channel_of(address) else ""


def _words(text: str) -> str:
    return "".join(text.split())
