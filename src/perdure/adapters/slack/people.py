"""What people are called. A name is only shown, so not knowing it never stops a message."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from perdure.adapters.slack.recent import Recent
from perdure.adapters.slack.refusals import Refused
from perdure.adapters.slack.wire import Wire
from perdure.domain.errors import PerdureError
from perdure.ports.system.time_limits import time_limit

KEPT_MAX: Final = 1_000
ASKED_MAX: Final = 8
# Slack waits three seconds for us to take a message.
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
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._names: Recent[str] = Recent(KEPT_MAX)

    async def names(self, ids: Sequence[str]) -> dict[str, str]:
        unknown = [each for each in ids if each not in self._names][:ASKED_MAX]
        # Whoever could not be asked now is asked with a later message, once Slack's wait is over.
        with suppress(PerdureError, TimeoutError):
            async with time_limit(PATIENCE_S):
                for each in unknown:
                    self._names[each] = await self._ask(each)
        return {each: self._names[each] for each in ids if each in self._names}

    async def _ask(self, user: str) -> str:
        try:
            said = (await self._wire.ask("users.info", {"user": user}, _Answer)).user
        except Refused:
            return ""
        profile = said.profile
        return profile.display_name or profile.real_name or said.real_name or said.name or ""
