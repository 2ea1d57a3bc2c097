"""Hands notifications to push services.

An endpoint is what a browser says, so it is outside input: it is asked over the port that reaches
no private network. A notification says in which conversation something has happened, what its title
is and what kind of thing it was, and nothing of what was said. The package that encrypts is loaded
when it is first needed.
"""

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from yarl import URL

from perdure.domain.errors import Ambiguous, Permanent, Rejected, Transient
from perdure.domain.waits import retry_after_s
from perdure.ports.delivery.pushes import GONE, Push, PushKind, PushTarget
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.ports.system.time_limits import time_limit
from perdure.ports.system.web import BROKEN_OFF, PublicWeb, WebReply

if TYPE_CHECKING:
    from types import ModuleType

# How long a push service keeps what it cannot deliver.
TTL_S: Final = 86_400
TIME_LIMIT_S: Final = 10.0
ENDPOINT_MAX: Final = 2_000
KEY_MAX: Final = 200
TITLE_MAX: Final = 100
_SALT_BYTES: Final = 16
# A push service replaces what it has not delivered of the same topic, which has so many characters.
_TOPIC_CHARS: Final = 32
# What a longer wait than this is cut to.
WAIT_MAX_S: Final = 86_400.0
_GONE: Final = frozenset({404, 410})
_LATER: Final = frozenset({408, 425, 429})
# What an agent waits for is urgent: browsers on a battery are told at once.
_URGENT: Final = frozenset({PushKind.APPROVAL, PushKind.QUESTION})
log = structlog.get_logger("push")


class _Told(msgspec.Struct, frozen=True):
    """Holds what a browser is told."""

    kind: str
    conversation: str
    title: str
    at: int


class WebPushSender:
    """Implements `PushSender`. `contact` is told to push services, `with_http` also allows
    endpoints without TLS on this machine, for tests and trials."""

    def __init__(
        self,
        web: PublicWeb,
        *,
        clock: Clock,
        entropy: Entropy,
        contact: str,
        with_http: bool = False,
    ) -> None:
        self._web = web
        self._clock = clock
        self._entropy = entropy
        self._contact = contact
        self._with_http = with_http

    def new_key(self) -> str:
        made: str = _web_push().new_key()
        return made

    def public_part(self, key: str) -> str:
        found: str = _web_push().public_part(key)
        return found

    def check(self, target: PushTarget) -> None:
        self._check_endpoint(target.endpoint)
        if len(target.p256dh) > KEY_MAX or len(target.auth) > KEY_MAX:
            raise Rejected("the keys of the subscription are too long", code="invalid_subscription")
        _web_push().keys_of(target)

    def _check_endpoint(self, endpoint: str) -> None:
        try:
            url = URL(endpoint)
            is_whole = endpoint.isascii() and bool(url.host) and url.user is None
        except ValueError:
            is_whole, url = False, URL()
        is_local = self._with_http and url.host in ("127.0.0.1", "localhost", "::1")
        is_safe = url.scheme == "https" or (url.scheme == "http" and is_local)
        if not is_whole or not is_safe or len(endpoint) > ENDPOINT_MAX:
            raise Rejected(
                f"the endpoint must be an https address of at most {ENDPOINT_MAX:,} characters; "
                "give what `PushSubscription.toJSON()` returns",
                code="invalid_subscription",
            )

    async def send(self, push: Push, key: str) -> None:
        endpoint = push.subscription.target.endpoint
        try:
            async with (
                time_limit(TIME_LIMIT_S),
                self._web.post(endpoint, self._headers(push, key), self._body(push)) as reply,
            ):
                _judge(reply, self._clock.now_ms())
        except TimeoutError as error:
            raise Ambiguous(f"{_host(endpoint)} did not answer in {TIME_LIMIT_S:g} s") from error
        except Transient as error:
            if error.code == BROKEN_OFF:
                raise Ambiguous(f"{_host(endpoint)} did not answer") from error
            raise

    def _headers(self, push: Push, key: str) -> dict[str, str]:
        origin = str(URL(push.subscription.target.endpoint).origin())
        topic = hashlib.sha256(push.conversation_id.encode()).hexdigest()[:_TOPIC_CHARS]
        return {
            "Authorization": _web_push().authorization(
                key, origin=origin, contact=self._contact, now_s=self._clock.now_ms() // 1000
            ),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TTL_S),
            "Topic": topic,
            "Urgency": "high" if push.kind in _URGENT else "normal",
        }

    def _body(self, push: Push) -> bytes:
        told = _Told(push.kind, push.conversation, push.title[:TITLE_MAX], push.at)
        salt = self._entropy.random_bytes(_SALT_BYTES)
        sealed: bytes = _web_push().encrypted(
            msgspec.json.encode(told), push.subscription.target, salt=salt
        )
        return sealed


def _web_push() -> "ModuleType":
    from perdure.app.network import web_push  # noqa: PLC0415 - most gateways have no such browsers

    return web_push


def _judge(reply: WebReply, now_ms: int) -> None:
    """Raise an error unless the push service has taken the notification."""
    status = reply.status
    if 200 <= status < 300:
        return
    if status in _GONE:
        raise Permanent(f"the browser has unsubscribed (status {status})", code=GONE)
    if status in _LATER or status >= 500:
        wait_s = retry_after_s(reply.headers, now_ms=now_ms)
        raise Transient(
            f"the push service answered with status {status}",
            retry_after_s=None if wait_s is None else min(wait_s, WAIT_MAX_S),
        )
    raise Permanent(f"the push service answered with status {status}")


def _host(endpoint: str) -> str:
    return URL(endpoint).host or "the push service"
