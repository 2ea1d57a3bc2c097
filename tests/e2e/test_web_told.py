"""Checks in a real browser that people are told what the gateway knows of why there is no answer:
operators all of it, others what concerns them, each with what they can do."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from playwright.async_api import expect
from tests.chat_window import Chat, Guest, opened

from perdure.testkit.models.model_script import (
    Reply,
    ScriptedRequest,
    ScriptedUsage,
    garbage,
    say,
    status,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
DAY = 100_000
REPLIES: dict[str, Reply] = {
    "key": status(401),
    "busy": status(429),
    "down": status(503),
    "nothing": say(""),
    "rubbish": garbage(),
    "spend": say("spent", usage=ScriptedUsage(prompt=DAY, completion=1)),
}


def reply(request: ScriptedRequest) -> Reply:
    """Answer the last word that has a reply: messages that got no answer stand before it."""
    if "Answer with the summary" in request.last_user_text:
        return say("They told stories.")
    words = reversed(request.last_user_text.split())
    return next((REPLIES[word] for word in words if word in REPLIES), say("well"))


@pytest.fixture
async def gateway(gateway_factory: Factory) -> AsyncIterator[GatewayProcess]:
    """Start a gateway with agents that fail as models and their servers do."""
    async with ModelServer(reply) as server:
        agent = f'kind = "chat"\nbase_url = "{server.openai_url}"\nmodel = "m"\npatience_s = 0\n'
        gone = 'kind = "chat"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\npatience_s = 0\n'
        others = f"[budgets.person.daily]\ntokens = {DAY}\n[sessions]\ntitles = false\n"
        yield await gateway_factory(toml=f"[agents.main]\n{agent}[agents.gone]\n{gone}{others}")


async def ends(chat: Chat, said: str, *words: str) -> str:
    """Say something, and wait until its end is told with these words. Returns all that is told."""
    await chat.say(said)
    await expect(chat.page.locator(".user .bubble").last).to_have_text(said)
    told = chat.page.locator("#log > .outcome:last-child")
    for each in words:
        await expect(told).to_contain_text(each)
    return await told.inner_text()


async def test_an_operator_is_told_all_that_is_known(chat: Chat) -> None:
    await chat.sign_in()
    for said, words in (
        ("key", "refused the key (401); check api_key of agent main."),
        ("busy", "takes no more requests now (429)"),
        ("down", "failed (503)"),
        ("rubbish", "is not a model's answer; check base_url and api of agent main."),
        ("nothing", "The agent has answered nothing."),
    ):
        await ends(chat, said, words)
    await expect(chat.page.get_by_role("button", name="Retry")).to_be_visible()
    await chat.say("/agent gone")
    await expect(chat.page.locator(".notice").last).to_contain_text("gone")
    await ends(chat, "hello", "nothing answers at http://127.0.0.1:9/v1")
    assert chat.errors == []


async def test_others_are_told_in_plain_words_what_concerns_them(
    browser: str, gateway: GatewayProcess
) -> None:
    async with aiohttp.ClientSession() as http:
        member = Client(gateway, http)
        await member.become("ann")
    place = Guest(gateway.url, member.token)
    async with opened(browser, place, timezone_id="Pacific/Auckland") as chat:
        await chat.sign_in()
        for said in ("key", "busy", "down"):
            told = await ends(chat, said, "This answer failed: the model", "For the operator: trn_")
            for secret in ("api_key", "127.0.0.1", "(401)", "(429)", "(503)"):
                assert secret not in told
        await expect(chat.page.get_by_role("button", name="Retry")).to_be_visible()

        await chat.say("spend")
        await chat.answered("spent")
        words = ("Not answered. Your daily budget has no room", "It renews at 00:00 UTC")
        told = await ends(chat, "more", *words)
        # Midnight in UTC is about noon there.
        assert re.search(r"Here that is .*1[12]?:00.PM", told), told
        assert chat.errors == []


async def test_a_summary_is_shown_and_all_is_read_again_by_a_click(chat: Chat) -> None:
    await chat.sign_in()
    page = chat.page
    for number in range(3):
        await chat.say("a long story " * 60 + str(number))
        await expect(page.locator(".assistant:not(.streaming)")).to_have_count(number + 1)
        await chat.at_rest()
    who = page.get_by_role("button", name="Who answers")
    await who.click()
    dialog = page.get_by_role("dialog", name="Who answers here")
    await dialog.get_by_role("button", name="Shorten").click()
    await expect(page.locator(".notice").last).to_contain_text("Compacted")
    await who.click()
    await expect(dialog).to_contain_text("A summary stands for one older turn.")
    await dialog.get_by_text("The summary").click()
    await expect(dialog.locator(".prose")).to_have_text("They told stories.")
    await dialog.get_by_role("button", name="Show all again").click()
    await expect(page.locator(".notice").last).to_contain_text("again")
    await who.click()
    await expect(dialog.get_by_role("button", name="Shorten")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(who).to_be_focused()
    assert [text for role, text in await chat.shown() if role == "assistant"] == ["well"] * 3
    assert chat.errors == []
