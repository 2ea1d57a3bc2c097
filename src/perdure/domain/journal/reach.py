"""What it took to get an answer from an agent, as the settlement of a turn keeps it."""

from typing import Final

import msgspec


class Missed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that was asked and did not answer, or was left alone because it had not answered
    others just before. `reason` and `detail` are as those of a turn that failed."""

    agent: str
    reason: str
    detail: str = ""


class Reach(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`missed` are the agents that did not answer, in the order of asking. One that answered later
    is among them. `waited_s` is how long the turn has waited for an agent in all. `status` is the
    HTTP status by which a server refused the turn's last call, and `retry_after_s` the wait that
    it asked for; both are 0 if there was none."""

    missed: tuple[Missed, ...] = ()
    waited_s: int = 0
    status: int = 0
    retry_after_s: int = 0


AT_ONCE: Final = Reach()
