"""Checks in a real browser that the page serves people everywhere: on phones, over slow networks,
with a microphone, in their language."""

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect
from tests.chat_window import Chat, Gateway, Guest, opened

Place = Gateway | Guest
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 800},
    "has_touch": True,
    "is_mobile": True,
}
# What a connection on the road is like, in milliseconds and bytes per second.
SLOW = {
    "offline": False,
    "latency": 120,
    "downloadThroughput": 80_000,
    "uploadThroughput": 20_000,
}


async def fits(page: Page) -> bool:
    """Tell whether nothing is wider than the window."""
    found: bool = await page.evaluate(
        "document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth"
    )
    return found


@pytest.mark.shared
async def test_enter_is_a_new_line_where_keyboards_are_on_the_screen(
    browser: str, place: Place
) -> None:
    async with opened(browser, place, **PHONE) as chat:
        await chat.sign_in()
        page = chat.page
        await page.fill("#text", "one")
        await page.press("#text", "Enter")
        await page.keyboard.type("two")
        await expect(page.locator("#text")).to_have_value("one\ntwo")
        await page.get_by_role("button", name="Send").tap()
        await expect(page.locator(".user .bubble")).to_have_text("one\ntwo")
        await chat.at_rest()
        await page.get_by_role("button", name="Open conversations").tap()
        await page.get_by_role("button", name="Settings").tap()
        await expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
        assert await fits(page)
        assert chat.errors == []


@pytest.mark.shared
async def test_a_voice_message_is_recorded_and_played(chat: Chat) -> None:
    await chat.sign_in()
    page = chat.page
    await page.get_by_role("button", name="Record a voice message").click()
    await expect(page.get_by_text("0:01", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Stop recording").click()
    await expect(page.get_by_role("list", name="Attachments")).to_contain_text("voice.webm")
    await page.get_by_role("button", name="Send").click()
    await chat.at_rest()

    await page.get_by_role("button", name="Play voice.webm").first.click()
    playing = page.get_by_role("button", name="Stop playing voice.webm").first
    await expect(playing).to_have_attribute("aria-pressed", "true")
    # It ends by itself.
    await expect(page.get_by_role("button", name="Play voice.webm").first).to_be_visible()
    assert chat.errors == []


@pytest.mark.shared
async def test_a_slow_network_hinders_nobody_from_writing_and_repeats_nothing(chat: Chat) -> None:
    await chat.sign_in()
    page = chat.page
    sent = []
    page.on("request", lambda request: sent.append((request.method, request.url)))
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("Network.emulateNetworkConditions", SLOW)

    await chat.say("first")
    # What was said is there at once, and the next can be written.
    await expect(page.locator(".bubble")).to_have_text("first")
    await expect(page.locator("#text")).to_have_value("")
    await chat.say("second")
    await chat.answered('"second"')
    stored = await chat.until_stored_is_shown()
    assert [text for role, text in stored if role == "user"] == ["first", "second"]
    posted = [url for method, url in sent if method == "POST"]
    assert len(posted) == 2
    for what in ("api/commands", "api/status", "api/jobs", "api/conversations?"):
        assert sum(what in url for _, url in sent) <= 1, what
    assert chat.errors == []


@pytest.mark.shared
async def test_the_language_can_be_chosen_and_a_draft_outlives_that(chat: Chat) -> None:
    await chat.sign_in()
    page = chat.page
    await page.fill("#text", "half a thought")
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("Language").select_option("de")
    await expect(page.get_by_role("button", name="Neue Unterhaltung")).to_be_visible()
    await expect(page.locator("html")).to_have_attribute("lang", "de")
    await expect(page.locator("#text")).to_have_value("half a thought")
    await page.get_by_role("link", name="Aufträge").click()
    await expect(page.get_by_role("heading", name="Aufträge")).to_be_visible()
    await page.get_by_role("link", name="Zurück zur Unterhaltung").click()
    await page.get_by_role("button", name="Einstellungen").click()
    await page.get_by_label("Sprache").select_option("")
    await expect(page.get_by_role("button", name="New chat")).to_be_visible()
    assert chat.errors == []


@pytest.mark.shared
async def test_jobs_are_found_from_the_chat_and_changed_on_a_phone(chat: Chat, axe: str) -> None:
    await chat.call(
        "POST",
        "/api/jobs",
        {"conversation": "beds", "name": "Watering", "prompt": "Water *the* beds", "every_s": 3600},
    )
    await chat.sign_in()
    page = chat.page
    await page.get_by_role("link", name="Jobs (1)").click()
    job = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="Watering"))
    await expect(job).to_contain_text("Water *the* beds")
    await expect(job).to_contain_text("every 60 minutes")
    await expect(job.locator(".job-state")).to_have_text("Active")
    await page.set_viewport_size({"width": 360, "height": 700})
    assert await fits(page)
    await page.evaluate(axe)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = await page.evaluate("async () => (await axe.run()).violations.map(({ id }) => id)")
        assert found == []

    await job.get_by_role("button", name="Pause Watering").click()
    await expect(job.locator(".job-state")).to_have_text("Paused")
    await job.get_by_role("button", name="Runs Watering").click()
    await expect(job.locator(".runs, p").last).to_contain_text("It has not run yet")
    # Nothing is removed by one click.
    await job.get_by_role("button", name="Remove Watering").click()
    await page.get_by_role("button", name="Keep it").click()
    await expect(job).to_have_count(1)
    await job.get_by_role("button", name="Remove Watering").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("status")).to_contain_text("There are no jobs")
    assert chat.errors == []


@pytest.mark.shared
async def test_german_fits_where_english_does(browser: str, place: Place) -> None:
    async with opened(browser, place, locale="de-DE", **PHONE) as chat:
        await chat.sign_in()
        page = chat.page
        await page.fill("#text", "demo fail")
        await page.get_by_role("button", name="Senden").tap()
        await expect(page.locator(".outcome")).to_contain_text(re.compile("fehlgeschlagen"))
        assert await fits(page)
        await page.get_by_role("button", name="Unterhaltungen öffnen").tap()
        for name in ("Archiviert", "Einstellungen"):
            await expect(page.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
        cut = await page.locator("#sidebar button, #sidebar .way").evaluate_all(
            "(all) => all.filter((each) => each.scrollWidth > each.clientWidth + 1).length"
        )
        assert cut == 0
        assert chat.errors == []
