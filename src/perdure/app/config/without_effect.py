"""Lists settings that are read and checked, but have no effect in this version.

They are part of the file format already, so a file with them is valid. The operator is told that
they wait for a later version.
"""

from collections.abc import Iterator

from perdure.app.config.loading import Config
from perdure.app.config.toml_errors import in_quotes
from perdure.app.config.values import MCP, TOOLS


def settings_without_effect(config: Config) -> Iterator[str]:
    """Yield each such setting of a configuration, as it is written in the file."""
    if config.retention.closed_days > 0:
        yield "[retention] closed_days"
    for name, agent in config.agents.items():
        for tool in dict.fromkeys(agent.tools):
            if tool not in TOOLS and not tool.startswith(MCP):
                yield f"[agents.{name}] tools {in_quotes(tool)}"
