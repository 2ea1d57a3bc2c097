"""Implements the `Platform` port for webhooks: a route is a place, and a request is a message.

The route itself is the sender. A request is answered with 202 after it is stored. The agent's reply
goes to the route's callback if it has one, and can be polled for with the same secret in either
case. The adapter opens no connection to receive anything: the gateway's HTTP server passes every
request to `answer`.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from perdure.adapters.webhook import render, signing
from perdure.adapters.webhook.inbound import arrival_of, external_id_of, message_of
from perdure.adapters.webhook.manifest import EACH, NAME, Route, WebhookSettings
from perdure.adapters.webhook.presets import Preset, proved
from perdure.adapters.webhook.template import Payload
from perdure.adapters.webhook.wire import Wire
from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities, Pace, Rate
from perdure.domain.errors import NotFound, Permanent, Rejected
from perdure.ports.platform.adapter import (
    Effect,
    HookRequest,
    HookResponse,
    Inlet,
    Platform,
    Post,
    Preview,
    Receipt,
    Sought,
    Unsupported,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.ports.platform.settings import AdapterSettings

CAPABILITIES: Final = Capabilities(
    takes_key=True,
    text_max=render.TEXT_MAX,
    pace=Pace(account=Rate(50, 1), place=Rate(20, 1)),
)
# How often the adapter is reported as alive.
ALIVE_S: Final = 60
# Begins the receipt of a reply that waits to be polled for. The part's key follows.
POLL: Final = "poll:"


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the keys of one route: any of `taken` may sign requests, and `given` signs
    callbacks."""

    taken: tuple[bytes, ...]
    given: bytes


class Webhook:
    """Implements the `Platform` port."""

    def __init__(self, settings: WebhookSettings, context: AdapterContext) -> None:
        self.name = context.name or NAME
        self._routes = settings.routes
        self._keys = {name: _keys(route) for name, route in settings.routes.items()}
        self._clock = context.clock
        self._entropy = context.entropy
        self._url = context.hook_url.rstrip("/") or f"/hooks/{self.name}"
        self._wire = Wire(context.clock, context.outgoing)
        self._answers = context.answers

    def capabilities(self, address: Address) -> Capabilities:
        return CAPABILITIES

    def size(self, text: str) -> int:
        return render.size(text)

    async def perform(self, effect: Effect) -> Receipt:
        """Post a message to the route's callback.

        Without a callback nothing is sent: the reply is in the store already, where it can be
        polled.
        """
        if not isinstance(effect, Post):
            raise Permanent(f"webhooks take messages only, no {type(effect).__name__.lower()}")
        name = effect.address.place
        route = self._routes.get(name)
        if route is None:
            raise Permanent(
                f"there is no route {name} any more; add [adapters.{self.name}.routes.{name}] and "
                "replay this part"
            )
        answered = _answered(effect, route)
        if route.callback is None and not answered and route.deliver_to is None:
            raise Permanent(
                f"route {name} has no callback, and this answers no request that could be asked "
                "about; set callback to get such messages"
            )
        if route.callback is None:
            return Receipt(external_id=POLL + effect.key)
        await self._call_back(name, route.callback, effect, answered)
        return Receipt(external_id=effect.key)

    async def _call_back(self, name: str, url: str, post: Post, answered: str) -> None:
        body = render.message(post, in_reply_to=message_of(answered))
        # Signed again at every attempt, because a signature is valid for a few minutes only.
        headers = signing.signed_headers(
            self._keys[name].given, message=post.key, now_ms=self._clock.now_ms(), body=body
        )
        await self._wire.post(name, url, headers, body)

    async def find(self, sought: Sought) -> Receipt | None:
        """Raise `Permanent`: a callback cannot be asked what it received."""
        raise Permanent("a callback cannot be asked what it has; send the part again")

    async def preview(self, preview: Preview) -> str:
        """Raise `Unsupported`: a callback receives only complete answers."""
        raise Unsupported("a callback gets whole answers only")

    async def typing(self, address: Address) -> None:
        """Do nothing: nobody is watching."""

    async def connect(self) -> str:
        """Return the account id. There is nothing to connect to."""
        return NAME

    async def receive(self, inlet: Inlet) -> None:
        """Report that the adapter is alive, again and again: there is no connection that could be
        lost."""
        while True:
            inlet.alive()
            await self._clock.sleep(ALIVE_S)

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse:
        """Check the signature, then take a message (POST) or return the reply to one (GET).

        Raises `NotFound` for an unknown route, and `Rejected` if the signature is not valid.
        """
        name, _, asked = request.path.partition("/")
        route = self._routes.get(name)
        if route is None:
            raise NotFound(f"there is no route {name!r}; the configuration names the routes")
        preset, now_ms = Preset(route.preset), self._clock.now_ms()
        known = proved(preset, self._keys[name].taken, request.headers, request.body, now_ms=now_ms)
        inlet.alive()
        match request.method, asked:
            case "POST", "":
                if not _is_wanted(route, known.events):
                    return HookResponse(body=msgspec.json.encode({"ignored": known.events}))
                return await self._take(
                    name, route, known.message or self._new_id(), request, inlet
                )
            case "GET", id_ if id_ and preset is Preset.STANDARD:
                return await self._tell(name, known.message, asked=id_)
            case "GET", id_ if id_ and preset is Preset.BEARER:
                return await self._tell(name, id_, asked=id_)
            case _:
                raise NotFound(
                    f"POST to {self._url}/{name}, and GET {self._url}/{name}/ID for the answer, if "
                    "the route is one of Standard Webhooks or has a bearer secret"
                )

    def _new_id(self) -> str:
        """Return an id for a request to which the sender has given none."""
        return f"req-{self._entropy.random_bytes(16).hex()}"

    async def _take(
        self, name: str, route: Route, message: str, request: HookRequest, inlet: Inlet
    ) -> HookResponse:
        """Store a message. Returns 202 with the URL at which the reply can be polled."""
        async with inlet.handling(external_id_of(name, message), request.body) as may_read:
            if may_read:
                payload = Payload(request.body, request.headers)
                await inlet.take(arrival_of(name, route, message=message, payload=payload))
        poll = f"{self._url}/{quote(name, safe='')}/{quote(message, safe='')}"
        body = msgspec.json.encode(render.TakenAnswer(id=message, poll=poll))
        return HookResponse(status=202, body=body)

    async def _tell(self, name: str, message: str, *, asked: str) -> HookResponse:
        """Return what became of a message, with its reply if that is there."""
        if message != asked:
            # The signature covers the id in the header but not the path, so the two must be the
            # same. Otherwise the signature for one message would give access to another.
            raise Rejected(
                f"{signing.ID_HEADER} must be the id that is asked about", code="unauthorized"
            )
        answer = await self._answers(external_id_of(name, message))
        if answer is None:
            raise NotFound(f"nothing has come here as {message!r}; was it sent to this route?")
        return HookResponse(body=msgspec.json.encode(answer))

    def fetch(self, reference: str) -> AsyncIterator[bytes]:
        """Raise `Permanent`: requests bring no files."""
        raise Permanent("webhooks bring no files; put an address into the body instead")

    async def close(self) -> None:
        await self._wire.close()


def _answered(post: Post, route: Route) -> str:
    """Return the external id of the request that a part answers, or an empty string."""
    if post.reply_to or route.conversation != EACH:
        return post.reply_to
    return external_id_of(post.address.place, post.address.thread) if post.address.thread else ""


def _is_wanted(route: Route, events: Sequence[str]) -> bool:
    """Tell whether a route takes an event with one of these names."""
    wanted = {event.casefold() for event in route.events}
    return not wanted or any(event.casefold() in wanted for event in events)


def _keys(route: Route) -> Keys:
    is_standard = Preset(route.preset) is Preset.STANDARD
    revealed = [secret.reveal() for secret in route.secrets]
    taken = tuple(signing.key_of(each) if is_standard else each.encode() for each in revealed)
    given = route.callback_secret
    return Keys(taken=taken, given=taken[0] if given is None else signing.key_of(given.reveal()))


def make(settings: AdapterSettings, context: AdapterContext) -> Platform:
    """Create the adapter. `MANIFEST.factory` names this function."""
    assert isinstance(settings, WebhookSettings)
    return Webhook(settings, context)
