"""Receives updates, by long polling or at our hook.

An update is acknowledged once the inlet has taken it. In polling, asking for the next update
acknowledges the ones before, and no position is stored here: if the process dies first, Telegram
offers the update again, and the inbox recognizes it.
"""

import hashlib
import hmac
from typing import Final

import msgspec
import structlog

from perdure.adapters.telegram import payloads
from perdure.adapters.telegram.hearing.updates import KINDS, TelegramUpdate, User
from perdure.adapters.telegram.inbound import arrival_of, envelope_of
from perdure.adapters.telegram.manifest import TelegramSettings
from perdure.adapters.telegram.refusals import RATE_LIMITED, Refused
from perdure.adapters.telegram.wire import Api, Params
from perdure.domain.errors import Ambiguous, Permanent, Rejected, Transient
from perdure.domain.inbound.arrivals import Arrival
from perdure.ports.platform.adapter import ArrivalReading, HookRequest, HookResponse, Inlet
from perdure.ports.platform.manifest import AdapterContext

log = structlog.get_logger("telegram")

POLL_S: Final = 30
# How much longer than the long poll we wait for its answer.
_MARGIN_S: Final = 15.0
# A poll that answers sooner than this, with nothing, is followed by a pause. Otherwise such a
# server would be asked in a tight loop.
_EARLY_S: Final = 1.0
_PAUSE_S: Final = 0.25
# How often Telegram is asked about our hook.
_LOOK_S: Final = 60.0
_BATCH_MAX: Final = 100
_PATH: Final = "updates"
_HEADER: Final = "x-telegram-bot-api-secret-token"

_updates: Final = msgspec.json.Decoder(list[msgspec.Raw])
_update: Final = msgspec.json.Decoder(TelegramUpdate)


class _Numbered(msgspec.Struct, frozen=True):
    update_id: int


class _Hook(msgspec.Struct, frozen=True):
    """Holds what Telegram says about our hook, and how many updates wait for it."""

    url: str = ""
    pending_update_count: int = 0


class Receiving:
    """Receives the updates of one bot and hands them to the inlet."""

    def __init__(self, api: Api, settings: TelegramSettings, context: AdapterContext) -> None:
        self._api = api
        self._settings = settings
        self._clock = context.clock
        self._hook_url = f"{context.hook_url.rstrip('/')}/{_PATH}" if context.hook_url else ""
        self._me: User | None = None
        self._has_offered = False
        self._offset = 0

    async def connect(self) -> str:
        """Check the token, offer the commands, and set or remove the hook. Returns the bot's id."""
        me = msgspec.json.decode(await self._api.ask("getMe"), type=User)
        if not self._has_offered:
            # Offered once per process. If the server named a wait here each time, `connect` would
            # never succeed.
            self._has_offered = True
            await self._try("setMyCommands", payloads.commands())
        self._me = me
        if self._settings.mode == "webhook":
            await self._set_hook()
        else:
            # Telegram refuses polling while a hook is set. Updates that wait for the hook are kept.
            await self._try("deleteWebhook", {})
        return str(me.id)

    async def receive(self, inlet: Inlet) -> None:
        """Hand over updates until the connection fails. In webhook mode, only watch the hook."""
        if self._settings.mode == "webhook":
            await self._watch_hook(inlet)
        while True:
            begun_s = self._clock.monotonic_s()
            updates = await self._poll()
            inlet.alive()
            if not updates:
                # Everything before the offset is acknowledged now. After a week without updates
                # Telegram starts new numbers, and an old offset would hide the new updates.
                self._offset = 0
            for raw in updates:
                await self._take(raw, inlet)
            if not self._offset and self._clock.monotonic_s() - begun_s < _EARLY_S:
                await self._clock.sleep(_PAUSE_S)

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse:
        """Take one update from our hook. The secret is checked before anything else is read.
        Telegram sends the update again if the answer is an error, so a `Transient` becomes a
        503."""
        if self._settings.mode != "webhook":
            return _refused(404, "this bot asks for its updates; set mode = webhook to send them")
        given = request.headers.get(_HEADER, "").encode(errors="replace")
        if not hmac.compare_digest(given, self._hook_secret().encode()):
            return _refused(401, "the secret is not the one that was given to setWebhook")
        inlet.alive()
        if self._me is None:
            return _refused(503, "not connected yet; send it again")
        try:
            await self._take(msgspec.Raw(request.body), inlet, is_polled=False)
        except Transient as error:
            return _refused(503, error.message)
        return HookResponse(body=b"{}")

    async def _poll(self) -> list[msgspec.Raw]:
        params = {
            "timeout": POLL_S,
            "limit": _BATCH_MAX,
            "allowed_updates": KINDS,
            **({"offset": self._offset} if self._offset else {}),
        }
        said = await self._api.ask("getUpdates", params, timeout_s=POLL_S + _MARGIN_S)
        return _updates.decode(said)

    async def _take(self, raw: msgspec.Raw, inlet: Inlet, *, is_polled: bool = True) -> None:
        """Take one update. If processes died over it before, it is put aside and acknowledged."""
        number = _number(raw)
        async with inlet.handling(f"update/{number}", bytes(raw)) as may_read:
            if may_read:
                await self._handle(raw, inlet, is_polled=is_polled)
            elif is_polled:
                self._offset = max(self._offset, number + 1)

    async def _handle(self, raw: msgspec.Raw, inlet: Inlet, *, is_polled: bool) -> None:
        """Decode one update and offer it. The offset moves only after the inlet has taken it."""
        try:
            update = _update.decode(raw)
        except msgspec.MsgspecError as error:
            # It would not be readable the next time either, and all updates after it would wait.
            number = _number(raw)
            log.warning("an update cannot be read and is put aside", update=number, why=str(error))
            await inlet.spoil(f"update/{number}", bytes(raw).decode(errors="replace"), str(error))
            self._offset = max(self._offset, number + 1) if is_polled else self._offset
            return
        await self._offer(update, bytes(raw), inlet)
        if is_polled:
            self._offset = update.update_id + 1
        if update.callback_query is not None:
            # Without an answer the button shows for a minute that it waits.
            params = {"callback_query_id": update.callback_query.id}
            await self._try("answerCallbackQuery", params, can_wait=is_polled)

    async def _offer(self, update: TelegramUpdate, payload: bytes, inlet: Inlet) -> None:
        """Offer an update to the inlet. Rejected updates are logged, since the person was told. An
        unknown outcome becomes `Transient`: Telegram offers the update again, and the inbox
        recognizes it."""
        me = self._me
        assert me is not None, "connect comes first"
        envelope = envelope_of(update, me)
        if envelope is None:
            return

        async def whole() -> Arrival | None:
            return arrival_of(update, me)

        try:
            await inlet.take(envelope, ArrivalReading(whole=whole, payload=payload))
        except Rejected as error:
            log.info("an update was rejected", update=update.update_id, why=error.message)
        except Ambiguous as error:
            raise Transient(f"{error.message}; Telegram will offer it again") from error

    async def _set_hook(self) -> None:
        """Tell Telegram the address of our hook. Raises `Permanent` with what to correct, if it
        refuses."""
        if not self._hook_url:
            raise Permanent(
                "Telegram needs an address to send updates to; set base_url of [server] to the "
                'https address of this gateway, or mode = "polling" of [adapters.telegram]'
            )
        params = {
            "url": self._hook_url,
            "secret_token": self._hook_secret(),
            "allowed_updates": KINDS,
            # One connection at a time keeps the updates in order.
            "max_connections": 1,
        }
        try:
            await self._api.ask("setWebhook", params)
        except Refused as refused:
            raise Permanent(
                f"Telegram does not take the hook ({refused.words}); it wants https on port 443, "
                "80, 88 or 8443 in base_url of [server], and of webhook_secret letters, digits, "
                "_ and - only"
            ) from refused

    async def _watch_hook(self, inlet: Inlet) -> None:
        """Watch the hook's health. No update may come for days, so Telegram is asked whether any
        are waiting: if none are, the hook works."""
        while True:
            hook = msgspec.json.decode(await self._api.ask("getWebhookInfo"), type=_Hook)
            if hook.url != self._hook_url:
                raise Transient("another program has taken over this bot's hook; stop it")
            if not hook.pending_update_count:
                inlet.alive()
            await self._clock.sleep(_LOOK_S)

    def _hook_secret(self) -> str:
        """Return the hook's secret. It is the same in every process and on every node."""
        if self._settings.webhook_secret is not None:
            return self._settings.webhook_secret.reveal()
        token = self._settings.token.reveal().encode()
        return hmac.new(token, b"perdure hook", hashlib.sha256).hexdigest()

    async def _try(self, method: str, params: Params, *, can_wait: bool = True) -> None:
        """Make a call that nothing depends on, and log its failure. A wait that the server names is
        raised if the caller can keep it (`can_wait`); while a hook is answered, nobody can."""
        try:
            await self._api.ask(method, params)
        except (Refused, Transient) as error:
            if error.code == RATE_LIMITED and can_wait:
                raise
            log.info("left undone", method=method, why=error.message)


def _number(raw: msgspec.Raw) -> int:
    """Return the number of an update, or 0 if even that cannot be read."""
    try:
        return msgspec.json.decode(raw, type=_Numbered).update_id
    except msgspec.MsgspecError:
        return 0


def _refused(status: int, why: str) -> HookResponse:
    return HookResponse(status=status, body=msgspec.json.encode({"error": why}))
