"""Checks which agent answers when none is configured, against real servers on loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from perdure.app.config.loading import ChatAgentSection, Config, DemoAgentSection, Secret, parse
from perdure.app.wiring.discovery import (
    Discovery,
    LocalServer,
    agents,
    discover,
    ollama_address,
)

# Long enough for a busy machine. Only the test of the time-out waits until a time-out ends.
PATIENT_S = 10.0

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def listing(*models: str, **extra: int) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": model, **extra} for model in models]})

    return answer


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[int]:
    """Run a server on a free port that gives this answer when its models are listed."""
    app = web.Application()
    app.router.add_get("/v1/models", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def chat(found: Discovery) -> ChatAgentSection:
    assert isinstance(found.agent, ChatAgentSection)
    return found.agent


@pytest.mark.parametrize(
    ("environ", "api", "base_url", "model", "key"),
    [
        (
            {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"},
            "anthropic",
            "https://api.anthropic.com",
            "claude-sonnet-4-5",
            "a",
        ),
        (
            {
                "ANTHROPIC_API_KEY": "a",
                "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/",
                "ANTHROPIC_MODEL": "m",
            },
            "anthropic",
            "http://127.0.0.1:9",
            "m",
            "a",
        ),
        ({"OPENAI_API_KEY": "o"}, "openai", "https://api.openai.com/v1", "gpt-4.1-mini", "o"),
        (
            {"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "https://api.openai.com/v1/"},
            "openai",
            "https://api.openai.com/v1",
            "gpt-4.1-mini",
            "o",
        ),
        (
            {
                "OPENAI_API_KEY": "o",
                "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
                "OPENAI_MODEL": "m",
            },
            "openai",
            "http://127.0.0.1:9/v1",
            "m",
            "o",
        ),
        (
            {"ANTHROPIC_API_KEY": "", "OPENROUTER_API_KEY": "r"},
            "openai",
            "https://openrouter.ai/api/v1",
            "openrouter/auto",
            "r",
        ),
    ],
)
async def test_a_provider_is_named_by_its_variables(
    environ: dict[str, str], api: str, base_url: str, model: str, key: str
) -> None:
    found = await discover(environ, servers=())

    agent = chat(found)
    assert (agent.api, agent.base_url, agent.model) == (api, base_url, model)
    assert agent.api_key == Secret(key)
    assert found.reason.endswith(f"model {model}")


async def test_a_base_url_alone_is_asked_for_its_model() -> None:
    async with serving(listing("mine", "other")) as port:
        url = f"http://127.0.0.1:{port}/v1"
        found = await discover({"OPENAI_BASE_URL": url + "/"}, servers=())

    assert (chat(found).base_url, chat(found).model, chat(found).api_key) == (url, "mine", None)
    assert found.reason == f"server at {url}, model mine"


async def test_a_base_url_is_asked_with_the_key() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer sk-3":
            raise web.HTTPUnauthorized
        return await listing("guarded")(request)

    async with serving(answer) as port:
        environ = {"OPENAI_API_KEY": "sk-3", "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
        found = await discover(environ, servers=())

    assert chat(found).model == "guarded"
    assert "sk-3" not in found.reason


async def test_the_reason_never_holds_a_password() -> None:
    environ = {"OPENAI_BASE_URL": "http://me:hunter2@127.0.0.1:9/v1", "OPENAI_MODEL": "m"}
    found = await discover(environ, servers=())

    assert found.reason == "server at http://127.0.0.1:9/v1, model m"


async def test_a_named_server_that_is_silent_is_mentioned(closed_port: int) -> None:
    found = await discover({"OLLAMA_HOST": f"127.0.0.1:{closed_port}"}, servers=())

    assert found.agent == DemoAgentSection()
    assert "OLLAMA_HOST is set, but no model server answers there" in found.reason


async def test_ollama_is_found_by_its_host_variable() -> None:
    async with serving(listing("llama3.2")) as port:
        found = await discover({"OLLAMA_HOST": f"0.0.0.0:{port}"}, servers=())

    assert chat(found).base_url == f"http://127.0.0.1:{port}/v1"
    assert chat(found).model == "llama3.2"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", None),
        ("gpu", "http://gpu:11434"),
        ("gpu:99", "http://gpu:99"),
        (":99", "http://127.0.0.1:99"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::]:99", "http://[::1]:99"),
        ("http://gpu/", "http://gpu:80"),
        ("https://gpu/ollama/", "https://gpu:443/ollama"),
        ("gpu:port", None),
    ],
)
def test_ollama_host_is_read_in_all_its_forms(host: str, address: str | None) -> None:
    assert ollama_address(host) == address


async def test_a_local_server_is_found_with_a_reason(closed_port: int) -> None:
    async with serving(listing("nomic-Embed-text", "llama3.2", "other")) as port:
        servers = (LocalServer("LM Studio", closed_port), LocalServer("Ollama", port))
        found = await discover({}, servers=servers, probe_timeout_s=PATIENT_S)

    assert found.reason == f"Ollama on port {port}, model llama3.2"
    assert chat(found).base_url == f"http://127.0.0.1:{port}/v1"
    assert chat(found).api_key is None


async def test_the_earlier_server_wins_and_its_window_is_taken() -> None:
    async with serving(listing("a", max_model_len=4096)) as one, serving(listing("b")) as two:
        found = await discover(
            {},
            servers=(LocalServer("one", one), LocalServer("two", two)),
            probe_timeout_s=PATIENT_S,
        )

    assert chat(found).model == "a"
    assert chat(found).context_tokens == 4096


async def test_a_stranger_on_a_usual_port_is_left_alone() -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<html>", content_type="text/html")

    async def other(request: web.Request) -> web.Response:
        return web.json_response({"data": ["llama3.2"]})

    async def moved(request: web.Request) -> web.Response:
        raise web.HTTPFound("/v1/models?again")

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b" " * 100_000)
        return response

    for answer in (page, other, moved, endless, listing(), listing("embedder")):
        async with serving(answer) as port:
            found = await discover(
                {}, servers=(LocalServer("stranger", port),), probe_timeout_s=PATIENT_S
            )
        assert found.agent == DemoAgentSection()
        assert "no model server found" in found.reason


async def test_servers_that_never_answer_cost_one_time_out_together() -> None:
    released = asyncio.Event()

    async def stuck(request: web.Request) -> web.StreamResponse:
        await released.wait()
        return await listing("late")(request)

    loop = asyncio.get_running_loop()
    async with serving(stuck) as port, serving(listing("quick")) as last:
        ports = (*[port] * 20, last)
        servers = tuple(LocalServer(str(port), port) for port in ports)
        began = loop.time()
        found = await discover({}, servers=servers, probe_timeout_s=0.5)
        took = loop.time() - began
        released.set()

    assert chat(found).model == "quick"
    assert 0.5 <= took < 8, "one after the other they would cost ten seconds"


async def test_configured_agents_are_used_without_any_probe() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return await listing("found")(request)

    config = parse(b'[agents.mine]\nkind = "demo"\n', Path("perdure.toml"), {})
    async with serving(answer) as port:
        servers = (LocalServer("Ollama", port),)
        configured = await agents(
            config, {"OPENAI_API_KEY": "o"}, servers=servers, probe_timeout_s=PATIENT_S
        )
        assert asked == []
        discovered = await agents(Config(), {}, servers=servers, probe_timeout_s=PATIENT_S)

    assert dict(configured.by_name) == {"mine": DemoAgentSection()}
    assert configured.reason == ""
    assert list(discovered.by_name) == ["main"]
    assert discovered.reason
    assert asked == ["/v1/models"]


async def test_the_switch_turns_discovery_off() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return await listing("found")(request)

    environ = {"PERDURE_DISCOVER": "0", "ANTHROPIC_API_KEY": "a"}
    async with serving(answer) as port:
        found = await discover(environ, servers=(LocalServer("Ollama", port),))

    assert found.agent == DemoAgentSection()
    assert asked == []
