"""Decides how often each fault happens on the way to a platform."""

import random
from collections.abc import Mapping
from typing import Final

from perdure.testkit.processes.faulty_proxy import Fault, PlatformRequest

ACTS: Final = {
    Fault.LIMITED: 0.03,
    Fault.REFUSED: 0.01,
    Fault.BROKEN: 0.01,
    Fault.CUT: 0.015,
    Fault.LOST: 0.015,
    Fault.HUNG: 0.01,
}
OTHERS: Final = {Fault.LIMITED: 0.01, Fault.REFUSED: 0.01, Fault.CUT: 0.01, Fault.LOST: 0.01}
WAIT_S: Final = (1, 8)
# A server performs a call within a moment, before another life of the caller could ask whether it
# was done.
LATE_S: Final = 0.3


class Foul:
    """Plays the `Weather` of a storm: each fault happens to a share of the calls."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def fault(self, asked: PlatformRequest) -> Fault | None:
        shares: Mapping[Fault, float] = ACTS if asked.is_act else OTHERS
        roll = self._dice.random()
        for fault, share in shares.items():
            roll -= share
            if roll < 0:
                return fault
        return None

    def wait_s(self) -> int:
        return self._dice.randint(*WAIT_S)

    def status(self) -> int:
        return self._dice.choice((500, 502, 503))

    def late_s(self) -> float:
        return self._dice.uniform(0, LATE_S)
