"""Finds out from the journal where the time of turns went.

`in line`: until an attempt began, mostly behind earlier turns of the conversation. `cut`: in
attempts that a death or a stop ended. `held back`: interrupted, before the turn was put back in
line. `for the model`: waiting until a model could be asked, in whole seconds. `at work`: the rest
of the last attempt, which is the answer, its tools and the writes.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from tests.fault.soak.rest import Database

STEPS = (
    "'turn_queued', 'turn_started', 'attempt_interrupted', 'turn_requeued', 'answer_awaited',"
    " 'wait_ended', 'turn_settled'"
)
# What a turn does after each of these.
NEXT = {
    "turn_queued": "in line",
    "turn_requeued": "in line",
    "wait_ended": "in line",
    "turn_started": "at work",
    "attempt_interrupted": "held back",
    "answer_awaited": "for people",
}
PARTS = ("in line", "cut", "held back", "for the model", "at work", "in all")


async def where_time_goes(database: Database) -> dict[str, str]:
    """Return for each part of the time of settled turns its mean, its median and what 95 of 100
    turns stay below."""
    steps: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    rows = await database.rows(
        f"SELECT turn_id, at, kind, body FROM journal WHERE kind IN ({STEPS}) ORDER BY id"
    )
    for turn, at, kind, body in rows:
        steps[turn].append((at, kind, body))
    spent = [_spent(each) for each in steps.values() if each[-1][1] == "turn_settled"]
    return {part: _described(sorted(each[part] / 1000 for each in spent)) for part in PARTS}


def _spent(steps: Sequence[tuple[int, str, str]]) -> Counter[str]:
    spent: Counter[str] = Counter()
    for (since, kind, _), (until, then, _) in pairwise(steps):
        part = "cut" if then == "attempt_interrupted" else NEXT.get(kind, "at work")
        spent[part] += until - since
    waited_ms = msgspec.json.decode(steps[-1][2])["reach"].get("waited_s", 0) * 1000
    spent["for the model"] = min(waited_ms, spent["at work"])
    spent["at work"] -= spent["for the model"]
    spent["in all"] = steps[-1][0] - steps[0][0]
    return spent


def _described(times: Sequence[float]) -> str:
    mean = sum(times) / len(times)
    half, late = times[len(times) // 2], times[int(0.95 * len(times))]
    return f"mean {mean:.2f} s, p50 {half:.2f} s, p95 {late:.2f} s"
