"""Implements `perdure agents test`."""

from perdure.cli.agents.words import time_lines
from perdure.cli.exits import FAILED, complain
from perdure.cli.printing import clean, lasting, print_json
from perdure.cli.target import CommandTarget, running
from perdure.domain.outcomes import Outcome
from perdure.web import wire
from perdure.web.ops import agents as endpoints

_TRANSPORTS = {"pool": "a process that was there", "cold": "a process that was started for it"}


async def try_agent(target: CommandTarget, *, name: str, text: str) -> int | None:
    """Let an agent answer a prompt, and print where the time went. Returns the code of a failure if
    it has not answered itself."""
    node = await running(target)
    trial = await node.ask(endpoints.try_agent, name, body=wire.AgentTrialIn(text=text))
    is_done = trial.outcome == Outcome.DONE and trial.agent == name
    if target.is_json:
        print_json(trial)
        return None if is_done else FAILED
    _show(trial)
    for why in trial.missed:
        complain(clean(why))
    if trial.outcome != Outcome.DONE:
        why = ": ".join(filter(None, [trial.reason, trial.detail]))
        complain(clean(f"{name} has not answered: the turn is {trial.outcome}, {why}"))
        complain(f"`perdure explain {trial.turn}` and `perdure logs` say more")
    return None if is_done else FAILED


def _show(trial: wire.AgentTrialOut) -> None:
    """Print an answer, and how long it took."""
    if trial.text.strip():
        print(clean(trial.text.strip()))
        print()
    if trial.agent:
        print(clean(f"{trial.agent} took {lasting(trial.took / 1000)}{_by(trial)}"))
    shown = [("first text shown", lasting(trial.first_text / 1000))] if trial.first_text else []
    for name, time in [*shown, *time_lines(trial.timings)]:
        print(f"  {name:<18}{time:>10}")
    if trial.usage.model_calls:
        print(f"  {trial.usage.input_tokens} tokens in, {trial.usage.output_tokens} out")


def _by(trial: wire.AgentTrialOut) -> str:
    process = _TRANSPORTS.get(trial.timings.transport, "")
    return f", in {process}" if process else ""
