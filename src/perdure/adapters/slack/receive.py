"""Decodes events, commands and clicks into envelopes, and says how the rest of them is read.

It serves both Socket Mode and the Events API. A payload that cannot be decoded now will not be
decodable later either. It is raised as `UnreadablePayload`, and the caller stores it for a person
to look at.
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
from perdure.adapters.slack.payloads import (
    ChannelGone,
    Click,
    EventCallback,
    SlackEvent,
    SlashCommand,
    Typed,
)
from perdure.adapters.slack.people import People
from perdure.adapters.slack.posting.streams import Streams
from perdure.domain.inbound.arrivals import Arrival, departure
from perdure.ports.platform.adapter import ArrivalReading

_MESSAGES: Final = frozenset({"message", "app_mention"})
# Somebody has left a channel; the bot has; there is no such channel any more.
_LEFT: Final = "member_left_channel"
_GONE: Final = frozenset({"channel_left", "group_left", "channel_deleted", "group_deleted"})
_CLICKS: Final = "block_actions"


class UnreadablePayload(Exception):
    """Reports a payload that does not have the shape that Slack documents."""

    def __init__(self, payload: bytes, why: str) -> None:
        super().__init__(why)
        self.payload = payload.decode(errors="replace")

    @property
    def name(self) -> str:
        """Return the id under which the payload is stored."""
        return name_of(self.payload.encode())


def name_of(payload: bytes) -> str:
    """Return an id made from the content, so that it is the same at every delivery."""
    return f"unread/{hashlib.sha256(payload).hexdigest()[:32]}"


class Offer(msgspec.Struct, frozen=True):
    """Holds what the inlet is offered. No names are asked of Slack before the inlet calls
    `reading`."""

    envelope: Arrival
    reading: ArrivalReading


def _departure(gone: ChannelGone, payload: bytes, bot: Bot) -> Offer | None:
    """Return the offer that tells that the bot is not in a channel any more, or None if somebody
    else has left it."""
    if gone.type == _LEFT and gone.user != bot.user:
        return None
    arrival = departure(gone.channel)

    async def whole() -> Arrival:
        return arrival

    return Offer(arrival, ArrivalReading(whole=whole, payload=payload))


class Hearing:
    """Decodes what Slack sends into offers. Returns None for what is not for us."""

    def __init__(self, people: People, streams: Streams) -> None:
        self._people = people
        self._streams = streams

    def callback(self, raw: msgspec.Raw, bot: Bot) -> Offer | None:
        """Decode the payload of an Events API callback."""
        try:
            return self.event(msgspec.json.decode(raw, type=EventCallback).event, bot)
        except msgspec.DecodeError as error:
            raise UnreadablePayload(bytes(raw), str(error)) from error

    def event(self, raw: msgspec.Raw, bot: Bot) -> Offer | None:
        """Decode one event. Only messages, mentions and departures of the bot are read."""
        try:
            kind = msgspec.json.decode(raw, type=Typed).type
            if kind == _LEFT or kind in _GONE:
                return _departure(msgspec.json.decode(raw, type=ChannelGone), bytes(raw), bot)
            if kind not in _MESSAGES:
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
        """Return the whole arrival, with the names of the people in it."""
        others = [each for each in people_in(event) if each != bot.user]
        return of_event(event, bot, {bot.user: bot.name, **await self._people.names(others)})

    async def _name(self, envelope: Arrival) -> str:
        """Return the sender's name, or an empty string if Slack does not tell it."""
        sender = envelope.sender
        return sender.name or (await self._people.names([sender.id])).get(sender.id, "")

    def command(self, raw: msgspec.Raw | bytes) -> Offer:
        """Decode a slash command."""
        try:
            command = msgspec.json.decode(raw, type=SlashCommand)
        except msgspec.DecodeError as error:
            raise UnreadablePayload(bytes(raw), str(error)) from error

        async def whole() -> Arrival:
            return of_command(command)

        return Offer(command_envelope(command), ArrivalReading(whole=whole, payload=bytes(raw)))

    def interaction(self, raw: msgspec.Raw | bytes) -> Offer | None:
        """Decode an interaction. Only clicks on buttons are read."""
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
