"""Finds the agent that answers when none is configured.

The order is: a provider named by the usual environment variables, a model server on one of the
usual ports of this machine, the offline demo. Nothing is asked over the network if agents are
configured, or if PERDURE_DISCOVER is 0. A server counts only if it lists its models as the OpenAI
API does; any other program on such a port is left alone.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec

from perdure.app.config.values import (
    MAIN,
    MAKERS,
    AgentConfig,
    ChatAgentSection,
    Config,
    DemoAgentSection,
)
from perdure.domain.secret import Secret
from perdure.domain.urls import below, shown_url
from perdure.ports.system.outgoing import DIRECT, Outgoing

SWITCH: Final = "PERDURE_DISCOVER"
ANTHROPIC_MODEL: Final = "claude-sonnet-4-5"
OPENAI_MODEL: Final = "gpt-4.1-mini"
OPENROUTER_MODEL: Final = "openrouter/auto"
OPENROUTER_URL: Final = "https://openrouter.ai/api/v1"

PROBE_TIMEOUT_S: Final = 0.3
# A server named by a variable may be on another machine, so it gets more time.
NAMED_TIMEOUT_S: Final = 2.0
# Local servers often have a small context window and cut requests silently. So compaction begins
# early, unless the server states its window.
LOCAL_CONTEXT_TOKENS: Final = 8_192
_ANSWER_MAX_BYTES: Final = 1_000_000


class LocalServer(msgspec.Struct, frozen=True):
    """Names a model server and its usual port on this machine."""

    name: str
    port: int


LOCAL_SERVERS: Final = (
    LocalServer("Ollama", 11434),
    LocalServer("LM Studio", 1234),
    LocalServer("vLLM", 8000),
    LocalServer("llama.cpp", 8080),
)


class Discovery(msgspec.Struct, frozen=True):
    """Holds the agent that was found, and one line for people that says why."""

    agent: AgentConfig
    reason: str


class Agents(msgspec.Struct, frozen=True):
    """Holds the agents to run. `reason` is empty if they are the configured ones."""

    by_name: Mapping[str, AgentConfig]
    reason: str = ""


class _Model(msgspec.Struct, frozen=True):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct, frozen=True):
    data: list[_Model]


_models_decoder: Final = msgspec.json.Decoder(_Models)


async def agents(
    config: Config,
    environ: Mapping[str, str],
    *,
    servers: Sequence[LocalServer] = LOCAL_SERVERS,
    probe_timeout_s: float = PROBE_TIMEOUT_S,
    outgoing: Outgoing = DIRECT,
) -> Agents:
    """Return the configured agents, or else the discovered one under the name `main`."""
    if config.agents:
        return Agents(config.agents)
    found = await discover(
        environ, servers=servers, probe_timeout_s=probe_timeout_s, outgoing=outgoing
    )
    return Agents({MAIN: found.agent}, found.reason)


async def discover(
    environ: Mapping[str, str],
    *,
    servers: Sequence[LocalServer] = LOCAL_SERVERS,
    probe_timeout_s: float = PROBE_TIMEOUT_S,
    outgoing: Outgoing = DIRECT,
) -> Discovery:
    """Look for an agent. All local ports are asked at the same time, with one common time limit."""
    if _variable(environ, SWITCH) == "0":
        return Discovery(DemoAgentSection(), f"offline demo agent ({SWITCH}=0)")
    keyed = _anthropic(environ)
    if keyed is not None:
        return keyed
    async with outgoing.session() as session:
        return (
            await _openai(session, environ)
            or _openrouter(environ)
            or await _ollama(session, environ)
            or await _local(session, servers, timeout_s=probe_timeout_s)
            or Discovery(DemoAgentSection(), f"offline demo agent ({_nothing_found(environ)})")
        )


def _anthropic(environ: Mapping[str, str]) -> Discovery | None:
    key = _variable(environ, "ANTHROPIC_API_KEY")
    if not key:
        return None
    agent = ChatAgentSection(
        api="anthropic",
        base_url=_variable(environ, "ANTHROPIC_BASE_URL"),
        model=_variable(environ, "ANTHROPIC_MODEL") or ANTHROPIC_MODEL,
        api_key=Secret(key),
        context_tokens=200_000,
    )
    return Discovery(agent, f"Anthropic by ANTHROPIC_API_KEY, model {agent.model}")


async def _openai(session: aiohttp.ClientSession, environ: Mapping[str, str]) -> Discovery | None:
    key = _variable(environ, "OPENAI_API_KEY")
    base_url = _variable(environ, "OPENAI_BASE_URL").rstrip("/")
    if not key and not base_url:
        return None
    named = _variable(environ, "OPENAI_MODEL")
    found = None
    # OpenAI's own list is long and in no useful order. A private server lists what it serves.
    if base_url and not named and base_url != MAKERS["openai"]:
        found = await _first_model(session, base_url, key=key, timeout_s=NAMED_TIMEOUT_S)
    model = named or (found.id if found else None) or (OPENAI_MODEL if key else None)
    if model is None:
        return None
    agent = ChatAgentSection(
        base_url=base_url or MAKERS["openai"],
        model=model,
        api_key=Secret(key) if key else None,
    )
    source = f"server at {shown_url(base_url)}" if base_url else "OpenAI by OPENAI_API_KEY"
    return Discovery(agent, f"{source}, model {model}")


def _openrouter(environ: Mapping[str, str]) -> Discovery | None:
    key = _variable(environ, "OPENROUTER_API_KEY")
    if not key:
        return None
    model = _variable(environ, "OPENROUTER_MODEL") or OPENROUTER_MODEL
    agent = ChatAgentSection(base_url=OPENROUTER_URL, model=model, api_key=Secret(key))
    return Discovery(agent, f"OpenRouter by OPENROUTER_API_KEY, model {model}")


async def _ollama(session: aiohttp.ClientSession, environ: Mapping[str, str]) -> Discovery | None:
    """Look for the server that OLLAMA_HOST names."""
    address = ollama_address(_variable(environ, "OLLAMA_HOST"))
    if address is None:
        return None
    base_url = f"{address}/v1"
    model = await _first_model(session, base_url, timeout_s=NAMED_TIMEOUT_S)
    if model is None:
        return None
    return Discovery(
        _local_agent(base_url, model), f"Ollama at {shown_url(address)}, model {model.id}"
    )


async def _local(
    session: aiohttp.ClientSession, servers: Sequence[LocalServer], *, timeout_s: float
) -> Discovery | None:
    """Ask all usual ports at the same time, and take the first server in their order."""
    urls = [f"http://127.0.0.1:{server.port}/v1" for server in servers]
    async with asyncio.TaskGroup() as group:
        probes = [
            group.create_task(_first_model(session, url, timeout_s=timeout_s)) for url in urls
        ]
    for server, url, probe in zip(servers, urls, probes, strict=True):
        model = probe.result()
        if model is not None:
            reason = f"{server.name} on port {server.port}, model {model.id}"
            return Discovery(_local_agent(url, model), reason)
    return None


def _local_agent(base_url: str, model: _Model) -> ChatAgentSection:
    """Return an agent for a local model, with the context window that the server states."""
    window = model.max_model_len or 0
    return ChatAgentSection(
        base_url=base_url,
        model=model.id,
        context_tokens=window if window > 0 else LOCAL_CONTEXT_TOKENS,
    )


async def _first_model(
    session: aiohttp.ClientSession,
    base_url: str,
    *,
    timeout_s: float,
    key: str = "",
) -> _Model | None:
    """Return the first model that can chat. Returns None if this is no model server."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with (
            asyncio.timeout(timeout_s),
            session.get(
                below(base_url, "models"), headers=headers, allow_redirects=False
            ) as response,
        ):
            if response.status != 200:
                return None
            answer = _models_decoder.decode(await _bounded(response))
    except (aiohttp.ClientError, msgspec.MsgspecError, OSError, ValueError):
        # A time-out is an OSError. An unusable address, or an answer without end, is a ValueError.
        return None
    usable = (each for each in answer.data if each.id and "embed" not in each.id.lower())
    return next(usable, None)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    """Read a body. Raises `ValueError` if it is too long."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > _ANSWER_MAX_BYTES:
            raise ValueError("too long for a list of models")
    return bytes(content)


def _nothing_found(environ: Mapping[str, str]) -> str:
    """Say why no agent was found."""
    for name in ("OPENAI_BASE_URL", "OLLAMA_HOST"):
        if _variable(environ, name):
            return f"{name} is set, but no model server answers there"
    return "no API key and no model server found"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def ollama_address(host: str) -> str | None:
    """Return OLLAMA_HOST as a URL to call, or None if it is unusable. It may lack its scheme or
    port, or be a wildcard address for binding."""
    host = host.strip().rstrip("/")
    if not host:
        return None
    scheme: Literal["http", "https"] = "https" if host.startswith("https://") else "http"
    try:
        parts = urlsplit(host if "://" in host else f"//{host}")
        port = parts.port or (443 if scheme == "https" else 80 if "://" in host else 11434)
    except ValueError:
        return None
    name = parts.hostname or "127.0.0.1"
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104 - read, not bound
    name = f"[{name}]" if ":" in name else name
    return f"{scheme}://{name}:{port}{parts.path}"
