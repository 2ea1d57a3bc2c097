"""Performs each effect as one call, and returns the receipt that comes back.

A call that was refused had no effect, so these are made again in another form: what goes to a group
that has moved goes to its new number, a rich message is sent in the plain form, a picture is sent
as a document, and a caption is sent without its marks. After a call that was not answered, nothing
is sent again.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, assert_never

import msgspec
import structlog

from perdure.adapters.telegram import payloads
from perdure.adapters.telegram.names import message_name
from perdure.adapters.telegram.refusals import RATE_LIMITED, Refused
from perdure.adapters.telegram.rich import is_rich
from perdure.adapters.telegram.wire import Api, Params, UploadField
from perdure.domain.address import Address
from perdure.domain.delivery import GONE, Streaming
from perdure.domain.errors import Ambiguous, NotFound, Transient
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
    Unsupported,
    Upload,
)

log = structlog.get_logger("telegram")
# Bounds the memory for moved groups. A move that is not remembered costs one refused call.
_MOVES_MAX: Final = 1_000


class _Chat(msgspec.Struct, frozen=True):
    id: int


class _Sent(msgspec.Struct, frozen=True):
    message_id: int
    chat: _Chat


class Sending:
    """Sends the messages, edits and files of one bot."""

    def __init__(self, api: Api, *, wants_rich: bool) -> None:
        self._api = api
        self._wants_rich = wants_rich
        self._has_rich = False
        # Groups that became supergroups: their new number, by the number that they had before.
        self._moves: dict[object, int] = {}

    async def look_around(self) -> None:
        """Find out whether the server knows rich messages. An edit cannot tell: servers ignore
        fields that they do not know, and some then change nothing and report success. Raises
        `Transient` if the server names a wait, which the caller must keep."""
        if not self._wants_rich:
            return
        try:
            await self._api.ask("sendRichMessage")
        except Refused as refused:
            self._has_rich = refused.status == 400
        except Transient as error:
            if error.code == RATE_LIMITED:
                raise

    async def perform(self, effect: Effect) -> Receipt:
        """Perform one effect and return its receipt, which tells if its group has moved. Raises as
        the `Adapter` port says."""
        receipt = await self._performed(effect)
        moved_to = self._moves.get(payloads.place(effect.address)["chat_id"])
        return (
            receipt
            if moved_to is None
            else Receipt(external_id=receipt.external_id, moved_to=str(moved_to))
        )

    async def _performed(self, effect: Effect) -> Receipt:
        match effect:
            case Post():
                return await self._post(effect)
            case Edit():
                buttons = payloads.keyboard(effect.choices, effect.question)
                target = {**payloads.message(effect.receipt), **buttons}
                await self._edit(target, effect.text, is_plain=effect.is_plain)
                return Receipt(external_id=effect.receipt)
            case Delete():
                return await self._delete(effect)
            case Upload():
                return await self._upload(effect)
            case React():
                await self._react(effect)
                return Receipt(external_id=effect.external_id)
            case _:
                assert_never(effect)

    async def preview(self, preview: Preview) -> str:
        """Show a growing answer. Returns the receipt of its message, or an empty string for a
        draft."""
        match preview.streaming:
            case Streaming.DRAFT:
                await self._draft(preview)
                return ""
            case Streaming.EDIT if preview.receipt:
                await self._edit(payloads.message(preview.receipt), preview.text)
                return preview.receipt
            case Streaming.EDIT:
                post = Post(
                    key=preview.key,
                    address=preview.address,
                    text=preview.text,
                    reply_to=preview.reply_to,
                )
                return (await self._post(post)).external_id
            case Streaming.NATIVE | Streaming.APPEND | Streaming.NONE:
                raise Unsupported(f"Telegram has no {preview.streaming} streaming; use another")
            case _:
                assert_never(preview.streaming)

    async def typing(self, address: Address) -> None:
        await self._ask("sendChatAction", {**payloads.place(address), "action": "typing"})

    async def _post(self, post: Post) -> Receipt:
        """Post a message, as a rich one if that is possible."""
        around = payloads.post(post)
        if self._is_rich(post.text) and not post.is_plain:
            try:
                params = {**around, **payloads.rich(post.text)}
                return _receipt(await self._send("sendRichMessage", params))
            except Refused as refused:
                self._give_up_rich(refused)
        params = {**around, **_content(post.text, is_plain=post.is_plain)}
        with _telling_of_rendering(is_plain=post.is_plain):
            return _receipt(await self._send("sendMessage", params))

    async def _edit(self, target: Params, text: str, *, is_plain: bool = False) -> None:
        """Replace the text of a message. A message that already has this text is no error. Raises
        `NotFound` if it is gone or can no longer be edited."""
        try:
            if self._is_rich(text) and not is_plain:
                try:
                    await self._ask("editMessageText", {**target, **payloads.rich(text)})
                except Refused as refused:
                    if refused.is_unchanged:
                        return
                    self._give_up_rich(refused)
                else:
                    return
            params = {**target, **_content(text, is_plain=is_plain)}
            with _telling_of_rendering(is_plain=is_plain):
                await self._ask("editMessageText", params)
        except Refused as refused:
            if refused.is_gone or refused.is_fixed:
                raise NotFound("the message is no longer there; it is posted anew") from refused
            if not refused.is_unchanged:
                raise

    async def _draft(self, preview: Preview) -> None:
        """Show a draft. Raises `Unsupported` if the server has no drafts."""
        around = payloads.draft(preview)
        if self._is_rich(preview.text):
            try:
                params = {**around, **payloads.rich(preview.text)}
                await self._ask("sendRichMessageDraft", params)
            except Refused as refused:
                self._give_up_rich(refused)
            else:
                return
        try:
            params = {**around, **payloads.draft_words(preview.text)}
            with _telling_of_rendering():
                await self._ask("sendMessageDraft", params)
        except Refused as refused:
            if refused.is_unknown_method or "draft" in refused.words.casefold():
                raise Unsupported(f"no drafts here ({refused.words}); edit instead") from refused
            raise

    async def _delete(self, delete: Delete) -> Receipt:
        """Delete a message. One that is gone already is no error."""
        try:
            await self._ask("deleteMessage", payloads.message(delete.receipt))
        except Refused as refused:
            if not refused.is_gone:
                raise
        return Receipt(external_id=GONE)

    async def _react(self, react: React) -> None:
        """Set the reaction on a message. A message that is gone is no error."""
        try:
            await self._ask("setMessageReaction", payloads.reaction(react))
        except Refused as refused:
            if not refused.is_gone:
                raise

    async def _upload(self, upload: Upload) -> Receipt:
        """Send a file. If the marks of the caption are refused, it is sent again without them."""
        try:
            return await self._file(upload, payloads.upload(upload))
        except Refused as refused:
            if not refused.is_about_rendering:
                raise
            log.info("a caption was refused, sent without marks", words=refused.words)
        return await self._file(upload, payloads.upload(upload, is_plain=True))

    async def _file(self, upload: Upload, params: Params) -> Receipt:
        """Send speech as a voice message, a picture as a photo, and everything else as a
        document."""
        kind = payloads.kind_of(upload)
        if kind != "document":
            try:
                shown = payloads.attachment(upload, kind)
                return _receipt(await self._send(f"send{kind.capitalize()}", params, shown))
            except Refused as refused:
                # Telegram refuses a photo that is too wide, too tall or not what its name says, and
                # a voice message where people do not want any, but accepts it as a document.
                if not refused.is_about_content or refused.is_about_rendering:
                    raise
        document = payloads.attachment(upload, "document")
        return _receipt(await self._send("sendDocument", params, document))

    async def _send(
        self, method: str, params: Params, attachment: UploadField | None = None
    ) -> msgspec.Raw:
        """Make a call that shows something new."""
        return await self._followed(
            partial(self._api.send, method, attachment=attachment), params, what=method
        )

    async def _ask(self, method: str, params: Params) -> msgspec.Raw:
        """Make a call that may be repeated without harm."""
        return await self._followed(partial(self._api.ask, method), params, what=method)

    async def _followed(
        self, call: Callable[[Params], Awaitable[msgspec.Raw]], params: Params, *, what: str
    ) -> msgspec.Raw:
        """Make a call in the chat's present place. The refusal for a moved group names its new
        number, so a new process learns it again. Raises `ThreadGone` if the topic is gone or
        closed."""
        chat = params["chat_id"]
        try:
            try:
                return await call({**params, "chat_id": self._moves.get(chat, chat)})
            except Refused as refused:
                if refused.moved_to is None:
                    raise
                if chat in self._moves or len(self._moves) < _MOVES_MAX:
                    self._moves[chat] = refused.moved_to
                return await call({**params, "chat_id": refused.moved_to})
        except Refused as refused:
            if "message_thread_id" in params and refused.is_thread_gone:
                raise ThreadGone(
                    f"{what}: the topic is gone or closed ({refused.words}); open it again to be "
                    "answered there"
                ) from refused
            raise

    def _is_rich(self, text: str) -> bool:
        return self._has_rich and is_rich(text)

    def _give_up_rich(self, refused: Refused) -> None:
        """Return if sending in the plain form can help, else raise the refusal. A server that does
        not know rich messages is not asked for them again."""
        if refused.is_unknown_method:
            self._has_rich = False
        elif not refused.is_about_content:
            raise refused
        log.info("rich message refused, sent in the plain form", words=refused.words)


def _content(text: str, *, is_plain: bool) -> Params:
    return payloads.plain(text) if is_plain else payloads.words(text)


@contextmanager
def _telling_of_rendering(*, is_plain: bool = False) -> Iterator[None]:
    """Turn a refusal of the marks into `Unrenderable`. A plain text has no marks, so it cannot be
    refused for them."""
    try:
        yield
    except Refused as refused:
        if is_plain or not refused.is_about_rendering:
            raise
        raise Unrenderable(refused.message) from refused


def _receipt(result: msgspec.Raw) -> Receipt:
    """Return the receipt of a sent message. Raises `Ambiguous` if the answer does not name it."""
    try:
        sent = msgspec.json.decode(result, type=_Sent)
    except msgspec.MsgspecError as error:
        raise Ambiguous(
            "Telegram took the message and did not say which it is; look into the chat"
        ) from error
    return Receipt(external_id=message_name(sent.chat.id, sent.message_id))
