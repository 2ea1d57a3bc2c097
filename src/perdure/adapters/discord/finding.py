"""Whether a part is already to be seen: asked of the channel's history.

Discord knows the key of a message for some minutes only, and shows it to nobody. After that only
the message itself can tell: it is ours, says exactly what was to be said, was made about when the
part was tried, and belongs to no other part. If just one is like that, it is the part; if one comes
near to it, nobody can tell.
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
PAGES_MAX: Final = 10
# By how much the two clocks may differ, and how long a message may take.
NEAR_MS: Final = 120_000
# What says the same and is further off than that is a doubt, for a clock may be wrong.
LOOK_BACK_MS: Final = 3_600_000


class Finding:
    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def find(self, sought: Sought, account: str) -> Receipt | None:
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
            return None  # where the channel is gone, nothing is to be seen
        except Permanent as error:
            # Not being allowed to look says nothing about what is there.
            raise Ambiguous(f"{error.message}; look into the channel") from error
        if len(certain) == 1:
            return Receipt(external_id=certain[0])
        if certain or has_doubt:
            raise Ambiguous(
                "Discord shows messages that may be this one or another; look into the channel"
            )
        return None

    async def _since(self, sought: Sought) -> AsyncIterator[Message]:
        """What stands in the channel now, the newest first, back to well before the try."""
        query = {"limit": str(PAGE)}
        where = path("channels", channel_of(sought.address), "messages")
        oldest_ms = 0
        for number in range(PAGES_MAX):
            ask = RestRequest(verb="Discord, looking back", method="GET", path=where, query=query)
            page = await self._rest.ask(ask, list[Message])
            if not page and not number:
                # Whom Discord lets read no history, it tells that there is none.
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
    return abs(made_ms(message.id) - sought.tried_at) <= NEAR_MS


def _is_alike(message: Message, sought: Sought) -> bool:
    """Whether it says the same but for what nobody sees, and has a file where there was one."""
    squeezed = {_squeezed(each) for each in spellings(sought.text)}
    has_file = bool(message.attachments)
    return _squeezed(message.content) in squeezed and has_file == bool(sought.name)


def _is_same(message: Message, sought: Sought) -> bool:
    """Whether it says exactly what was to be said. Discord cuts off white space at both ends."""
    is_same_text = message.content.strip() in {each.strip() for each in spellings(sought.text)}
    files = [each.filename for each in message.attachments]
    return is_same_text and (not sought.name or files == [safe_name(sought.name)])


def _squeezed(text: str) -> str:
    return "".join(text.split())
