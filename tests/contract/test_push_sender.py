"""Checks that notifications reach push services so that only their browser can read them, and that
no endpoint leads into a private network."""

import json
from collections.abc import AsyncIterator

import msgspec
import pytest
from cryptography.exceptions import InvalidTag

from perdure.app.network.public_web import RoutedWeb
from perdure.app.network.pushing import WebPushSender
from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Rejected, Transient
from perdure.domain.ids import ConversationId, PrincipalId, SubscriptionId
from perdure.ports.delivery.pushes import GONE, Push, PushKind, PushSubscription, PushTarget
from perdure.ports.system.web import PRIVATE_ADDRESS
from perdure.testkit.peers.push_service import PushBrowser, PushService, decoded, sender_of
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

# The example of RFC 8291, section 5.
EXAMPLE = PushBrowser("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94", auth="BTBZMqHH6r4Tts7J_aSIgg")
EXAMPLE_BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8w"
    "EqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)
CONTACT = "https://perdure.example"


@pytest.fixture
async def service() -> AsyncIterator[PushService]:
    async with PushService() as running:
        yield running


def sender(*, is_public_only: bool = False) -> WebPushSender:
    return WebPushSender(
        RoutedWeb(with_private=not is_public_only),
        clock=VirtualClock(),
        entropy=SeededEntropy(5),
        contact=CONTACT,
        with_http=not is_public_only,
    )


def target(browser: PushBrowser, endpoint: str) -> PushTarget:
    return PushTarget(endpoint=endpoint, p256dh=browser.p256dh, auth=browser.auth)


def push(browser: PushBrowser, endpoint: str, *, kind: PushKind = PushKind.ANSWER) -> Push:
    return Push(
        subscription=PushSubscription(
            id=SubscriptionId("psh_1"),
            principal=PrincipalId("prn_1"),
            target=target(browser, endpoint),
            made_at=0,
        ),
        conversation_id=ConversationId("cnv_1"),
        conversation="garden",
        title="Beans, and when to sow them",
        kind=kind,
        subject="trn_1",
        at=1_000,
    )


def test_the_browser_of_these_tests_reads_the_example_of_the_standard() -> None:
    assert EXAMPLE.read(decoded(EXAMPLE_BODY)) == b"When I grow up, I want to be a watermelon"


async def test_only_its_browser_can_read_a_notification(service: PushService) -> None:
    ours, browser = sender(), PushBrowser()
    key = ours.new_key()
    endpoint = f"{service.url}/send/abc"
    await ours.send(push(browser, endpoint), key)

    (got,) = service.got
    assert got.path == "/send/abc"
    assert got.headers["content-encoding"] == "aes128gcm"
    assert got.headers["ttl"] == "86400"
    assert json.loads(browser.read(got.body)) == {
        "kind": "answer",
        "conversation": "garden",
        "title": "Beans, and when to sow them",
        "at": 1_000,
    }
    with pytest.raises(InvalidTag):
        PushBrowser().read(got.body)
    signed_by, claims = sender_of(got.headers["authorization"])
    assert signed_by == ours.public_part(key)
    now_s = VirtualClock().now_ms() // 1000
    assert (claims["aud"], claims["sub"]) == (service.url, CONTACT)
    assert now_s < claims["exp"] <= now_s + 86_400


async def test_what_waits_for_a_person_is_urgent_and_news_of_a_place_replace_each_other(
    service: PushService,
) -> None:
    ours, browser = sender(), PushBrowser()
    key = ours.new_key()
    for kind in (PushKind.ANSWER, PushKind.APPROVAL):
        await ours.send(push(browser, service.url, kind=kind), key)
    first, second = service.got
    assert (first.headers["urgency"], second.headers["urgency"]) == ("normal", "high")
    assert first.headers["topic"] == second.headers["topic"]
    assert len(first.headers["topic"]) <= 32
    # Two notifications share neither their key nor their salt.
    assert first.body[:90] != second.body[:90]


@pytest.mark.parametrize(
    ("status", "headers", "error", "wait_s"),
    [
        (404, {}, Permanent, None),
        (410, {}, Permanent, None),
        (400, {}, Permanent, None),
        (302, {"Location": "http://127.0.0.1:1/"}, Permanent, None),
        (429, {"Retry-After": "120"}, Transient, 120.0),
        (503, {}, Transient, None),
        (503, {"Retry-After": "99999999"}, Transient, 86_400.0),
    ],
)
async def test_an_answer_that_is_none_says_what_may_be_done(
    service: PushService,
    status: int,
    headers: dict[str, str],
    error: type[PerdureError],
    wait_s: float | None,
) -> None:
    service.answers.append((status, headers))
    with pytest.raises(error) as raised:
        await sender().send(push(PushBrowser(), f"{service.url}/secret"), sender().new_key())
    assert len(service.got) == 1
    assert getattr(raised.value, "retry_after_s", None) == wait_s
    assert (raised.value.code == GONE) == (status in (404, 410))
    assert "secret" not in raised.value.message


async def test_a_service_that_is_gone_may_come_back() -> None:
    async with PushService() as service:
        endpoint = service.url
    with pytest.raises((Transient, Ambiguous)):
        await sender().send(push(PushBrowser(), endpoint), sender().new_key())


@pytest.mark.parametrize(
    "endpoint",
    ["https://127.0.0.1:1/x", "https://[::1]/x", "https://localhost/x", "https://10.1.2.3/"],
)
async def test_no_endpoint_leads_into_a_private_network(endpoint: str) -> None:
    with pytest.raises(Permanent) as raised:
        await sender(is_public_only=True).send(push(PushBrowser(), endpoint), sender().new_key())
    assert raised.value.code == PRIVATE_ADDRESS


@pytest.mark.parametrize(
    ("endpoint", "is_public_only"),
    [
        ("http://127.0.0.1:1/x", True),
        ("http://push.example/x", False),
        ("https://user@push.example/x", False),
        ("https://push.example/\u00e4", False),
        ("ftp://push.example/x", False),
        ("/x", False),
        ("https://push.example/" + "x" * 2_000, False),
    ],
)
def test_an_endpoint_that_no_browser_has_is_refused(endpoint: str, is_public_only: bool) -> None:
    with pytest.raises(Rejected, match="https address"):
        sender(is_public_only=is_public_only).check(target(PushBrowser(), endpoint))


def test_keys_that_no_browser_has_are_refused() -> None:
    good = target(PushBrowser(), "https://push.example/x")
    sender(is_public_only=True).check(good)
    for bad in (
        msgspec.structs.replace(good, p256dh="no key"),
        msgspec.structs.replace(good, p256dh="BA" + "A" * 85),  # not on the curve
        msgspec.structs.replace(good, p256dh="A" * 100_000),
        msgspec.structs.replace(good, auth="AAAA"),
        msgspec.structs.replace(good, auth=""),
    ):
        with pytest.raises(Rejected) as raised:
            sender().check(bad)
        assert raised.value.code == "invalid_subscription"
