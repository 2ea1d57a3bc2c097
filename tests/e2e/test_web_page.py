"""Checks in a real browser that the page stays light, and what it offers around messages."""

import json
import re

import pytest
from playwright.async_api import Locator, Route, expect
from tests.chat_window import Chat

# Draws the end of a conversation of so many messages, lets its last answer grow, and reads upwards.
LONG = """async (count) => {
    const { Transcript } = await import('/static/transcript.js');
    const { Log } = await import('/static/log.js');
    const { rowsOf } = await import('/static/rows.js');
    const { Span, partOf } = await import('/static/span.js');
    const { ready } = await import('/static/blocks/text.js');
    await ready();
    const root = document.createElement('div');
    document.body.append(root);
    const [transcript, span, log] = [new Transcript(), new Span(), new Log(root, {})];
    const messages = Array.from({ length: count }, (_, n) => ({
        id: `m${n}`, role: n % 2 ? 'assistant' : 'user', text: `line ${n}`, at: n,
        turn: `t${n >> 1}`, ...(n % 2 ? { outcome: 'done' } : {}),
    }));
    transcript.load({ session: 's', messages, next: null }, transcript.tick);
    transcript.apply('message', { id: 'u', role: 'user', turn: 't', text: 'more' });
    transcript.apply('state', { state: 'running', session: 's', head: 't', turn: 't', queued: 0 });
    const part = () => partOf(transcript, span.of(transcript.entries));
    const draw = () => log.draw(rowsOf(part(), []));
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
