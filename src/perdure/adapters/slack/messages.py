"""The bot's messages: shown, changed, taken away, looked at.

Every post carries its key as metadata, so that it can be found when its receipt was lost.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from perdure.adapters.slack.names import MessageName
from perdure.adapters.slack.payloads import Message, Metadata
from perdure.adapters.slack.refusals import Refused
from perdure.adapters.slack.render import Content, content, plainer_content
from perdure.adapters.slack.wire import Nothing, Params, Wire
from perdure.domain.address import Address
from perdure.domain.errors import NotFound
from perdure.domain.ids import PartId

PART: Final = "perdure_part"
_KEY: Final = "key"

_MISSING: Final = frozenset({"message_not_found", "thread_not_found"})
_BLOCKS_REFUSED: Final = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "unsupported_block_type"}
)
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
    return Metadata(PART, {_KEY: key})


def key_of(message: Message) -> str:
    """The key that a message of ours was posted under, or nothing."""
    metadata = message.metadata
    if metadata is None or metadata.event_type != PART:
        return ""
    return str(metadata.event_payload.get(_KEY, ""))


class Messages:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def post(
        self, key: PartId, address: Address, text: str, choices: tuple[str, ...] = ()
    ) -> MessageName:
        params: Params = {
            "channel": address.place,
            "thread_ts": address.thread,
            "metadata": metadata_of(key),
            "unfurl_links": False,
            "unfurl_media": False,
        }
        try:
            shown = await self._show(self._post, params, text, choices)
        except Refused as refused:
            if refused.error not in _METADATA_REFUSED:
                raise
            plain = {name: value for name, value in params.items() if name != "metadata"}
            shown = await self._show(self._post, plain, text, choices)
        return MessageName(shown.channel or address.place, shown.ts)

    async def replace(self, name: MessageName, text: str, choices: tuple[str, ...] = ()) -> None:
        params = {"channel": name.channel, "ts": name.ts}
        try:
            await self._show(self._update, params, text, choices)
        except Refused as refused:
            if refused.error in _MISSING:
                raise NotFound("the message to change is gone from Slack") from refused
            raise

    async def delete(self, name: MessageName) -> None:
        params = {"channel": name.channel, "ts": name.ts}
        try:
            await self._wire.ask("chat.delete", params, Nothing)
        except Refused as refused:
            if refused.error not in _MISSING:
                raise

    async def read(self, name: MessageName) -> Message | None:
        """A message as it stands, whoever wrote it."""
        params = {"channel": name.channel, "ts": name.ts, "limit": 1, "inclusive": True}
        try:
            page = await self._wire.ask("conversations.replies", params, _Page)
        except Refused as refused:
            if refused.error in _MISSING:
                return None
            raise
        return next((each for each in page.messages if each.ts == name.ts), None)

    async def _show(
        self,
        call: Callable[[Params], Awaitable[_Shown]],
        params: Params,
        text: str,
        choices: tuple[str, ...],
    ) -> _Shown:
        try:
            return await call({**params, **_fields(content(text, choices))})
        except Refused as refused:
            if refused.error not in _BLOCKS_REFUSED:
                raise
        # Nothing was shown: the server does not know the block for markdown.
        return await call({**params, **_fields(plainer_content(text, choices))})

    async def _post(self, params: Params) -> _Shown:
        return await self._wire.send("chat.postMessage", params, _Shown)

    async def _update(self, params: Params) -> _Shown:
        return await self._wire.ask("chat.update", params, _Shown)


def _fields(shown: Content) -> Params:
    return {"text": shown.text, "blocks": shown.blocks}
