"""Drives a window with the web chat in a real browser, for the end-to-end tests.

Every window must end without a script error and without a breach of the content security policy.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import aiohttp
from playwright.async_api import ConsoleMessage, Page, async_playwright, expect

expect.set_options(timeout=20_000)

# Runs before the page's own scripts.
WATCH = """
window.breaches = [];
document.addEventListener('securitypolicyviolation', (breach) => {
  window.breaches.push(`${breach.effectiveDirective} ${breach.blockedURI} ${breach.sourceFile}`);
});
"""


@dataclass(frozen=True)
class Guest:
    """Describes a person at a gateway that others use too."""

    url: str
    token: str


class Gateway(Protocol):
    """Describes a gateway that belongs to one test."""

    url: str
    home: Path

    @property
    def token(self) -> str: ...

    def kill(self) -> object: ...

    def start(self) -> object: ...


@dataclass
class Chat:
    """Drives one window with the web chat."""

    page: Page
    gateway: Gateway | Guest
    errors: list[str] = field(default_factory=list)

    async def sign_in(self) -> None:
        await self.page.goto(f"{self.gateway.url}/#token={self.gateway.token}")
        await expect(self.page.locator("#text")).to_be_visible()

    async def say(self, text: str) -> None:
        await self.page.fill("#text", text)
        await self.page.press("#text", "Enter")

    async def answered(self, text: str) -> None:
        answer = self.page.locator(".assistant:not(.streaming)", has_text=text)
        await expect(answer.last).to_be_visible()
        await self.at_rest()

    async def at_rest(self) -> None:
        await expect(self.page.locator(".pending, .status, .streaming")).to_have_count(0)
        await expect(self.page.locator("#stop")).to_be_hidden()

    async def shown(self) -> list[tuple[str, str]]:
        """Return who said what on the screen. White space is normalized, because the markup changes
        it."""
        rows: list[list[str]] = await self.page.evaluate(
            """() => [...document.querySelectorAll('.row.user, .row.pending, .row.assistant')]
                .map((row) => [row.classList.contains('assistant') ? 'assistant' : 'user',
                    row.querySelector('.bubble, .prose')?.innerText ?? ''])"""
        )
        return [(role, " ".join(text.split())) for role, text in rows if text.strip()]

    async def stored(self) -> list[tuple[str, str]]:
        """Return who said what in the gateway's transcript."""
        name = await self.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('c')")
        url = f"{self.gateway.url}/api/conversations/{quote(name, safe='')}/transcript"
        headers = {"Authorization": f"Bearer {self.gateway.token}"}
        async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as response:
            entries = (await response.json())["messages"]
        said = [(entry["role"], " ".join(entry["text"].split())) for entry in entries]
        return [(role, text) for role, text in said if role != "tool" and text]

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """Call the gateway without the page."""
        headers = {"Authorization": f"Bearer {self.gateway.token}"}
        url = self.gateway.url + path
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.request(method, url, json=body) as response,
        ):
            assert response.status < 300, await response.text()
            return await response.json()

    async def another_window(self) -> "Chat":
        window = Chat(await self.page.context.new_page(), self.gateway, self.errors)
        await window.page.goto(self.page.url)
        await expect(window.page.locator("#text")).to_be_visible()
        return window

    async def comes_to_show(self, said: list[tuple[str, str]]) -> None:
        """Wait until exactly this is shown here, and stored at the gateway."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if await self.shown() == said:
                break
            await asyncio.sleep(0.02)
        assert await self.until_stored_is_shown() == said

    async def comes_to_be_called(self, title: str) -> None:
        await expect(self.page.locator("#title")).to_have_text(title)
        await expect(self.page.locator("#conversations a[aria-current]")).to_contain_text(title)
        await expect(self.page).to_have_title(f"{title} · Perdure")

    async def until_stored_is_shown(self) -> list[tuple[str, str]]:
        """Wait until the page shows what is stored: it reads again after the head has moved."""
        await self.at_rest()
        shown, stored = await self.shown(), await self.stored()
        for _ in range(200):
            if shown == stored:
                break
            await asyncio.sleep(0.05)
            shown, stored = await self.shown(), await self.stored()
        assert shown == stored
        return stored


@asynccontextmanager
async def opened(browser: str, place: "Gateway | Guest", **options: Any) -> AsyncIterator[Chat]:
    """Open a window of its own in the browser at this address. The options are those of a browser
    context, such as a language or the size of a phone."""
    async with async_playwright() as playwright:
        connection = await playwright.chromium.connect_over_cdp(browser)
        context = await connection.new_context(**options)
        await context.add_init_script(WATCH)
        page = await context.new_page()
        window = Chat(page, place)
        context.on("console", lambda message: _heard(window.errors, message))
        context.on("weberror", lambda failure: window.errors.append(str(failure.error)))
        yield window
        breaches = await page.evaluate("window.breaches")
        await context.close()
    assert breaches == []
    assert list(filter(_is_script_error, window.errors)) == []


def _heard(errors: list[str], message: ConsoleMessage) -> None:
    if message.type == "error":
        errors.append(f"{message.text} {message.location['url']}")


def _is_script_error(text: str) -> bool:
    """Tell whether a script reported this error. The browser itself reports failed requests, which
    tests that cut the network expect."""
    return not text.startswith("Failed to load resource")
