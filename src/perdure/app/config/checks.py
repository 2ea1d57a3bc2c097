"""Checks rules that span several keys: names that must exist elsewhere, and choices that exclude
each other.

They run on a configuration in which every single value is valid already.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from perdure.app.config.platforms import BUILT_IN, address_forms, platform_of
from perdure.app.config.toml_errors import in_quotes, instead
from perdure.app.config.toml_positions import KeyPath
from perdure.app.config.toml_words import key_text
from perdure.app.config.tool_checks import (
    folder_findings,
    is_variable,
    search_findings,
    server_findings,
    tool_findings,
)
from perdure.app.config.values import (
    MAIN,
    AcpAgent,
    AgentConfig,
    Config,
    TranscriberConfig,
)
from perdure.app.network.proxies import RULE, UnusableProxy, proxy_of
from perdure.domain.address import HTTP, readings
from perdure.domain.schedule.zones import zone_of
from perdure.ports.platform.settings import AdapterSettings

_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_Finding = tuple[KeyPath, str]


def findings(config: Config) -> Iterator[_Finding]:
    """Yield what is wrong with a configuration, each with the key to look at."""
    yield from _server(config)
    yield from _network(config)
    yield from _store(config)
    for name, agent in config.agents.items():
        yield from _agent(config, name, agent)
    yield from folder_findings(config)
    yield from search_findings(config)
    yield from _transcriber(config.transcriber)
    yield from server_findings(config)
    for name, adapter in config.adapters.items():
        yield from _adapter(config, name, adapter)


def _server(config: Config) -> Iterator[_Finding]:
    host = config.server.host
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if _NAME.fullmatch(host) is None or host.replace(".", "").isdigit():
            at: KeyPath = ("server", "host")
            rule = 'an address such as "127.0.0.1" or "::1", or the name of this machine'
            yield at, f"{key_text(at)} must be {rule}, not {in_quotes(host)}"
    zone = config.server.timezone
    if zone and zone_of(zone) is None:
        at = ("server", "timezone")
        rule = 'a name of the time zone database such as "Europe/Berlin"'
        yield at, f"{key_text(at)} must be {rule}, not {in_quotes(zone)}"
    for index, network in enumerate(config.server.trusted_proxies):
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            at = ("server", "trusted_proxies", index)
            rule = 'an address such as "127.0.0.1", or a network such as "10.0.0.0/8"'
            yield at, f"{key_text(at)} must be {rule}, not {in_quotes(network)}"
    for index, name in enumerate(config.server.hosts):
        if name != "*" and _NAME.fullmatch(name) is None:
            at = ("server", "hosts", index)
            rule = 'a name such as "chat.example.com", without scheme and port, or "*" for any'
            yield at, f"{key_text(at)} must be {rule}, not {in_quotes(name)}"


def _network(config: Config) -> Iterator[_Finding]:
    if config.network.proxy is None:
        return
    try:
        proxy_of(config.network.proxy.reveal())
    except UnusableProxy as error:
        # The address may contain a password, so the complaint never repeats it.
        yield ("network", "proxy"), f"[network] proxy must be {RULE}: {error}"


def _store(config: Config) -> Iterator[_Finding]:
    url = config.store.url.reveal()
    # The address may contain a password, so the complaint never repeats it.
    if url != "sqlite" and not _is_postgres(url):
        rule = '"sqlite" or an address such as "postgresql://user@host/db"'
        yield ("store", "url"), f"[store] url must be {rule}"


def _is_postgres(url: str) -> bool:
    if not url.startswith("postgresql://") or any(char.isspace() for char in url):
        return False
    try:
        parts = urlsplit(url)
        return parts.port != 0 and bool(parts.netloc or parts.path.strip("/") or parts.query)
    except ValueError:
        return False


def _agent(config: Config, name: str, agent: AgentConfig) -> Iterator[_Finding]:
    path: KeyPath = ("agents", name)
    for index, other in enumerate(agent.fallbacks):
        at = (*path, "fallbacks", index)
        yield from _known_agent(config, other, at)
        if other == name:
            yield at, f"{key_text(at)} names the agent itself; name another one or leave it out"
    for index, other in enumerate(agent.delegates):
        yield from _known_agent(config, other, (*path, "delegates", index))
    if agent.compact_agent is not None:
        yield from _known_agent(config, agent.compact_agent, (*path, "compact_agent"))
    yield from tool_findings(config, name, agent)
    if isinstance(agent, AcpAgent):
        yield from _acp_agent(path, agent)


def _acp_agent(path: KeyPath, agent: AcpAgent) -> Iterator[_Finding]:
    if agent.preset is None and agent.command is None:
        example = 'add preset = "gemini", or command = ["the-program", "--acp"]'
        yield path, f"{key_text(path)} does not say what to start; {example}"
    folders = [((*path, "cwd"), agent.cwd)] if agent.cwd else []
    folders += [((*path, "roots", index), root) for index, root in enumerate(agent.roots)]
    for at, folder in folders:
        if not folder.startswith(("/", "~")):
            rule = 'must be a whole path such as "/srv/work" or "~/work"'
            yield at, f"{key_text(at)} {rule}, not {in_quotes(folder)}"
    for name in agent.env:
        if not is_variable(name):
            at = (*path, "env", name)
            yield at, f"{key_text(at)} is no name of an environment variable; take one like TOKEN"


def _known_agent(config: Config, name: str, path: KeyPath) -> Iterator[_Finding]:
    known = list(config.agents) or [MAIN]
    if name not in known:
        advice = instead(name, known, noun="agents")
        yield path, f"{key_text(path)} names the unknown agent {in_quotes(name)}; {advice}"


def _adapter(config: Config, name: str, adapter: AdapterSettings) -> Iterator[_Finding]:
    path: KeyPath = ("adapters", name)
    yield from _adapter_name(config, name, adapter)
    for key, agent in adapter.named_agents():
        yield from _known_agent(config, agent, (*path, *key))
    for key, persona in adapter.named_personas():
        yield from _known_persona(config, persona, (*path, *key))
    for key, address in adapter.named_places():
        yield from _known_place(config, address, (*path, *key))
    for key, problem in adapter.problems():
        at = (*path, *key)
        yield at, f"{key_text(at)} {problem}"


def _known_place(config: Config, address: str, path: KeyPath) -> Iterator[_Finding]:
    """Yield that no configured platform has such an address, with what addresses look like."""
    adapter, _, rest = address.partition(":")
    platforms_ = [name for name in config.adapters if name != path[1]]
    if adapter not in platforms_:
        advice = instead(adapter, platforms_, noun="platforms") if platforms_ else "add one"
        yield path, f"{key_text(path)} names the unknown platform {in_quotes(adapter)}; {advice}"
        return
    form = address_forms(config.adapters)[adapter]
    if not any(form.takes(*each) for each in readings(rest)):
        example = f"{adapter}:{form.example}"
        yield path, f"{key_text(path)} must be an address such as {in_quotes(example)}"


def _known_persona(config: Config, name: str, path: KeyPath) -> Iterator[_Finding]:
    """Yield that a persona is not configured, with the nearest one that is."""
    if name not in config.personas:
        advice = instead(name, list(config.personas), noun="personas")
        yield path, f"{key_text(path)} names the unknown persona {in_quotes(name)}; {advice}"


def _adapter_name(config: Config, name: str, adapter: AdapterSettings) -> Iterator[_Finding]:
    """Yield why a section cannot be called so, or why it is one too many. Addresses begin with its
    name and a colon."""
    path: KeyPath = ("adapters", name)
    platform = platform_of(name, adapter)
    if platform != name and (":" in name or name in (HTTP, *BUILT_IN)):
        example = f'another name, such as [adapters.my-{platform}] with platform = "{platform}"'
        yield path, f"{key_text(path)} needs {example}: this one would be mistaken in addresses"
    for other, each in config.adapters.items():
        if other == name:
            return
        if adapter.token is not None and (each.token, each.api_url) == (
            adapter.token,
            adapter.api_url,
        ):
            at = (*path, "token")
            yield (
                at,
                f"{key_text(at)} is that of [adapters.{other}]; each section needs its own bot",
            )


def _transcriber(transcriber: TranscriberConfig) -> Iterator[_Finding]:
    path: KeyPath = ("transcriber",)
    if transcriber.command and transcriber.url:
        yield path, f"{key_text(path)} takes either command or url, and has both"
    if transcriber.command and not any("{file}" in word for word in transcriber.command):
        at = (*path, "command")
        yield at, f'{key_text(at)} must name the file to read: ["program", "{{file}}"]'
