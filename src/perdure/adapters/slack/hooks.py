"""Serves the Events API: Slack posts signed requests to our hook.

The response 200 tells Slack that the content is stored; after 503 Slack sends it again. Events,
commands and clicks may come to the same URL: commands and clicks are forms, events are JSON.
"""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qs

import msgspec

from perdure.adapters.slack.inbound import Bot
from perdure.adapters.slack.payloads import EventCallback
from perdure.adapters.slack.receive import Hearing, Offer, UnreadablePayload, name_of
from perdure.domain.errors import Ambiguous, Rejected, Transient
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import HookRequest, HookResponse, Inlet
from perdure.ports.system.clock import Clock

# Requests older than this are refused, so that a recorded request cannot be replayed later.
AGE_S_MAX: Final = 5 * 60
_SIGNATURE: Final = "x-slack-signature"
_TIMESTAMP: Final = "x-slack-request-timestamp"
_FORM: Final = "application/x-www-form-urlencoded"
_OK: Final = HookResponse(content_type="text/plain")


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature that Slack puts on a request."""
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, sha256).hexdigest()


def is_genuine(secret: Secret, headers: Mapping[str, str], body: bytes, *, now_ms: int) -> bool:
    """Tell whether Slack signed this request, not more than `AGE_S_MAX` seconds ago."""
    timestamp = headers.get(_TIMESTAMP, "")
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 16):
        return False
    if abs(now_ms / 1000 - int(timestamp)) > AGE_S_MAX:
        return False
    expected = signature(secret.reveal(), timestamp, body).encode()
    return hmac.compare_digest(expected, headers.get(_SIGNATURE, "").encode(errors="replace"))


class Hooks:
    """Answers Slack's requests to our hook."""

    def __init__(self, secret: Secret | None, hearing: Hearing, clock: Clock) -> None:
        self._secret = secret
        self._hearing = hearing
        self._clock = clock

    async def answer(self, request: HookRequest, inlet: Inlet, bot: Bot | None) -> HookResponse:
        """Check the signature, then hand over what the request holds. `bot` is None before
        `connect`."""
        if self._secret is None:
            return _refusal(404, "set signing_secret in [adapters.slack] to take events here")
        now_ms = self._clock.now_ms()
        if not is_genuine(self._secret, request.headers, request.body, now_ms=now_ms):
            return _refusal(
                401,
                "the signature does not fit; check signing_secret in [adapters.slack] and the "
                "clock of this machine",
            )
        inlet.alive()
        async with inlet.handling(name_of(request.body), request.body) as may_read:
            return await self._read(request, inlet, bot) if may_read else _OK

    async def _read(self, request: HookRequest, inlet: Inlet, bot: Bot | None) -> HookResponse:
        """Hand over a form or an event. What cannot be decoded is stored for a person to read."""
        try:
            if request.headers.get("content-type", "").partition(";")[0].strip() == _FORM:
                return await self._hand_over(self._form(request.body), inlet)
            return await self._callback(request.body, inlet, bot)
        except UnreadablePayload as error:
            return await self._put_aside(error, inlet)

    async def _callback(self, body: bytes, inlet: Inlet, bot: Bot | None) -> HookResponse:
        """Answer Slack's check of our URL, or hand over an event."""
        try:
            callback = msgspec.json.decode(body, type=EventCallback)
        except msgspec.DecodeError:
            return _refusal(400, "this is no event of Slack's")
        if callback.type == "url_verification":
            answer = msgspec.json.encode({"challenge": callback.challenge})
            return HookResponse(body=answer)
        if bot is None:
            # Without the bot's id, its own messages cannot be told from others. Slack sends it
            # again.
            return _refusal(503, "the gateway is still starting")
        return await self._hand_over(self._hearing.event(callback.event, bot), inlet)

    async def _put_aside(self, unread: UnreadablePayload, inlet: Inlet) -> HookResponse:
        """Store an unreadable payload. Returns 503 if the store cannot take it now."""
        try:
            await inlet.spoil(unread.name, unread.payload, str(unread))
        except (Transient, Ambiguous) as error:
            return _refusal(503, error.message)
        return _OK

    def _form(self, body: bytes) -> Offer | None:
        """Decode a form: a click has one field `payload`, a slash command has a field for each
        value."""
        fields = {
            name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()
        }
        if "payload" in fields:
            return self._hearing.interaction(fields["payload"].encode())
        return self._hearing.command(msgspec.json.encode(fields))

    async def _hand_over(self, offer: Offer | None, inlet: Inlet) -> HookResponse:
        """Offer an arrival to the inlet. Returns 200 once it is stored or can never be."""
        if offer is None:
            return _OK
        try:
            await inlet.take(offer.envelope, offer.reading)
        except Rejected:
            return _OK
        except (Transient, Ambiguous) as error:
            return _refusal(503, error.message)
        return _OK


def _refusal(status: int, words: str) -> HookResponse:
    return HookResponse(status=status, body=words.encode(), content_type="text/plain")
