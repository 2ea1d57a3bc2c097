"""How a reply becomes parts, and what may be done with a part whose sending failed.

pending ──▶ attempting ──▶ sent
   ▲            │─────────▶ unknown   it may have arrived: reconcile or show, never resend
   │            │─────────▶ failed    it never will
   └────────────┘ (definite failure)  pending ──▶ expired
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec


class Step(StrEnum):
    """What a platform is asked to do: show something, or take away what it shows."""

    POST = "post"
    DELETE = "delete"


class PartState(StrEnum):
    PENDING = "pending"
    ATTEMPTING = "attempting"
    SENT = "sent"
    UNKNOWN = "unknown"
    FAILED = "failed"
    EXPIRED = "expired"


LEGAL: Final[Mapping[PartState, frozenset[PartState]]] = {
    PartState.PENDING: frozenset({PartState.ATTEMPTING, PartState.EXPIRED}),
    PartState.ATTEMPTING: frozenset(
        {PartState.SENT, PartState.PENDING, PartState.UNKNOWN, PartState.FAILED}
    ),
    PartState.UNKNOWN: frozenset({PartState.SENT, PartState.PENDING}),  # reconciled
    PartState.SENT: frozenset(),
    PartState.FAILED: frozenset({PartState.PENDING}),  # replayed by a person
    PartState.EXPIRED: frozenset({PartState.PENDING}),
}

# Why a part that was never sent never will be: its turn was taken back.
WITHDRAWN: Final = "withdrawn"
# The receipt of a deletion, or of there being nothing that could be deleted.
GONE: Final = "gone"
KEPT: Final = "kept"

BACKOFF_S: Final = (1, 2, 5, 15, 60, 300)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a surface can do with a reply, as data for the planner."""

    is_pushed: bool = True  # False: clients read the journal, nothing is sent
    takes_key: bool = False  # repeats under one idempotency key arrive once
    can_find: bool = False  # can be asked whether a key arrived
    can_delete: bool = False  # can take away what it shows
    text_max: int = 4096


READ_BY_CLIENTS: Final = Capabilities(is_pushed=False)


def plan(text: str, capabilities: Capabilities) -> tuple[str, ...]:
    """The text of each part of a reply, in order. The parts joined are the text."""
    if not capabilities.is_pushed or not text:
        return ()
    size = capabilities.text_max
    return tuple(text[start : start + size] for start in range(0, len(text), size))


def backoff_s(attempts: int) -> int:
    """How long to wait before the next try when the platform named no time itself."""
    return BACKOFF_S[min(max(attempts, 1), len(BACKOFF_S)) - 1]
