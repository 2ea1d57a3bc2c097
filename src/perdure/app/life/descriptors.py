"""Raises the limit of open files, and divides the file descriptors.

Shells and services begin with a soft limit of 1,024, which a process may raise up to the hard
limit. The result is divided: a turn that waits for a model has one connection, and the client that
reads its answer has another. Without such shares, those who come first would take the descriptors
that the others need.
"""

import resource
from typing import Final

import msgspec

from perdure.web.http.doorway import Capacity

# Reserved for the store, the log, the platforms, and files that are fetched or read.
_OWN_MAX: Final = 192
# Connections of clients that have not signed in yet.
_NEWCOMERS_MAX: Final = 1024
_OPERATORS: Final = 16
# Stands for "no limit" in the calculation; more than any machine carries.
_UNLIMITED: Final = 1_000_000
# Some systems refuse to raise the limit to infinity, but accept this.
_MODEST: Final = 10_240


class DescriptorShares(msgspec.Struct, frozen=True):
    """Holds how many turns may run at once, and how many connections are accepted."""

    turns: int
    connections: Capacity

    @classmethod
    def of(cls, descriptors: int) -> "DescriptorShares":
        """Divide this many descriptors."""
        rest = descriptors - min(_OWN_MAX, descriptors // 8) - _OPERATORS
        newcomers = max(min(_NEWCOMERS_MAX, rest // 5), 1)
        turns = max((rest - newcomers) // 2, 1)
        signed_in = max(rest - newcomers - turns, 1)
        return cls(
            turns,
            Capacity(newcomers=newcomers, signed_in=signed_in, operators=_OPERATORS),
        )


def shares() -> DescriptorShares:
    """Raise the limit, and return what this process may carry."""
    return DescriptorShares.of(raised_limit())


def raised_limit() -> int:
    """Raise the soft limit to the hard one, as far as the system allows. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        for wanted in (hard, _MODEST):
            if _is_taken(wanted, hard):
                soft = wanted
                break
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _is_taken(soft: int, hard: int) -> bool:
    """Set the limit. Returns False if the system refuses."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    except (ValueError, OSError):
        return False
    return True
