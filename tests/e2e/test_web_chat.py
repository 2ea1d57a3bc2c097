"""Checks the web chat in a real browser, against a real gateway with the demo agent.

The browser is started once, and each test has its own window.
"""

import asyncio
import base64
import inspect
import json
import re

import aiohttp
import pytest
from playwright.async_api import FilePayload, Request, Route, expect
from tests.chat_window import Chat, Gateway

# The smallest picture there is.
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

# The addresses at which a page of the transcript is read.
PAGES = re.compile(r"/transcript\?")

# Notes every length that the last answer had on screen, in order.
WATCH_GROWTH = """
window.lengths = [];
new MutationObserver(() => {
  const answers = document.querySelectorAll('.assistant .prose');
  const length = answers.length ? answers[answers.length - 1].textContent.length : 0;
  if (length !== window.lengths.at(-1)) window.lengths.push(length);
}).observe(document.getElementById('log'), { childList: true, subtree: true, characterData: true });
"""


def posted(request: Request) -> list[dict[str, object]]:
    """Return the message that a request carries, if any."""
    is_message = request.method == "POST" and request.url.endswith("/messages")
    return [json.loads(request.post_data or "{}")] if is_message else []


async def finished(result: object) -> None:
    if inspect.isawaitable(result):
        await result


@pytest.mark.shared
async def test_the_first_message_is_answered_as_it_is_written(chat: Chat) -> None:
    await chat.sign_in()
    assert chat.gateway.token not in chat.page.url
    await chat.page.evaluate(WATCH_GROWTH)

    await chat.say("demo words=40 delay_ms=20")
    await expect(chat.page.locator("#stop")).to_be_visible()
    await expect(chat.page.locator(".assistant.streaming")).to_be_visible()
    await expect(chat.page.locator(".assistant:not(.streaming)")).to_be_visible()

    stored = await chat.until_stored_is_shown()
    assert [role for role, _ in stored] == ["user", "assistant"]
    assert len(stored[1][1].split()) == 40
    lengths = await chat.page.evaluate("window.lengths.filter((length) => length > 0)")
    assert len(lengths) >= 4, lengths
    assert lengths == sorted(lengths)
    assert chat.errors == []


@pytest.mark.shared
async def test_a_reload_keeps_everything(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("something to keep")
    await chat.answered("something to keep")
    await chat.say('demo tool sundial {"at": "noon"}')
    await chat.answered("The tool sundial answered")
    before = await chat.until_stored_is_shown()
    assert len(before) == 4
    tools = chat.page.locator(".tool")
    await expect(tools).to_have_text([re.compile('^sundial.*"noon".*no tool', re.DOTALL)])

    await chat.page.fill("#text", "a draft")
    await chat.page.reload()
    await chat.answered("The tool sundial answered")

    assert await chat.until_stored_is_shown() == before
    await expect(tools).to_have_text([re.compile('^sundial.*"noon".*no tool', re.DOTALL)])
    assert await chat.page.input_value("#text") == "a draft"
    assert chat.errors == []


async def test_a_killed_gateway_costs_no_text_and_repeats_none(
    chat: Chat, gateway: Gateway
) -> None:
    await chat.sign_in()
    await chat.page.evaluate("window.isSamePage = true")
    await chat.say("demo words=60 delay_ms=50")
    await expect(chat.page.locator(".assistant")).to_have_text(re.compile(r"(\S+\s+){10}"))

    await finished(gateway.kill())
    await expect(chat.page.locator("#connection")).to_contain_text("Reconnecting")
    seen = (await chat.shown())[1][1]
    await chat.say("written while nobody listens")
    await expect(chat.page.locator(".unsent")).to_contain_text("Sending")
    await finished(gateway.start())

    await chat.answered("written while nobody listens")
    await expect(chat.page.locator("#connection")).to_be_empty()
    stored = await chat.until_stored_is_shown()
    assert await chat.page.evaluate("window.isSamePage")
    assert stored[1][1].startswith(seen)
    users = [text for role, text in stored if role == "user"]
    assert users == ["demo words=60 delay_ms=50", "written while nobody listens"]
    await expect(chat.page.locator(".outcome", has_text="restarted")).to_be_visible()


async def test_a_page_that_could_not_be_read_is_read_once_the_gateway_is_back(
    chat: Chat, gateway: Gateway
) -> None:
    # Nothing has happened in between, so the stream of events alone cannot make the page read.
    await chat.sign_in()
    await chat.say("one")
    await chat.answered('"one"')
    said = await chat.until_stored_is_shown()
    other = Chat(await chat.page.context.new_page(), gateway, chat.errors)
    await other.page.route(PAGES, lambda route: route.abort("connectionreset"))
    async with other.page.expect_event(
        "requestfailed", lambda it: PAGES.search(it.url) is not None
    ):
        await other.page.goto(chat.page.url)
    await other.page.unroute(PAGES)
    assert await other.shown() == []

    await finished(gateway.kill())
    await finished(gateway.start())

    await other.comes_to_show(said)


@pytest.mark.shared
async def test_a_lost_acknowledgement_sends_no_second_message(chat: Chat) -> None:
    bodies: list[str | None] = []

    async def take_and_cut(route: Route) -> None:
        bodies.append(route.request.post_data)
        if len(bodies) > 2:
            await route.continue_()
            return
        await route.fetch()
        await route.abort("connectionreset")

    await chat.sign_in()
    await chat.page.route("**/messages", take_and_cut)
    await chat.say("said once")
    await chat.answered("said once")

    stored = await chat.until_stored_is_shown()
    assert [role for role, _ in stored] == ["user", "assistant"]
    assert len(bodies) == 3
    assert len(set(bodies)) == 1


@pytest.mark.shared
async def test_an_unsent_message_survives_a_reload(chat: Chat) -> None:
    await chat.sign_in()
    await chat.page.route("**/messages", lambda route: route.abort("connectionrefused"))
    await chat.say("waiting for the network")
    await expect(chat.page.locator(".pending")).to_contain_text("Sending")

    await chat.page.reload()
    await expect(chat.page.locator(".pending")).to_contain_text("waiting for the network")
    await chat.page.unroute("**/messages")
    await chat.answered("waiting for the network")

    stored = await chat.until_stored_is_shown()
    assert [role for role, _ in stored] == ["user", "assistant"]


@pytest.mark.shared
async def test_two_conversations_stay_apart(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("about apples")
    await chat.answered("about apples")
    first = await chat.until_stored_is_shown()

    await chat.page.click("#new-chat")
    await expect(chat.page.locator("#empty")).to_be_visible()
    await chat.say("about pears")
    await chat.answered("about pears")
    second = await chat.until_stored_is_shown()

    links = chat.page.locator("#conversations a")
    await expect(links).to_have_count(2)
    await chat.page.locator("#conversations a:not([aria-current])").click()
    await chat.answered("about apples")
    assert await chat.until_stored_is_shown() == first
    await chat.page.locator("#conversations a:not([aria-current])").click()
    await chat.answered("about pears")
    assert await chat.until_stored_is_shown() == second
    assert chat.errors == []


async def test_another_window_shows_the_same(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("demo words=60 delay_ms=50")
    await expect(chat.page.locator(".streaming")).to_be_visible()
    other = await chat.another_window()
    await expect(other.page.locator(".streaming")).to_be_visible()
    await expect(other.page.locator(".user")).to_have_count(1)

    await chat.say("and then this")
    for window in (chat, other):
        await expect(window.page.locator(".meta", has_text="Queued (position 1)")).to_be_visible()

    for window in (chat, other):
        await window.answered("and then this")
        assert len(await window.until_stored_is_shown()) == 4

    name = await chat.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('c')")
    await chat.call("POST", "/api/send", {"to": name, "text": "Frost tonight."})
    for window in (chat, other):
        sent = window.page.locator(".assistant", has_text="Sent from elsewhere")
        await expect(sent).to_contain_text("Frost tonight.")
    await other.page.reload()
    await expect(other.page.locator(".assistant", has_text="Sent from")).to_have_count(1)
    assert chat.errors == []


@pytest.mark.shared
async def test_earlier_messages_come_when_scrolled_to(chat: Chat) -> None:
    headers = {"Authorization": f"Bearer {chat.gateway.token}"}
    url = f"{chat.gateway.url}/api/conversations/long/messages"
    last = ""
    async with aiohttp.ClientSession(headers=headers) as http:
        for number in range(40):
            async with http.post(url, json={"text": f"line {number}"}) as response:
                assert response.status == 202
                last = (await response.json())["turn"]
        # Answers that come while the page is open are shown at once, however many there are.
        async with asyncio.timeout(20):
            outcome = None
            while outcome is None:
                async with http.get(f"{chat.gateway.url}/api/turns/{last}") as response:
                    outcome = (await response.json())["outcome"]

    await chat.sign_in()
    await chat.answered('"line 39"')
    await expect(chat.page.locator(".bubble", has_text=re.compile("^line 0$"))).to_have_count(0)
    await chat.page.evaluate("document.getElementById('scroller').scrollTop = 0")

    await expect(chat.page.locator(".bubble", has_text=re.compile("^line 0$"))).to_be_visible()
    said = [text for role, text in await chat.shown() if role == "user"]
    assert said == [f"line {number}" for number in range(40)]
    assert chat.errors == []


@pytest.mark.shared
async def test_a_file_that_the_agent_gives_can_be_had(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("demo file plan.txt sow beans")
    file = chat.page.locator(".row.assistant .attached").get_by_role("button", name="plan.txt")
    await expect(file).to_be_visible()
    async with chat.page.expect_download() as downloading:
        await file.click()
    download = await downloading.value
    assert download.suggested_filename == "plan.txt"
    assert (await download.path()).read_text() == "sow beans"
    await chat.page.reload()
    await expect(file).to_be_visible()
    assert chat.errors == []


@pytest.mark.shared
async def test_a_failed_turn_says_so_and_can_be_retried(chat: Chat) -> None:
    await chat.sign_in()
    picture = FilePayload(name="dot.png", mimeType="image/png", buffer=DOT)
    await chat.page.set_input_files("#files", picture)
    await expect(chat.page.locator(".chip-state")).to_be_empty()
    await chat.say("demo fail")
    badge = chat.page.locator(".outcome[data-outcome=failed]")
    await expect(badge).to_contain_text("failed")
    await expect(badge).to_contain_text(re.compile("trn_[0-9a-z]{26}"))
    await chat.at_rest()
    first = await chat.page.locator(".row.user").get_attribute("data-key")

    bodies: list[dict[str, object]] = []
    chat.page.on("request", lambda request: bodies.extend(posted(request)))
    await badge.get_by_role("button", name="Retry").click()

    again = chat.page.locator(f".row.user:not([data-key={first}])")
    await expect(again).to_have_text(re.compile("demo fail"))
    await expect(again.locator(".media img")).to_have_count(1)
    await expect(chat.page.locator(".row.user")).to_have_count(1)
    await expect(badge).to_have_count(1)
    await expect(badge.get_by_role("button", name="Retry")).to_be_visible()
    assert [body["text"] for body in bodies] == ["/retry"]
    assert await chat.until_stored_is_shown() == [("user", "demo fail")]
    assert chat.errors == []


async def test_a_cut_answer_says_why_and_can_be_continued(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("demo cut words=8")
    badge = chat.page.locator(".outcome[data-outcome=failed]")
    # The operator uses this page, so it tells the whole reason.
    await expect(badge).to_contain_text("was asked to break off")
    await chat.at_rest()

    await badge.get_by_role("button", name="Continue").click()

    await expect(chat.page.locator(".row.user").last).to_have_text(re.compile("Continue"))
    await chat.answered("Continue.")
    await expect(badge.get_by_role("button")).to_have_count(0)
    assert chat.errors == []


@pytest.mark.shared
async def test_what_stands_at_the_head_is_what_is_shown(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("one")
    await chat.answered('"one"')
    await chat.say("two")
    await chat.answered('"two"')
    both = await chat.until_stored_is_shown()
    other = await chat.another_window()
    windows = (chat, other)

    async def after(text: str, notice: str, said: list[tuple[str, str]]) -> None:
        await chat.say(text)
        for window in windows:
            await expect(window.page.locator("#log > :last-child")).to_contain_text(notice)
            await window.comes_to_show(said)

    await after("/undo", "Undone:\n\ntwo", both[:2])
    await expect(chat.page.locator("#text")).to_have_value("two")
    await expect(other.page.locator("#text")).to_have_value("")
    await after("/redo", "Brought back.", both)
    await after("/undo 2", "Undone, 2 turns", [])
    await expect(chat.page.locator("#text")).to_have_value("one\n\ntwo")
    await after("/redo", "Brought back.", both)
    await after("/branch aside", "A branch from here.", both)
    await chat.say("three")
    for window in windows:
        await window.answered('"three"')
        # What commands have replied stands where it was, and stays.
        await expect(window.page.locator(".notice").last).to_have_text(re.compile("branch"))
    await after("/resume", "Back in session", both)
    for window in windows:
        await expect(window.page.locator(".notice").last).to_have_text(re.compile("Back in"))
    await after("/new", "A new session.", [])
    await chat.say("four")
    for window in windows:
        await window.answered('"four"')
        await expect(window.page.locator(".notice")).to_have_text([re.compile("A new session")])
        await window.page.reload()
        await window.answered('"four"')
        assert len(await window.until_stored_is_shown()) == 2
    assert chat.errors == []


@pytest.mark.shared
async def test_commands_take_effect_while_an_answer_is_written(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("demo words=2000 delay_ms=50")
    await expect(chat.page.locator(".streaming")).to_be_visible()
    other = await chat.another_window()
    await expect(other.page.locator(".streaming")).to_be_visible()
    async with chat.page.expect_response("**/messages") as taken:
        await chat.say("a message that is too long")
    turn = (await (await taken.value).json())["turn"]
    waiting = other.page.locator(".row.user", has_text="a message")
    await expect(waiting.locator(".meta")).to_contain_text("Queued")
    await chat.call("PATCH", f"/api/turns/{turn}", {"text": "a message"})
    await expect(waiting.locator(".bubble")).to_have_text("a message")

    await chat.say("/undo")
    for window in (chat, other):
        await window.answered('"a message"')
        said = await window.until_stored_is_shown()
        assert [role for role, _ in said] == ["user", "assistant"]
    await chat.say("/background look it up")
    for window in (chat, other):
        await window.answered('"look it up"')
        said = await window.until_stored_is_shown()
        assert [text for role, text in said if role == "user"] == ["a message", "look it up"]
    assert chat.errors == []


@pytest.mark.shared
async def test_titles_are_shown_as_soon_as_they_are_found(chat: Chat) -> None:
    await chat.sign_in()
    other = await chat.another_window()
    await chat.say("when is the right time to sow beans in the north")
    await chat.answered("beans")
    await other.page.goto(chat.page.url)
    for window in (chat, other):
        await window.comes_to_be_called("when is the right time to")

    # The list is only fetched now and then, and a title must not wait for that.
    await other.page.route("**/api/conversations?*", lambda route: route.abort())
    await chat.say("/title Bean season")
    for window in (chat, other):
        await window.comes_to_be_called("Bean season")
    await chat.say("/new")
    await chat.say("/title Leeks")
    for window in (chat, other):
        await window.comes_to_be_called("Leeks")


@pytest.mark.shared
async def test_a_slash_opens_the_commands(chat: Chat) -> None:
    await chat.sign_in()
    page = chat.page
    listed = (await chat.call("GET", "/api/commands"))["commands"]
    menu, options = page.get_by_role("listbox"), page.get_by_role("option")
    active = page.locator("[role=option][aria-selected=true]")

    await page.locator("#text").press_sequentially("/")
    await expect(options).to_have_count(len(listed))
    await expect(options.first).to_contain_text(listed[0]["help"])
    await page.keyboard.press("ArrowUp")
    await expect(active).to_contain_text(listed[-1]["usage"])
    shown = await page.locator("#text").get_attribute("aria-activedescendant")
    assert shown == await active.get_attribute("id")

    await page.keyboard.type("und")
    await expect(options).to_have_count(1)
    await page.keyboard.press("Tab")
    await expect(page.locator("#text")).to_have_value("/undo ")
    await expect(menu).to_be_hidden()
    await page.keyboard.press("Enter")
    await expect(page.locator(".notice").last).to_contain_text("Nothing to undo")

    await page.keyboard.type("/re")
    await page.keyboard.press("ArrowDown")
    await expect(active).to_contain_text("/retry")
    await page.keyboard.press("Escape")
    await expect(menu).to_be_hidden()
    await page.fill("#text", "/whoam")
    await expect(menu).to_be_hidden()
    await page.fill("#text", "")
    await page.keyboard.type("/whoam")
    await expect(options).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page.locator("#text")).to_have_value("/whoami")
    await page.keyboard.press("Enter")
    await expect(page.locator(".notice").last).to_contain_text("You are ")

    await page.keyboard.type("/compr")
    await options.click()
    await expect(page.locator("#text")).to_have_value("/compact ")
    await expect(page.locator("#text")).to_be_focused()
    await page.fill("#text", "/usr/bin")
    await expect(menu).to_be_hidden()
    await chat.say("/help")
    await expect(page.locator(".notice").last.locator("dt")).to_have_text(
        [each["usage"] for each in listed]
    )
    assert chat.errors == []


@pytest.mark.shared
async def test_stop_ends_a_running_answer(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("demo words=2000 delay_ms=50")
    await expect(chat.page.locator(".assistant.streaming")).to_be_visible()

    await chat.page.click("#stop")

    await expect(chat.page.locator(".outcome[data-outcome=stopped]")).to_be_visible()
    stored = await chat.until_stored_is_shown()
    assert 0 < len(stored[1][1].split()) < 2000
    assert chat.errors == []


@pytest.mark.shared
async def test_a_wrong_token_leads_to_the_sign_in(chat: Chat) -> None:
    await chat.page.goto(f"{chat.gateway.url}/#token=wrong")
    panel = chat.page.locator("#signin")
    await expect(panel).to_contain_text("$PERDURE_HOME/token")
    await expect(panel).to_contain_text("did not accept")
    await expect(chat.page.locator("#app")).to_be_hidden()

    await chat.page.fill("#signin-token", "wrong-again")
    await chat.page.press("#signin-token", "Enter")
    await expect(panel).to_contain_text("did not accept")
    await chat.page.fill("#signin-token", chat.gateway.token)
    await chat.page.press("#signin-token", "Enter")

    await expect(chat.page.locator("#app")).to_be_visible()
    await expect(panel).to_be_hidden()


KEPT = "localStorage.getItem('perdure.token')"
PLACES = """() => [location.href, document.referrer, JSON.stringify(history.state),
    ...performance.getEntries().map((entry) => entry.name)].join(' ')"""


@pytest.mark.shared
async def test_signing_in_leaves_the_token_in_no_place_that_others_read(chat: Chat) -> None:
    await chat.sign_in()
    await chat.page.evaluate("location.hash = 'new'")
    assert chat.gateway.token not in await chat.page.evaluate(PLACES)

    await chat.page.evaluate(f"location.hash = 'token={chat.gateway.token}'")
    await expect(chat.page.locator("#text")).to_be_visible()
    assert chat.gateway.token not in await chat.page.evaluate(PLACES)
    await chat.page.go_back()
    assert chat.gateway.token not in chat.page.url
    assert chat.errors == []


@pytest.mark.shared
@pytest.mark.parametrize("is_open", [True, False])
async def test_a_wrong_token_in_an_address_changes_nothing(chat: Chat, is_open: bool) -> None:
    await chat.sign_in()
    if is_open:
        await chat.page.evaluate("location.hash = 'token=wrong-one'")
    else:
        await chat.page.goto("about:blank")
        await chat.page.goto(f"{chat.gateway.url}/#token=wrong-one")

    await expect(chat.page.locator("#told")).to_contain_text("Nothing has changed")
    await chat.page.get_by_role("button", name="OK").click()
    await expect(chat.page.locator("#text")).to_be_visible()
    await expect(chat.page.locator("#signin")).to_be_hidden()
    assert await chat.page.evaluate(KEPT) == chat.gateway.token


async def test_another_persons_token_in_an_address_is_asked_about(chat: Chat) -> None:
    await chat.sign_in()
    other = (await chat.call("POST", "/api/tokens", {"name": "mallory"}))["token"]
    question = chat.page.locator("#switch")
    for answer, kept in (("Stay signed in", chat.gateway.token), ("Switch", other)):
        await chat.page.goto("about:blank")
        await chat.page.goto(f"{chat.gateway.url}/#token={other}")
        await expect(question).to_contain_text("signed in as operator")
        await expect(question).to_contain_text("as mallory")
        assert await chat.page.evaluate(KEPT) == chat.gateway.token
        await chat.page.get_by_role("button", name=answer).click()
        await expect(question).to_be_hidden()
        await chat.page.wait_for_function(f"{KEPT} === '{kept}'")
    await expect(chat.page.locator("#text")).to_be_visible()


@pytest.mark.shared
async def test_links_in_answers_carry_no_token(chat: Chat) -> None:
    await chat.sign_in()
    here = chat.gateway.url
    links = [
        "#token=x", "/#token=x", f"{here}/#c=1", f"{here}/#%74oken=x", "https://a.example/p#token=x",
        "https://a.example/p#a=1&token=x", "https://a.example/p#section",
    ]  # fmt: skip
    drawn = await chat.page.evaluate(
        """async (links) => {
            const { draw } = await import('/static/markdown.js');
            const box = document.createElement('div');
            draw(box, links.map((link) => `[a](${link}) ![b](${link}) <${link}>`).join('\\n\\n'));
            return [...box.querySelectorAll('a')].map((link) => link.getAttribute('href'));
        }""",
        links,
    )
    assert "https://a.example/p#section" in drawn
    assert {each for each in drawn if "#" in each} == {"https://a.example/p#section"}


async def test_hostile_text_stays_text(chat: Chat) -> None:
    await chat.sign_in()
    hostile = "<img src=x onerror=window.breaches.push(1)> [go](javascript:alert(1))"
    await chat.say(hostile)
    await expect(chat.page.locator(".bubble")).to_have_text(hostile)
    await chat.answered("onerror")

    drawn = await chat.page.evaluate(
        """async () => {
            const { draw } = await import('/static/markdown.js');
            const box = document.createElement('div');
            document.body.append(box);
            draw(box, [
                '<script>window.breaches.push(2)</script>', '',
                '![far](https://example.org/x.png) [home](https://example.org/) main.py', '',
                '| a | b |', '|---|--:|', '| 1 | 2 |',
            ].join('\\n'));
            return {
                images: box.querySelectorAll('img').length,
                scripts: box.querySelectorAll('script').length,
                styles: box.querySelectorAll('[style]').length,
                links: [...box.querySelectorAll('a')].map((a) => [a.href, a.target, a.rel]),
                aligned: box.querySelectorAll('td.align-right').length,
            };
        }"""
    )
    rel = "noopener noreferrer"
    assert drawn == {
        "images": 0,
        "scripts": 0,
        "styles": 0,
        "links": [
            ["https://example.org/x.png", "_blank", rel],
            ["https://example.org/", "_blank", rel],
        ],
        "aligned": 1,
    }
    assert await chat.page.locator(".log img, .log a[href^=javascript]").count() == 0
    assert chat.errors == []


@pytest.mark.shared
async def test_a_message_that_later_requests_leave_out_says_so(chat: Chat) -> None:
    async def left_out(route: Route) -> None:
        response = await route.fetch()
        page = await response.json()
        for message in page["messages"][:1]:
            message["left_out"] = "message"
        await route.fulfill(response=response, json=page)

    await chat.sign_in()
    await chat.say("demo words=2")
    await chat.at_rest()
    said = chat.page.locator(".row.user")
    await expect(said).not_to_contain_text("left out")
    await chat.page.route(re.compile(r"/transcript(\?|$)"), left_out)
    await chat.page.reload()

    await expect(said).to_contain_text("left out of later requests")
    assert chat.errors == []


@pytest.mark.shared
async def test_text_is_put_together_by_code_points(chat: Chat) -> None:
    await chat.sign_in()

    texts = await chat.page.evaluate(
        """async () => {
            const { Transcript } = await import('/static/transcript.js');
            const seen = [];
            const transcript = new Transcript();
            transcript.apply('message', { id: 'u', role: 'user', turn: 't', text: 'say it' });
            const delta = (offset, text) => {
                const again = transcript.apply('delta', { turn: 't', message: 'm', offset, text });
                seen.push([transcript.find('m').text, again]);
            };
            delta(0, 'a\\u{1F600}b');
            delta(3, 'c');
            delta(2, 'bcd');
            delta(0, 'a\\u{1F600}');
            delta(7, 'h');
            const messages = [
                { id: 'u', role: 'user', turn: 't', text: 'say it' },
                { id: 'm', role: 'assistant', turn: 't', text: 'a\\u{1F600}bcdef' },
            ];
            transcript.load({ session: 's', messages }, transcript.tick);
            delta(7, 'hi');
            return seen;
        }"""
    )

    assert texts == [
        ["a😀b", False],
        ["a😀bc", False],
        ["a😀bcd", False],
        ["a😀bcd", False],
        ["a😀bcd", True],
        ["a😀bcdefhi", False],
    ]


async def test_the_question_after_a_crash_can_be_clicked(chat: Chat, gateway: Gateway) -> None:
    await chat.sign_in()
    await chat.say("demo words=60 delay_ms=50")
    await expect(chat.page.locator(".streaming")).to_be_visible()
    await finished(gateway.kill())
    (gateway.home / "perdure.toml").write_text('[recovery]\nresume = "ask"\n')
    await finished(gateway.start())
    choices = chat.page.get_by_role("button", name="Continue")
    await expect(choices).to_be_visible()
    other = await chat.another_window()
    await other.page.get_by_role("button", name="Continue").click()
    for window in (chat, other):
        await expect(window.page.locator(".notice").last).to_contain_text("Going on.")
        await expect(window.page.get_by_role("button", name="Continue")).to_have_count(0)


async def test_an_agent_is_chosen_by_a_click(chat: Chat, gateway: Gateway) -> None:
    await finished(gateway.kill())
    (gateway.home / "perdure.toml").write_text(
        '[agents.main]\nkind = "demo"\n[agents.other]\nkind = "demo"\n'
    )
    await finished(gateway.start())
    await chat.sign_in()
    await chat.say("/agent")

    await chat.page.get_by_role("button", name="/agent other").click()

    chosen = chat.page.get_by_text("other answers here from now on.")
    await expect(chosen).to_be_visible()

    who = chat.page.get_by_role("button", name="Who answers")
    await expect(who).to_contain_text("other")
    await who.click()
    listed = chat.page.get_by_role("dialog", name="Who answers here")
    await expect(listed.get_by_role("button", pressed=True)).to_contain_text("other")
    await listed.get_by_role("button", name="main").click()
    await expect(who).to_contain_text("main")
    await chat.say("hello")
    await chat.answered("hello")
    await chat.page.locator(".assistant .times summary").click()
    await expect(chat.page.locator(".assistant .times")).to_contain_text("Written")
    assert chat.errors == []
