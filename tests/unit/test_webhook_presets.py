"""Checks that requests are proved as each service documents its signatures, and never otherwise."""

import hashlib
import hmac
import json

import pytest

from perdure.adapters.webhook.presets import Preset, Proved, proved
from perdure.adapters.webhook.signing import key_of, signed_headers
from perdure.domain.errors import Rejected

KEY = b"a secret of the route"
NOW_MS = 1_790_000_000_000
NOW_S = NOW_MS // 1000


def body(**fields: object) -> bytes:
    return json.dumps({"action": "opened", **fields}).encode()


def mac(*pieces: bytes, key: bytes = KEY) -> str:
    return hmac.new(key, b"".join(pieces), hashlib.sha256).hexdigest()


def check(
    preset: Preset, headers: dict[str, str], content: bytes, *, now_ms: int = NOW_MS
) -> Proved:
    return proved(preset, [b"an older secret, still taken", KEY], headers, content, now_ms=now_ms)


def github(content: bytes) -> dict[str, str]:
    return {
        "x-hub-signature-256": f"sha256={mac(content)}",
        "x-github-event": "issues",
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    }


def linear(content: bytes) -> dict[str, str]:
    return {"linear-signature": mac(content), "linear-delivery": "234d1a4e-b617-4388-90fe"}


def sentry(content: bytes) -> dict[str, str]:
    return {"sentry-hook-signature": mac(content), "sentry-hook-resource": "event_alert"}


def grafana(content: bytes) -> dict[str, str]:
    return {"x-grafana-alerting-signature": mac(content)}


def grafana_at(content: bytes) -> dict[str, str]:
    signature = mac(str(NOW_S).encode(), b":", content)
    return {
        "x-grafana-alerting-signature": signature,
        "x-grafana-alerting-timestamp": str(NOW_S),
    }


def gitlab(_: bytes) -> dict[str, str]:
    return {
        "x-gitlab-token": KEY.decode(),
        "x-gitlab-event": "Merge Request Hook",
        "idempotency-key": "f5e5f430-f57b-4e6e-9fac-d9128cd7232f",
    }


def bearer(_: bytes) -> dict[str, str]:
    return {"authorization": f"Bearer {KEY.decode()}", "idempotency-key": "build-17"}


def standard(content: bytes) -> dict[str, str]:
    return dict(signed_headers(KEY, message="msg_1", now_ms=NOW_MS, body=content))


TIMED = body(type="Issue", webhookTimestamp=NOW_MS)
SENDERS = {
    Preset.GITHUB: (github, body(issue={"number": 17})),
    Preset.LINEAR: (linear, TIMED),
    Preset.SENTRY: (sentry, body(action="triggered")),
    Preset.GRAFANA: (grafana, body(status="firing")),
    Preset.GITLAB: (
        gitlab, body(object_kind="merge_request", object_attributes={"action": "open"})
    ),
    Preset.BEARER: (bearer, body(type="build")),
    Preset.STANDARD: (standard, body(type="invoice.paid")),
}  # fmt: skip
EVENTS = {
    Preset.GITHUB: {"issues", "issues.opened"},
    Preset.LINEAR: {"Issue", "Issue.opened"},
    Preset.SENTRY: {"event_alert", "event_alert.triggered"},
    Preset.GRAFANA: {"firing", "firing.opened"},
    Preset.GITLAB: {"Merge Request Hook", "merge_request", "merge_request.open"},
    Preset.BEARER: {"build"},
    Preset.STANDARD: {"invoice.paid"},
}
BODY_ALONE = (Preset.GITHUB, Preset.SENTRY, Preset.GRAFANA)


def test_every_preset_is_tried() -> None:
    assert set(SENDERS) == set(EVENTS) == set(Preset)


@pytest.mark.parametrize("preset", Preset)
def test_a_request_of_the_service_is_taken_with_its_event(preset: Preset) -> None:
    sign, content = SENDERS[preset]
    assert set(check(preset, sign(content), content).events) == EVENTS[preset]


@pytest.mark.parametrize("preset", Preset)
@pytest.mark.parametrize(
    "wrong", ["nothing", "other body", "other key", "not ascii", "half", "empty"]
)
def test_anything_else_is_refused(preset: Preset, wrong: str) -> None:
    sign, content = SENDERS[preset]
    headers = sign(content)
    proof = next(iter(headers)) if preset is not Preset.STANDARD else "webhook-signature"
    match wrong:
        case "nothing":
            del headers[proof]
        case "other body" if preset in (Preset.GITLAB, Preset.BEARER):
            headers[proof] += "x"  # a bare secret says nothing about the body
        case "other body":
            content += b" "
        case "other key":
            headers[proof] = headers[proof][:-4] + "0000"
        case "not ascii":
            headers[proof] = "sha256=ünicode"
        case "half":
            headers[proof] += "\udcff"
        case _:
            headers[proof] = ""
    with pytest.raises(Rejected) as refusal:
        check(preset, headers, content)
    assert refusal.value.code == "unauthorized"
    assert KEY.decode() not in refusal.value.message


@pytest.mark.parametrize("preset", BODY_ALONE)
def test_a_replay_of_a_signed_body_is_the_same_message_whatever_its_headers_say(
    preset: Preset,
) -> None:
    sign, content = SENDERS[preset]
    first = check(preset, sign(content), content)
    changed = {**sign(content), "x-github-delivery": "another", "request-id": "another"}
    replayed = check(preset, changed, content, now_ms=NOW_MS + 10**10)
    assert replayed.message == first.message
    assert check(preset, sign(content + b" "), content + b" ").message != first.message


@pytest.mark.parametrize("off_s", [-301, 301])
def test_a_signed_time_is_good_for_five_minutes(off_s: int) -> None:
    later = NOW_MS + off_s * 1000
    for preset, headers, content in (
        (Preset.LINEAR, linear(TIMED), TIMED),
        (Preset.GRAFANA, grafana_at(b"{}"), b"{}"),
    ):
        assert check(preset, headers, content, now_ms=NOW_MS + 299_000).message
        with pytest.raises(Rejected, match="5 minutes"):
            check(preset, headers, content, now_ms=later)


@pytest.mark.parametrize("time", [None, "soon", True, 1.5])
def test_a_signed_body_without_its_time_is_refused(time: object) -> None:
    content = body(type="Issue", webhookTimestamp=time)
    with pytest.raises(Rejected, match="time is missing"):
        check(Preset.LINEAR, linear(content), content)


def test_leaving_out_the_time_leads_to_no_weaker_check() -> None:
    headers = grafana_at(b"{}")
    del headers["x-grafana-alerting-timestamp"]
    with pytest.raises(Rejected, match="does not fit"):
        check(Preset.GRAFANA, headers, b"{}")
    with pytest.raises(Rejected, match="does not fit"):
        check(Preset.GRAFANA, {**grafana(b"{}"), "x-grafana-alerting-timestamp": "1"}, b"{}")


def test_the_senders_id_names_the_message_where_it_can_be_trusted() -> None:
    assert check(Preset.LINEAR, linear(TIMED), TIMED).message == "234d1a4e-b617-4388-90fe"
    assert check(Preset.GITLAB, gitlab(b""), b"").message == "f5e5f430-f57b-4e6e-9fac-d9128cd7232f"
    assert check(Preset.BEARER, bearer(b""), b"").message == "build-17"
    unnamed = {"authorization": f"Bearer {KEY.decode()}"}
    assert check(Preset.BEARER, unnamed, b"done").message == "", "two may say the same"


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b"[" * 100_000, b"no json"])
def test_a_body_that_is_no_object_has_no_event(content: bytes) -> None:
    assert set(check(Preset.GITHUB, github(content), content).events) == {"issues"}
    assert set(check(Preset.GRAFANA, grafana(content), content).events) == {""}


def test_githubs_published_example_is_proved() -> None:
    signature = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-hub-signature-256": f"sha256={signature}", "x-github-event": "push"}
    keys, content = [b"It's a Secret to Everybody"], b"Hello, World!"
    assert proved(Preset.GITHUB, keys, headers, content, now_ms=NOW_MS).events == ("push",)
    with pytest.raises(Rejected):
        proved(Preset.GITHUB, keys, headers, b"Hello, World?", now_ms=NOW_MS)


EXAMPLE_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EXAMPLE = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def test_the_published_example_of_standard_webhooks_is_proved_also_for_gitlab() -> None:
    content, now_ms = b'{"test": 2432232314}', 1614265330_000
    keys = [key_of(EXAMPLE_SECRET)]
    known = proved(Preset.STANDARD, keys, EXAMPLE, content, now_ms=now_ms)
    assert known.message == EXAMPLE["webhook-id"]
    headers = {**EXAMPLE, "x-gitlab-event": "Push Hook"}
    known = proved(Preset.GITLAB, [EXAMPLE_SECRET.encode()], headers, content, now_ms=now_ms)
    assert (known.message, known.events[0]) == (EXAMPLE["webhook-id"], "Push Hook")


@pytest.mark.parametrize(
    ("token", "headers"),
    [
        (EXAMPLE_SECRET, {}),  # the signing token itself is no proof
        ("", {"webhook-signature": "", "webhook-id": "", "webhook-timestamp": ""}),
        ("", {"webhook-timestamp": "1614265331"}),
        ("", {"webhook-signature": "v1,ünicode"}),
    ],
)
def test_where_gitlab_signs_nothing_else_proves_a_request(
    token: str, headers: dict[str, str]
) -> None:
    given = {**({} if token else EXAMPLE), **headers, "x-gitlab-token": token}
    with pytest.raises(Rejected) as refusal:
        proved(Preset.GITLAB, [EXAMPLE_SECRET.encode()], given, b"{}", now_ms=1614265330_000)
    assert refusal.value.code == "unauthorized"


def test_a_route_may_change_over_from_gitlabs_bare_secret_to_its_signatures() -> None:
    keys, now_ms = [KEY, EXAMPLE_SECRET.encode()], 1614265330_000
    assert proved(Preset.GITLAB, keys, gitlab(b""), b"{}", now_ms=now_ms).message
    signed = b'{"test": 2432232314}'
    assert proved(Preset.GITLAB, keys, EXAMPLE, signed, now_ms=now_ms).message
    with pytest.raises(Rejected):  # a signature that does not fit is not made up for by the secret
        proved(Preset.GITLAB, keys, {**EXAMPLE, **gitlab(b"")}, b"{}", now_ms=now_ms)
