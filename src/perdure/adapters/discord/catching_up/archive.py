"""Reads from Discord what no event carries: older messages, members, channels.

Only the events in the queue wait for these answers, so a rate limit is waited out here. A limit of
the whole account is raised instead, because everything else has to keep it too.
"""

from typing import Final, TypeVar

from perdure.adapters.discord.payloads import Channel, Member, Message
from perdure.adapters.discord.wire import Rest, RestRequest, path
from perdure.domain.errors import NotFound, Transient
from perdure.ports.platform.adapter import ACCOUNT_WAIT
from perdure.ports.system.clock import Clock

# When this many missed messages of a channel were read, older ones are left out.
MISSED_MAX: Final = 200
# The most messages that Discord returns for one request.
PAGE: Final = 100
# How many rate limits are waited out for one request before the next one is raised.
WAITS_MAX: Final = 5

_T = TypeVar("_T")


class ChannelHistory:
    """Asks Discord about the past of channels, and about members."""

    def __init__(self, rest: Rest, clock: Clock) -> None:
        self._rest = rest
        self._clock = clock

    async def since(self, channel: str, last: int) -> list[Message]:
        """Return the messages after `last`, oldest first. If there are too many, the newest
        ones."""
        found: list[Message] = []
        query = {"limit": str(PAGE)}
        while len(found) < MISSED_MAX:
            page = await self._ask(
                "messages", path("channels", channel, "messages"), list[Message], query
            )
            page.sort(key=lambda message: int(message.id), reverse=True)
            newer = [message for message in page if int(message.id) > last]
            found += newer
            if len(newer) < PAGE:
                break
            query["before"] = newer[-1].id
        return found[::-1]

    async def member(self, guild: str, user: str) -> Member:
        """Return a person's membership of a server, or an empty one if they have left."""
        try:
            return await self._ask("a member", path("guilds", guild, "members", user), Member)
        except NotFound:
            return Member()

    async def channel(self, channel: str) -> Channel:
        return await self._ask("a channel", path("channels", channel), Channel)

    async def _ask(
        self, what: str, where: str, kind: type[_T], query: dict[str, str] | None = None
    ) -> _T:
        """Send a read request, and wait out up to `WAITS_MAX` rate limits."""
        request = RestRequest(
            verb=f"Discord, reading {what}", method="GET", path=where, query=query or {}
        )
        for _ in range(WAITS_MAX):
            try:
                return await self._rest.ask(request, kind)
            except Transient as error:
                if error.retry_after_s is None or error.code == ACCOUNT_WAIT:
                    raise
                await self._clock.sleep(error.retry_after_s)
        return await self._rest.ask(request, kind)
