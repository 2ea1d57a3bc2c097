"""Receives events over Socket Mode, a websocket that we open to Slack.

An envelope is acknowledged after its content is stored. Now and then Slack asks us to open a new
connection, which is no failure. What was not acknowledged comes again on the new connection.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import msgspec

from perdure.adapters.slack.calls.refusals import APP_TOKEN_KEY
from perdure.adapters.slack.payloads import SocketEnvelope
from perdure.adapters.slack.receive import Offer, UnreadablePayload, name_of
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

# After this long without any frame a ping is sent; after twice as long the connection is lost.
SILENCE_S: Final = 20.0
# A connection that ends sooner than this is a failure, so that the caller waits before the next.
SHORT_S: Final = 5.0
# The pauses between attempts to store one envelope while the store is down.
OFFERS_S: Final = (0.5, 1.0, 2.0, 4.0)

_ENDED: Final = frozenset(
    {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED}
)
_WHAT: Final = "the connection for events"

Hear = Callable[[SocketEnvelope], Offer | None]


class _Opened(msgspec.Struct, frozen=True):
    url: str


class Socket:
    """Receives envelopes over one websocket at a time."""

    def __init__(self, wire: Wire, clock: Clock, hear: Hear) -> None:
        self._wire = wire
        self._clock = clock
        self._hear = hear
        self._url = ""

    async def open(self) -> None:
        """Ask Slack for the websocket's URL. This also proves that the app token works."""
        said = await self._wire.ask("apps.connections.open", {}, _Opened, token_key=APP_TOKEN_KEY)
        self._url = said.url

    async def receive(self, inlet: Inlet) -> None:
        """Receive envelopes, on one connection after another, until one is lost."""
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
                # aiohttp would answer pings by itself and hide them, but they prove that the
                # connection works.
                autoping=False,
                max_msg_size=FRAME_BYTES_MAX,
                timeout=aiohttp.ClientWSTimeout(ws_close=CONNECT_TIMEOUT_S),
            )
        try:
            yield socket
        finally:
            await socket.close()

    async def _listen(self, inlet: Inlet) -> None:
        """Receive envelopes until Slack asks for a new connection. Raises if the connection is
        lost."""
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
        """Handle one frame. Returns True if Slack asks for a new connection."""
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
        """Store the content of an envelope, then acknowledge it. Returns True if Slack asks for a
        new connection."""
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
            # If the process dies before this line, Slack sends the envelope again. The inlet takes
            # the same arrival twice without effect.
            await socket.send_json({"envelope_id": envelope.envelope_id})
        return False

    async def _read(self, envelope: SocketEnvelope, inlet: Inlet) -> None:
        """Decode an envelope and hand it over, or store it for a person to look at."""
        try:
            offer = self._hear(envelope)
        except UnreadablePayload as error:
            await inlet.spoil(error.name, error.payload, str(error))
            return
        if offer is not None:
            await self._hand_over(offer, inlet)

    async def _hand_over(self, offer: Offer, inlet: Inlet) -> None:
        """Offer an arrival until the store takes it, for a few seconds.

        Slack repeats an event only a few times, and a command never, so a short failure of the
        store is waited out here. After that `Transient` is raised and the envelope is not
        acknowledged.
        """
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
