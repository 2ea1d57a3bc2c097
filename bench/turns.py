"""Measures what a turn costs beyond the floor, in a short conversation and in one of 5,000
messages."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.load import Client, Lap, client, p95
from bench.processes import Program, perdure, running
from bench.report import Findings, Gate

ROUNDS = 7
SHORT_MESSAGES = 10
LONG_MESSAGES = 5_000
CONVERSATIONS = 8
TURNS = 5
LONG = "long"
WORDS = 40

Laps = dict[tuple[str, int], list[Lap]]


async def measure(folder: Path) -> Findings:
    async with (
        running("model", "--words", str(WORDS)) as model,
        running("floor", str(folder / "floor.db"), model.url) as floor,
        running("bare", str(folder / "bare.db"), model.url) as bare,
        perdure(folder / "home", model_url=model.url) as ours,
        client() as load,
    ):
        programs = (floor, bare, ours)
        for program in programs:
            await _seed(load, program)
        laps: Laps = {(p.name, n): [] for p in programs for n in (SHORT_MESSAGES, LONG_MESSAGES)}
        for number in range(ROUNDS):
            in_turns = programs if number % 2 else programs[::-1]
            await _round(load, in_turns, number, laps)
        for program in programs:
            await _check_history(load, program, model)
    return _findings(laps)


async def _seed(load: Client, program: Program) -> None:
    """Run real turns, so that the history is what the program itself has written."""
    for _ in range(LONG_MESSAGES // 2):
        await load.turn(program, LONG)


async def _round(load: Client, programs: Sequence[Program], number: int, laps: Laps) -> None:
    fresh = [f"short-{number}-{each}" for each in range(CONVERSATIONS)]
    for program in programs:
        await load.lap(program, fresh, SHORT_MESSAGES // 2)
        laps[program.name, SHORT_MESSAGES].append(await load.lap(program, fresh, TURNS))
    for program in programs:
        lap = await load.lap(program, [LONG], CONVERSATIONS * TURNS)
        laps[program.name, LONG_MESSAGES].append(lap)


async def _check_history(load: Client, program: Program, model: Program) -> None:
    """Check that the whole history was sent: a gateway that forgot to send it would be fast."""
    await load.turn(program, LONG)
    seen = await load.seen(model)
    expected = LONG_MESSAGES + 2 * ROUNDS * CONVERSATIONS * TURNS + 1
    assert seen["messages"] == expected, f"{program.name} sent {seen}, not {expected} messages"


def _findings(laps: Laps) -> Findings:
    """Compare the laps with the floor's. A request of 5,000 messages is a megabyte that the floor
    has to send too; only what is added to the floor must not grow with the history."""
    facts = [_described(name, messages, each) for (name, messages), each in laps.items()]
    gates: list[Gate] = []
    for what, ratio in (("time", _times), ("CPU", _cpu)):
        on_top, on_bare = [], []
        for messages in (SHORT_MESSAGES, LONG_MESSAGES):
            ours = laps["perdure", messages]
            on_top.append(ratio(ours, laps["floor", messages]))
            on_bare.append(ratio(ours, laps["bare", messages]))
            name = f"{what} per turn against the floor at {messages:,} messages"
            gates.append(Gate(name=name, measured=on_top[-1], limit=2))
        name = f"{what} against the floor, at {LONG_MESSAGES:,} messages against {SHORT_MESSAGES}"
        gates.append(Gate(name=name, measured=on_top[1] / on_top[0], limit=1.3))
        short, long = on_bare
        facts.append(f"{what} against the bare floor: {short:.2f} times at 10, {long:.2f} at 5,000")
        for program in ("floor", "bare", "perdure"):
            grown = ratio(laps[program, LONG_MESSAGES], laps[program, SHORT_MESSAGES])
            facts.append(f"{program}, {what} at {LONG_MESSAGES:,} against 10: {grown:.2f} times")
    return Findings(part="turns", facts=facts, gates=gates)


def _described(name: str, messages: int, laps: Sequence[Lap]) -> str:
    times = [time for lap in laps for time in lap.times_s]
    cpu = median(lap.cpu_per_turn_s for lap in laps)
    return (
        f"{name} at {messages:,} messages: p50 {median(times) * 1e3:.2f} ms, "
        f"p95 {p95(times) * 1e3:.2f} ms, CPU {cpu * 1e3:.2f} ms, {len(times)} turns"
    )


def _times(one: Sequence[Lap], other: Sequence[Lap]) -> float:
    return median(a.typical_s / b.typical_s for a, b in zip(one, other, strict=True))


def _cpu(one: Sequence[Lap], other: Sequence[Lap]) -> float:
    return median(a.cpu_per_turn_s / b.cpu_per_turn_s for a, b in zip(one, other, strict=True))
