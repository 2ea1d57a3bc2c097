"""Walks at random through commands, pictures, tools, long messages and refused words, against model
servers as they are. Whatever was refused before, an ordinary message is soon answered again."""

import json
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import aiohttp
import pytest

from perdure.testkit.models.model_script import Script, ScriptedRequest, by_words, call_tools, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.models.refusing import (
    FORBIDDEN,
    KINDS_OF_REFUSAL,
    PICTURE,
    by_policy,
    strings_only,
    without_pictures,
)
from perdure.testkit.models.small_window import small_window
from perdure.testkit.models.thoughtful import ThoughtfulModel
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(240)
Factory = Callable[..., Awaitable[GatewayProcess]]
STEPS: Final = 40
# After so many ordinary messages in a row one must have been answered.
PATIENCE: Final = 3
COMMANDS: Final = (
    "/undo",
    "/undo 2",
    "/redo",
    "/retry",
    "/new",
    "/branch",
    "/stop",
    "/compact",
    "/compact off",
    "/agent main",
    "/agent liberal",
    "/continue",
    "/resume 1",
)


def words(request: ScriptedRequest) -> Any:
    """Return an answer, or a look at the memory if that is asked for."""
    newest = json.dumps(request.messages[-1])
    if request.body.get("tools") and "use a tool" in newest and "tool_result" not in newest:
        return call_tools([(f"call_{request.number}", "memory", '{"action": "list"}')])
    return say(chunks=by_words(f"Answer {request.number}."))


def all_at_once(script: Script) -> Script:
    """Return a script that refuses lists, pictures and forbidden words, wants its thoughts back,
    and has a window of 2,000 tokens."""
    thoughtful = ThoughtfulModel(script)
    return small_window(2_000, by_policy(without_pictures(strings_only(thoughtful))))


KINDS: Final[Mapping[str, Callable[[Script], Script]]] = {
    **KINDS_OF_REFUSAL,
    "thoughtful": ThoughtfulModel,
    "a small window": partial(small_window, 2_000),
    "all at once": all_at_once,
}


def agent(server: ModelServer, wire: str, name: str) -> str:
    url = server.openai_url if wire == "openai" else server.url
    return f"""
[agents.{name}]
kind = "chat"
api = "{wire}"
base_url = "{url}"
model = "scripted"
api_key = "none"
patience_s = 0
tools = ["memory"]
"""


class Walker:
    """Takes random steps in one conversation."""

    def __init__(self, client: Client, name: str, seed: int) -> None:
        self.client = client
        self.name = name
        self.chance = random.Random(seed)
        self.log: list[str] = []

    async def step(self) -> None:
        """Take one step, and wait for its end."""
        kind = self.chance.choice(("word", "bad", "picture", "tool", "long", "command", "command"))
        files: list[Mapping[str, str]] = []
        match kind:
            case "bad":
                text = f"a {FORBIDDEN} thing"
            case "picture":
                text = "look"
                files = [{"media": await self._upload()}]
            case "tool":
                text = "use a tool"
            case "long":
                text = "a long message " * self.chance.randrange(40, 700)
            case "command":
                text = self.chance.choice(COMMANDS)
            case _:
                text = "an ordinary message"
        await self.say(text, files)

    async def say(self, text: str, files: list[Mapping[str, str]] | None = None) -> str:
        """Say something, and return how its turn has ended, if it has one."""
        path = f"/api/conversations/{self.name}/messages"
        body = {"text": text, **({"attachments": files} if files else {})}
        code, accepted = await self.client.call("POST", path, body=body)
        assert code == 202, (self.log, accepted)
        turn = accepted.get("turn")
        ended = await self.client.settled(turn) if turn else {}
        outcome = str(ended.get("outcome", accepted.get("effect", "")))
        self.log.append(f"{text[:30]}: {outcome} {ended.get('reason', '')}")
        return outcome

    async def ends_well(self) -> None:
        """Check that this is no dead end: an ordinary message is soon answered."""
        for _ in range(PATIENCE):
            if await self.say("an ordinary message") == "done":
                return
        raise AssertionError("a dead end:\n" + "\n".join(self.log[-30:]))

    async def _upload(self) -> str:
        headers = {"Content-Type": "image/png", "X-Filename": "cat.png"}
        code, body = await self.client.call("POST", "/api/media", raw=PICTURE, **headers)
        assert code == 201, body
        return str(body["id"])


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("kind", KINDS)
async def test_no_walk_ends_in_a_dead_end(
    gateway_factory: Factory, kind: str, wire: str, seed: int
) -> None:
    strict: Script = KINDS[kind](words)
    async with (
        ModelServer(strict) as main,
        ModelServer(words) as liberal,
        aiohttp.ClientSession() as session,
    ):
        toml = agent(main, wire, "main") + agent(liberal, wire, "liberal")
        gateway = await gateway_factory(toml=f"{toml}[sessions]\ntitles = false\n")
        walker = Walker(Client(gateway, session), "walk", seed)
        for number in range(STEPS):
            await walker.step()
            if number % 10 == 9:
                await walker.ends_well()
        await walker.say("/agent main")
        await walker.ends_well()
        assert main.violations == liberal.violations == []
        assert not isinstance(strict, ThoughtfulModel) or strict.refusals == []
