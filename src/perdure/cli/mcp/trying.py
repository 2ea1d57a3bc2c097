"""Implements `perdure mcp test`."""

from perdure.app.operate.server_trial import ServerTrial, TriedTool, tried
from perdure.cli.exits import FAILED, complain
from perdure.cli.printing import clean, print_json
from perdure.cli.tables import print_table
from perdure.cli.target import CommandTarget

# How much of a server's log is shown beside a problem.
LOG_LINES = 20


async def try_server(target: CommandTarget, *, name: str, within_s: float) -> int | None:
    """Try a tool server, and print what it offers. Returns the code of a failure if it cannot be
    used."""
    trial = await tried(target.home, target.environ, name, within_s=within_s)
    if target.is_json:
        print_json(trial)
    else:
        _show(trial)
    for problem in trial.problems:
        complain(f"{name}: {problem}")
    if trial.advice:
        complain(trial.advice)
    return None if trial.is_usable else FAILED


def _show(trial: ServerTrial) -> None:
    """Print what is known of the server."""
    if trial.version:
        print(clean(f"{trial.name} ({trial.where}) is {trial.server or 'a server without a name'}"))
        print(clean(f"  protocol  {trial.version}"))
        print(f"  agents    {clean(_agents(trial))}")
    if trial.tools:
        print()
        rows = [
            [each.name, each.called, _asked(each), each.repeat, each.description]
            for each in trial.tools
        ]
        print_table(["TOOL", "CALLED AS", "MAY BE CALLED", "REPEAT", "DESCRIPTION"], rows)
    elif trial.is_usable:
        print("  it lists no tools")
    if trial.prompts:
        print()
        rows = [
            [" ".join([f"/{each.called}", *each.arguments]), each.description]
            for each in trial.prompts
        ]
        print_table(["PROMPT", "DESCRIPTION"], rows)
    if trial.resources:
        print()
        rows = [[each.uri, each.name, each.description] for each in trial.resources]
        print_table(["RESOURCE", "NAME", "DESCRIPTION"], rows)
    if trial.problems and trial.log.strip():
        print("it has written:")
        for line in trial.log.rstrip("\n").split("\n")[-LOG_LINES:]:
            print(clean(f"  {line}"))


def _agents(trial: ServerTrial) -> str:
    """Say which agents have the server."""
    if trial.agents:
        return ", ".join(trial.agents)
    return f'none may call it; add "mcp.{trial.name}" to tools of [agents.NAME]'


_IN_WORDS = {"allow": "freely", "ask": "after asking", "deny": "never"}


def _asked(tool: TriedTool) -> str:
    """Say when agents may call a tool."""
    if not tool.is_taken:
        return "left out by tools"
    if not tool.asks:
        return "by no agent"
    words = {agent: _IN_WORDS[do] for agent, do in tool.asks.items()}
    alike = set(words.values())
    if len(alike) == 1:
        return alike.pop()
    return ", ".join(f"{agent} {each}" for agent, each in words.items())
