"""Checks in a real browser that a reload or a kill costs nothing at any stage, to whom a link
opens, and that a long list is read page by page."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from playwright.async_api import Error, FilePayload, Locator, Route, expect
from tests.chat_window import Chat, Gateway, Guest, opened
from tests.e2e.test_web_chat import finished

from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

NOTES = FilePayload(name="notes.txt", mimeType="text/plain", buffer=b"plums are blue")
PAGES = re.compile(r"/api/conversations\?")
EVERYTHING = 100_000


def chip(chat: Chat) -> Locator:
    return chat.page.locator(".chip")


class Held:
    """Holds the requests to an address until they are let go, or are cut off."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, route: Route) -> None:
        self.reached.set()
        await self.go.wait()
        # A page that was loaded again does not wait for it any more.
        with suppress(Error):
            await route.continue_()


async def test_a_kill_while_a_file_or_a_message_is_on_its_way_costs_neither(
    chat: Chat, gateway: Gateway
) -> None:
    page = chat.page
    await chat.sign_in()
    await chat.say("hello")
    await chat.answered("hello")
    uploads, posts = Held(), Held()
    await page.route("**/api/media", uploads)
    await page.set_input_files("#files", NOTES)
    await page.fill("#text", "read this")
    await uploads.reached.wait()
    await finished(gateway.kill())
    uploads.go.set()
    await expect(chip(chat)).to_contain_text("cannot be reached")
    await finished(gateway.start())
    await chip(chat).get_by_role("button", name="Retry").click()
    await expect(chip(chat).locator(".chip-state")).to_be_empty()

    await page.route("**/messages", posts)
    await page.press("#text", "Enter")
    await posts.reached.wait()
    await finished(gateway.kill())
    posts.go.set()
    await expect(page.locator(".pending")).to_contain_text("Sending")
    await page.unroute("**/messages")
    await finished(gateway.start())
    await chat.answered("read this")
    stored = await chat.until_stored_is_shown()
    assert [text for role, text in stored if role == "user"] == ["hello", "read this"]
    await expect(page.locator(".row.user").last).to_contain_text("notes.txt")


@pytest.mark.shared
async def test_a_reload_while_a_file_is_on_its_way_keeps_the_words(chat: Chat) -> None:
    await chat.sign_in()
    uploads = Held()
    await chat.page.route("**/api/media", uploads)
    await chat.page.set_input_files("#files", NOTES)
    await chat.page.fill("#text", "read this")
    await uploads.reached.wait()
    await chat.page.reload()
    await expect(chat.page.locator("#text")).to_have_value("read this")
    await expect(chip(chat)).to_have_count(0)
    uploads.go.set()
    await chat.page.unroute("**/api/media")
    await chat.page.set_input_files("#files", NOTES)
    await expect(chip(chat).locator(".chip-state")).to_be_empty()
    await chat.page.press("#text", "Enter")
    await chat.answered("read this")
    assert len(await chat.until_stored_is_shown()) == 2


@pytest.mark.shared
async def test_a_reload_in_the_middle_of_an_answer_goes_on_with_it(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("demo words=40 delay_ms=30")
    await expect(chat.page.locator(".streaming")).to_have_text(re.compile(r"(\S+\s+){5}"))
    await chat.page.reload()
    await expect(chat.page.locator(".streaming")).to_have_text(re.compile(r"(\S+\s+){5}"))
    await chat.at_rest()
    stored = await chat.until_stored_is_shown()
    assert [role for role, _ in stored] == ["user", "assistant"]
    assert len(stored[1][1].split()) == 40
    assert chat.errors == []


@pytest.fixture
async def operator(browser: str, shared_gateway: GatewayProcess) -> AsyncIterator[Chat]:
    place = Guest(shared_gateway.url, shared_gateway.token)
    async with opened(browser, place) as window:
        yield window


@pytest.mark.shared
async def test_a_link_opens_for_operators_and_not_for_other_people(
    chat: Chat, operator: Chat, guest: Client, browser: str
) -> None:
    await chat.sign_in()
    await chat.say("beans in May")
    await chat.answered("beans in May")
    link = chat.page.url

    await operator.sign_in()
    await operator.page.goto(link)
    await expect(operator.page.locator(".row.user")).to_contain_text("beans in May")
    await expect(operator.page).to_have_url(re.compile("http%3Aguest%20|http%3Aguest\\+"))
    await operator.say("I read along")
    await chat.answered("I read along")
    said = [text for role, text in await chat.until_stored_is_shown() if role == "user"]
    assert said == ["beans in May", "I read along"]

    # A name that says whose it is, and one that does not: neither leads anybody else there.
    stranger = Client(guest.gateway, guest.session)
    stranger.token = guest.gateway.token
    await stranger.become("stranger")
    async with opened(browser, Guest(guest.gateway.url, stranger.token)) as window:
        await window.sign_in()
        for address in (link, operator.page.url):
            await window.page.goto(address)
            await expect(window.page.locator("#connection")).to_contain_text("no conversation")
            await expect(window.page.locator(".row")).to_have_count(0)


@pytest.mark.shared
async def test_a_long_list_is_read_page_by_page_as_one_scrolls(chat: Chat) -> None:
    asked: list[int] = []

    async def listed(route: Route) -> None:
        wish = dict(parse_qsl(urlsplit(route.request.url).query))
        if wish.get("shelf") == "pinned":
            await route.fulfill(body=json.dumps({"conversations": [], "next": None}))
            return
        last = int(wish.get("cursor", f"{EVERYTHING}:").partition(":")[0])
        asked.append(last)
        row = {"session": "s", "state": "idle", "queued": 0, "turn": None, "head": None}
        rows = [{**row, "name": f"place-{n}", "at": n} for n in range(last, last - 50, -1)]
        page = {"conversations": rows, "next": f"{last - 50}:x"}
        await route.fulfill(body=json.dumps(page))

    await chat.page.route(PAGES, listed)
    await chat.sign_in()
    links = chat.page.locator("#conversations li")
    await expect(links).to_have_count(50)
    assert asked == [EVERYTHING]
    for pages in (2, 3):
        await chat.page.locator("#conversations").evaluate("it => it.scrollTo(0, it.scrollHeight)")
        await expect(links).to_have_count(50 * pages)
    # What is in sight is enough: nothing is asked for ahead of it.
    assert asked == [EVERYTHING - 50 * n for n in range(3)]
    assert quote(f"place-{EVERYTHING - 149}") in await links.last.inner_html()
