"""Measures what people see in the page, in a real browser.

It measures how soon the first word of an answer is on screen once the gateway has it, and how
evenly the frames come while an answer is written behind a long conversation.
"""

import asyncio
import shutil
import time
from pathlib import Path
from statistics import median, quantiles

import aiohttp
from playwright.async_api import Page, async_playwright

from bench.processes import perdure
from bench.report import Findings, Gate

MESSAGES = 5_000
TURNS = 25
WORDS = 400
FLAGS = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--mute-audio"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CONVERSATION = "bench"

# Notes when the first word of each answer has been painted.
WATCH = """
window.firsts = [];
new MutationObserver(() => {
  const prose = [...document.querySelectorAll('.row.assistant .prose')].at(-1);
  const key = prose?.closest('.row').dataset.key;
  if (!prose?.textContent || window.firsts.some(([known]) => known === key)) return;
  window.firsts.push([key, 0]);
  const mine = window.firsts.at(-1);
  requestAnimationFrame(() => setTimeout(() => { mine[1] = Date.now(); }));
}).observe(document.getElementById('log'), { childList: true, subtree: true, characterData: true });
"""
# Notes how long each frame took while an answer is written.
FRAMES = """
window.frames = [];
let last = performance.now();
const frame = (now) => {
  if (document.querySelector('.streaming')) window.frames.push(now - last);
  last = now;
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""


async def measure(folder: Path) -> Findings:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        return Findings(part="screen", facts=["there is no browser here"], gates=[])
    async with perdure(folder / "home") as ours, async_playwright() as playwright:
        headers = {"Authorization": f"Bearer {ours.token}"}
        async with aiohttp.ClientSession(ours.url, headers=headers) as http:
            await _fill(http)
            browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
            page = await browser.new_page()
            await page.goto(f"{ours.url}/#token={ours.token}&c={CONVERSATION}")
            await page.wait_for_selector(".row.assistant")
            waits_ms = await _first_words(page, http)
            frames_ms = await _frames(page, http)
            await browser.close()
    return _judged(waits_ms, frames_ms)


def _judged(waits_ms: list[float], frames_ms: list[float]) -> Findings:
    facts = [
        f"{len(waits_ms)} first words: {min(waits_ms):.0f} to {max(waits_ms):.0f} ms",
        f"{len(frames_ms)} frames behind {MESSAGES:,} messages: {median(frames_ms):.1f} ms each",
    ]
    gates = [
        Gate(name="first word on screen", measured=median(waits_ms), limit=50, unit="ms"),
        Gate(
            name="frames, 95 % of them",
            measured=quantiles(frames_ms, n=20)[-1],
            limit=20,
            unit="ms",
        ),
        Gate(name="the longest frame", measured=max(frames_ms), limit=50, unit="ms"),
    ]
    return Findings(part="screen", facts=facts, gates=gates)


async def _post(http: aiohttp.ClientSession, text: str) -> str:
    path = f"/api/conversations/{CONVERSATION}/messages"
    async with http.post(path, json={"text": text}) as response:
        taken: dict[str, str] = await response.json()
        return taken["turn"]


async def _settled(http: aiohttp.ClientSession, turn: str) -> None:
    while True:
        async with http.get(f"/api/turns/{turn}") as response:
            if (await response.json())["outcome"] is not None:
                return
        await asyncio.sleep(0.02)


async def _fill(http: aiohttp.ClientSession) -> None:
    """Make a long conversation: each exchange is two messages."""
    for _ in range(MESSAGES // 2 // 50):
        turns = [await _post(http, "demo words=3") for _ in range(50)]
        await _settled(http, turns[-1])


async def _first_words(page: Page, http: aiohttp.ClientSession) -> list[float]:
    """Return how long after the gateway each first word was on screen, in milliseconds."""
    await page.evaluate(WATCH)
    waits = []
    for number in range(TURNS):
        async with http.get(f"/api/conversations/{CONVERSATION}/events") as events:
            turn = await _post(http, "demo words=8 delay_ms=30")
            had = await _first_delta(events, turn)
        await _settled(http, turn)
        await page.wait_for_function(
            "(count) => window.firsts.filter(([, at]) => at).length > count", arg=number
        )
        waits.append((await page.evaluate("window.firsts.at(-1)[1]")) - had)
    return waits


async def _first_delta(events: aiohttp.ClientResponse, turn: str) -> float:
    """Return when the gateway told the first word of a turn, in milliseconds."""
    async for line in events.content:
        if line.startswith(b"data:") and b'"offset":0' in line and turn.encode() in line:
            return time.time() * 1000
    raise RuntimeError("the stream of events ended before the first word")


async def _frames(page: Page, http: aiohttp.ClientSession) -> list[float]:
    """Return how long each frame took while a long answer was written, in milliseconds."""
    await page.evaluate(FRAMES)
    await _settled(http, await _post(http, f"demo words={WORDS} delay_ms=10"))
    return list(await page.evaluate("window.frames.slice(2)"))
