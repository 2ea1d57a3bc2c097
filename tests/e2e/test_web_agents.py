"""Checks in a real browser how the web chat shows what an external agent does by itself: its plan,
its changes of files, and where the time of its answer went."""

import re

import pytest
from playwright.async_api import expect
from tests.chat_window import opened
from tests.conftest import StartGateway
from tests.e2e.test_agents_seen import external

from perdure.testkit.peers.fixtures import NewPeer

pytestmark = pytest.mark.timeout(90)


async def test_a_plan_a_change_and_the_time_are_shown_as_such(
    browser: str, gateway_factory: StartGateway, new_peer: NewPeer
) -> None:
    gateway = await gateway_factory(toml=external(new_peer.hostile_acp().command()))
    async with opened(browser, gateway) as chat:
        await chat.sign_in()
        await chat.say("[[SAY ready]]")
        await chat.answered("ready")
        await chat.say(
            "[[PLAN dig|sow]] [[EDIT /garden.md new words]] [[MODE code]] [[SAY all done]]"
        )
        await chat.answered("all done")
        plan = chat.page.locator(".todo li")
        change = chat.page.locator(".tool .diff")
        times = chat.page.locator(".times").last
        for _ in range(2):
            await expect(plan).to_have_text([re.compile("dig"), re.compile("sow")])
            await expect(change.locator(".removed")).to_have_text("-before\n")
            await expect(change.locator(".added")).to_have_text("+new words\n")
            await expect(change.locator(".path")).to_have_count(2)
            await expect(change).not_to_contain_text("```")
            await times.locator("summary").click()
            await expect(times.locator("dt").first).to_have_text("First use of a tool")
            await expect(times.locator("dd").first).to_have_text(re.compile(r"^[\d.]+ m?s$"))
            state = times.locator("dt", has_text="Mode")
            await expect(state.locator("xpath=following-sibling::dd[1]")).to_have_text("code")
            # Once from the live events, and once from what is stored.
            await chat.page.reload()
            await chat.answered("all done")
        assert chat.errors == []
