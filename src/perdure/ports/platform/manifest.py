"""What the gateway knows of a platform before anything of it is imported."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from perdure.domain.address import AddressForm
from perdure.domain.journal.records import AnswerSoFar
from perdure.ports.platform.adapter import Platform
from perdure.ports.platform.settings import AdapterSettings
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy


class Quality(StrEnum):
    """What has been proved of an adapter, each rung standing on the ones before. BRONZE: the
    contract suite passes. SILVER: it runs end to end against a server or an emulator that others
    wrote. GOLD: that is the platform's real server."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`address` is what its places are called, so that an impossible one is refused before anything
    is stored. `factory` is `package.module:function`, imported once the platform is configured;
    `extra` is what `pip install perdure[extra]` adds for it, and `needs` the module that then
    imports.
    `unproved` names features that no server here could check."""

    name: str
    title: str
    settings: type[AdapterSettings]
    factory: str
    quality: Quality
    address: AddressForm = AddressForm(pattern=r"\S.*", example="PLACE")
    extra: str = ""
    needs: str = ""
    unproved: tuple[str, ...] = ()


FindAnswer = Callable[[str], Awaitable[AnswerSoFar | None]]


async def no_answers(_external_id: str) -> AnswerSoFar | None:
    """For platforms that stand alone: nothing has come by any id."""
    return None


class AdapterContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform is given. `folder` is its own, for what its library must keep (keys of an
    encrypted chat); `hook_url` is where the world reaches `answer`; `answers` tells what came of
    the arrival with this external id."""

    clock: Clock
    entropy: Entropy
    folder: Path
    hook_url: str = ""
    answers: FindAnswer = no_answers


class Factory(Protocol):
    def __call__(self, settings: AdapterSettings, context: AdapterContext) -> Platform: ...
