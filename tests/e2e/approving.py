"""Holds what the end-to-end tests of approvals share: an agent with tools, and ways to make it ask
people."""

import asyncio
import json
from pathlib import Path
from typing import Any

from perdure.testkit.processes.http import DEADLINE_S, POLL_S, Client

LIST = 'demo tool memory {"action": "list"}'


def toml(folder: Path, *, more: str = "") -> str:
    """Return a configuration in which people are asked about memories, and about writing files."""
    return f"""
[agents.main]
kind = "demo"
tools = ["memory", "sessions", "todo", "ask", "files"]
[agents.main.approve]
memory = "always"
[tools.files]
roots = ["{folder}"]
{more}"""


def files(action: str, path: str, **more: str) -> str:
    """Return a message that makes the agent call the tool `files`."""
    return f"demo tool files {json.dumps({'action': action, 'path': path, **more})}"


def ask(question: str, *choices: str) -> str:
    """Return a message that makes the agent ask a question of its own."""
    asked: dict[str, object] = {"question": question}
    return f"demo tool ask {json.dumps(asked | ({'choices': choices} if choices else {}))}"


async def asked(client: Client, name: str, text: str) -> dict[str, Any]:
    """Send a message that makes the agent ask, and return the question."""
    accepted = await client.say(name, text)
    async with asyncio.timeout(DEADLINE_S):
        while not (found := await questions(client, accepted["turn"])):
            await client.gateway.pause(POLL_S)
    (question,) = found
    return question


async def questions(client: Client, turn: str) -> list[dict[str, Any]]:
    """Return the open questions of a turn that the client sees."""
    status, body = await client.call("GET", "/api/approvals?limit=1000")
    assert status == 200, body
    return [each for each in body["approvals"] if each["turn"] == turn]


async def answer(client: Client, question: str, word: str, **more: object) -> tuple[int, Any]:
    """Answer a question over HTTP."""
    path = f"/api/approvals/{question}"
    return await client.call("POST", path, body={"answer": word, **more})


async def result_of(client: Client, name: str, turn: str) -> str:
    """Wait until a turn is settled, and return the result of its only call."""
    settled = await client.settled(turn)
    assert settled["outcome"] == "done", settled
    entries = await client.transcript(name, "?limit=1000")
    (found,) = [each for each in entries if each["role"] == "tool" and each["turn"] == turn]
    text: str = found["text"]
    return text
