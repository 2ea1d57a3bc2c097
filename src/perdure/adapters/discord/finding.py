"""Finds out from a channel's history whether a part of unknown fate arrived.

Discord remembers the key of a message for a few minutes only, and shows it to nobody. After that
only the message itself can tell. It counts as the part if the bot wrote it, its text is exactly the
same, it was made close to the time of the attempt, and it belongs to no other part. If exactly one
message is like that, it is the part. If several are, or if a message only comes near, the answer is
`Ambiguous`.
"""

from collections.abc import AsyncIterator
from typing import Final

from perdure.adapters.discord.bodies import spellings
from perdure.adapters.discord.inbound import external_id
from perdure.adapters.discord.payloads import Message
from perdure.adapters.discord.send import channel_of
from perdure.adapters.discord.wire import Rest, RestRequest, made_ms, path, safe_name
from perdure.domain.errors import Ambiguous, NotFound, Permanent
from perdure.ports.platform.adapter import Receipt, Sought

PAGE: Final = 100
# Bounds the history that is read for one part.
PAGES_MAX: Final = 10
# How far Discord's time of a message may be from our time of the attempt: the clocks differ, and a
# message may take a while.
NEAR_MS: Final = 120_000
# Messages with the same text that are further away, up to this, are a doubt: our clock may have
# been wrong.
LOOK_BACK_MS: Final = 3_600_000


class Finding:
    """Looks for parts in the history of channels."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def find(self, sought: Sought, account: str) -> Receipt | None:
        """Return the receipt of a part, or None if it certainly is not there. Raises `Ambiguous` if
        that cannot be known."""
        if not sought.tried_at or not (sought.text.strip() or sought.name):
            raise Ambiguous("nobody knows what to look for; look into the channel")
        certain: list[str] = []
        has_doubt = False
        try:
            async for message in self._since(sought):
                name = external_id(message.channel_id, message.id)
                is_ours = message.author.id == account and message.webhook_id is None
                if not is_ours or name in sought.owned or not _is_alike(message, sought):
                    continue
                if _is_near(message, sought) and _is_same(message, sought):
                    certain.append(name)
                else:
                    has_doubt = True
        except NotFound:
            # The channel is deleted, so the part is not visible anywhere.
            return None
        except Permanent as error:
            # A refusal to show the history says nothing about what is in it.
            raise Ambiguous(f"{error.message}; look into the channel") from error
        if len(certain) == 1:
            return Receipt(external_id=certain[0])
        if certain or has_doubt:
            raise Ambiguous(
                "Discord shows messages that may be this one or another; look into the channel"
            )
        return None

    async def _since(self, sought: Sought) -> AsyncIterator[Message]:
        """Yield the channel's messages, newest first, back to well before the attempt. Raises
        `Ambiguous` if that is too far back."""
        query = {"limit": str(PAGE)}
        where = path("channels", channel_of(sought.address), "messages")
        oldest_ms = 0
        for number in range(PAGES_MAX):
            ask = RestRequest(verb="Discord, looking back", method="GET", path=where, query=query)
            page = await self._rest.ask(ask, list[Message])
            if not page and not number:
                # To a bot without the permission to read the history, Discord shows an empty one.
                raise Ambiguous("Discord shows no history there; look into the channel")
            page.sort(key=lambda message: int(message.id), reverse=True)
            for message in page:
                yield message
            if len(page) < PAGE:
                return
            oldest_ms = made_ms(page[-1].id)
            if oldest_ms < sought.tried_at - LOOK_BACK_MS:
                return
            query = {**query, "before": page[-1].id}
        if oldest_ms >= sought.tried_at - NEAR_MS:
            raise Ambiguous("too much was written there since; look into the channel")


def _is_near(message: Message, sought: Sought) -> bool:
    """Tell whether a message was made close to the time of the attempt."""
    return abs(made_ms(message.id) - sought.tried_at) <= NEAR_MS


def _is_alike(message: Message, sought: Sought) -> bool:
    """Tell whether the text is the same apart from white space, and a file is there if there should
    be one."""
    squeezed = {_squeezed(each) for each in spellings(sought.text)}
    has_file = bool(message.attachments)
    return _squeezed(message.content) in squeezed and has_file == bool(sought.name)


def _is_same(message: Message, sought: Sought) -> bool:
    """Tell whether text and file name are exactly as sent. Discord cuts white space at both
    ends."""
    is_same_text = message.content.strip() in {each.strip() for each in spellings(sought.text)}
    files = [each.filename for each in message.attachments]
    return is_same_text and (not sought.name or files == [safe_name(sought.name)])


def _squeezed(text: str) -> str:
    return "".join(text.split())
