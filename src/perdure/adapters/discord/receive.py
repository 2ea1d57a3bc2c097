"""Turns Discord's events into arrivals and hands them to the inlet, one at a time and in order.

An event stays at the head of the queue until it is taken. If the store cannot take it, the queue
waits unchanged for the next connection. Discord has no acknowledgement for messages, so a cursor
takes its place: it moves past a message after that message was taken. After a crash the next
process asks Discord for the messages that are newer than the cursor.
"""

from typing import Final, assert_never

import msgspec
import structlog

from perdure.adapters.discord.catching_up.archive import ChannelHistory
from perdure.adapters.discord.catching_up.memory import ConnectionMemory
from perdure.adapters.discord.gateway import GatewaySession
from perdure.adapters.discord.inbound import (
    ChannelPlace,
    arrival_of,
    deletion_of,
    envelope_of,
    external_id,
    interaction_envelope,
    interaction_of,
)
from perdure.adapters.discord.payloads import (
    BulkDeleted,
    Changed,
    Channel,
    ChannelGone,
    Deleted,
    GatewayEvent,
    GuildCame,
    GuildGone,
    Interaction,
    Member,
    Message,
    Ready,
    Unread,
)
from perdure.adapters.discord.send import Effects
from perdure.domain.errors import Ambiguous, NotFound, PerdureError, Permanent, Rejected, Transient
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender, departure
from perdure.ports.platform.adapter import ACCOUNT_WAIT, ArrivalReading, Inlet

# The channel types of threads: announcement thread, public thread, private thread.
_THREADS: Final = frozenset({10, 11, 12})

log = structlog.get_logger("discord")


class Hearing:
    """Hands events to the inlet.

    `link` knows servers and channels. `needs_roles` tells whether the decision who may speak
    depends on roles. Messages that are read from a channel's history come without roles, so these
    are then asked for separately.
    """

    def __init__(
        self,
        link: GatewaySession,
        effects: Effects,
        archive: ChannelHistory,
        memory: ConnectionMemory,
        *,
        account: str,
        needs_roles: bool,
    ) -> None:
        self._link = link
        self._effects = effects
        self._archive = archive
        self._cursors = memory.cursors
        self._senders = memory.senders
        self._account = account
        self._needs_roles = needs_roles

    async def take(self, event: GatewayEvent, inlet: Inlet) -> None:
        """Handle one event. Raises `Transient` if the store cannot take it; offer it again then."""
        match event:
            case Ready() | GuildCame() | GuildGone() | ChannelGone():
                await self._take_place(event, inlet)
            case Changed():
                await self._take_change(event, inlet)
            case Message():
                await self._take_message(event, inlet)
            case Deleted():
                await self._take_deletion(event, inlet)
            case BulkDeleted():
                await self._take_deletions(event, inlet)
            case Interaction():
                await self._take_interaction(event, inlet)
            case Unread():
                # It is stored for a person to look at, so that it does not block the events behind
                # it.
                await inlet.spoil(event.name, event.frame, event.why)
            case _:
                assert_never(event)

    async def _take_place(
        self, event: Ready | GuildCame | GuildGone | ChannelGone, inlet: Inlet
    ) -> None:
        """Catch up in the places that are known from now on, or tell which are no more."""
        match event:
            case Ready():
                await self._catch_up_direct(inlet)
            case GuildCame():
                await self._catch_up_guild(event, inlet)
            case GuildGone() | ChannelGone():
                for channel in event.places:
                    await _hand_over(departure(channel), inlet)
            case _:
                assert_never(event)

    async def _catch_up_direct(self, inlet: Inlet) -> None:
        """Read what was written in direct messages before this session began."""
        self._cursors.begin()
        for channel in self._cursors.direct():
            await self._catch_up(channel, "", inlet)

    async def _catch_up_guild(self, guild: GuildCame, inlet: Inlet) -> None:
        """Read what was written in the channels of a server before this session began."""
        for channel, newest in self._link.channels(guild.id):
            if newest > self._cursors.last(channel):
                await self._catch_up(channel, guild.id, inlet)

    async def _take_message(
        self, message: Message, inlet: Inlet, *, only_addressed: bool = False
    ) -> None:
        """Take one message, and move the channel's cursor past it.

        With `only_addressed`, a message that does not address the bot is skipped.
        """
        name = external_id(message.channel_id, message.id)
        payload = msgspec.json.encode(message)
        async with inlet.handling(name, payload) as may_read:
            if may_read:
                await self._handle(message, payload, inlet, only_addressed=only_addressed)
        # If the process dies before the cursor is saved, the message is offered again. The inlet
        # takes the same arrival twice without effect.
        self._cursors.advance(message.channel_id, message.id, is_direct=not message.guild_id)

    async def _handle(
        self, message: Message, payload: bytes, inlet: Inlet, *, only_addressed: bool
    ) -> None:
        """Hand over one message, and remember who wrote it in case it is deleted later."""
        if message.author.id == self._account:
            self._senders.add(external_id(message.channel_id, message.id), Sender(id=self._account))
        envelope = await self._offer(message, payload, inlet, only_addressed=only_addressed)
        if envelope is not None:
            self._senders.add(envelope.external_id, envelope.sender)

    async def _offer(
        self, message: Message, payload: bytes, inlet: Inlet, *, only_addressed: bool = False
    ) -> Arrival | None:
        """Hand over a message or an edit. Returns its envelope, or None if it is not for us."""
        place = await self._place(message.channel_id, message.guild_id, message.member)
        envelope = envelope_of(message, account=self._account, place=place)
        if envelope is None or (only_addressed and not envelope.is_addressed):
            return None

        async def whole() -> Arrival | None:
            return arrival_of(message, account=self._account, place=place)

        await _hand_over(envelope, inlet, ArrivalReading(whole=whole, payload=payload))
        return envelope

    async def _take_change(self, changed: Changed, inlet: Inlet) -> None:
        name = f"{external_id(changed.channel_id, changed.id)}/edit"
        payload = msgspec.json.encode(changed)
        async with inlet.handling(name, payload) as may_read:
            if may_read:
                await self._offer(changed, payload, inlet)

    async def _take_deletions(self, deleted: BulkDeleted, inlet: Inlet) -> None:
        for each in deleted.each:
            await self._take_deletion(each, inlet)

    async def _take_deletion(self, deleted: Deleted, inlet: Inlet) -> None:
        """Hand over a deletion. Deletions of the bot's own messages are ignored."""
        sender = self._senders.of(external_id(deleted.channel_id, deleted.id))
        if sender.id == self._account:
            return
        place = await self._place(deleted.channel_id, deleted.guild_id, None)
        await _hand_over(deletion_of(deleted, place=place, sender=sender), inlet)

    async def _take_interaction(self, interaction: Interaction, inlet: Inlet) -> None:
        """Hand over a command from the menu or a click on a button, then acknowledge it."""
        place = await self._place(
            interaction.channel_id,
            interaction.guild_id,
            interaction.member,
            told=interaction.channel,
        )
        envelope = interaction_envelope(interaction, place=place)
        if envelope is None:
            return

        async def whole() -> Arrival | None:
            return interaction_of(interaction, place=place)

        # The token allows anyone to answer in the bot's name for a while, so it is not stored.
        kept = msgspec.structs.replace(interaction, token="")
        await _hand_over(
            envelope, inlet, ArrivalReading(whole=whole, payload=msgspec.json.encode(kept))
        )
        try:
            await self._effects.acknowledge(interaction)
        except PerdureError as error:
            if error.code == ACCOUNT_WAIT:
                # The event stays in the queue and is offered again after the wait.
                raise
            # The interaction is stored already. The person only sees Discord's notice that the
            # bot did not respond.
            log.warning("interaction_not_acknowledged", error=str(error))

    async def _catch_up(self, channel: str, guild: str, inlet: Inlet) -> None:
        """Take the messages of a channel that are newer than its cursor."""
        last, is_known = self._cursors.last(channel), self._cursors.knows(channel)
        if not last:
            return
        try:
            missed = await self._archive.since(channel, last)
        except (NotFound, Permanent) as error:
            # The channel was deleted, or the bot may not read its history.
            log.info("channel_not_caught_up", channel=channel, error=str(error))
            return
        members: dict[str, Member] = {}
        for message in missed:
            author = message.author.id
            if guild and self._needs_roles and author not in members:
                members[author] = await self._archive.member(guild, author)
            whole = msgspec.structs.replace(message, guild_id=guild, member=members.get(author))
            # In a channel without a cursor, old messages between people are not for the bot: only
            # those that address it are taken.
            await self._take_message(whole, inlet, only_addressed=not is_known)

    async def _place(
        self, channel: str, guild: str, member: Member | None, *, told: Channel | None = None
    ) -> ChannelPlace:
        """Find out which place and thread a channel belongs to.

        `told` is the channel as it came with the event, which saves a request. A channel that
        cannot be read counts as a place of its own.
        """
        if not guild:
            return ChannelPlace(place=channel, kind=PlaceKind.PRIVATE)
        known = self._link.place_of(channel, member.roles if member else ())
        if known is not None:
            return known
        try:
            found = told or await self._archive.channel(channel)
        except (NotFound, Permanent):
            return ChannelPlace(place=channel)
        is_thread = found.type in _THREADS and found.parent_id is not None
        return ChannelPlace(
            place=found.parent_id or channel if is_thread else channel,
            thread=channel if is_thread else "",
            label=f"#{found.name}" if found.name else "",
            opener=(found.owner_id or "") if is_thread else "",
        )


async def _hand_over(arrival: Arrival, inlet: Inlet, reading: ArrivalReading | None = None) -> None:
    """Hand over an arrival. Returns once it is stored, or will never be."""
    try:
        await inlet.take(arrival, reading)
    except Rejected:
        # It can never be stored, and the inlet has told the person so.
        return
    except Ambiguous as error:
        raise Transient(f"Discord: {error}; it is offered again") from error
