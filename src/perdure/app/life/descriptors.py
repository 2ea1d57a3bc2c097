"""How many files and connections the system lets this process have open, and who gets them.

Shells and services begin with a soft limit of 1,024, which a process may raise by itself up to the
hard one. What there is then is divided: a turn at a model holds one connection, whoever reads its
answer another. Without such shares those who come first would take what the others need to go on.
"""

import resource
from typing import Final

import msgspec

from perdure.web.http.doorway import Capacity

# For the store, the log, platforms, files that are fetched or read.
_OWN_MAX: Final = 192
_NEWCOMERS_MAX: Final = 1024
_OPERATORS: Final = 16
# More than any machine carries; where there is no limit something has to be counted with.
_UNLIMITED: Final = 1_000_000
# What a system takes that refuses to lift the limit altogether.
_MODEST: Final = 10_240


class DescriptorShares(msgspec.Struct, frozen=True):
    """How many turns run at once, and how many connections are carried."""

    turns: int
    connections: Capacity

    @classmethod
    def of(cls, descriptors: int) -> "DescriptorShares":
        """Divide the descriptors that this process may have."""
        rest = descriptors - min(_OWN_MAX, descriptors // 8) - _OPERATORS
        newcomers = max(min(_NEWCOMERS_MAX, rest // 5), 1)
        turns = max((rest - newcomers) // 2, 1)
        signed_in = max(rest - newcomers - turns, 1)
        return cls(
            turns,
            Capacity(newcomers=newcomers, signed_in=signed_in, operators=_OPERATORS),
        )


def shares() -> DescriptorShares:
    """Return what this process may carry, after raising its limit."""
    return DescriptorShares.of(raised_limit())


def raised_limit() -> int:
    """Raise the soft limit to the hard one, as far as the system lets us. Returns what it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        for wanted in (hard, _MODEST):
            if _is_taken(wanted, hard):
                soft = wanted
                break
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _is_taken(soft: int, hard: int) -> bool:
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    except (ValueError, OSError):
        return False
    return True
