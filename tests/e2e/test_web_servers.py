"""Checks in a real browser how the web chat shows the calls of tool servers, and what they ask."""

import json
from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import Locator, expect
from tests.chat_window import Chat

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
pytestmark = pytest.mark.timeout(120)


def settings(command: list[str]) -> str:
    return f"""
[agents.main]
kind = "demo"
tools = ["mcp.board"]

[[agents.main.rules]]
tool = "mcp.board.note"
do = "ask"

[tools.mcp.board]
command = {json.dumps(command)}
approve = "never"
"""


@pytest.fixture
async def gateway(gateway_factory: Factory, new_peer: NewPeer) -> GatewayProcess:
    return await gateway_factory(toml=settings(new_peer.hostile_mcp().command()))


def card(chat: Chat) -> Locator:
    return chat.page.locator(".approval").last


async def call(chat: Chat, tool: str, **arguments: object) -> None:
    await chat.say(f"demo tool board__{tool} {json.dumps(arguments)}")


async def test_a_call_of_a_server_is_shown_as_other_calls_are(chat: Chat) -> None:
    await chat.sign_in()
    await call(chat, "echo", text="hello from the board")
    await chat.at_rest()

    row = chat.page.locator(".tool").last
    await expect(row).to_contain_text("board__echo")


async def test_a_call_that_must_be_allowed_is_allowed_on_the_page(chat: Chat) -> None:
    await chat.sign_in()
    await call(chat, "note", text="buy milk")

    await expect(card(chat).locator(".arguments")).to_contain_text('"text": "buy milk"')
    await card(chat).get_by_role("button", name="Allow", exact=True).click()
    await chat.answered("kept")


async def test_what_a_server_asks_midway_is_answered_on_the_page(chat: Chat) -> None:
    await chat.sign_in()
    await call(chat, "ask", message="Which colour shall the board have?")

    await expect(card(chat)).to_contain_text("Which colour shall the board have?")
    await expect(card(chat)).to_contain_text("board")
    field = card(chat).get_by_label("Your answer")
    await field.press_sequentially("colour: red")
    await field.press("Shift+Enter")
    await field.press_sequentially("number: 7")
    await expect(field).to_have_value("colour: red\nnumber: 7")
    await field.press("Enter")
    await chat.answered('"number": 7')


async def test_an_answer_that_does_not_fit_is_asked_for_again(chat: Chat) -> None:
    await chat.sign_in()
    await call(chat, "ask", message="Which colour shall the board have?")
    await card(chat).get_by_label("Your answer").fill("colour: blue")
    await card(chat).get_by_role("button", name="Answer", exact=True).click()

    await expect(chat.page.locator(".approval")).to_have_count(2)
    await expect(card(chat)).to_contain_text("colour must be one of red, green")
    await card(chat).get_by_label("Your answer").fill("Decline")
    await card(chat).get_by_role("button", name="Answer", exact=True).click()
    await chat.answered("decline")


async def test_a_call_that_has_failed_does_not_look_as_if_it_were_done(chat: Chat) -> None:
    await chat.sign_in()
    await call(chat, "fail", text="oh no")
    await chat.at_rest()

    await expect(chat.page.locator(".tool-state").last).to_have_text("failed")


async def test_a_prompt_without_its_argument_says_what_to_write(chat: Chat) -> None:
    await chat.sign_in()
    await chat.say("/board__greet")

    told = chat.page.locator(".row.outcome").last
    await expect(told).to_contain_text("Write: /board__greet name [style]")
