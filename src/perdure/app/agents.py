"""From configured agents to seats."""

from collections.abc import Mapping
from pathlib import Path

from perdure.app.config import AgentConfig, Config
from perdure.app.config_values import AcpAgent, ChatAgent, DemoAgent
from perdure.app.toml_errors import ConfigError, Problem
from perdure.app.toml_positions import Positions
from perdure.domain.errors import Rejected
from perdure.engine.roster import Seat
from perdure.ports.agent import Agent
from perdure.ports.clock import Clock
from perdure.tools.empty import NoTools


def check(config: Config, path: Path) -> None:
    """Refuse what this version cannot run, with the line to change. Raises `ConfigError`."""
    unusable = [name for name, agent in config.agents.items() if isinstance(agent, AcpAgent)]
    if not unusable:
        return
    positions = Positions(path.read_text(encoding="utf-8-sig"))
    raise ConfigError(
        [
            Problem(str(path), positions.line(("agents", name, "kind")), _no_acp(name))
            for name in unusable
        ]
    )


def _no_acp(name: str) -> str:
    return (
        f"[agents.{name}] kind: this version of Perdure cannot run agents of kind acp; "
        'use kind = "chat" or kind = "demo"'
    )


def seats(configured: Mapping[str, AgentConfig], *, clock: Clock) -> dict[str, Seat]:
    return {name: _seat(name, config, clock) for name, config in configured.items()}


def _seat(name: str, config: AgentConfig, clock: Clock) -> Seat:
    agent, kind = _agent(name, config, clock)
    return Seat(
        name=name,
        kind=kind,
        agent=agent,
        tools=NoTools(),
        instructions=config.instructions,
        fallbacks=config.fallbacks,
    )


def _agent(name: str, config: AgentConfig, clock: Clock) -> tuple[Agent, str]:
    """Each family is imported when it is configured."""
    match config:
        case DemoAgent():
            from perdure.agents.demo.agent import DemoAgent as Demo  # noqa: PLC0415

            return Demo(clock=clock), "demo"
        case ChatAgent():
            return _chat(name, config, clock), "chat"
        case AcpAgent():
            raise Rejected(_no_acp(name), code="config")


def _chat(name: str, config: ChatAgent, clock: Clock) -> Agent:
    from perdure.agents.chat.agent import ChatAgent as Chat  # noqa: PLC0415
    from perdure.agents.chat.manifest import ChatSettings  # noqa: PLC0415

    settings = ChatSettings(
        name=name,
        api=config.api,
        base_url=config.base_url,
        model=config.model,
        api_key=config.api_key.reveal() if config.api_key else None,
        headers={key: value.reveal() for key, value in config.headers.items()},
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        connect_timeout_s=config.connect_timeout_s,
        first_token_timeout_s=config.first_token_timeout_s,
        silence_timeout_s=config.silence_timeout_s,
    )
    return Chat(settings, session=None, clock=clock)
