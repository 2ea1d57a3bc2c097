"""Asks Slack for people's names. Names are only shown, so a missing one never stops a message."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from perdure.adapters.slack.calls.recent import Recent
from perdure.adapters.slack.calls.refusals import Refused
from perdure.adapters.slack.wire import Wire
from perdure.domain.errors import PerdureError
from perdure.ports.system.time_limits import time_limit

KEPT_MAX: Final = 1_000
# How many unknown names are asked for with one message.
ASKED_MAX: Final = 8
# The time for all names of one message. Slack waits three seconds for an acknowledgement.
PATIENCE_S: Final = 1.0


class _Profile(msgspec.Struct, frozen=True):
    display_name: str | None = None
    real_name: str | None = None


class _User(msgspec.Struct, frozen=True):
    name: str | None = None
    real_name: str | None = None
    profile: _Profile = _Profile()


class _Answer(msgspec.Struct, frozen=True):
    user: _User


class People:
    """Knows the names of people who wrote or were mentioned lately."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._names: Recent[str] = Recent(KEPT_MAX)

    async def names(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the names that are known or can be asked for quickly. Ids without a name are
        missing."""
        unknown = [each for each in ids if each not in self._names][:ASKED_MAX]
        # Names that could not be asked for now are asked for with a later message.
        with suppress(PerdureError, TimeoutError):
            async with time_limit(PATIENCE_S):
                for each in unknown:
                    self._names[each] = await self._ask(each)
        return {each: self._names[each] for each in ids if each in self._names}

    async def _ask(self, user: str) -> str:
        """Return a person's name, or an empty string if Slack refuses to tell it."""
        try:
            said = (await self._wire.ask("users.info", {"user": user}, _Answer)).user
        except Refused:
            return ""
        profile = said.profile
        return profile.display_name or profile.real_name or said.real_name or said.name or ""
