"""Checks requests as well-known services sign them, and tells which event they bring. Pure.

Each preset names the service's own headers and how it signs. What proves a request also decides
what it is called: the same request again must be the same message, however late it comes.

- Where the time is signed, the signature is good for five minutes, and the sender's id names the
  message.
- Where only the body is signed, it could be sent again for ever, with any header changed. So the
  body's digest names the message: the same bytes again are the message that was taken already.
- A bare secret signs nothing. The sender's id names the message; without one every request is a
  message of its own, because two programs may well say the same.

The configuration chooses the preset, and no request does: leaving out a header can never lead to a
weaker check.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from perdure.adapters.webhook import signing
from perdure.domain.errors import Rejected


class Preset(StrEnum):
    """Names whose way of signing a route expects."""

    STANDARD = "standard"
    GITHUB = "github"
    GITLAB = "gitlab"
    LINEAR = "linear"
    SENTRY = "sentry"
    GRAFANA = "grafana"
    BEARER = "bearer"


class _Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a signature over the body: the header it stands in, and what precedes it there.
    `time_header` is the header of a time that is signed before the body, with a colon between, if
    the sender sends one; `time_field` is the field of the body that holds the time, in
    milliseconds. `id_header` names the message where the time is signed. `event_header` and
    `event_field` say which event it is, and `action_field` what happened."""

    signature: str
    prefix: str = ""
    time_header: str = ""
    time_field: str = ""
    id_header: str = ""
    event_header: str = ""
    event_field: str = ""
    action_field: str = "action"


_SCHEMES: Final[Mapping[Preset, _Scheme]] = {
    Preset.GITHUB: _Scheme(
        signature="x-hub-signature-256", prefix="sha256=", event_header="x-github-event"
    ),
    Preset.LINEAR: _Scheme(
        signature="linear-signature",
        time_field="webhookTimestamp",
        id_header="linear-delivery",
        event_field="type",
    ),
    Preset.SENTRY: _Scheme(signature="sentry-hook-signature", event_header="sentry-hook-resource"),
    Preset.GRAFANA: _Scheme(
        signature="x-grafana-alerting-signature",
        time_header="x-grafana-alerting-timestamp",
        event_field="status",
    ),
}
# A secret that comes as it is: the header, and what precedes it there; then the headers that may
# name the message.
_TOKENS: Final[Mapping[Preset, tuple[str, str, tuple[str, ...]]]] = {
    Preset.GITLAB: ("x-gitlab-token", "", ("idempotency-key", "x-gitlab-event-uuid")),
    Preset.BEARER: ("authorization", "Bearer ", ("idempotency-key", "webhook-id")),
}
_ID: Final = re.compile(r"[!-~]{1,200}")
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a request is genuine: what its message is called, or an empty string if the sender
    does not say, and the names of its event."""

    message: str
    events: tuple[str, ...] = ()


def proved(
    preset: Preset,
    keys: Sequence[bytes],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now_ms: int,
) -> Proved:
    """Return what a request is, if one of the keys proves it. Raises `Rejected` otherwise."""
    if preset is Preset.STANDARD:
        message = signing.verified(keys, headers, body, now_ms=now_ms)
    elif preset is Preset.GITLAB and any(map(_is_signing_token, keys)):
        message = _by_gitlab(keys, headers, body, now_ms=now_ms)
    elif preset in _TOKENS:
        message = _with_token(preset, keys, headers)
    else:
        message = _signed(_SCHEMES[preset], keys, headers, body, now_ms=now_ms)
    return Proved(message=message, events=tuple(_events(preset, headers, body)))


def _by_gitlab(
    keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, *, now_ms: int
) -> str:
    """Check a request of GitLab where a secret of the route is a signing token: GitLab then signs
    as Standard Webhooks does. A signing token is never taken as it is, and beside one a bare secret
    proves nothing but requests without a signature."""
    tokens = [key for key in keys if not _is_signing_token(key)]
    if tokens and signing.SIGNATURE_HEADER not in headers:
        return _with_token(Preset.GITLAB, tokens, headers)
    signers = [signing.key_of(key.decode()) for key in keys if _is_signing_token(key)]
    return signing.verified(signers, headers, body, now_ms=now_ms)


def _is_signing_token(key: bytes) -> bool:
    return signing.is_key(key.decode(errors="replace"))


def _with_token(preset: Preset, keys: Sequence[bytes], headers: Mapping[str, str]) -> str:
    """Check a secret that comes as it is. Returns the name of the message, if it has one."""
    header, prefix, names = _TOKENS[preset]
    if not _is_one_of(_bytes_of(headers.get(header, "")), [prefix.encode() + key for key in keys]):
        raise _unauthorized(f"{header} must hold {prefix}and a secret of this route")
    given = (headers.get(name, "") for name in names)
    return next((each for each in given if _ID.fullmatch(each)), "")


def _signed(
    scheme: _Scheme,
    keys: Sequence[bytes],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now_ms: int,
) -> str:
    """Check a signature over the body, and over the time if that is signed. Returns the name of the
    message."""
    time = headers.get(scheme.time_header, "") if scheme.time_header else ""
    signed = b"%s:%s" % (_bytes_of(time), body) if time else body
    wanted = [
        f"{scheme.prefix}{hmac.digest(key, signed, hashlib.sha256).hex()}".encode() for key in keys
    ]
    if not _is_one_of(_bytes_of(headers.get(scheme.signature, "")), wanted):
        raise _unauthorized(
            f"{scheme.signature} does not fit; give the sender a secret of this route, and let "
            "nothing on the way change the body"
        )
    if time:
        _in_time(int(time) * 1000 if _SECONDS.fullmatch(time) else None, now_ms)
    if scheme.time_field:
        _in_time(_number(_fields(body).get(scheme.time_field)), now_ms)
        given = headers.get(scheme.id_header, "")
        return given if _ID.fullmatch(given) else _digest(body)
    return _digest(body)


def _in_time(at_ms: int | None, now_ms: int) -> None:
    if at_ms is None or abs(now_ms - at_ms) > signing.TOLERANCE_S * 1000:
        raise _unauthorized(
            f"the signed time is missing or more than {signing.TOLERANCE_S // 60} minutes off; set "
            "the clock, and sign again at every try"
        )


def _is_one_of(given: bytes, wanted: Sequence[bytes]) -> bool:
    """Tell whether one of these was given. All are compared, so that the time taken tells
    nothing."""
    found = False
    for each in wanted:
        found |= hmac.compare_digest(each, given)
    return found


def _bytes_of(header: str) -> bytes:
    """Return the bytes of a header. What is not UTF-8 comes as half characters, and never fits."""
    return header.encode("utf-8", "replace")


def _digest(body: bytes) -> str:
    return f"sha256-{hashlib.sha256(body).hexdigest()}"


def _events(preset: Preset, headers: Mapping[str, str], body: bytes) -> Iterator[str]:
    """Yield the names of the event that a request brings: the event alone, and with what happened
    after a full stop."""
    fields = _fields(body)
    match preset:
        case Preset.GITLAB:
            event, action = headers.get("x-gitlab-event", ""), None
            yield event
            attributes = fields.get("object_attributes")
            event = _text(fields.get("object_kind"))
            action = attributes.get("action") if isinstance(attributes, dict) else None
        case Preset.STANDARD | Preset.BEARER:
            event, action = _text(fields.get("type")) or _text(fields.get("event")), None
        case _:
            scheme = _SCHEMES[preset]
            told = headers.get(scheme.event_header, "") if scheme.event_header else ""
            event = told or _text(fields.get(scheme.event_field))
            action = fields.get(scheme.action_field)
    yield event
    if isinstance(action, str):
        yield f"{event}.{action}"


def _fields(body: bytes) -> dict[str, object]:
    """Return the fields of a JSON body, or none if it is something else."""
    try:
        return msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _unauthorized(message: str) -> Rejected:
    return Rejected(message, code="unauthorized")
