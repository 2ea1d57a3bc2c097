"""Finds out from Slack's history whether a part of unknown fate arrived.

The part's key proves it: a post carries the key in its metadata, a file in its name. A stream has
no key until it ends, and some servers store none. There a part is proved by its author, its exact
text and its time, if exactly one message fits that belongs to no other part. A message that may be
the part without proof makes the answer `Ambiguous`. The answer is None only if no message can be
the part.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from perdure.adapters.slack.calls.refusals import Refused
from perdure.adapters.slack.inbound import Bot
from perdure.adapters.slack.names import MessageName, file_receipt, is_marked
from perdure.adapters.slack.posting.likeness import Shown, is_of_another, is_possible, is_proven
from perdure.adapters.slack.posting.messages import key_of
from perdure.adapters.slack.wire import Params, Wire
from perdure.domain.errors import Ambiguous
from perdure.ports.platform.adapter import Receipt, Sought
from perdure.ports.system.clock import Clock

# How far back the history is read: a week.
LOOK_BACK_S: Final = 7 * 24 * 3600
PAGE: Final = 200
PAGES_MAX: Final = 10
# How many candidates an error text names.
_NAMED_MAX: Final = 3
_THREAD_GONE: Final = "thread_not_found"


class _Next(msgspec.Struct, frozen=True):
    next_cursor: str | None = None


class _Page(msgspec.Struct, frozen=True):
    messages: tuple[Shown, ...] = ()
    response_metadata: _Next | None = None

    @property
    def cursor(self) -> str:
        return (self.response_metadata and self.response_metadata.next_cursor) or ""


class Finding:
    """Looks for parts in the history of channels and threads."""

    def __init__(self, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock

    async def find(self, sought: Sought, bot: Bot) -> Receipt | None:
        """Return the receipt of a part, or None if it certainly is not there. Raises `Ambiguous` if
        that cannot be known."""
        keyless: list[Shown] = []
        keeps_keys = False
        async for message in self._own(sought, bot):
            if found := _by_key(message, sought):
                return Receipt(external_id=found)
            if key_of(message):
                keeps_keys = True
            elif not is_of_another(message, sought):
                keyless.append(message)
        return _by_likeness(keyless, sought, keeps_keys=keeps_keys)

    async def _own(self, sought: Sought, bot: Bot) -> AsyncIterator[Shown]:
        """Yield the bot's own messages in a place. Raises `Ambiguous` if there is too much to
        read."""
        address = sought.address
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
        raise Ambiguous(
            f"too much was written in {address.place} since to find the message there; "
            "look into the channel"
        )

    async def _page(self, method: str, params: Params) -> _Page:
        try:
            return await self._wire.ask(method, params, _Page)
        except Refused as refused:
            if refused.error == _THREAD_GONE:
                # The thread's first message is gone, so nothing is visible in the thread.
                return _Page()
            # A refusal to show the history says nothing about what is in it.
            raise Ambiguous(
                f"{refused.message}; so nobody knows whether the message is there: look into the "
                "channel"
            ) from refused


def _by_key(message: Shown, sought: Sought) -> str:
    """Return the receipt of a message that carries the part's key, or an empty string."""
    channel = sought.address.place
    if key_of(message) == sought.key:
        return MessageName(channel, message.ts).external_id
    for file in message.files or ():
        if is_marked(file.name or "", sought.key):
            return file_receipt(channel, file.id)
    return ""


def _by_likeness(keyless: Sequence[Shown], sought: Sought, *, keeps_keys: bool) -> Receipt | None:
    """Return the receipt of the one message that proves to be the part by text and time.

    Returns None if no message can be the part, and raises `Ambiguous` otherwise.
    """
    proven = [each for each in keyless if is_proven(each, sought)]
    if len(proven) == 1:
        return Receipt(external_id=_receipt(proven[0], sought))
    possible = proven or [
        each for each in keyless if is_possible(each, sought, keeps_keys=keeps_keys)
    ]
    if not possible:
        return None
    names = ", ".join(
        MessageName(sought.address.place, each.ts).external_id for each in possible[:_NAMED_MAX]
    )
    raise Ambiguous(
        f"Slack shows what may be this message ({names}), but its key is not there, and text and "
        "time do not prove it; look into the channel, and replay it if it is missing"
    )


def _receipt(message: Shown, sought: Sought) -> str:
    channel = sought.address.place
    for file in message.files or ():
        if sought.name in (file.title, file.name):
            return file_receipt(channel, file.id)
    return MessageName(channel, message.ts).external_id
