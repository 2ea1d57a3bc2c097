"""Describes a platform to the gateway, before the platform's package is imported."""

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
from perdure.ports.system.outgoing import DIRECT, Outgoing


class Quality(StrEnum):
    """Says what has been proved of an adapter; each level includes those before it. BRONZE: the
    contract suite passes. SILVER: it runs end to end against a server or an emulator that other
    people wrote. GOLD: it runs end to end against the platform's real server."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one platform. `address` is the form of its addresses, so that an impossible one is
    refused before anything is stored. `factory` is `package.module:function`, imported only if the
    platform is configured. `extra` is the extra that installs what it needs (`pip install
    perdure[extra]`), and `needs` is a module that can be imported only then. `unproved` names
    features that no available server could check."""

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
    """Return None: without a gateway nothing has come in under any id."""
    return None


class AdapterContext(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what an adapter is given. `name` is what the adapter is called in addresses, which is
    another name than the platform's for a second account; if it is empty, the adapter is called
    after its platform. `folder` is for what its library must keep, such as the keys
    of an encrypted chat. `hook_url` is the public address of its `answer`. `answers` returns what
    came of the arrival with an external id. `outgoing` opens the HTTP sessions with which it talks
    to its platform."""

    clock: Clock
    entropy: Entropy
    folder: Path
    name: str = ""
    hook_url: str = ""
    answers: FindAnswer = no_answers
    outgoing: Outgoing = DIRECT


class Factory(Protocol):
    """Makes the adapter of a configured platform.

    Guarantees: nothing is connected yet.
    Requires: settings of the manifest's own type.
    Raises: nothing.
    After a crash: nothing is kept.
    """

    def __call__(self, settings: AdapterSettings, context: AdapterContext) -> Platform:
        """Return a new adapter."""
