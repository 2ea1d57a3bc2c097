"""What Slack tells us, as arrivals: the same for what comes over our connection and to our hook.

Something that cannot be read will not be readable the next time either: whoever brought it puts it
aside, for a person to look at.
"""

import hashlib
from typing import Final

import msgspec

from perdure.adapters.slack.inbound import Bot, of_click, of_command, of_event, people_in
from perdure.adapters.slack.payloads import Callback, Click, Command, Event, Typed
from perdure.adapters.slack.people import People
from perdure.adapters.slack.streams import Streams
from perdure.domain.arrivals import Arrival

_MESSAGES: Final = frozenset({"message", "app_mention"})
_CLICKS: Final = "block_actions"


class Unreadable(Exception):
    """`payload` is not shaped as Slack says."""

    def __init__(self, payload: bytes, why: str) -> None:
        super().__init__(why)
        self.payload = payload.decode(errors="replace")

    @property
    def name(self) -> str:
        """The same at every delivery."""
        return f"unread/{hashlib.sha256(self.payload.encode()).hexdigest()[:32]}"


class Hearing:
    def __init__(self, people: People, streams: Streams) -> None:
        self._people = people
        self._streams = streams

    async def callback(self, raw: msgspec.Raw, bot: Bot) -> Arrival | None:
        try:
            return await self.event(msgspec.json.decode(raw, type=Callback).event, bot)
        except msgspec.DecodeError as error:
            raise Unreadable(bytes(raw), str(error)) from error

    async def event(self, raw: msgspec.Raw, bot: Bot) -> Arrival | None:
        try:
            if msgspec.json.decode(raw, type=Typed).type not in _MESSAGES:
                return None
            event = msgspec.json.decode(raw, type=Event)
        except msgspec.DecodeError as error:
            raise Unreadable(bytes(raw), str(error)) from error
        # Most of what is said in a channel is not for us, and costs no question.
        if of_event(event, bot, {}) is None:
            return None
        self._streams.heard(event)
        others = [each for each in people_in(event) if each != bot.user]
        return of_event(event, bot, {bot.user: bot.name, **await self._people.names(others)})

    def command(self, raw: msgspec.Raw | bytes) -> Arrival | None:
        try:
            return of_command(msgspec.json.decode(raw, type=Command))
        except msgspec.DecodeError as error:
            raise Unreadable(bytes(raw), str(error)) from error

    def interaction(self, raw: msgspec.Raw | bytes) -> Arrival | None:
        try:
            if msgspec.json.decode(raw, type=Typed).type != _CLICKS:
                return None
            return of_click(msgspec.json.decode(raw, type=Click))
        except msgspec.DecodeError as error:
            raise Unreadable(bytes(raw), str(error)) from error
