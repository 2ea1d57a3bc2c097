"""Makes and checks signatures as Standard Webhooks defines them. Pure.

The id, the time of the attempt and the body are joined by full stops and signed together. So
neither the id nor the time may hold a full stop: otherwise the same signed bytes could be read as
another message. A signature is valid for five minutes; after that only the sender can make a new
one.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final

from perdure.domain.errors import Rejected

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

# How old a signature may be, or how far ahead the sender's clock.
TOLERANCE_S: Final = 300
# The key lengths that Standard Webhooks allows.
KEY_BYTES_MIN: Final = 24
KEY_BYTES_MAX: Final = 64

_PREFIX: Final = "whsec_"
_VERSION: Final = "v1"
# Visible ASCII without the full stop. The id also becomes part of a unique key in the store.
_ID: Final = re.compile(r"[!-\-/-~]{1,200}")
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


def is_key(secret: str) -> bool:
    """Tell whether a secret says of itself that it is a key for these signatures."""
    return secret.startswith(_PREFIX)


def key_of(secret: str) -> bytes:
    """Return the key of a secret such as `whsec_…`. Raises `ValueError` that says what is wrong."""
    text = secret.removeprefix(_PREFIX).rstrip("=")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"must be {_PREFIX} and then base64") from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(
            f"must hold {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes in base64, not {len(key)}"
        )
    return key


def signature(key: bytes, *, message: str, timestamp_s: int, body: bytes) -> str:
    """Return the signature of a message with one key."""
    signed = b"%s.%d.%s" % (message.encode(), timestamp_s, body)
    digest = hmac.digest(key, signed, hashlib.sha256)
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def signed_headers(key: bytes, *, message: str, now_ms: int, body: bytes) -> Mapping[str, str]:
    """Return the three headers that sign a message."""
    timestamp_s = now_ms // 1000
    return {
        ID_HEADER: message,
        TIMESTAMP_HEADER: str(timestamp_s),
        SIGNATURE_HEADER: signature(key, message=message, timestamp_s=timestamp_s, body=body),
    }


def verified(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, *, now_ms: int) -> str:
    """Return the message's id if one of the keys signed it within `TOLERANCE_S`. Raises `Rejected`
    otherwise."""
    message = headers.get(ID_HEADER, "")
    timestamp = headers.get(TIMESTAMP_HEADER, "")
    given = headers.get(SIGNATURE_HEADER, "").split()
    if not (message and timestamp and given):
        raise _unauthorized(
            f"sign the request: send {ID_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER} as "
            "Standard Webhooks describes them"
        )
    if not _ID.fullmatch(message):
        raise _unauthorized(
            f"{ID_HEADER} must be 1 to 200 visible ASCII characters without a full stop"
        )
    if not _SECONDS.fullmatch(timestamp):
        raise _unauthorized(f"{TIMESTAMP_HEADER} must be the seconds since 1970")
    expected = [
        signature(key, message=message, timestamp_s=int(timestamp), body=body) for key in keys
    ]
    if not _has_match(expected, given):
        raise _unauthorized(
            "no signature fits; sign the body exactly as it is sent, with a secret of this route"
        )
    if abs(now_ms / 1000 - int(timestamp)) > TOLERANCE_S:
        raise _unauthorized(
            f"{TIMESTAMP_HEADER} is more than {TOLERANCE_S // 60} minutes off; set the clock, and "
            "sign again at every try"
        )
    return message


def _has_match(expected: Sequence[str], given: Sequence[str]) -> bool:
    """Tell whether any signature fits. All pairs are compared, so that the time taken tells
    nothing."""
    found = False
    for ours in expected:
        for theirs in given:
            found |= hmac.compare_digest(ours.encode(), theirs.encode(errors="replace"))
    return found


def _unauthorized(message: str) -> Rejected:
    return Rejected(message, code="unauthorized")
