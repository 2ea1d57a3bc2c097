"""Loads `perdure.toml` from the home folder, at the start and again when it changes.

A file is used as a whole or not at all. `load` raises with every problem found. `reload` returns
the problems instead, so that a running node keeps its valid configuration when an edit goes wrong.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from perdure.app.config.checks import findings
from perdure.app.config.platforms import settings_by_name, without_terms
from perdure.app.config.toml_errors import ConfigError, Problem, in_quotes, instead, malformed
from perdure.app.config.toml_positions import Positions
from perdure.app.config.toml_reading import TomlReader, TomlSource
from perdure.app.config.toml_words import key_text
from perdure.app.config.tool_values import MCP, TOOLS, McpServer, ToolsConfig
from perdure.app.config.values import (
    MAIN,
    AcpAgent,
    AgentConfig,
    BudgetPeriods,
    BudgetsConfig,
    BudgetSection,
    ChatAgentSection,
    Config,
    DeliveryConfig,
    DemoAgentSection,
    DrainConfig,
    LimitsConfig,
    MemberQuotas,
    NetworkConfig,
    Pool,
    PricesSection,
    QuotasConfig,
    RecoveryConfig,
    RetentionConfig,
    ServerConfig,
    SessionsConfig,
    SpeechConfig,
    StoreConfig,
    TranscriberConfig,
    TurnsConfig,
)
from perdure.domain.secret import Secret
from perdure.ports.platform.settings import AdapterSettings

__all__ = [
    "FILE_NAME",
    "MAIN",
    "AcpAgent",
    "AdapterSettings",
    "AgentConfig",
    "BudgetPeriods",
    "BudgetSection",
    "BudgetsConfig",
    "ChatAgentSection",
    "Config",
    "ConfigError",
    "DeliveryConfig",
    "DemoAgentSection",
    "DrainConfig",
    "LimitsConfig",
    "McpServer",
    "MemberQuotas",
    "NetworkConfig",
    "Pool",
    "PricesSection",
    "Problem",
    "QuotasConfig",
    "RecoveryConfig",
    "RetentionConfig",
    "Secret",
    "ServerConfig",
    "SessionsConfig",
    "SpeechConfig",
    "StoreConfig",
    "ToolsConfig",
    "TranscriberConfig",
    "TurnsConfig",
    "load",
    "parse",
    "reload",
    "restart_keys",
]

FILE_NAME: Final = "perdure.toml"


def load(home: Path, environ: Mapping[str, str]) -> Config:
    """Return the configuration of this home, or the defaults if there is no file. Raises
    `ConfigError`."""
    path = home / FILE_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise ConfigError([_unreadable(path, error)]) from error
    return parse(content, path, environ)


def reload(
    previous: Config, path: Path, environ: Mapping[str, str]
) -> Config | tuple[Problem, ...]:
    """Return the configuration after the file changed, or the problems that keep it from being
    used.

    If the meaning did not change, `previous` itself is returned. A missing file is a problem if it
    had any content: many editors replace a file by removing it first, and the agents must survive
    that.
    """
    try:
        current = parse(path.read_bytes(), path, environ)
    except FileNotFoundError:
        if previous == Config():
            return previous
        return (Problem(str(path), 0, "the file is gone; put it back, or restart without it"),)
    except OSError as error:
        return (_unreadable(path, error),)
    except ConfigError as error:
        return error.problems
    return previous if current == previous and _order(current) == _order(previous) else current


def parse(content: bytes, path: Path, environ: Mapping[str, str]) -> Config:
    """Read the bytes of a configuration file. Relative secret files are looked up beside `path`.
    Raises `ConfigError`."""
    text = _decoded(content, path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([malformed(path, text, error)]) from error
    source = TomlSource(file=path, positions=Positions(text), environ=environ)
    reader = TomlReader(source)
    reader.allow(AdapterSettings, _platforms(document, reader))
    config = reader.table(Config, document, ())
    if config is not None:
        for key, complaint in findings(config):
            reader.complain(key, complaint)
    if config is None or reader.problems:
        raise ConfigError(sorted(reader.problems, key=lambda problem: problem.line))
    return config


def _platforms(
    document: Mapping[str, object], reader: TomlReader
) -> dict[str, type[AdapterSettings]]:
    """Return the sections of platforms that the file may contain, with the keys that each takes.
    Complains about sections that name an unknown platform."""
    configured = document.get("adapters")
    sections = configured if isinstance(configured, dict) else {}
    named = {name: _named_platform(each) or name for name, each in sections.items()}
    known = settings_by_name(named.values())
    others: dict[str, type[AdapterSettings]] = {}
    for name, platform in named.items():
        if platform == name:
            continue
        others[name] = known.get(platform, AdapterSettings)
        if platform not in known:
            at = ("adapters", name, "platform")
            advice = instead(platform, list(known), noun="platforms")
            wrong = f"names the unknown platform {in_quotes(platform)}; {advice}"
            reader.complain(at, f"{key_text(at)} {wrong}")
    return {**known, **others}


def _named_platform(section: object) -> str:
    """Return the platform that a section names, or an empty string."""
    named = section.get("platform") if isinstance(section, dict) else None
    return named if isinstance(named, str) else ""


def restart_keys(before: Config, after: Config) -> tuple[str, ...]:
    """Return the changed sections and keys that a running node cannot apply, for the notice that
    says so."""
    live = ("agents", "adapters", "tools")
    sections = [name for name in Config.__struct_fields__ if name not in live]
    changed = [name for name in sections if getattr(before, name) != getattr(after, name)]
    if without_terms(before.adapters) != without_terms(after.adapters):
        changed.append("adapters")
    keys = [f"[{name}]" for name in changed]
    if before.tools.answer_wait_s != after.tools.answer_wait_s:
        keys.append("[tools] answer_wait_s")
    return tuple(keys)


def _decoded(content: bytes, path: Path) -> str:
    try:
        # Some editors put a byte order mark at the beginning of a file, which TOML does not allow.
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = Problem(str(path), line, "not UTF-8 text; save the file as UTF-8")
        raise ConfigError([problem]) from error


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem(str(path), 0, f"cannot be read ({error.strerror}); check its permissions")


def _order(config: Config) -> list[str]:
    """Return the order of the agents. Equal mappings may differ in it, and the first agent is the
    default."""
    return list(config.agents)


def settings_without_effect(config: Config) -> Iterator[str]:
    """Yield each setting that a file may have but that has no effect in this version, as it is
    written there."""
    if config.retention.closed_days > 0:
        yield "[retention] closed_days"
    for name, agent in config.agents.items():
        for tool in dict.fromkeys(agent.tools):
            if tool not in TOOLS and not tool.startswith(MCP):
                yield f"[agents.{name}] tools {in_quotes(tool)}"
