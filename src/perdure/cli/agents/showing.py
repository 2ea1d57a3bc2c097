"""Implements `perdure agents list`, `warm` and `logs`."""

from perdure.app.config import loading as config
from perdure.app.operate.client import node_client
from perdure.cli.agents.words import notes, program_state
from perdure.cli.exits import complain
from perdure.cli.printing import clean, print_json
from perdure.cli.tables import print_table
from perdure.cli.target import CommandTarget, not_running, running
from perdure.ports.agents.programs import AgentStanding
from perdure.web import wire
from perdure.web.ops import agents as endpoints

MEGABYTE = 1_000_000


async def list_agents(target: CommandTarget) -> None:
    """Print the agents of the node. Without a node, print those that are configured."""
    node = await node_client(target.home, target.environ)
    if node is not None:
        found = await node.ask(endpoints.agents)
    else:
        found = wire.AgentsOut(agents=_configured(target))
        complain(f"this is only what is configured, because {(await not_running(target)).message}")
    if target.is_json:
        print_json(found)
    elif not found.agents:
        print("no agent is configured; a start looks for one, and [agents.NAME] adds one")
    else:
        header = ["NAME", "KIND", "MODEL", "CALLS", "WAITING", "PROGRAM", "SESSIONS", "MEMORY"]
        print_table([*header, "NOTES"], map(_row, found.agents))


def _configured(target: CommandTarget) -> list[AgentStanding]:
    """Return the agents that the configuration names."""
    settings = config.load(target.home, target.environ)
    return [
        AgentStanding(
            name=name,
            kind=str(type(each).__struct_config__.tag),
            model=getattr(each, "model", ""),
            is_default=at == 0,
            concurrent=each.concurrent,
        )
        for at, (name, each) in enumerate(settings.agents.items())
    ]


def _row(each: AgentStanding) -> list[str]:
    name = f"{each.name} (default)" if each.is_default else each.name
    calls = f"{each.calls} of {each.concurrent}" if each.concurrent else str(each.calls)
    program = each.program
    state = sessions = memory = "-"
    if program is not None:
        state = program_state(program)
        sessions = str(sum(process.sessions for process in program.processes))
        memory = f"{sum(process.memory_bytes for process in program.processes) // MEGABYTE} MB"
    told = "; ".join(notes(each))
    return [name, each.kind, each.model, calls, str(each.waiting), state, sessions, memory, told]


async def warm(target: CommandTarget, *, name: str) -> None:
    """Start a process of an agent, and print what runs then."""
    node = await running(target)
    found = await node.ask(endpoints.warm_agent, name)
    if target.is_json:
        print_json(found)
        return
    for standing in found.agents:
        for process in standing.program.processes if standing.program else ():
            print(clean(f"{process.name} (pid {process.pid}) runs {process.server}"))


async def logs(target: CommandTarget, *, name: str) -> None:
    """Print the end of what an agent's processes have written, as the node knows it."""
    node = await running(target)
    found = await node.ask(endpoints.agent_log, name)
    if target.is_json:
        print_json(found)
    elif found.log:
        print(clean(found.log.rstrip("\n")))
    else:
        complain(f"{name} has written nothing yet")
