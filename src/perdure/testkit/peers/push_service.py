"""Stands for a browser that is notified, and for the push service that it has chosen.

The browser reads notifications as RFC 8291 says, with the private key that only it has; the service
checks who sends them as RFC 8292 says. Both are written from the documents, and share no code with
the sender.
"""

import base64
import json
from typing import Any, Final, Self

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_CURVE: Final = ec.SECP256R1()


def decoded(text: str) -> bytes:
    """Return what a text in base64url stands for."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class PushBrowser:
    """Stands for a browser that is notified."""

    def __init__(self, private: str | None = None, auth: str | None = None) -> None:
        """Make a browser with new keys, or with these."""
        if private is None:
            self._key = ec.generate_private_key(_CURVE)
        else:
            self._key = ec.derive_private_key(int.from_bytes(decoded(private), "big"), _CURVE)
        own = self._key.public_key()
        self._point = own.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.p256dh = _encoded(self._point)
        self.auth = auth or _encoded(b"a browser secret")

    def subscription(self, endpoint: str) -> dict[str, Any]:
        """Return what `PushSubscription.toJSON()` returns."""
        keys = {"p256dh": self.p256dh, "auth": self.auth}
        return {"endpoint": endpoint, "expirationTime": None, "keys": keys}

    def read(self, body: bytes) -> bytes:
        """Decrypt a notification. Raises an error of the package if it is not for this browser."""
        salt, record_bytes, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(sealed) <= record_bytes, "there is more than one record"
        agreed = self._key.exchange(
            ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, sender)
        )
        info = b"WebPush: info\0" + self._point + sender
        secret = HKDF(hashes.SHA256(), 32, decoded(self.auth), info).derive(agreed)
        key = HKDF(hashes.SHA256(), 16, salt, b"Content-Encoding: aes128gcm\0").derive(secret)
        nonce = HKDF(hashes.SHA256(), 12, salt, b"Content-Encoding: nonce\0").derive(secret)
        opened = AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert opened.endswith(b"\x02"), "the last record ends with a 2"
        return opened[:-1]


class Notification(msgspec.Struct, frozen=True):
    """Holds one request as a push service has got it, with its headers in small letters."""

    path: str
    headers: dict[str, str]
    body: bytes


class PushService:
    """Takes notifications on loopback. `answers` are the next answers, as statuses with their
    headers; after them everything is taken."""

    def __init__(self) -> None:
        self.got: list[Notification] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._take)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.got.append(Notification(request.path, headers, await request.read()))
        status, more = self.answers.pop(0) if self.answers else (201, {})
        return web.Response(status=status, headers=more)


def sender_of(authorization: str) -> tuple[str, dict[str, Any]]:
    """Return the key of the sender and its claims. Raises an error of the package unless the token
    is signed with that key."""
    scheme, _, rest = authorization.partition(" ")
    assert scheme == "vapid", authorization
    fields = dict(each.strip().split("=", 1) for each in rest.split(","))
    head, claims, signature = fields["t"].split(".")
    assert json.loads(decoded(head))["alg"] == "ES256"
    raw = decoded(signature)
    number = int.from_bytes
    der = encode_dss_signature(number(raw[:32], "big"), number(raw[32:], "big"))
    key = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, decoded(fields["k"]))
    key.verify(der, f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))
    found: dict[str, Any] = json.loads(decoded(claims))
    return fields["k"], found
