"""Checks notifications of a real gateway: what push services get, and what browsers make of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from playwright.async_api import Locator, expect
from tests.chat_window import Chat

from perdure.testkit.peers.push_service import PushBrowser, PushService, sender_of
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = [pytest.mark.shared, pytest.mark.timeout(60)]
# Loopback is a private address, and its push service has no certificate.
TOML = "[limits]\nprivate_urls = true\n"
# Gives the page the subscription of a push service on loopback: Chromium has none of its own here.
SUBSCRIBED = """given => {
    PushManager.prototype.getSubscription = async () => null;
    PushManager.prototype.subscribe = async () => ({ toJSON: () => given });
    Notification.requestPermission = async () => 'granted';
    Object.defineProperty(Notification, 'permission', { get: () => 'granted' });
}"""
# Reads what is shown, as title and text.
SHOWN = """async () => {
    const worker = await navigator.serviceWorker.ready;
    return (await worker.getNotifications()).map(({ title, body, tag }) => [title, body, tag]);
}"""
NO_SERVICE = """
    Notification.requestPermission = async () => 'granted';
    PushManager.prototype.subscribe = async () => { throw new DOMException('no'); }"""
CLICKED = """async () => {
    const [notification] = await self.registration.getNotifications();
    self.dispatchEvent(new NotificationEvent('notificationclick', { notification }));
}"""


@pytest.fixture(scope="module")
def shared_gateway(share_gateway: Callable[[str], GatewayProcess]) -> GatewayProcess:
    return share_gateway(TOML)


@pytest.fixture
async def service() -> AsyncIterator[PushService]:
    async with PushService() as running:
        yield running


async def comes(service: PushService, count: int) -> list[Any]:
    async with asyncio.timeout(20):
        while len(service.got) < count:
            await asyncio.sleep(0.02)
    return list(service.got)


async def test_an_answer_that_nobody_has_seen_reaches_the_browser(
    guest: Client, service: PushService
) -> None:
    browser = PushBrowser()
    status, told = await guest.call("GET", "/api/push")
    assert (status, told["subscriptions"]) == (200, [])
    endpoint = f"{service.url}/to/me"
    given = browser.subscription(endpoint)
    status, kept = await guest.call("POST", "/api/push", body=given)
    assert (status, kept["service"]) == (201, service.url.removeprefix("http://"))
    assert (await guest.call("POST", "/api/push", body=given))[1]["id"] == kept["id"]

    await guest.settled((await guest.say("garden", "beans"))["turn"])
    # The title is made of how a conversation begins, so this is in none.
    await guest.settled((await guest.say("garden", "a canary: quince-7741"))["turn"])
    (got,) = await comes(service, 1)
    news = json.loads(browser.read(got.body))
    assert (news["kind"], news["conversation"]) == ("answer", "garden")
    assert "quince-7741" not in str(news)
    signed_by, claims = sender_of(got.headers["authorization"])
    assert (signed_by, claims["aud"]) == (told["key"], service.url)
    # Whoever knows the whole address may send there.
    assert "/to/me" not in guest.gateway.output + str(kept)

    # What was seen at once is not told, and neither is anything after the end.
    accepted = await guest.say("kitchen", "hello")
    await guest.settled(accepted["turn"])
    await guest.call("PATCH", "/api/conversations/kitchen", body={"seen": True})
    service.answers = [(410, {})]
    await guest.settled((await guest.say("garden", "more"))["turn"])
    await comes(service, 2)
    assert json.loads(browser.read(service.got[1].body))["conversation"] == "garden"
    async with asyncio.timeout(20):
        while (await guest.call("GET", "/api/push"))[1]["subscriptions"]:
            await asyncio.sleep(0.02)
    status, refusal = await guest.call("DELETE", f"/api/push/{kept['id']}")
    assert (status, refusal["error"]["code"]) == (404, "not_found")


async def test_a_subscription_that_no_browser_has_is_refused_with_what_to_do(
    guest: Client, service: PushService
) -> None:
    good = PushBrowser().subscription(f"{service.url}/x")
    for bad in (
        {**good, "endpoint": "ftp://push.example"},
        {**good, "endpoint": "http://push.example/x"},
        {**good, "keys": {**good["keys"], "p256dh": "short"}},
        {**good, "keys": {}},
        {**good, "more": 1},
    ):
        status, body = await guest.call("POST", "/api/push", body=bad)
        assert status == 400, bad
        assert body["error"]["message"]


def switch(chat: Chat) -> Locator:
    return chat.page.get_by_role("switch", name="Notify me on this device")


async def test_a_notification_leads_to_its_conversation(chat: Chat, service: PushService) -> None:
    page, browser = chat.page, PushBrowser()
    await page.add_init_script(
        f"({SUBSCRIBED})({json.dumps(browser.subscription(service.url + '/it'))})"
    )
    await chat.sign_in()
    await page.get_by_role("button", name="Settings").click()
    await switch(chat).click()
    await expect(switch(chat)).to_be_checked()
    await page.keyboard.press("Escape")

    # Nobody looks at the first conversation when it is answered.
    await chat.say("demo words=10 delay_ms=30")
    await page.evaluate("() => { location.hash = 'new'; }")
    (got,) = await comes(service, 1)
    news = json.loads(browser.read(got.body))

    devtools = await page.context.new_cdp_session(page)
    registrations: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    devtools.on("ServiceWorker.workerRegistrationUpdated", registrations.put_nowait)
    await devtools.send("ServiceWorker.enable")
    known = (await asyncio.wait_for(registrations.get(), 20))["registrations"]
    (own,) = [each for each in known if each["scopeURL"].startswith(chat.gateway.url)]
    await page.context.grant_permissions(["notifications"], origin=chat.gateway.url)
    await devtools.send(
        "ServiceWorker.deliverPushMessage",
        {
            "origin": chat.gateway.url,
            "registrationId": own["registrationId"],
            "data": json.dumps(news),
        },
    )
    async with asyncio.timeout(20):
        while not (shown := await page.evaluate(SHOWN)):
            await asyncio.sleep(0.02)
    title = news["title"] or "A conversation"
    assert shown == [[title, "There is an answer.", news["conversation"]]]

    (worker,) = page.context.service_workers
    await worker.evaluate(CLICKED)
    await expect(page.locator(".row.user")).to_contain_text("demo words=10")
    assert await page.evaluate(SHOWN) == []

    await page.get_by_role("button", name="Settings").click()
    await switch(chat).click()
    await expect(switch(chat)).not_to_be_checked()
    assert (await chat.call("GET", "/api/push"))["subscriptions"] == []


async def test_what_is_looked_at_is_not_told(chat: Chat, service: PushService) -> None:
    browser = PushBrowser()
    await chat.call("POST", "/api/push", browser.subscription(f"{service.url}/seen"))
    await chat.sign_in()
    await chat.say("hello")
    await chat.answered("hello")
    # Another conversation, which no page shows, is answered later, and told of first.
    await chat.call("POST", "/api/conversations/elsewhere/messages", {"text": "hi"})
    (got,) = await comes(service, 1)
    assert json.loads(browser.read(got.body))["conversation"] == "elsewhere"


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ("Object.defineProperty(Notification, 'permission', { get: () => 'denied' })", "blocks"),
        ("delete window.PushManager", "cannot be notified"),
        ("Object.defineProperty(window, 'isSecureContext', { get: () => false })", "https"),
        (NO_SERVICE, "push service"),
    ],
    ids=["denied", "unable", "insecure", "no service"],
)
async def test_a_browser_that_refuses_is_told_of_in_words(
    chat: Chat, instead: str, words: str
) -> None:
    await chat.page.add_init_script(f"(() => {{ {instead}; }})()")
    await chat.sign_in()
    await chat.page.get_by_role("button", name="Settings").click()
    await expect(switch(chat)).not_to_be_checked()
    if words == "push service":
        await switch(chat).click()
    else:
        await expect(switch(chat)).to_be_disabled()
    await expect(chat.page.get_by_role("dialog")).to_contain_text(words)
