"""Performs effects on Slack, and shows answers while they grow.

A growing answer is a native stream where that is possible. A stream can only be appended to, so
where it cannot continue (it has ended, its text was lost in a crash, or an answer was lost), the
whole message is replaced instead.
"""

from typing import Final, assert_never

import msgspec

from perdure.adapters.slack.calls.recent import Recent
from perdure.adapters.slack.calls.refusals import Refused, is_of_thread
from perdure.adapters.slack.names import MessageName, file_of, file_receipt, marked, message_of
from perdure.adapters.slack.posting.messages import Messages
from perdure.adapters.slack.posting.streams import Streams
from perdure.adapters.slack.render import Writing, buttons, caption
from perdure.adapters.slack.text.emoji import name_of
from perdure.adapters.slack.wire import Nothing, Wire
from perdure.domain.delivery import GONE, Streaming
from perdure.domain.errors import Ambiguous, NotFound, Permanent, Transient
from perdure.ports.platform.adapter import (
    Delete,
    Edit,
    Effect,
    Post,
    Preview,
    React,
    Receipt,
    ThreadGone,
    Upload,
)

# How many bubbles are remembered as not being streams. A forgotten one costs a refused call.
STILL_MAX: Final = 1_000
# Error words for a message that is still being streamed.
_STREAMING: Final = frozenset({"streaming_state_conflict", "cant_delete_message"})
_FILE_GONE: Final = frozenset({"file_not_found", "file_deleted"})
_MARK_SET: Final = "already_reacted"
_MARK_GONE: Final = "no_reaction"


class _Place(msgspec.Struct, frozen=True):
    """Holds where a file's bytes go."""

    upload_url: str
    file_id: str


class Sending:
    """Performs effects and previews."""

    def __init__(self, wire: Wire, messages: Messages, streams: Streams) -> None:
        self._wire = wire
        self._messages = messages
        self._streams = streams
        # Bubbles that are not streams, or whose stream may show anything. They are replaced as a
        # whole.
        self._still: Recent[bool] = Recent(STILL_MAX)

    async def perform(self, effect: Effect, *, user: str) -> Receipt:
        """Perform one effect. `user` is the bot's own id, by which its reactions are recognized."""
        match effect:
            case Post():
                shown = await self._messages.post(effect.key, effect.address, _writing(effect))
                return Receipt(external_id=shown.external_id)
            case Edit():
                await self._edit(effect)
                return Receipt(external_id=effect.receipt)
            case Delete():
                await self._delete(effect.receipt)
                return Receipt(external_id=GONE)
            case Upload():
                return Receipt(external_id=await self._upload(effect))
            case React():
                await self._mark(effect, user)
                return Receipt(external_id=effect.external_id)
            case _ as never:
                assert_never(never)

    async def preview(self, preview: Preview, *, team: str) -> str:
        """Show a growing answer. Returns the receipt of its bubble."""
        if not preview.receipt:
            return await self._begin(preview, team)
        name = _named(preview.receipt)
        is_grown = (
            preview.streaming is Streaming.NATIVE
            and preview.receipt not in self._still
            and _has_grown(preview.shown, preview.text)
        )
        if not (is_grown and await self._append(preview, name)):
            self._still[preview.receipt] = True
            await self._replace(name, Writing(preview.text))
        return preview.receipt

    async def _begin(self, preview: Preview, team: str) -> str:
        """Show the first words, as a stream if possible, otherwise as a message."""
        if preview.streaming is Streaming.NATIVE:
            begun = await self._streams.begin(preview, team=team)
            if begun is not None:
                return begun.external_id
        posted = await self._messages.post(preview.key, preview.address, Writing(preview.text))
        self._still[posted.external_id] = True
        return posted.external_id

    async def _append(self, preview: Preview, name: MessageName) -> bool:
        """Append to a stream what is new. Returns False if the stream has ended."""
        try:
            return await self._streams.append(name, shown=preview.shown, text=preview.text)
        except Ambiguous as error:
            # The text may have been appended, so appending it again could show it twice. From now
            # on the bubble is replaced as a whole, which may be repeated.
            self._still[preview.receipt] = True
            raise Transient(error.message, retry_after_s=error.retry_after_s) from error

    async def _edit(self, edit: Edit) -> None:
        """Bring a bubble to its final text: end its stream with the rest, or replace the
        message."""
        name = _named(edit.receipt)
        is_grown = (
            not edit.is_plain
            and edit.receipt not in self._still
            and _has_grown(edit.shown, edit.text)
        )
        below = buttons(edit.choices, edit.question)
        if is_grown and await self._streams.end(
            name, shown=edit.shown, text=edit.text, below=below, key=edit.key
        ):
            # If the process dies before the edit is recorded, the edit is repeated: it finds no
            # stream to end, and replaces the message with the same text.
            self._still[edit.receipt] = True
            return
        await self._replace(name, _writing(edit))

    async def _replace(self, name: MessageName, writing: Writing) -> None:
        """Replace a message's text. If it is still a stream, end the stream first."""
        try:
            await self._messages.replace(name, writing)
        except Refused as refused:
            if refused.error not in _STREAMING:
                raise
            # The stream was begun by a process that died, or its text is in doubt.
            await self._streams.end(name)
            await self._messages.replace(name, writing)

    async def _delete(self, receipt: str) -> None:
        """Delete a message or a file; one that is gone already is no failure."""
        if file := file_of(receipt):
            await self._delete_file(file)
            return
        name = _named(receipt)
        try:
            await self._messages.delete(name)
        except Refused as refused:
            if refused.error not in _STREAMING or not await self._streams.end(name):
                raise
            await self._messages.delete(name)

    async def _delete_file(self, file: str) -> None:
        try:
            await self._wire.ask("files.delete", {"file": file}, Nothing)
        except Refused as refused:
            if refused.error not in _FILE_GONE:
                raise

    async def _upload(self, upload: Upload) -> str:
        """Upload a file. Only the last of the three calls shows something, so only it is a
        `send`."""
        wanted = {"filename": marked(upload.name, upload.key), "length": len(upload.data)}
        place = await self._wire.ask("files.getUploadURLExternal", wanted, _Place)
        await self._wire.put(place.upload_url, upload.data)
        channel = upload.address.place
        params = {
            "files": [{"id": place.file_id, "title": upload.name}],
            "channel_id": channel,
            "thread_ts": upload.address.thread,
            "initial_comment": caption(upload.caption) if upload.caption else "",
        }
        try:
            await self._wire.send("files.completeUploadExternal", params, Nothing)
        except Refused as refused:
            if upload.address.thread and is_of_thread(refused):
                raise ThreadGone(refused.message) from refused
            raise
        return file_receipt(channel, place.file_id)

    async def _mark(self, react: React, user: str) -> None:
        """Leave exactly one reaction of the bot on a message, or none if `emoji` is empty."""
        name = message_of(react.external_id)
        if name is None:
            # Commands and clicks are not messages, so they cannot have reactions.
            return
        wanted = name_of(react.emoji) if react.emoji else ""
        message = await self._messages.read(name)
        if message is None:
            raise NotFound("the message to mark is gone from Slack")
        ours = {each.name for each in message.reactions or () if user in each.users}
        if wanted and wanted not in ours:
            await self._react("reactions.add", name, wanted, fine=_MARK_SET)
        for mark in sorted(ours - {wanted}):
            await self._react("reactions.remove", name, mark, fine=_MARK_GONE)

    async def _react(self, method: str, name: MessageName, mark: str, *, fine: str) -> None:
        """Add or remove a reaction. The refusal `fine` means that it is done already."""
        params = {"channel": name.channel, "timestamp": name.ts, "name": mark}
        try:
            await self._wire.ask(method, params, Nothing)
        except Refused as refused:
            if refused.error != fine:
                raise


def _writing(effect: Post | Edit) -> Writing:
    return Writing(effect.text, effect.choices, effect.question, effect.is_plain)


def _has_grown(shown: str, text: str) -> bool:
    """Tell whether a stream that shows `shown` can be continued to `text`. After a restart `shown`
    is empty, and the answer is no."""
    return bool(shown) and text.startswith(shown)


def _named(receipt: str) -> MessageName:
    """Return the message of a receipt. Raises `Permanent` if it is none."""
    name = message_of(receipt)
    if name is None:
        raise Permanent(f"{receipt} is no message of Slack's; it cannot be changed")
    return name
