"""Says in words how agents are. Apart from the tables, so that `perdure status` does not load
rich."""

from collections.abc import Iterator, Sequence

from perdure.cli.printing import lasting
from perdure.domain.journal.model.timings import Timings
from perdure.ports.agents.programs import AgentStanding, ProgramView

_TRANSPORTS = {"pool": "in a process that was there", "cold": "in a process started for it"}


def program_state(program: ProgramView) -> str:
    """Return how the processes of an agent are."""
    if program.processes:
        count = len(program.processes)
        return f"{count} process{'' if count == 1 else 'es'}"
    if program.starting:
        return "starting"
    return "resting" if program.resting_s else "not started"


def notes(standing: AgentStanding) -> list[str]:
    """Return what an operator should know of an agent."""
    program = standing.program
    if program is None:
        return []
    found = [program.trouble] if program.trouble else []
    if program.resting_s:
        found.append(f"it is not started again for {lasting(program.resting_s)}")
    if program.no_sandbox:
        found.append(f"no sandbox: {program.no_sandbox}")
    elif not all(each.has_sandbox for each in program.processes):
        found.append("no sandbox")
    if not program.takes_tools:
        found.append("it takes no tools")
    if not program.is_shared:
        found.append("a process for each person")
    return found


def agent_lines(standings: Sequence[AgentStanding]) -> Iterator[str]:
    """Yield a line for each agent whose program has trouble."""
    for each in standings:
        program = each.program
        if program is not None and program.trouble:
            yield f"agent {each.name}, {program_state(program)}: {program.trouble}"


def time_lines(timings: Timings) -> Iterator[tuple[str, str]]:
    """Yield the steps of an answer by an agent's program, and how long each took."""
    for name, ms in timings.steps:
        yield name.replace("_", " "), lasting(ms / 1000)


def times_in_words(timings: Timings) -> str:
    """Return where the time of a turn went, in one line. Empty if nobody has measured it."""
    steps = ", ".join(f"{name} {time}" for name, time in time_lines(timings))
    return ": ".join(filter(None, [_TRANSPORTS.get(timings.transport, ""), steps]))
