"""Checks in a real browser how the web chat shows what agents ask and do.

There are cards for approvals and questions, rows for tool calls, lists of what is to be done, and a
dialog that says what the agent may do.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable
from itertools import permutations
from pathlib import Path

import pytest
from playwright.async_api import Locator, Route, expect
from tests.chat_window import Chat, Gateway, Guest, opened

from perdure.testkit.models.model_script import call_tools, in_turn, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
LIST_MEMORY = 'demo tool memory {"action": "list"}'
BEFORE = "one\ntwo\nthree\n"

# Draws rows of the page without a gateway.
DRAWN = """async (news) => {
    const { Transcript } = await import('/static/transcript.js');
    const { Rows, loaded } = await import('/static/log.js');
    await loaded();
    const { rowsOf } = await import('/static/rows.js');
    const transcript = new Transcript();
    transcript.apply('message', { id: 'u', role: 'user', turn: 't', text: 'do it' });
    const { html, render } = await import('/static/ui.js');
    const root = document.createElement('div');
    return news.map(([kind, data]) => {
        transcript.apply(kind, { turn: 't', ...data });
        render(html`<${Rows} rows=${rowsOf(transcript, [])} acts=${{}} />`, root);
        return root.querySelector('.tool, .todo')?.innerText ?? root.textContent;
    });
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def shared_gateway(share_gateway: Callable[[str], GatewayProcess], folder: Path) -> GatewayProcess:
    return share_gateway(settings(folder))


@pytest.fixture
def file(folder: Path, request: pytest.FixtureRequest) -> Path:
    """Return a file that belongs to this test."""
    made = folder / f"{request.node.name}.txt"
    made.write_text(BEFORE)
    return made


def settings(folder: Path, agent: str = 'kind = "demo"', tools: str = "") -> str:
    return f"""
[agents.main]
{agent}
tools = ["memory", "todo", "ask", "files"]
[tools]
{tools}
[tools.files]
roots = ["{folder}"]
[tools.memory]
approve = "always"
"""


def edit(file: Path, new: str = "TWO") -> str:
    asked = {"action": "edit", "path": file.name, "old": "two", "new": new}
    return f"demo tool files {json.dumps(asked, ensure_ascii=False)}"


def ask(question: str, *choices: str) -> str:
    asked = {"question": question, **({"choices": choices} if choices else {})}
    return f"demo tool ask {json.dumps(asked)}"


def card(chat: Chat) -> Locator:
    return chat.page.locator(".approval").last


def press(chat: Chat, name: str) -> Locator:
    return card(chat).get_by_role("button", name=name, exact=True)


async def over(chat: Chat, words: str) -> None:
    """Wait until the last card shows its end, and offers nothing any more."""
    await expect(card(chat).locator(".result")).to_contain_text(words)
    await expect(card(chat).get_by_role("button")).to_have_count(0)


async def has_no_sideways_scroll(chat: Chat) -> bool:
    fits: bool = await chat.page.evaluate(
        """() => [document.scrollingElement, ...document.querySelectorAll('.scroller, .row, .card')]
            .every((box) => box.scrollWidth <= box.clientWidth + 1)"""
    )
    return fits


@pytest.mark.shared
async def test_a_call_is_shown_exactly_and_allowed_by_the_keyboard(chat: Chat, file: Path) -> None:
    await chat.sign_in()
    await chat.say(edit(file))

    await expect(card(chat).locator(".arguments")).to_have_text(
        re.compile(r'^\{\s+"action": "edit",\s+"path": ".+",\s+"old": "two",\s+"new": "TWO"\s+\}$')
    )
    await expect(card(chat).locator(".removed")).to_have_text(re.compile("^-two"))
    await expect(card(chat).locator(".added")).to_have_text(re.compile(r"^\+TWO"))
    await expect(card(chat).locator(".time-left")).to_have_text("60 min left")
    await expect(card(chat)).to_contain_text("this covers: files.edit on")
    await expect(chat.page.locator("#conversations a[aria-current]")).to_contain_text("asks you")
    await expect(chat.page.locator(".notice")).to_have_count(0)
    assert file.read_text() == BEFORE

    await press(chat, "Allow").focus()
    await chat.page.keyboard.press("Enter")

    await over(chat, "Allowed by guest")
    await chat.answered("The tool files answered")
    assert file.read_text() == BEFORE.replace("two", "TWO")
    assert await chat.page.evaluate("document.activeElement.className") == "card"
    await expect(chat.page.locator(".tool-state")).to_have_text("done")
    await expect(chat.page.locator("#conversations .waits")).to_have_count(0)
    kinds = "[...document.querySelectorAll('.row')].map((row) => row.classList[1])"
    shown = await chat.page.evaluate(kinds)
    await chat.page.reload()
    await over(chat, "Allowed by guest")
    await chat.answered("The tool files answered")
    assert await chat.page.evaluate(kinds) == shown
    assert [kind for kind in shown if kind != "assistant"] == ["user", "approval", "tool"]
    await card(chat).get_by_text("What was asked").click()
    await expect(card(chat).locator(".arguments")).to_contain_text('"old": "two"')
    assert chat.errors == []


@pytest.mark.shared
async def test_a_denied_call_does_not_run(chat: Chat, file: Path) -> None:
    await chat.sign_in()
    await chat.say(edit(file))
    await press(chat, "Deny").click()

    await over(chat, "Denied by guest")
    await chat.answered("The tool files answered")
    await expect(chat.page.locator(".tool-state")).to_have_text("not run")
    assert file.read_text() == BEFORE
    await chat.page.reload()
    await over(chat, "Denied by guest")
    await expect(chat.page.locator(".tool-state")).to_have_text("not run")
    assert chat.errors == []


@pytest.mark.shared
async def test_what_was_allowed_for_longer_can_be_taken_back(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say(LIST_MEMORY)
    await press(chat, "Allow in this session").click()
    await over(chat, "in this session: memory with any arguments")
    await chat.answered("The tool memory answered")
    await chat.say(LIST_MEMORY)
    await expect(chat.page.locator(".assistant", has_text="The tool memory")).to_have_count(2)
    await expect(chat.page.locator(".approval")).to_have_count(1)

    await chat.page.get_by_role("button", name="What the agent may do").click()
    dialog = chat.page.get_by_role("dialog")
    await expect(dialog.locator(".permission", has_text="memory").first).to_contain_text("asks you")
    await expect(dialog.get_by_text("Not available (")).to_be_visible()
    back = "Take back: memory with any arguments, in this session"
    await dialog.get_by_role("button", name=back).click()
    await expect(dialog.get_by_role("status")).to_contain_text("Taken back")
    await expect(dialog).to_contain_text("Nothing. Each call")
    assert (await chat.call("GET", "/api/grants"))["grants"] == []
    await chat.page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()

    await chat.say(LIST_MEMORY)
    await expect(chat.page.locator(".approval")).to_have_count(2)
    await card(chat).get_by_text("Allow for longer").click()
    await press(chat, "Allow for 30 minutes").click()
    await over(chat, "for a while: memory with any arguments")
    (grant,) = (await chat.call("GET", "/api/grants"))["grants"]
    assert grant["scope"] == "time"
    assert chat.errors == []


@pytest.mark.shared
async def test_questions_are_answered_by_a_choice_or_in_words(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say(ask("Which **day**?", "Monday", "Tuesday"))
    await expect(card(chat).locator("strong")).to_have_text("day")
    await expect(card(chat)).not_to_contain_text("Choose one")
    await press(chat, "Tuesday").click()
    await over(chat, "answered: ")
    await expect(card(chat).locator("q")).to_have_text("Tuesday")
    await chat.answered('The tool ask answered: "Tuesday"')

    await chat.say(ask("And where?", "Here", "There"))
    field = card(chat).get_by_placeholder("Or type any answer")
    await field.fill("at the old")
    name = await chat.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('c')")
    await chat.call("POST", f"/api/conversations/{name}/messages", {"text": "/title Plans"})
    await expect(chat.page.locator("#title")).to_have_text("Plans")
    await field.press_sequentially(" mill")
    await field.press("Enter")
    await over(chat, "answered: ")
    await expect(card(chat).locator("q")).to_have_text("at the old mill")

    await chat.answered('The tool ask answered: "at the old mill"')
    await chat.say(ask("What else?"))
    await expect(card(chat).get_by_placeholder("Type any answer")).to_be_visible()
    await chat.say("nothing at all")
    await over(chat, "answered: ")
    await expect(card(chat).locator("q")).to_have_text("nothing at all")
    await chat.answered('The tool ask answered: "nothing at all"')
    await chat.page.reload()
    await expect(chat.page.locator(".approval q")).to_have_text(
        ["Tuesday", "at the old mill", "nothing at all"]
    )
    assert chat.errors == []


@pytest.mark.shared
async def test_every_window_shows_the_first_answer(chat: Chat) -> None:
    async def come_too_late(route: Route) -> None:
        if route.request.method == "POST":
            await chat.call("POST", f"/api/approvals/{which}", {"answer": "deny"})
        await route.continue_()

    await chat.sign_in()
    await chat.say(LIST_MEMORY)
    await expect(press(chat, "Allow")).to_be_visible()
    other = await chat.another_window()
    await chat.page.reload()
    for window in (chat, other):
        await expect(press(window, "Allow")).to_be_enabled()
        await expect(window.page.locator(".approval")).to_have_count(1)
        await expect(window.page.locator(".notice")).to_have_count(0)
    await press(other, "Allow").click()
    for window in (chat, other):
        await over(window, "Allowed by guest")
        await window.answered("The tool memory answered")

    await chat.say(LIST_MEMORY)
    for window in (chat, other):
        await expect(window.page.locator(".approval")).to_have_count(2)
        await expect(press(window, "Allow")).to_be_enabled()
    which = await card(other).get_attribute("data-key")
    await other.page.route("**/api/approvals/*", come_too_late)
    await press(other, "Allow").click()
    await over(other, "Denied by guest")
    await expect(card(other).get_by_role("alert")).to_contain_text("already answered")
    await over(chat, "Denied by guest")


@pytest.mark.shared
async def test_an_answer_that_did_not_arrive_can_be_given_again(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say(LIST_MEMORY)
    await chat.page.route("**/api/approvals/*", lambda route: route.abort("connectionreset"))
    await press(chat, "Allow").click()
    await expect(card(chat).get_by_role("alert")).to_contain_text("cannot be reached")
    await expect(press(chat, "Allow")).to_be_focused()
    await chat.page.unroute("**/api/approvals/*")

    held: list[Route] = []

    async def hold(route: Route) -> None:
        held.append(route)

    await chat.page.route("**/api/approvals/*", hold)
    await press(chat, "Allow").click()
    for name in ("Allow", "Allow in this session", "Deny"):
        await expect(press(chat, name)).to_be_disabled()
    await held[0].continue_()
    await over(chat, "Allowed by guest")


@pytest.mark.shared
async def test_only_those_who_are_asked_find_the_questions_of_a_turn(guest: Client) -> None:
    turn = (await guest.say("mine", LIST_MEMORY))["turn"]
    other = Client(guest.gateway, guest.session)
    await other.become("somebody else")
    path = f"/api/approvals?turns={turn},{turn}x"
    async with asyncio.timeout(20):
        while not (found := await guest.call("GET", path))[1]["approvals"]:
            await asyncio.sleep(0.02)
    assert [(each["turn"], each["state"]) for each in found[1]["approvals"]] == [(turn, "pending")]
    assert await other.call("GET", path) == (200, {"approvals": [], "next": None})
    assert await other.call("GET", f"/api/effects?turns={turn}") == (
        200,
        {"effects": [], "next": None},
    )
    status, refusal = await guest.call("GET", f"/api/approvals?turns={'x,' * 101}")
    assert (status, refusal["error"]["code"]) == (400, "too_many")


@pytest.mark.shared
async def test_a_stop_closes_what_was_asked(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say(LIST_MEMORY)
    await expect(press(chat, "Allow")).to_be_visible()
    await chat.page.click("#stop")
    await over(chat, "Not needed any more")
    await expect(chat.page.locator(".outcome[data-outcome=stopped]")).to_be_visible()
    await chat.page.reload()
    await over(chat, "Not needed any more")

    await chat.say("/undo")
    await expect(chat.page.locator(".approval, .tool")).to_have_count(0)
    await chat.say("/redo")
    await over(chat, "Not needed any more")
    assert chat.errors == []


async def test_a_deadline_closes_what_was_asked(
    browser: str, gateway_factory: Factory, tmp_path: Path
) -> None:
    toml = settings(tmp_path, tools="answer_wait_s = 2")
    async with opened(browser, await gateway_factory(toml=toml)) as chat:
        await chat.sign_in()
        await chat.say(LIST_MEMORY)
        await expect(card(chat).locator(".time-left")).to_have_text(re.compile("^[12] sec left"))
        await over(chat, "Nobody answered in time.")
        await chat.answered("nobody answered in time")
        await expect(chat.page.locator(".tool-state")).to_have_text("not run")
        assert chat.errors == []


async def test_a_card_outlives_a_kill_and_its_call_runs_once(
    browser: str, gateway_factory: Factory, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.txt"
    plan.write_text(BEFORE)
    gateway = await gateway_factory(toml=settings(tmp_path))
    async with opened(browser, gateway) as chat:
        await chat.sign_in()
        await chat.say(edit(plan))
        await expect(press(chat, "Allow")).to_be_visible()
        await gateway.kill()
        await expect(chat.page.locator("#connection")).to_contain_text("Reconnecting")
        await gateway.start()
        await expect(chat.page.locator("#connection")).to_be_empty()
        assert plan.read_text() == BEFORE

        await press(chat, "Allow").click()
        await over(chat, "Allowed by operator")
        await chat.answered("The tool files answered")
        await gateway.restart()
        await chat.page.reload()
        await over(chat, "Allowed by operator")

        assert plan.read_text() == BEFORE.replace("two", "TWO")
        await expect(chat.page.locator(".tool")).to_have_count(1)
        await expect(chat.page.locator(".approval")).to_have_count(1)


async def test_a_person_says_whether_a_call_has_happened(
    browser: str, gateway_factory: Factory, tmp_path: Path
) -> None:
    (tmp_path / "plan.txt").write_text(BEFORE)
    gateway = await gateway_factory(toml=settings(tmp_path))
    async with opened(browser, gateway) as chat:
        await chat.sign_in()
        await chat.say(edit(tmp_path / "plan.txt"))
        await press(chat, "Allow").click()
        await chat.answered("The tool files answered")
        await gateway.kill()
        forget_what_became_of_calls(gateway.home / "perdure.db")
        await gateway.start()
        await chat.page.reload()

        row = chat.page.locator(".tool")
        await expect(row).to_contain_text("may or may not have happened")
        await row.get_by_role("button", name="It happened", exact=True).click()
        await expect(row).to_contain_text("It happened. Marked by operator.")
        await expect(row.get_by_role("button")).to_have_count(0)
        await chat.page.reload()
        await expect(row).to_contain_text("It happened. Marked by operator.")
        (effect,) = (await chat.call("GET", "/api/effects"))["effects"]
        assert effect["state"] == "happened"


def forget_what_became_of_calls(database: Path) -> None:
    """Make the calls in a database look as if they had been cut short."""
    with sqlite3.connect(database) as store:
        store.execute(
            """UPDATE journal SET body = replace(body, '"returned"', '"unknown"')
               WHERE kind = 'tool_finished'"""
        )
        store.execute(
            """INSERT INTO effects
               (call_id, turn_id, session_id, principal_id, tool, arguments, at, state)
               SELECT q.call_id, q.turn_id, q.session_id, q.principal_id, q.tool, q.arguments,
                      q.asked_at, 'unknown'
               FROM questions q"""
        )
    store.close()


async def test_a_list_changes_in_its_place(
    browser: str, gateway_factory: Factory, tmp_path: Path
) -> None:
    def listed(state: str) -> str:
        return json.dumps({"items": [{"text": "sow", "state": state}, {"text": "reap"}]})

    script = in_turn(
        call_tools([("a", "todo", listed("doing"))]),
        call_tools(
            [("b", "memory", '{"action": "list"}'), ("c", "ask", '{"question": "And then?"}')]
        ),
        call_tools([("d", "todo", listed("done"))]),
        say("All is done."),
    )
    async with ModelServer(script) as server:
        agent = f'kind = "chat"\nbase_url = "{server.openai_url}"\nmodel = "scripted"'
        toml = settings(tmp_path, agent) + "[sessions]\ntitles = false\n"
        async with opened(browser, await gateway_factory(toml=toml)) as chat:
            await chat.sign_in()
            await chat.say("work")
            todo = chat.page.locator(".todo")
            await expect(todo.locator(".doing")).to_contain_text("sow")
            cards = chat.page.locator(".approval")
            await expect(cards).to_have_count(2)
            await cards.first.get_by_role("button", name="Allow", exact=True).click()
            await expect(cards.first.locator(".result")).to_contain_text("Allowed")
            await expect(todo.locator(".doing")).to_be_visible()
            await cards.last.get_by_label("Your answer").fill("rest")
            await cards.last.get_by_role("button", name="Answer").click()
            await chat.answered("All is done.")
            for is_again in (False, True):
                if is_again:
                    await chat.page.reload()
                await expect(todo).to_have_count(1)
                await expect(todo.locator(".done")).to_contain_text("sow")
                await expect(todo.locator(".open")).to_contain_text("reap")
                kinds = await chat.page.evaluate(
                    "[...document.querySelectorAll('.row')].map((row) => row.classList[1])"
                )
                assert kinds.index("todo") < kinds.index("approval")
            assert chat.errors == []


ASKED = """async (order) => {
    const { Transcript } = await import('/static/transcript.js');
    const transcript = new Transcript();
    const calls = ['a', 'b', 'c'].map((id) => ({ id, name: id, arguments: '{}' }));
    transcript.apply('message', { id: 'u', role: 'user', turn: 't', text: 'do it' });
    transcript.apply('message', { id: 'm', role: 'assistant', turn: 't', tool_calls: calls });
    for (const call of order) {
        const asked = { id: `q${call}`, turn: 't', call, tool: call, state: 'pending' };
        transcript.apply('approval', asked);
    }
    return transcript.entries.filter(({ role }) => role === 'approval').map(({ call }) => call);
}"""


@pytest.mark.shared
async def test_questions_stand_as_their_calls_do_whichever_is_told_first(chat: Chat) -> None:
    await chat.sign_in()
    for order in permutations("abc"):
        assert await chat.page.evaluate(ASKED, list(order)) == ["a", "b", "c"]


@pytest.mark.shared
async def test_what_the_gateway_asks_and_lists_is_in_the_language_of_the_page(
    browser: str, place: Gateway | Guest
) -> None:
    small = {"width": 360, "height": 740}
    async with opened(browser, place, locale="de-DE", viewport=small) as chat:
        await chat.sign_in()
        items = json.dumps({"items": [{"text": "graben", "state": "done"}, {"text": "gießen"}]})
        await chat.say(f"demo tool todo {items}")
        await expect(chat.page.locator(".todo p")).to_have_text("Zu tun (1 von 2 erledigt)")
        await chat.at_rest()
        await chat.say(LIST_MEMORY)
        lead = "Darf ich memory mit diesen Argumenten aufrufen?"
        await expect(card(chat).locator(".prose")).to_have_text(lead)
        assert await has_no_sideways_scroll(chat)
        await press(chat, "Ablehnen").click()
        await over(chat, "Von guest")
        assert chat.errors == []


@pytest.mark.shared
async def test_code_and_changes_read_from_the_left_on_a_page_from_the_right(
    browser: str, place: Gateway | Guest, file: Path
) -> None:
    async with opened(browser, place, locale="ar") as chat:
        await chat.sign_in()
        await expect(chat.page.locator("html")).to_have_attribute("dir", "rtl")
        await chat.say(edit(file))
        for part in (".arguments", ".diff"):
            await expect(card(chat).locator(part)).to_have_css("direction", "ltr")
        await expect(card(chat).locator(".time-left")).to_have_css("unicode-bidi", "plaintext")
        await press(chat, "Deny").click()
        await over(chat, "Denied")
        assert chat.errors == []


@pytest.mark.shared
async def test_hostile_arguments_are_text_and_nothing_of_them_is_hidden(
    chat: Chat, file: Path
) -> None:
    await chat.page.set_viewport_size({"width": 360, "height": 740})
    await chat.sign_in()
    hostile = "\u202eexe\u2066 </script><img src=x onerror=window.breaches.push(1)> ```\n# x"
    await chat.say(edit(file, hostile))
    shown = card(chat).locator(".arguments")
    await expect(shown).to_contain_text("<U+202E>exe<U+2066> </script><img src=x onerror=")
    await expect(card(chat).locator(".diff")).to_contain_text("+<U+202E>exe")
    await expect(card(chat).locator("h1, img, script")).to_have_count(0)
    assert await has_no_sideways_scroll(chat)
    await press(chat, "Deny").click()
    await over(chat, "Denied")

    # Too long for any other place, but not for this page.
    await chat.say(edit(file, "word " * 6000))
    await expect(shown).to_have_text(re.compile(r"(word ){6000}"))
    await expect(press(chat, "Allow in this session")).to_be_visible()
    assert await has_no_sideways_scroll(chat)
    await press(chat, "Allow").click()
    await over(chat, "Allowed")
    await chat.answered("The tool files answered")
    assert "word word" in file.read_text()

    await chat.say(ask("<b>bold</b> **strong**?", "<i>one</i>", "\u202etwo"))
    await expect(press(chat, "<i>one</i>")).to_be_visible()
    await expect(press(chat, "<U+202E>two")).to_be_visible()
    await expect(card(chat).locator("b, i")).to_have_count(0)
    assert await has_no_sideways_scroll(chat)
    await press(chat, "<i>one</i>").click()
    await over(chat, "<i>one</i>")
    assert chat.errors == []


@pytest.mark.shared
async def test_arguments_keep_every_sign(chat: Chat) -> None:
    await chat.sign_in()
    given = [
        '{"a":1,"a":12345678901234567890,"b":"\\u202e\\"{,","c":[],"d":{},"e":[1,{"f":null}]}',
        '{"broken": "\u202e',
        "tab\tand\x07bell\u200e",
    ]
    shown = await chat.page.evaluate(
        """async (given) => {
            const { exactJson } = await import('/static/exact.js');
            return given.map(exactJson);
        }""",
        given,
    )
    assert "".join(shown[0].split()) == given[0]
    assert shown[0].splitlines()[:3] == ["{", '  "a": 1,', '  "a": 12345678901234567890,']
    assert shown[1:] == ['{"broken": "<U+202E>', "tab\tand<U+0007>bell<U+200E>"]


@pytest.mark.shared
async def test_a_long_result_is_cut_until_it_is_asked_for(chat: Chat, file: Path) -> None:
    file.write_text("".join(f"line {number}\n" for number in range(600)))
    await chat.sign_in()
    asked = json.dumps({"action": "read", "path": file.name})
    await chat.say(f"demo tool files {asked}")
    row = chat.page.locator(".tool")
    await expect(row.locator(".tool-state")).to_have_text("done")
    await row.locator("summary").focus()
    await chat.page.keyboard.press("Enter")
    result = row.get_by_role("group", name="Result of files")
    await expect(result).to_contain_text("line 9")
    await expect(result).not_to_contain_text("line 400")
    await row.get_by_role("button", name=re.compile("^Show all")).click()
    await expect(result).to_contain_text("line 400")
    await expect(result).to_be_focused()
    assert chat.errors == []


@pytest.mark.shared
async def test_a_row_follows_its_call(chat: Chat) -> None:
    await chat.sign_in()
    call = {"call": "c", "name": "fetch"}
    note = {"id": "n", "role": "notice", "turn": "t", "at": 1}
    media = [{"media": "med_1", "name": "plan.txt", "mime": "text/plain", "size": 9}]
    rows = await chat.page.evaluate(
        DRAWN,
        [
            ["tool", {**call, "state": "started"}],
            ["tool", {**call, "state": "progress", "text": "half of it"}],
            ["tool", {**call, "state": "finished", "result": "x", "attachments": media}],
        ],
    )
    words = [" ".join(row.split()) for row in rows]
    assert words[:2] == ["fetch running", "fetch half of it running"]
    assert words[2].startswith("fetch done")
    assert words[2].endswith("plan.txt")
    lists = await chat.page.evaluate(
        DRAWN,
        [
            ["message", {**note, "text": "📋 **To do** (0 of 1 done)\n- ☐ sow"}],
            ["message", {**note, "text": "📋 **To do** (1 of 1 done)\n- ☑️ sow"}],
        ],
    )
    assert [re.search(r"\d of 1", each)[0] for each in lists] == ["0 of 1", "1 of 1"]  # type: ignore[index]
