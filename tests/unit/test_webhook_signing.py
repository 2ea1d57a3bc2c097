"""Compares webhook signatures with the reference library of Standard Webhooks."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from perdure.adapters.webhook.signing import (
    KEY_BYTES_MAX,
    KEY_BYTES_MIN,
    TOLERANCE_S,
    key_of,
    signature,
    signed_headers,
    verified,
)
from perdure.domain.errors import Rejected

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(100, 132))).decode()
BODY = b'{"type": "deployed"}'


def headers(*secrets: str, message: str = "msg_1", at_s: int = NOW_S) -> dict[str, str]:
    signatures = [
        signature(key_of(secret), message=message, timestamp_s=at_s, body=BODY)
        for secret in secrets or (SECRET,)
    ]
    return {
        "webhook-id": message,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(signatures),
    }


def check(given: Mapping[str, str], body: bytes = BODY, *secrets: str) -> str:
    keys = [key_of(secret) for secret in secrets or (SECRET,)]
    return verified(keys, given, body, now_ms=NOW_MS)


@given(
    key=st.binary(min_size=KEY_BYTES_MIN, max_size=KEY_BYTES_MAX),
    message=st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True),
    at_s=st.integers(min_value=0, max_value=4_000_000_000),
    body=st.text(),
)
def test_a_signature_is_that_of_the_reference(
    key: bytes, message: str, at_s: int, body: str
) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    theirs = Webhook(secret).sign(message, datetime.fromtimestamp(at_s, tz=UTC), body)

    ours = signature(key_of(secret), message=message, timestamp_s=at_s, body=body.encode())

    assert ours == theirs


def test_the_reference_accepts_what_we_sign() -> None:
    now_ms = int(datetime.now(tz=UTC).timestamp() * 1000)
    ours = signed_headers(key_of(SECRET), message="prt_1", now_ms=now_ms, body=BODY)
    assert Webhook(SECRET).verify(BODY, dict(ours)) == {"type": "deployed"}


def test_the_id_comes_back_once_it_is_verified() -> None:
    assert check(headers()) == "msg_1"


def test_any_of_several_signatures_and_secrets_will_do() -> None:
    assert check(headers(OTHER, SECRET)) == "msg_1"
    assert check(headers(OTHER), BODY, SECRET, OTHER) == "msg_1"
    first = headers()
    assert check({**first, "webhook-signature": f"v1a,AAAA v1, {first['webhook-signature']}"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook-id", "msg_2"),
        ("webhook-timestamp", str(NOW_S + 1)),
        ("webhook-signature", "v1,AAAA"),
        ("webhook-signature", "v1,\udcff\xe9"),
        (
            "webhook-signature",
            signature(key_of(OTHER), message="msg_1", timestamp_s=NOW_S, body=BODY),
        ),
    ],
)
def test_what_was_not_signed_like_this_is_refused(name: str, value: str) -> None:
    with pytest.raises(Rejected, match="no signature fits") as refusal:
        check({**headers(), name: value})
    assert refusal.value.code == "unauthorized"


def test_another_body_and_another_version_are_refused() -> None:
    with pytest.raises(Rejected, match="no signature fits"):
        check(headers(), BODY + b" ")
    old = headers()
    with pytest.raises(Rejected, match="no signature fits"):
        check({**old, "webhook-signature": old["webhook-signature"].replace("v1,", "v1a,")})


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(name: str) -> None:
    given = headers()
    del given[name]
    with pytest.raises(Rejected, match="sign the request") as refusal:
        check(given)
    assert refusal.value.code == "unauthorized"


@pytest.mark.parametrize("off_s", [-TOLERANCE_S, TOLERANCE_S])
def test_a_signature_speaks_for_five_minutes(off_s: int) -> None:
    assert check(headers(at_s=NOW_S + off_s)) == "msg_1"
    beyond = off_s + (1 if off_s > 0 else -1)
    with pytest.raises(Rejected, match="5 minutes off") as refusal:
        check(headers(at_s=NOW_S + beyond))
    assert refusal.value.code == "unauthorized"


@pytest.mark.parametrize("at", ["-5", "1e9", "17000000000000", "soon", "\u0661\u0662"])
def test_a_time_that_is_none_is_refused(at: str) -> None:
    with pytest.raises(Rejected, match="seconds since 1970"):
        check({**headers(), "webhook-timestamp": at})


@pytest.mark.parametrize("message", ["a.1700000000", "a b", "\xe9", "x" * 201])
def test_an_id_that_could_be_read_two_ways_is_refused(message: str) -> None:
    with pytest.raises(Rejected, match="without a full stop"):
        check(headers(message=message))


def test_a_secret_may_come_without_prefix_and_padding() -> None:
    key = bytes(range(25))
    text = base64.b64encode(key).decode()
    assert text.endswith("==")
    for secret in (f"whsec_{text}", text, f"whsec_{text.rstrip('=')}"):
        assert key_of(secret) == key


@pytest.mark.parametrize(
    ("secret", "complaint"),
    [
        ("whsec_", "not 0"),
        ("whsec_" + base64.b64encode(bytes(KEY_BYTES_MIN - 1)).decode(), "not 23"),
        ("whsec_" + base64.b64encode(bytes(KEY_BYTES_MAX + 1)).decode(), "not 65"),
        ("whsec_not base64 at all, but long enough for one", "then base64"),
        ("whsec_é" + base64.b64encode(bytes(32)).decode(), "then base64"),
    ],
)
def test_an_unusable_secret_is_refused_without_showing_it(secret: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        key_of(secret)
    assert secret.removeprefix("whsec_") == "" or secret not in str(refusal.value)
