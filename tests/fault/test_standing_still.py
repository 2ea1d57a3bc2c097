"""Checks a whole gateway that stands still for longer than any of its time limits while the model
goes on, as when a laptop sleeps or a machine is frozen. The pause must not count as anybody's
failure."""

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.adapters.telegram.wire import Api
from perdure.domain.secret import Secret
from perdure.testkit.models.model_script import Reply, ScriptedRequest, hang, say, slow
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
LIMIT_S = 2
PAUSE_S = 4
STORY = " ".join(f"word{nth}" for nth in range(50))


def model(request: ScriptedRequest) -> Reply:
    """Write for five seconds, think for a moment, or say one word and then nothing."""
    match request.last_user_text:
        case "story":
            return say(STORY, delay_ms=100)
        case "think":
            return slow(1_000 * LIMIT_S * 0.75, say("so it is"))
        case _:
            return hang(1, say("one two"))


def configuration(server: ModelServer) -> str:
    return (
        f'[agents.main]\nkind = "chat"\nbase_url = "{server.openai_url}"\nmodel = "scripted"\n'
        f"first_token_timeout_s = {LIMIT_S}\nsilence_timeout_s = {LIMIT_S}\n"
        f"[turns]\ntimeout_s = {PAUSE_S + 3}\n[sessions]\ntitles = false\n"
    )


async def first_word(client: Client, name: str) -> None:
    async with client.events(name) as events:
        async for _, kind, _data in events:
            if kind == "delta":
                return


async def test_a_pause_fails_no_turn_and_silence_still_does(gateway_factory: Factory) -> None:
    async with (
        ModelServer(model) as server,
        aiohttp.ClientSession() as session,
    ):
        client = Client(await gateway_factory(toml=configuration(server)), session)
        story = await client.say("story", "story")
        silent = await client.say("silent", "silence")
        await asyncio.gather(first_word(client, "story"), first_word(client, "silent"))
        think = await client.say("think", "think")
        await server.wait_for_requests(3)

        client.gateway.send_signal(signal.SIGSTOP)
        await client.gateway.pause(PAUSE_S)
        client.gateway.send_signal(signal.SIGCONT)

        for name, accepted, text in (("story", story, STORY), ("think", think, "so it is")):
            turn: dict[str, Any] = await client.settled(accepted["turn"])
            assert turn["outcome"] == "done", turn
            (*_, said) = await client.transcript(name)
            assert said["text"] == text
        turn = await client.settled(silent["turn"])
        assert turn["outcome"] == "failed"
        assert f"silent for {LIMIT_S} s" in turn["detail"]


def answer_once(listening: socket.socket, is_blocked: threading.Event) -> None:
    """Show a message and acknowledge it, while the client stands still."""
    connection, _ = listening.accept()
    with connection:
        connection.recv(65_536)
        is_blocked.wait()
        body = b'{"ok": true, "result": {"message_id": 7}}'
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        connection.sendall(head.encode() + b"\r\n\r\n" + body)


async def test_a_platform_that_has_answered_meanwhile_is_believed() -> None:
    # The loop is blocked from the moment at which the message is on its way until the limit has
    # passed. The message's fate must not be called unknown then.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        api = Api(f"http://127.0.0.1:{listening.getsockname()[1]}", Secret("1:t"), patience_s=0.5)
        loop, is_blocked = asyncio.get_running_loop(), threading.Event()

        def stand_still() -> None:
            is_blocked.set()
            time.sleep(2)

        peer = loop.run_in_executor(None, answer_once, listening, is_blocked)
        loop.call_later(0.1, stand_still)
        try:
            await api.send("sendMessage", {"text": "hello"})
        finally:
            await api.close()
            await peer
