"""Sends messages to Slack, and replaces, deletes and reads them.

Every post carries the part's key in its metadata, so that it can be found if the receipt is lost.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from perdure.adapters.slack.calls.refusals import Refused, is_of_rendering, is_of_thread
from perdure.adapters.slack.names import MessageName
from perdure.adapters.slack.payloads import Message, Metadata
from perdure.adapters.slack.render import Writing, forms
from perdure.adapters.slack.wire import Nothing, Params, Wire
from perdure.domain.address import Address
from perdure.domain.errors import NotFound
from perdure.domain.ids import PartId
from perdure.ports.platform.adapter import ThreadGone, Unrenderable

# The name of the metadata, and of the field in it that holds the key.
PART: Final = "perdure_part"
_KEY: Final = "key"

_MISSING: Final = frozenset({"message_not_found", "thread_not_found"})
# Error words for metadata that a server does not accept. The message is then sent without it.
_METADATA_REFUSED: Final = frozenset(
    {
        "invalid_metadata_format",
        "invalid_metadata_schema",
        "metadata_must_be_sent_from_app",
        "metadata_too_large",
    }
)


class _Shown(msgspec.Struct, frozen=True):
    ts: str
    channel: str = ""


class _Page(msgspec.Struct, frozen=True):
    messages: tuple[Message, ...] = ()


def metadata_of(key: PartId) -> Metadata:
    """Return the metadata that carries a part's key."""
    return Metadata(PART, {_KEY: key})


def key_of(message: Message) -> str:
    """Return the key that a message of ours was posted with, or an empty string."""
    metadata = message.metadata
    if metadata is None or metadata.event_type != PART:
        return ""
    return str(metadata.event_payload.get(_KEY, ""))


class Messages:
    """Handles single messages."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def post(self, key: PartId, address: Address, writing: Writing) -> MessageName:
        """Post a message. Raises `ThreadGone`, or `Unrenderable` if Slack accepts no form of it."""
        params: Params = {
            "channel": address.place,
            "thread_ts": address.thread,
            "metadata": metadata_of(key),
            "mrkdwn": False if writing.is_plain else None,
            "unfurl_links": False,
            "unfurl_media": False,
        }
        try:
            shown = await self._post_first(params, writing)
        except Refused as refused:
            if address.thread and is_of_thread(refused):
                raise ThreadGone(refused.message) from refused
            raise
        return MessageName(shown.channel or address.place, shown.ts)

    async def _post_first(self, params: Params, writing: Writing) -> _Shown:
        """Post with the key as metadata, or without it if the server refuses metadata."""
        try:
            return await self._show(self._post, params, writing)
        except Refused as refused:
            if refused.error not in _METADATA_REFUSED:
                raise
        return await self._show(self._post, {**params, "metadata": None}, writing)

    async def replace(self, name: MessageName, writing: Writing) -> None:
        """Replace the content of a message. Raises `NotFound` if it is gone."""
        params = {"channel": name.channel, "ts": name.ts}
        try:
            await self._show(self._update, params, writing)
        except Refused as refused:
            if refused.error in _MISSING:
                raise NotFound("the message to change is gone from Slack") from refused
            raise

    async def delete(self, name: MessageName) -> None:
        """Delete a message; one that is gone already is no failure."""
        params = {"channel": name.channel, "ts": name.ts}
        try:
            await self._wire.ask("chat.delete", params, Nothing)
        except Refused as refused:
            if refused.error not in _MISSING:
                raise

    async def read(self, name: MessageName) -> Message | None:
        """Return a message as it is now, or None if it is gone."""
        params = {"channel": name.channel, "ts": name.ts, "limit": 1, "inclusive": True}
        try:
            page = await self._wire.ask("conversations.replies", params, _Page)
        except Refused as refused:
            if refused.error in _MISSING:
                return None
            raise
        return next((each for each in page.messages if each.ts == name.ts), None)

    async def _show(
        self, call: Callable[[Params], Awaitable[_Shown]], params: Params, writing: Writing
    ) -> _Shown:
        """Call Slack with one form of the text after another, until it accepts one."""
        why = ""
        for form in forms(writing):
            try:
                return await call({**params, "text": form.text, "blocks": form.blocks})
            except Refused as refused:
                if not is_of_rendering(refused):
                    raise
                # The server does not accept such blocks and showed nothing, so the next form may be
                # tried.
                why = refused.message
        raise Unrenderable(why)

    async def _post(self, params: Params) -> _Shown:
        return await self._wire.send("chat.postMessage", params, _Shown)

    async def _update(self, params: Params) -> _Shown:
        # A field that is left out may leave the message as it was. So a text without blocks sends
        # an empty list of them, which also removes the buttons.
        blocks = params["blocks"] or []
        return await self._wire.ask("chat.update", {**params, "blocks": blocks}, _Shown)
