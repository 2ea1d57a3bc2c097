"""Socket Mode: a connection of our own, over which Slack hands us envelopes.

An envelope is acknowledged once what is in it is durable. Slack asks us now and then to come back
on a new connection, which is no failure; whatever was not acknowledged comes again there.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import msgspec

from perdure.adapters.slack.payloads import SocketEnvelope
from perdure.adapters.slack.receive import Offer, UnreadablePayload, name_of
from perdure.adapters.slack.refusals import APP_TOKEN_KEY
from perdure.adapters.slack.wire import (
    CALL_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    FRAME_BYTES_MAX,
    Wire,
    translated,
)
from perdure.domain.errors import Ambiguous, Permanent, Rejected, Transient
from perdure.ports.platform.adapter import Inlet
from perdure.ports.system.clock import Clock
from perdure.ports.system.time_limits import time_limit

# The connection is asked for a sign of life after this long without one.
SILENCE_S: Final = 20.0
# A server that sends us away sooner than this is not to be asked again at once.
SHORT_S: Final = 5.0
# How long a store that is down is waited for with an envelope in hand.
OFFERS_S: Final = (0.5, 1.0, 2.0, 4.0)

_ENDED: Final = frozenset(
    {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED}
)
_WHAT: Final = "the connection for events"

Hear = Callable[[SocketEnvelope], Offer | None]


class _Opened(msgspec.Struct, frozen=True):
    url: str


class Socket:
    def __init__(self, wire: Wire, clock: Clock, hear: Hear) -> None:
        self._wire = wire
        self._clock = clock
        self._hear = hear
        self._url = ""

    async def open(self) -> None:
        """Ask where to connect: proves the app's token."""
        said = await self._wire.ask("apps.connections.open", {}, _Opened, token_key=APP_TOKEN_KEY)
        self._url = said.url

    async def receive(self, inlet: Inlet) -> None:
        while True:
            began_s = self._clock.monotonic_s()
            try:
                await self._listen(inlet)
            except (aiohttp.ClientError, OSError) as error:
                raise translated(error, _WHAT, is_repeatable=True) from None
            if self._clock.monotonic_s() - began_s < SHORT_S:
                raise Transient("Slack ends every connection at once; it is tried again later")
            await self.open()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with time_limit(CALL_TIMEOUT_S):
            socket = await self._wire.session.ws_connect(
                self._url,
                # Every sign of life is to be seen here.
                autoping=False,
                max_msg_size=FRAME_BYTES_MAX,
                timeout=aiohttp.ClientWSTimeout(ws_close=CONNECT_TIMEOUT_S),
            )
        try:
            yield socket
        finally:
            await socket.close()

    async def _listen(self, inlet: Inlet) -> None:
        """Until Slack wants us to come back; raises when the connection is lost."""
        async with self._connected() as socket:
            is_asked = False
            while True:
                try:
                    frame = await socket.receive(timeout=SILENCE_S)
                except TimeoutError:
                    if is_asked:
                        raise Transient(f"{_WHAT} to Slack is silent; it is made anew") from None
                    is_asked = True
                    await socket.ping()
                    continue
                is_asked = False
                inlet.alive()
                if await self._is_last(socket, frame, inlet):
                    return

    async def _is_last(
        self, socket: aiohttp.ClientWebSocketResponse, frame: aiohttp.WSMessage, inlet: Inlet
    ) -> bool:
        match frame.type:
            case aiohttp.WSMsgType.PING:
                await socket.pong(frame.data)
            case aiohttp.WSMsgType.TEXT:
                return await self._take(socket, frame.data, inlet)
            case aiohttp.WSMsgType.ERROR:
                raise Transient(f"{_WHAT} to Slack broke; it is made anew")
            case ended if ended in _ENDED:
                raise Transient(f"Slack closed {_WHAT}; it is made anew")
            case _:
                pass
        return False

    async def _take(self, socket: aiohttp.ClientWebSocketResponse, data: str, inlet: Inlet) -> bool:
        try:
            envelope = msgspec.json.decode(data, type=SocketEnvelope)
        except msgspec.DecodeError:
            return False
        if envelope.type == "disconnect":
            if envelope.reason == "link_disabled":
                raise Permanent("Socket Mode was switched off; switch it on in the app's settings")
            return True
        if envelope.envelope_id:
            payload = bytes(envelope.payload)
            async with inlet.handling(name_of(payload), payload) as may_read:
                if may_read:
                    await self._read(envelope, inlet)
            # If we die before this line, Slack sends the envelope again, and nothing changes.
            await socket.send_json({"envelope_id": envelope.envelope_id})
        return False

    async def _read(self, envelope: SocketEnvelope, inlet: Inlet) -> None:
        try:
            offer = self._hear(envelope)
        except UnreadablePayload as error:
            await inlet.spoil(error.name, error.payload, str(error))
            return
        if offer is not None:
            await self._hand_over(offer, inlet)

    async def _hand_over(self, offer: Offer, inlet: Inlet) -> None:
        """Slack sends an event again only a few times, and a command never: so it is offered here
        for a while before it is let go without an acknowledgement."""
        for pause_s in (*OFFERS_S, None):
            try:
                await inlet.take(offer.envelope, offer.reading)
            except Rejected:
                return
            except (Transient, Ambiguous) as error:
                if pause_s is None:
                    raise Transient(error.message) from error
                await self._clock.sleep(pause_s)
            else:
                return
