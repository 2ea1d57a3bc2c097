"""Describes what it took to get an answer from an agent. The settlement of a turn records it."""

from typing import Final

import msgspec


class Missed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Names an agent that did not answer: it was asked in vain, or not asked because it had just
    failed to answer others. `reason` and `detail` are like those of a failed turn."""

    agent: str
    reason: str
    detail: str = ""


class Reach(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds the result of a turn's search for an agent. `missed` are the agents that did not
    answer, in the order of asking, even if one of them answered later. `waited_s` is how long the
    turn has waited, in the searches in which an agent did not answer. `status` is the HTTP status
    by which a server refused the turn's last call, and `retry_after_s` the wait that it asked for;
    both are 0 if there was none."""

    missed: tuple[Missed, ...] = ()
    waited_s: int = 0
    status: int = 0
    retry_after_s: int = 0


AT_ONCE: Final = Reach()
