"""Shares slots between people: the next slot goes to the person who has the fewest.

Nobody's slot is taken away. So a few slots are always kept free of any one person, and somebody who
comes while another person uses all that one may have still finds a slot.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from perdure.domain.ids import PrincipalId

T = TypeVar("T")
NOBODY: Final[Mapping[PrincipalId, int]] = MappingProxyType({})
# One slot in so many is kept for others.
_ONE_IN: Final = 16


class FairShares(msgspec.Struct, frozen=True, kw_only=True):
    """Says how many slots each person has now, and how many one person may have at most."""

    in_use: Mapping[PrincipalId, int] = NOBODY
    most: int = 2**31

    @property
    def full(self) -> tuple[PrincipalId, ...]:
        """Return the people who have all the slots that one person may have, in the order of their
        ids."""
        return tuple(sorted(who for who, count in self.in_use.items() if count >= self.most))


EQUAL: Final = FairShares()


def most_of(slots: int) -> int:
    """Return how many slots one person may have if there are this many in all."""
    return max(slots - max(slots // _ONE_IN, 1), 1)


def fairly(
    waiting: Sequence[T], *, by: Callable[[T], PrincipalId], shares: FairShares, limit: int
) -> list[T]:
    """Choose at most `limit` items among those waiting, which are given in the order in which they
    came. Each slot goes to the person who has the fewest by then, and among equals to the one whose
    item came first. Each person's own order is kept."""
    lines: dict[PrincipalId, deque[tuple[int, T]]] = defaultdict(deque)
    for place, each in enumerate(waiting):
        lines[by(each)].append((place, each))
    in_use = {who: shares.in_use.get(who, 0) for who in lines}
    chosen: list[T] = []
    while len(chosen) < limit:
        open_to = [who for who, line in lines.items() if line and in_use[who] < shares.most]
        if not open_to:
            break
        who = min(open_to, key=lambda each: (in_use[each], lines[each][0][0]))
        chosen.append(lines[who].popleft()[1])
        in_use[who] += 1
    return chosen
