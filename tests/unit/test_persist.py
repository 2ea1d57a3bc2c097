"""Checks what is done about a write that the store did not confirm."""

from collections.abc import Sequence

import pytest

from perdure.domain.errors import Ambiguous, Conflict, PerdureError, Transient
from perdure.engine.foundation.persist import persist
from perdure.testkit.simulator.system import VirtualClock


class Write:
    """Fails in the given ways, and then succeeds. `tries` counts all calls."""

    def __init__(self, *failures: PerdureError) -> None:
        self._failures = list(failures)
        self.tries = 0

    async def __call__(self) -> str:
        self.tries += 1
        if self._failures:
            raise self._failures.pop(0)
        return "written"


class Look:
    """Returns what each look into the store finds, one value per call."""

    def __init__(self, found: Sequence[str | None]) -> None:
        self._found = list(found)
        self.looks = 0

    async def __call__(self) -> str | None:
        self.looks += 1
        return self._found.pop(0)


@pytest.mark.parametrize(
    ("failures", "found", "tries", "result"),
    [
        ([Ambiguous("?")], ["found"], 1, "found"),
        ([Ambiguous("?")], [None], 2, "written"),
        ([Ambiguous("?"), Ambiguous("?")], [None, "found"], 2, "found"),
        ([Transient("no"), Transient("no")], [], 3, "written"),
    ],
    ids=["it is there", "it is not", "it is there in the end", "it certainly is not"],
)
async def test_a_write_of_unknown_fate_is_looked_for_before_it_is_repeated(
    failures: list[PerdureError], found: list[str | None], tries: int, result: str
) -> None:
    write, look = Write(*failures), Look(found)

    told = await persist(write, clock=VirtualClock(is_eager=True), happened=look)

    assert (told, write.tries, look.looks) == (result, tries, len(found))


async def test_what_was_refused_is_not_repeated() -> None:
    write = Write(Conflict("no"))
    with pytest.raises(Conflict):
        await persist(write, clock=VirtualClock(is_eager=True))
    assert write.tries == 1
