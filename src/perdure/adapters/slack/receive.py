"""What Slack tells us, as envelopes and how to read them: the same for what comes over our
connection and to our hook.

Something that cannot be read will not be readable the next time either: whoever brought it puts it
aside, for a person to look at.
"""

import hashlib
from functools import partial
from typing import Final

import msgspec

from perdure.adapters.slack.inbound import (
    Bot,
    click_envelope,
    command_envelope,
    envelope_of,
    of_click,
    of_command,
    of_event,
    people_in,
)
from perdure.adapters.slack.payloads import Click, EventCallback, SlackEvent, SlashCommand, Typed
from perdure.adapters.slack.people import People
from perdure.adapters.slack.streams import Streams
from perdure.domain.inbound.arrivals import Arrival
from perdure.ports.platform.adapter import ArrivalReading

_MESSAGES: Final = frozenset({"message", "app_mention"})
_CLICKS: Final = "block_actions"


class UnreadablePayload(Exception):
    """`payload` is not shaped as Slack says."""

    def __init__(self, payload: bytes, why: str) -> None:
        super().__init__(why)
        self.payload = payload.decode(errors="replace")

    @property
    def name(self) -> str:
        return name_of(self.payload.encode())


def name_of(payload: bytes) -> str:
    """Return a name for what came, the same at every delivery."""
    return f"unread/{hashlib.sha256(payload).hexdigest()[:32]}"


class Offer(msgspec.Struct, frozen=True):
    """Holds what the inlet is offered. Nobody's name is asked for before the inlet reads it."""

    envelope: Arrival
    reading: ArrivalReading


class Hearing:
    def __init__(self, people: People, streams: Streams) -> None:
        self._people = people
        self._streams = streams

    def callback(self, raw: msgspec.Raw, bot: Bot) -> Offer | None:
        try:
            return self.event(msgspec.json.decode(raw, type=EventCallback).event, bot)
        except msgspec.DecodeError as error:
            raise UnreadablePayload(bytes(raw), str(error)) from error

    def event(self, raw: msgspec.Raw, bot: Bot) -> Offer | None:
        try:
            if msgspec.json.decode(raw, type=Typed).type not in _MESSAGES:
                return None
            event = msgspec.json.decode(raw, type=SlackEvent)
        except msgspec.DecodeError as error:
            raise UnreadablePayload(bytes(raw), str(error)) from error
        envelope = envelope_of(event, bot)
        if envelope is None:
            return None
        self._streams.heard(event)
        reading = ArrivalReading(
            whole=partial(self._whole, event, bot),
            name=partial(self._name, envelope),
            payload=bytes(raw),
        )
        return Offer(envelope, reading)

    async def _whole(self, event: SlackEvent, bot: Bot) -> Arrival | None:
        others = [each for each in people_in(event) if each != bot.user]
        return of_event(event, bot, {bot.user: bot.name, **await self._people.names(others)})

    async def _name(self, envelope: Arrival) -> str:
        sender = envelope.sender
        return sender.name or (await self._people.names([sender.id])).get(sender.id, "")

    def command(self, raw: msgspec.Raw | bytes) -> Offer:
        try:
            command = msgspec.json.decode(raw, type=SlashCommand)
        except msgspec.DecodeError as error:
            raise UnreadablePayload(bytes(raw), str(error)) from error

        async def whole() -> Arrival:
            return of_command(command)

        return Offer(command_envelope(command), ArrivalReading(whole=whole, payload=bytes(raw)))

    def interaction(self, raw: msgspec.Raw | bytes) -> Offer | None:
        try:
            if msgspec.json.decode(raw, type=Typed).type != _CLICKS:
                return None
            click = msgspec.json.decode(raw, type=Click)
        except msgspec.DecodeError as error:
            raise UnreadablePayload(bytes(raw), str(error)) from error
        envelope = click_envelope(click)
        if envelope is None:
            return None

        async def whole() -> Arrival | None:
            return of_click(click)

        return Offer(envelope, ArrivalReading(whole=whole, payload=bytes(raw)))
