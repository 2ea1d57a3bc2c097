"""Decides where the crash simulator strikes: at every point, at a sample that changes with each
run, or at one point.

A scenario is run once per point: it is struck at its first point, then at its second, and so on,
until a run passes untouched. `make test` takes a sample, unless a test asks for every point: each
n-th point, where n is `THINNED` times what the test asks for, from a start that depends on the
run's seed and on the test. The next run has the next seed, so n runs together strike every point.
`make chaos` strikes at every point. A failure says how to run it again alone.
"""

import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.system import SeededEntropy
from perdure.testkit.simulator.world import Setup, World

POINTS_MAX: Final = 600
POINTS_MIN: Final = 15
PAIRED_MAX: Final = 200  # few processes live through more points
EVERYWHERE: Final = "all"
# Keeps `make test` within its time, however many scenarios there are.
THINNED: Final = 10


class StrikePoints(msgspec.Struct, frozen=True, kw_only=True):
    """Chooses the points of one test. `strike` is `all`, or a point (`17`), or two points if the
    second process dies too (`17,4`), or empty for a sample."""

    test: str
    seed: int
    strike: str = ""

    @property
    def is_everywhere(self) -> bool:
        return self.strike == EVERYWHERE

    @property
    def _own_seed(self) -> int:
        """Return a seed that differs between tests and grows by one with each run."""
        return self.seed + zlib.crc32(self.test.encode())

    def points(self, every: int) -> Iterator[int]:
        """Yield numbers of points, for as long as the caller wants more."""
        if self.strike and not self.is_everywhere:
            yield int(self.strike.partition(",")[0])
            return
        step = 1 if self.is_everywhere or every == 1 else every * THINNED
        yield from range(self._own_seed % step, POINTS_MAX, step)
        # No scenario has this many points, so this run passes untouched even if a wide step has
        # left out the end of the scenario.
        yield POINTS_MAX
        raise AssertionError("the scenario never passed untouched")

    def pairs(self, most: int) -> Iterator[tuple[int, int]]:
        """Yield pairs of points, one of the first process and one of the second."""
        if self.strike and not self.is_everywhere:
            first, _, second = self.strike.partition(",")
            yield int(first), int(second)
            return
        dice = SeededEntropy(self._own_seed)
        for _ in range(most if self.is_everywhere else -(-most // THINNED)):
            drawn = dice.random_bytes(2)
            yield drawn[0] % PAIRED_MAX, drawn[1] % PAIRED_MAX


class MakeWorld(Protocol):
    """Makes a world on an empty database, or on one in which `before` has been played. `before`
    runs in a process of its own, and only once if the database can be copied."""

    async def __call__(
        self,
        *,
        setup: Setup | None = None,
        before: Callable[[World], Awaitable[None]] | None = None,
    ) -> World: ...


# Plays a scenario. It takes one fuse for each process that is to be struck.
Run = Callable[..., Awaitable[Sequence[str]]]


class Simulator:
    """Makes worlds and strikes in them. A `run` plays a scenario in a new world with the given
    fuse, and returns what it found broken. `tell` is called with the point at which something
    broke."""

    def __init__(
        self, world: MakeWorld, choice: StrikePoints, *, tell: Callable[[str], None]
    ) -> None:
        self.world = world
        self._choice = choice
        self._tell = tell

    async def strike(self, run: Run, nemesis: Nemesis = Nemesis.DIE, *, every: int = 1) -> None:
        """Strike at each `every`-th point, or at each point in chaos runs, until a run passes
        untouched."""
        for point in self._choice.points(every):
            fuse = Fuse(point, nemesis)
            await self._judge(str(point), run(fuse), fuse)
            if not fuse.has_struck:
                assert len(fuse.passed) > POINTS_MIN, "the scenario has lost its points"
                return

    async def strike_twice(self, run: Run, *, most: int) -> None:
        """Let the second process die too, at pairs of points that the seed chooses."""
        for first, second in self._choice.pairs(most):
            one, two = Fuse(first), Fuse(second)
            await self._judge(f"{first},{second}", run(one, two), one, two)

    async def _judge(self, point: str, run: Awaitable[Sequence[str]], *fuses: Fuse) -> None:
        """Run a scenario, and fail with its point if anything is broken or the run did not end."""
        found: Sequence[str] = ["it did not come to its end"]
        try:
            found = await run
        finally:
            if found:
                self._tell(point)
        struck = " and ".join(f"{fuse.nemesis} {fuse.struck}" for fuse in fuses)
        assert not found, f"struck at {point} ({struck}): {found}"
