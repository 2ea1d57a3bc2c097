"""Whether a part is already to be seen: asked of Slack's history, by the key it was posted under.

Three traces tell: the metadata of a post, the name of a file, and a stream of ours that never ended
(its key is only put down when it ends). No trace means that it never arrived, as long as the
history shows that this server keeps metadata at all.
"""

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from perdure.adapters.slack.inbound import Bot
from perdure.adapters.slack.messages import key_of
from perdure.adapters.slack.names import MessageName, file_receipt, is_marked
from perdure.adapters.slack.payloads import Message
from perdure.adapters.slack.refusals import Refused
from perdure.adapters.slack.wire import Params, Wire
from perdure.domain.address import Address
from perdure.domain.errors import Ambiguous
from perdure.domain.ids import PartId
from perdure.ports.adapter import Receipt
from perdure.ports.clock import Clock

LOOK_BACK_S: Final = 7 * 24 * 3600
PAGE: Final = 200
PAGES_MAX: Final = 10
_UNENDED: Final = frozenset({"in_progress", "errored"})


class _Next(msgspec.Struct, frozen=True):
    next_cursor: str | None = None


class _Page(msgspec.Struct, frozen=True):
    messages: tuple[Message, ...] = ()
    response_metadata: _Next | None = None

    @property
    def cursor(self) -> str:
        return (self.response_metadata and self.response_metadata.next_cursor) or ""


class Finding:
    def __init__(self, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock

    async def find(self, key: PartId, address: Address, bot: Bot) -> Receipt | None:
        keeps_metadata, is_foreign = False, False
        lost: list[Message] = []
        async for message in self._own(address, bot):
            found = _receipt(message, key, address.place)
            if found:
                return Receipt(external_id=found)
            if key_of(message):
                keeps_metadata = True
            elif message.streaming_state in _UNENDED:
                lost.append(message)
            elif not message.files:
                is_foreign = True
        if len(lost) == 1:
            return Receipt(external_id=MessageName(address.place, lost[0].ts).external_id)
        if lost or (is_foreign and not keeps_metadata):
            raise Ambiguous(
                "Slack's history does not tell whether the message is there; look into the channel"
            )
        return None

    async def _own(self, address: Address, bot: Bot) -> AsyncIterator[Message]:
        """What the bot has lately shown there."""
        method = "conversations.replies" if address.thread else "conversations.history"
        cursor = ""
        for _ in range(PAGES_MAX):
            params = {
                "channel": address.place,
                "ts": address.thread,
                "oldest": f"{self._clock.now_ms() / 1000 - LOOK_BACK_S:.6f}",
                "limit": PAGE,
                "include_all_metadata": True,
                "cursor": cursor,
            }
            page = await self._page(method, params)
            for message in page.messages:
                if message.user == bot.user or (message.bot_id and message.bot_id == bot.bot_id):
                    yield message
            cursor = page.cursor
            if not cursor:
                return
        raise Ambiguous("too much was written there since; look into the channel")

    async def _page(self, method: str, params: Params) -> _Page:
        try:
            return await self._wire.ask(method, params, _Page)
        except Refused as refused:
            # Not being allowed to look says nothing about what is there.
            raise Ambiguous(refused.message) from refused


def _receipt(message: Message, key: PartId, channel: str) -> str:
    if key_of(message) == key:
        return MessageName(channel, message.ts).external_id
    for file in message.files or ():
        if is_marked(file.name or "", key):
            return file_receipt(channel, file.id)
    return ""
