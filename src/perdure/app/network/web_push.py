"""Encrypts notifications for browsers, and signs them for push services.

A notification is encrypted for the one browser that has the private half of the target's key
(RFC 8291, in the form of RFC 8188), and the push service learns from a signed token who sends it
(RFC 8292). All primitives are those of the package `cryptography`. It is imported by whoever
imports this module, so only gateways with subscribed browsers load it.
"""

import base64
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from perdure.domain.errors import Rejected
from perdure.ports.delivery.pushes import PushTarget

# The one record of a notification may have so many bytes.
RECORD_BYTES: Final = 4_096
# What RFC 8188 puts before it, and the mark and the tag at its end.
_AROUND: Final = 16 + 4 + 1 + 65 + 1 + 16
PAYLOAD_BYTES_MAX: Final = RECORD_BYTES - _AROUND
# The longest time for which a token may be made is a day.
TOKEN_S: Final = 12 * 3600
_POINT_BYTES: Final = 65
_AUTH_BYTES: Final = 16
_CURVE: Final = ec.SECP256R1()
_LAST: Final = b"\x02"
_UNUSABLE: Final = (
    "the keys of the subscription are not those of a browser; give what "
    "`PushSubscription.toJSON()` returns"
)


def in_base64url(data: bytes) -> str:
    """Return bytes in base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Return what a text in base64url stands for. Raises `ValueError` for any other text."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def new_key() -> str:
    """Make a key that notifications are signed with."""
    number = ec.generate_private_key(_CURVE).private_numbers().private_value
    return in_base64url(number.to_bytes(32, "big"))


def public_part(key: str) -> str:
    """Return the public half of a key."""
    return in_base64url(_point(_private(key).public_key()))


def keys_of(target: PushTarget) -> tuple[ec.EllipticCurvePublicKey, bytes]:
    """Return the public key and the secret of a browser. Raises `Rejected` if they are none."""
    try:
        point, auth = from_base64url(target.p256dh), from_base64url(target.auth)
        if len(point) != _POINT_BYTES or len(auth) != _AUTH_BYTES:
            raise ValueError(len(point), len(auth))
        return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, point), auth
    except ValueError as error:
        raise Rejected(_UNUSABLE, code="invalid_subscription") from error


def encrypted(payload: bytes, target: PushTarget, *, salt: bytes) -> bytes:
    """Return the body of a request that tells a browser this."""
    assert len(payload) <= PAYLOAD_BYTES_MAX, "a notification is short"
    browser, auth = keys_of(target)
    once = ec.generate_private_key(_CURVE)
    ours, theirs = _point(once.public_key()), _point(browser)
    agreed = once.exchange(ec.ECDH(), browser)
    secret = _derived(agreed, auth, b"WebPush: info\0" + theirs + ours, length=32)
    key = _derived(secret, salt, b"Content-Encoding: aes128gcm\0", length=16)
    nonce = _derived(secret, salt, b"Content-Encoding: nonce\0", length=12)
    sealed = AESGCM(key).encrypt(nonce, payload + _LAST, None)
    return salt + RECORD_BYTES.to_bytes(4, "big") + bytes([len(ours)]) + ours + sealed


def authorization(key: str, *, origin: str, contact: str, now_s: int) -> str:
    """Return the header that says to the push service at `origin` who sends, and whom to tell if
    something is wrong with what is sent."""
    private = _private(key)
    claims: Mapping[str, object] = {"aud": origin, "exp": now_s + TOKEN_S, "sub": contact}
    signed = f"{_part({'typ': 'JWT', 'alg': 'ES256'})}.{_part(claims)}"
    r, s = decode_dss_signature(private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    signature = in_base64url(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
    return f"vapid t={signed}.{signature}, k={in_base64url(_point(private.public_key()))}"


def _part(value: Mapping[str, object]) -> str:
    return in_base64url(msgspec.json.encode(value))


def _private(key: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(from_base64url(key), "big"), _CURVE)


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _derived(material: bytes, salt: bytes, info: bytes, *, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(material)
