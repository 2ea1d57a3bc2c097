"""Settings that are read and checked, and that this version does nothing with.

They stand in the file format already, so a file that has them is valid; whoever wrote them learns
that they wait for a later version.
"""

from collections.abc import Iterator

from perdure.app.config import BudgetPeriods, Config


def settings_without_effect(config: Config) -> Iterator[str]:
    """Each as it is written in the file."""
    yield from (f"[adapters.{name}]" for name in config.adapters)
    yield from (f"[tools.mcp.{name}]" for name in config.tools.mcp)
    for kind in config.budgets.__struct_fields__:
        if getattr(config.budgets, kind) != BudgetPeriods():
            yield f"[budgets.{kind}]"
    if config.sessions.idle_reset_s > 0:
        yield "[sessions] idle_reset_s"
    if config.retention.closed_days > 0:
        yield "[retention] closed_days"
    for name, agent in config.agents.items():
        for key in ("tools", "concurrent", "compact_agent", "prices"):
            if getattr(agent, key):
                yield f"[agents.{name}] {key}"
