"""Checks in a real browser that the page stays light, and what it offers around messages."""

import json
import re
from urllib.parse import urljoin

import pytest
from playwright.async_api import FilePayload, Locator, Route, async_playwright, expect
from tests.chat_window import Chat, Gateway
from tests.e2e.test_web_chat import DOT, finished

# Draws the end of a conversation of so many messages, lets its last answer grow, and reads upwards.
LONG = """async (count) => {
    const { Transcript } = await import('/static/transcript.js');
    const { Rows } = await import('/static/log.js');
    const { html, render } = await import('/static/ui.js');
    const { rowsOf } = await import('/static/rows.js');
    const { Span, partOf } = await import('/static/span.js');
    const { ready } = await import('/static/prose.js');
    await ready();
    const root = document.createElement('div');
    document.body.append(root);
    const [transcript, span, acts] = [new Transcript(), new Span(), {}];
    const show = (rows) => render(html`<${Rows} rows=${rows} acts=${acts} />`, root);
    const messages = Array.from({ length: count }, (_, n) => ({
        id: `m${n}`, role: n % 2 ? 'assistant' : 'user', text: `line ${n}`, at: n,
        turn: `t${n >> 1}`, ...(n % 2 ? { outcome: 'done' } : {}),
    }));
    transcript.load({ session: 's', messages, next: null }, transcript.tick);
    transcript.apply('message', { id: 'u', role: 'user', turn: 't', text: 'more' });
    transcript.apply('state', { state: 'running', session: 's', head: 't', turn: 't', queued: 0 });
    const part = () => partOf(transcript, span.of(transcript.entries));
    const draw = () => show(rowsOf(part(), []));
    draw();
    const seen = new MutationObserver(() => {});
    seen.observe(root, { childList: true, subtree: true, characterData: true, attributes: true });
    let text = '';
    const changed = [];
    for (let n = 0; n < 40; n += 1) {
        const said = `word${n} `;
        transcript.apply('delta', { turn: 't', message: 'a', offset: text.length, text: said });
        text += said;
        draw();
        changed.push(seen.takeRecords().length);
    }
    seen.disconnect();
    const rows = [root.childElementCount];
    span.hold(transcript.entries);
    const read = new Set();
    for (let n = 0; n < count; n += 1) {
        for (const { id } of part().entries) read.add(id);
        draw();
        rows.push(root.childElementCount);
        if (!span.earlier(transcript.entries)) break;
    }
    while (span.later(transcript.entries)) {
        draw();
        rows.push(root.childElementCount);
    }
    const isAtEnd = part().isEnd && root.textContent.includes('word39');
    root.remove();
    return { rows: Math.max(...rows), changed: Math.max(...changed.slice(1)), read: read.size,
        entries: part().entries.length, isAtEnd };
}"""


@pytest.mark.shared
async def test_a_long_conversation_costs_no_more_than_a_short_one(chat: Chat) -> None:
    await chat.sign_in()
    short = await chat.page.evaluate(LONG, 400)
    long = await chat.page.evaluate(LONG, 5_000)
    for found, count in ((short, 400), (long, 5_000)):
        # Every message can be reached, and comes back when one reads down again.
        assert found["read"] == count + 2, json.dumps(found)
        assert found["isAtEnd"]
    assert long["rows"] == short["rows"] < 400
    assert long["changed"] == short["changed"] < 10
    assert long["entries"] == short["entries"] < 400
    assert chat.errors == []


def under(chat: Chat, role: str, name: str) -> Locator:
    """Return a button under the last message of this role."""
    return chat.page.locator(f".row.{role}").last.get_by_role("button", name=name, exact=True)


@pytest.mark.shared
async def test_a_message_is_asked_again_in_other_words_and_its_versions_are_leafed_through(
    chat: Chat,
) -> None:
    await chat.sign_in()
    await chat.say("one")
    await chat.answered('"one"')
    for role in ("user", "assistant"):
        for name in ("Copy", "Regenerate", "Edit", "Branch", "Why"):
            await expect(under(chat, role, name)).to_be_visible()

    await under(chat, "assistant", "Regenerate").click()
    pager = chat.page.locator(".assistant .pager")
    await expect(pager).to_contain_text("2/2")
    await chat.page.fill("#text", "a draft")
    await under(chat, "user", "Edit").click()
    await expect(chat.page.locator("#text")).to_have_value("one")
    await expect(chat.page.locator("#text")).to_be_focused()
    await chat.page.fill("#text", "uno")
    await chat.page.keyboard.press("Enter")
    await expect(chat.page.locator("#text")).to_have_value("a draft")
    await chat.answered('"uno"')
    stored = await chat.until_stored_is_shown()
    assert [text for role, text in stored if role == "user"] == ["uno"]
    await expect(chat.page.locator(".notice")).to_have_count(0)

    wordings = chat.page.locator(".user .pager")
    await expect(wordings).to_contain_text("2/2")
    await wordings.get_by_role("button", name="Previous version").click()
    await expect(chat.page.locator(".user .bubble")).to_have_text("one")
    await expect(wordings).to_contain_text("1/2")
    assert await chat.stored() == stored
    await under(chat, "user", "Branch").click()
    await expect(chat.page.locator(".notice").last).to_contain_text("A branch from that turn")
    await chat.answered('"one"')
    stored = await chat.until_stored_is_shown()
    assert [text for role, text in stored if role == "user"] == ["one"]
    assert chat.errors == []


@pytest.mark.shared
async def test_why_tells_what_happened_and_keys_do_what_people_expect(chat: Chat) -> None:
    await chat.sign_in()
    page, text = chat.page, chat.page.locator("#text")
    await chat.say("first words")
    await chat.answered("first words")
    await under(chat, "assistant", "Why").click()
    await expect(page.get_by_role("dialog")).to_contain_text("turn settled")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(under(chat, "assistant", "Why")).to_be_focused()

    await text.focus()
    await page.keyboard.press("ArrowUp")
    await expect(text).to_have_value("first words")
    await page.keyboard.press("Escape")
    await expect(text).to_have_value("")
    await expect(text).to_be_focused()
    await chat.say("demo words=2000 delay_ms=50")
    await expect(page.locator(".streaming")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator(".outcome[data-outcome=stopped]")).to_be_visible()
    await expect(text).to_be_focused()
    await chat.say("demo words=2000 delay_ms=50")
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect(page.locator(".outcome[data-outcome=stopped]")).to_have_count(2)
    await expect(text).to_be_focused()
    await under(chat, "user", "Copy").click()
    await expect(page.get_by_text("Copied").or_(page.get_by_text("Could not be"))).to_have_count(1)
    assert chat.errors == []


@pytest.mark.shared
async def test_replies_to_commands_survive_a_reload_where_they_stand(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("one")
    await chat.answered('"one"')
    await chat.say("/whoami")
    await expect(chat.page.locator(".notice")).to_contain_text("You are ")
    await chat.say("two")
    await chat.answered('"two"')
    kinds = "[...document.querySelectorAll('.row')].map((row) => row.classList[1])"
    before = await chat.page.evaluate(kinds)
    assert before == ["user", "assistant", "notice", "user", "assistant"]

    await chat.page.reload()
    await chat.answered('"two"')
    assert await chat.page.evaluate(kinds) == before
    await expect(chat.page.locator(".notice code")).to_have_text("/whoami")
    assert chat.errors == []


@pytest.mark.shared
async def test_what_the_gateway_knows_of_files_and_refusals_is_said_where_it_matters(
    chat: Chat,
) -> None:
    async def told(route: Route) -> None:
        response = await route.fetch()
        page = await response.json()
        problem = "the file holds no text that could be read"
        page["messages"][0]["attachments"] = [{"name": "scan.pdf", "problem": problem}]
        page["messages"][1].update(
            outcome="failed", reason="context_exceeded", text="", detail="",
            ending="The conversation is too long; /compact shortens it, /new begins another.",
        )  # fmt: skip
        await route.fulfill(response=response, json=page)

    await chat.sign_in()
    await chat.say("read this")
    await chat.answered("read this")
    await chat.page.route(re.compile(r"/transcript\?"), told)
    await chat.page.reload()
    await expect(chat.page.locator(".user .problem")).to_contain_text("no text that could be read")
    badge = chat.page.locator(".outcome[data-outcome=failed]")
    await expect(badge).to_contain_text("too long")
    for name in ("Shorten", "New session", "Retry"):
        await expect(badge.get_by_role("button", name=name)).to_be_visible()
    assert chat.errors == []


def entry(chat: Chat, title: str) -> Locator:
    """Return the entry of a conversation in the sidebar."""
    return chat.page.locator("#conversations li", has_text=title)


async def choose(chat: Chat, title: str, what: str) -> None:
    """Choose something in the menu of an entry."""
    await entry(chat, title).get_by_role("button", name="Conversation options").click()
    await chat.page.get_by_role("menuitem", name=what, exact=True).click()


@pytest.mark.shared
async def test_conversations_are_renamed_pinned_put_away_and_deleted(chat: Chat) -> None:
    await chat.sign_in()
    page = chat.page
    for words in ("about apples", "about pears"):
        await page.get_by_role("button", name="New chat").click()
        await chat.say(words)
        await chat.answered(words)
    group = page.locator("#conversations section")
    await expect(group.locator("h2")).to_have_text(["Today"])

    await choose(chat, "about apples", "Pin")
    await expect(group.locator("h2")).to_have_text(["Pinned", "Today"])
    await expect(group.first.locator("li")).to_have_text(re.compile("about apples"))
    await choose(chat, "about apples", "Rename")
    await page.keyboard.type("Fruit")
    await page.keyboard.press("Enter")
    await expect(entry(chat, "Fruit")).to_be_visible()

    await choose(chat, "about pears", "Archive")
    await expect(entry(chat, "about pears")).to_have_count(0)
    await expect(page.locator("#empty")).to_be_visible()
    await page.get_by_role("button", name="Archived").click()
    await expect(entry(chat, "about pears")).to_be_visible()
    await choose(chat, "about pears", "Unarchive")
    await page.get_by_role("button", name="Archived").click()
    await expect(entry(chat, "about pears")).to_be_visible()

    await choose(chat, "about pears", "Delete")
    await expect(page.get_by_role("dialog")).to_contain_text("stays stored")
    await page.get_by_role("button", name="Keep it").click()
    await choose(chat, "about pears", "Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(entry(chat, "about pears")).to_have_count(0)
    await page.reload()
    await expect(entry(chat, "Fruit")).to_be_visible()
    await expect(entry(chat, "about pears")).to_have_count(0)
    assert chat.errors == []


@pytest.mark.shared
async def test_unread_and_running_marks_are_live(chat: Chat) -> None:
    await chat.sign_in()
    # Nothing is asked for again and again: the list is told what changes.
    await chat.say("here")
    await chat.answered("here")
    asked: list[str] = []
    chat.page.on("request", lambda request: asked.append(request.url))
    body = {"text": "demo words=3000 delay_ms=20"}
    taken = await chat.call("POST", "/api/conversations/elsewhere/messages", body)
    there = chat.page.locator("#conversations a[title=elsewhere]")
    await expect(there.locator(".dot")).to_be_visible()
    await chat.call("POST", f"/api/turns/{taken['turn']}/stop")
    await expect(there.locator(".unread-mark")).to_be_visible()
    assert [url for url in asked if "/api/conversations?" in url] == []

    await there.click()
    await expect(chat.page.locator(".outcome[data-outcome=stopped]")).to_be_visible()
    await chat.page.locator("#conversations a:not([aria-current])").click()
    await chat.answered("here")
    await expect(there.locator(".unread-mark")).to_have_count(0)
    await chat.page.reload()
    await chat.answered("here")
    await expect(there.locator(".unread-mark")).to_have_count(0)
    assert chat.errors == []


@pytest.mark.shared
async def test_search_jumps_to_a_message_and_sessions_lead_back(chat: Chat) -> None:
    await chat.sign_in()
    page = chat.page
    await chat.say("a needle in the hay")
    await chat.answered("needle")
    await page.get_by_role("button", name="New chat").click()
    await chat.say("something else")
    await chat.answered("something else")

    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.keyboard.type("needle hay")
    hits = page.get_by_role("dialog").locator(".hit")
    await expect(hits).to_have_count(2)
    await expect(hits.first.locator("mark").first).to_have_text("needle")
    await hits.last.click()
    await expect(page.locator(".row.user.found")).to_contain_text("a needle")

    await chat.say("/new")
    await expect(page.locator(".row.user")).to_have_count(0)
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.keyboard.type("needle")
    await hits.last.click()
    dialog = page.get_by_role("dialog", name="Session", exact=True)
    await expect(dialog.locator(".found")).to_contain_text("needle")
    await dialog.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Sessions", exact=True).click()
    listed = page.get_by_role("dialog", name="Sessions of this conversation")
    await expect(listed).to_contain_text("You are here")
    await listed.get_by_role("button", name="Go back").click()
    await chat.answered("needle")
    assert len(await chat.until_stored_is_shown()) == 2
    assert chat.errors == []


RICH = r"""Inline \( E = mc^2 \) for $5 and $6.

- [ ] open
- [x] done

See https://example.com重新 and (https://a.example/x)。 A note[^1].

[^1]: The note.

```python
def f(x):
    return x + 1
```

```mermaid
graph TD; A[Start] --> B[End];
```
"""


@pytest.mark.shared
async def test_text_is_drawn_as_it_is_meant(chat: Chat) -> None:
    async def said(route: Route) -> None:
        response = await route.fetch()
        page = await response.json()
        for message in page["messages"]:
            is_user = message["role"] == "user"
            message["text"] = "a long line\n" * 80 if is_user else f"<think>hm</think>{RICH}"
        await route.fulfill(response=response, json=page)

    await chat.sign_in()
    await chat.say("rich")
    await chat.answered("rich")
    await chat.page.route(re.compile(r"/transcript\?"), said)
    await chat.page.reload()
    prose = chat.page.locator(".row.assistant > .prose")
    await expect(prose.locator(".math math")).to_be_visible()
    await expect(prose).to_contain_text("for $5 and $6.")
    await expect(prose.locator("input[type=checkbox]")).to_have_count(2)
    await expect(prose.locator("input[type=checkbox]:checked")).to_have_count(1)
    links = await prose.locator("a").evaluate_all("(all) => all.map((each) => each.href)")
    assert links == ["https://example.com/", "https://a.example/x"]
    await expect(prose.locator(".footnotes li")).to_have_text("The note.")
    await expect(prose.locator(".hljs-keyword").first).to_have_text("def")
    diagram = prose.locator("iframe")
    assert await diagram.get_attribute("sandbox") == "allow-scripts"
    await expect(chat.page.frame_locator("iframe").locator("svg .node")).to_have_count(2)
    await expect(chat.page.locator(".thinking .prose")).to_be_hidden()
    await chat.page.locator(".thinking summary").click()
    await expect(chat.page.locator(".thinking .prose")).to_have_text("hm")
    bubble = chat.page.locator(".user .bubble")
    assert len(await bubble.inner_text()) < 1000
    await chat.page.get_by_role("button", name=re.compile("^Show all")).click()
    await expect(bubble).to_have_text(re.compile("(a long line\\s+){79}a long line"))
    assert chat.errors == []


@pytest.mark.shared
async def test_what_is_still_arriving_is_no_link_yet(chat: Chat) -> None:
    await chat.sign_in()
    drawn = await chat.page.evaluate(
        """async (texts) => {
            const { draw } = await import('/static/markdown.js');
            return texts.map((text) => {
                const box = document.createElement('div');
                draw(box, text, { isStreaming: true });
                return [box.textContent.trim(), box.querySelectorAll('a').length];
            });
        }""",
        ["see [the guide](https://www.r", "see https://www.r", "see [it](https://a.example) and"],
    )
    assert drawn == [["see the guide", 0], ["see https://www.r", 0], ["see it and", 1]]


@pytest.mark.shared
async def test_pictures_are_seen_before_sending_and_enlarged_on_a_click(chat: Chat) -> None:
    await chat.sign_in()
    page = chat.page
    picture = FilePayload(name="dot.png", mimeType="image/png", buffer=DOT)
    await page.set_input_files("#files", picture)
    await expect(page.locator(".chip img")).to_be_visible()
    await expect(page.locator(".chip-state")).to_be_empty()
    await chat.say("look")
    await chat.answered("look")
    await page.get_by_role("button", name="Enlarge dot.png").click()
    large = page.get_by_role("dialog", name="dot.png")
    await expect(large.locator("img")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(large).to_be_hidden()
    await expect(page.get_by_role("button", name="Enlarge dot.png")).to_be_focused()
    assert chat.errors == []


FOUND = """async () => (await axe.run({ iframes: false })).violations.map(
    ({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target).join(' ; ')}`)"""


@pytest.mark.shared
async def test_nothing_hinders_people_in_the_light_the_dark_on_a_phone_or_from_the_right(
    chat: Chat, axe: str
) -> None:
    await chat.sign_in()
    page = chat.page
    await chat.say("demo tool sundial {}")
    await chat.answered("The tool sundial answered")
    await chat.say("demo fail")
    await expect(page.locator(".outcome[data-outcome=failed]")).to_be_visible()
    await chat.say("/whoami")
    await expect(page.locator(".notice")).to_be_visible()
    await page.evaluate(axe)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert await page.evaluate(FOUND) == []
    await page.get_by_role("button", name="Conversation options").first.click()
    assert await page.evaluate(FOUND) == []
    await page.keyboard.press("Escape")
    for name in ("Search", "Sessions", "Why", "What the agent may do"):
        await page.get_by_role("button", name=name, exact=True).first.click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await expect(page.get_by_role("dialog")).not_to_contain_text("Loading")
        assert await page.evaluate(FOUND) == []
        await page.keyboard.press("Escape")
    # 200 % of 720 points, and a phone; from left to right and the other way.
    for width in (360, 390):
        await page.set_viewport_size({"width": width, "height": 740})
        for direction in ("ltr", "rtl"):
            await page.evaluate("(dir) => { document.documentElement.dir = dir; }", direction)
            assert await page.evaluate(FOUND) == []
            assert await page.evaluate(
                "document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth"
            )
            await page.get_by_role("button", name="Open conversations").click()
            await expect(page.get_by_role("button", name="New chat")).to_be_in_viewport()
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("button", name="New chat")).not_to_be_in_viewport()
    assert chat.errors == []


@pytest.mark.shared
async def test_the_page_can_be_installed(chat: Chat) -> None:
    await chat.sign_in()
    address = await chat.page.locator("link[rel=manifest]").evaluate("(link) => link.href")
    response = await chat.page.request.get(address)
    manifest = await response.json()
    assert response.headers["content-type"].startswith("application/manifest+json")
    assert (manifest["name"], manifest["display"]) == ("Perdure", "standalone")
    for icon in manifest["icons"]:
        found = await chat.page.request.get(urljoin(address, icon["src"]))
        assert found.status == 200
        assert found.headers["content-type"] == icon["type"]
    assert urljoin(address, manifest["start_url"]) == f"{chat.gateway.url}/"


async def test_a_long_answer_goes_on_while_nobody_looks_and_is_there_on_the_phone(
    chat: Chat, gateway: Gateway
) -> None:
    await chat.sign_in()
    await chat.say("demo words=150 delay_ms=40")
    await expect(chat.page.locator(".streaming")).to_be_visible()
    address = chat.page.url
    phone = await chat.page.context.browser.new_context(  # type: ignore[union-attr]
        viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True
    )
    await chat.page.goto("about:blank")

    # Nobody looks; then the gateway dies in the middle and comes back.
    await finished(gateway.kill())
    await finished(gateway.start())
    window = Chat(await phone.new_page(), gateway)
    await window.sign_in()
    await window.page.goto(address)
    await expect(window.page.locator(".assistant").last).to_be_visible()
    await window.at_rest()
    stored = await window.until_stored_is_shown()
    assert [text for role, text in stored if role == "user"] == ["demo words=150 delay_ms=40"]
    assert stored[-1][0] == "assistant"
    await expect(window.page.locator(".outcome", has_text="restarted")).to_be_visible()
    await phone.close()


async def test_the_page_speaks_german_to_those_who_want_that(
    chat: Chat, browser: str, gateway: Gateway
) -> None:
    async with async_playwright() as playwright:
        connection = await playwright.chromium.connect_over_cdp(browser)
        context = await connection.new_context(locale="de-DE")
        window = Chat(await context.new_page(), gateway, chat.errors)
        await window.sign_in()
        page = window.page
        await expect(page.get_by_role("button", name="Neue Unterhaltung")).to_be_visible()
        await expect(page.locator("html")).to_have_attribute("lang", "de")
        await window.say("hallo")
        await window.answered("hallo")
        for name in ("Kopieren", "Neu erzeugen", "Bearbeiten", "Abzweigen", "Warum"):
            button = page.locator(".row.assistant").get_by_role("button", name=name)
            await expect(button).to_be_visible()
        await expect(page.locator("#conversations h2")).to_have_text(["Heute"])
        await window.say("/new")
        await expect(page.locator(".notice").last).to_contain_text("Eine neue Sitzung")
        await context.close()
    await chat.sign_in()
    await expect(chat.page.get_by_role("button", name="New chat")).to_be_visible()
    assert chat.errors == []


# What is loaded by somebody else is there between the first drawing and what follows it.
LATE = """async () => {
    const { html, lazily, render } = await import('/static/ui.js');
    const Late = lazily(async () => () => html`<b>here by now</b>`);
    const root = document.createElement('div');
    document.body.append(root);
    const loading = Late.loading();
    render(html`<${Late} />`, root);
    const before = root.textContent;
    await loading;
    return before;
}"""


@pytest.mark.shared
async def test_what_was_loaded_meanwhile_is_drawn(chat: Chat) -> None:
    await chat.sign_in()
    assert await chat.page.evaluate(LATE) == ""
    await expect(chat.page.get_by_text("here by now")).to_have_count(1)


@pytest.mark.shared
async def test_a_library_that_is_missing_costs_no_text(chat: Chat) -> None:
    async def said(route: Route) -> None:
        response = await route.fetch()
        page = await response.json()
        page["messages"][-1]["text"] = RICH
        await route.fulfill(response=response, json=page)

    await chat.sign_in()
    await chat.say("rich")
    await chat.answered("rich")
    await chat.page.route(re.compile(r"/transcript\?"), said)
    for library in ("katex", "highlight", "mermaid"):
        await chat.page.route(f"**/vendor/{library}*", lambda route: route.abort())
    await chat.page.reload()
    prose = chat.page.locator(".row.assistant > .prose")
    await expect(prose.locator(".math")).to_have_text("E = mc^2")
    await expect(prose.locator("code").first).to_contain_text("return x + 1")
    await expect(prose.locator("code").last).to_contain_text("graph TD")
