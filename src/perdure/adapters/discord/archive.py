"""What Discord can be asked about the time before a session: messages, members, channels.

Nobody waits for these answers but the line behind them, so a rate limit is waited out here. One
that holds for the whole account is raised: all else has to keep it too.
"""

from typing import Final, TypeVar

from perdure.adapters.discord.payloads import Channel, Member, Message
from perdure.adapters.discord.wire import Rest, RestRequest, path
from perdure.domain.errors import NotFound, Transient
from perdure.ports.platform.adapter import ACCOUNT_WAIT
from perdure.ports.system.clock import Clock

MISSED_MAX: Final = 200
PAGE: Final = 100
WAITS_MAX: Final = 5

_T = TypeVar("_T")


class ChannelHistory:
    def __init__(self, rest: Rest, clock: Clock) -> None:
        self._rest = rest
        self._clock = clock

    async def since(self, channel: str, last: int) -> list[Message]:
        """The messages after `last`, oldest first; of too many, the newest."""
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
        """Somebody's membership; an empty one if they have left."""
        try:
            return await self._ask("a member", path("guilds", guild, "members", user), Member)
        except NotFound:
            return Member()

    async def channel(self, channel: str) -> Channel:
        return await self._ask("a channel", path("channels", channel), Channel)

    async def _ask(
        self, what: str, where: str, kind: type[_T], query: dict[str, str] | None = None
    ) -> _T:
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
