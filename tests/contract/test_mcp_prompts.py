"""Checks the prompts of real tool servers: how a message of a person becomes the text of one, and
what the person is told if it cannot be had."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import psutil
import pytest

from perdure.app.children.children import LaunchedChildren
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.named_prompts import NO_PROMPT, PromptFound
from perdure.ports.system.outgoing import DIRECT
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief
from perdure.tools.mcp.calls.prompts import ServerPrompts
from perdure.tools.mcp.servers.reaching import reach
from perdure.tools.mcp.servers.servers import McpServers
from perdure.tools.mcp.servers.settings import ServerSettings, ServerTimings

ADA = PrincipalId("prn_ada")
IN_A_WHILE_S = 20
QUICK = ServerTimings(first_wait_s=15.0, again_wait_s=3.0, connect_s=10.0, answer_s=2.0)


class Rig:
    """Holds tool servers, and types messages at an agent that has them."""

    def __init__(self) -> None:
        self.children = LaunchedChildren()
        self.servers = McpServers(clock=SystemClock(), entropy=SystemEntropy())
        self.prompts = ServerPrompts(self.servers, ())

    def has(self, **commands: Sequence[str]) -> None:
        settings = [ServerSettings(name=name, command=tuple(c)) for name, c in commands.items()]
        begin: Any = partial(reach, children=self.children, outgoing=DIRECT)
        self.servers.replace(settings, begin, QUICK)
        self.prompts = ServerPrompts(self.servers, list(commands))

    async def types(self, text: str) -> PromptFound:
        return await self.prompts.expand(text, ADA)

    @property
    def offered(self) -> list[str]:
        return [each.usage for each in self.prompts.offers()]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    async with asyncio.timeout(IN_A_WHILE_S):
        await rig.servers.close()
        await rig.children.close()


@pytest.fixture
def command(new_peer: NewPeer) -> list[str]:
    return new_peer.hostile_mcp().command()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/peer__plain", "What is new today?"),
        ("/peer__plain of the sea", "What is new today?"),
        ("/peer__greet Ada", "Greet Ada."),
        ("/greet Ada very warmly", "Greet Ada very warmly."),
        ('!peer__greet "Ada Lovelace" warmly', "Greet Ada Lovelace warmly."),
        ("/PEER__GREET style=warmly name=Ada Lovelace", "Greet Ada Lovelace warmly."),
    ],
)
async def test_a_message_becomes_the_text_of_a_prompt(
    rig: Rig, command: list[str], text: str, told: str
) -> None:
    rig.has(peer=command)
    found = await rig.types(text)

    assert (found.text, found.problem) == (told, "")
    assert found.name == ("peer__plain" if "plain" in text else "peer__greet")


@pytest.mark.parametrize("text", ["/peer__echo hi", "/nothing", "/usr/bin", "hello", "/stop"])
async def test_other_messages_mean_nothing(rig: Rig, command: list[str], text: str) -> None:
    rig.has(peer=command)
    assert await rig.types(text) == NO_PROMPT


async def test_no_server_starts_before_it_is_needed(rig: Rig, command: list[str]) -> None:
    rig.has(peer=command)
    before = len(psutil.Process().children())
    assert await rig.types("hello") == NO_PROMPT
    assert rig.offered == []
    assert len(psutil.Process().children()) == before

    await rig.types("/peer__plain")
    assert rig.offered == ["/peer__greet name [style]", "/peer__plain"]


async def test_only_the_server_that_is_named_is_asked(rig: Rig, command: list[str]) -> None:
    rig.has(peer=command, other=command)
    assert (await rig.types("/peer__plain")).text == "What is new today?"
    assert [view.links for view in rig.servers.views()] == [1, 0]


async def test_a_short_name_that_two_servers_have_means_neither(
    rig: Rig, command: list[str]
) -> None:
    rig.has(peer=command, other=command)

    assert await rig.types("/plain") == NO_PROMPT
    assert (await rig.types("/other__plain")).text == "What is new today?"


async def test_a_missing_argument_is_named(rig: Rig, command: list[str]) -> None:
    rig.has(peer=command)
    found = await rig.types("/greet")

    assert found.is_mistake
    assert found.problem == (
        "/peer__greet needs name (Who is greeted). Write: /peer__greet name [style]"
    )


async def test_a_server_that_is_down_is_told_of_and_its_words_are_not_taken_for_a_message(
    rig: Rig, new_peer: NewPeer, command: list[str]
) -> None:
    rig.has(peer=new_peer.hostile_mcp().command(Mischief("exits")), other=command)
    found = await rig.types("/peer__plain")

    assert not found.is_mistake
    assert "the tool server peer cannot be asked for /peer__plain: it is down" in found.problem
    assert (await rig.types("/other__plain")).text == "What is new today?"
    assert (await rig.types("/plain")).text == "What is new today?"


async def test_a_server_that_has_ended_is_started_again_for_a_prompt(
    rig: Rig, command: list[str]
) -> None:
    rig.has(peer=command)
    await rig.types("/peer__plain")
    for child in psutil.Process().children(recursive=True):
        if "hostile_mcp.py" in " ".join(child.cmdline()):
            child.kill()
    async with asyncio.timeout(IN_A_WHILE_S):
        while rig.servers.views()[0].links:
            await asyncio.sleep(0.02)

    found = await rig.types("/peer__greet Ada")
    assert found == PromptFound(name="peer__greet", text="Greet Ada.")


class TestPublished:
    """Checks the server that shows everything a server may do."""

    @pytest.fixture
    def everything(self, new_peer: NewPeer, rig: Rig) -> Rig:
        rig.has(everything=new_peer.published_mcp().everything())
        return rig

    async def test_its_prompts_have_texts(self, everything: Rig) -> None:
        simple = await everything.types("/simple-prompt")
        weather = await everything.types("/args-prompt Zurich")

        assert simple.text == "This is a simple prompt without arguments."
        assert weather.text == "What's weather in Zurich?"

    async def test_a_resource_in_a_prompt_is_told_and_a_file_is_named(
        self, everything: Rig
    ) -> None:
        words = await everything.types("/everything__resource-prompt Text 1")
        file = await everything.types("/everything__resource-prompt Blob 2")

        assert "Content of demo://resource/dynamic/text/1" in words.text
        assert "which is not shown]" in file.text

    async def test_what_it_refuses_is_told_in_its_words(self, everything: Rig) -> None:
        found = await everything.types("/everything__resource-prompt Text nine")

        assert found.is_mistake
        assert "Invalid resourceId: nine" in found.problem
        assert found.problem.endswith("Write: /everything__resource-prompt resourceType resourceId")
