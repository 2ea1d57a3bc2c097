"""Defines the types from which sections of the configuration are made.

A field's type says what is accepted, and its default is used when the key is left out. A type's
description completes the sentence "it must be ...", so the error text for a wrong value stands
beside its rule. Platforms declare their own sections with these types.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from perdure.domain.secret import Secret

# From 1 to 65535.
_PORT = (
    r"0*(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)
# The position of a value below a section: its keys, and its indexes in lists.
SettingKey: TypeAlias = tuple[str | int, ...]

NonEmptyText = Annotated[str, Meta(min_length=1, description="text in quotes that is not empty")]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}\Z",
        description="a name of letters, digits and . _ : - (at most 64)",
    ),
]
Url = Annotated[
    str,
    Meta(
        pattern=r"^https?://(?:[^\s/@]+@)?(?:\[[0-9A-Fa-f:.]+\]|[^\s/:@\[\]?#]+)"
        rf"(?::{_PORT})?(?:/[^\s?#]*)?\Z",
        description='an address such as "http://127.0.0.1:11434/v1"',
    ),
]
Port = Annotated[int, Meta(ge=0, le=65_535, description="a whole number from 0 to 65535")]
# The limits keep sizes, and times in milliseconds, within the signed 64 bits of both databases.
Count = Annotated[int, Meta(ge=1, le=2**62, description="a whole number of at least 1")]
WholeNumber = Annotated[int, Meta(ge=0, le=2**62, description="a whole number of at least 0")]
Seconds = Annotated[float, Meta(ge=0, le=3.2e9, description="a number of seconds, 0 or more")]
WaitSeconds = Annotated[float, Meta(gt=0, le=3.2e9, description="a number of seconds above 0")]
Days = Annotated[float, Meta(ge=0, le=36_525, description="a number of days, 0 or more")]
CommandWords = Annotated[
    tuple[NonEmptyText, ...],
    Meta(min_length=1, description='a list such as ["program", "argument"]'),
]
CollectMs = Annotated[
    int, Meta(ge=0, le=5_000, description="a number of milliseconds from 0 to 5000")
]
BusyChoice = Literal["interrupt", "queue", "steer"]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a table of the configuration file. The reader refuses unknown keys."""


class DisplaySettings(Section, frozen=True, kw_only=True):
    """Says how much of the work is shown beside the answer. What is left out follows the
    platform."""

    tools: Literal["off", "names"] | None = None
    reasoning: Literal["off", "status"] | None = None
    stream: bool | None = None
    footer: bool = False


class PlaceSection(Section, frozen=True, kw_only=True):
    """Holds the settings of one place, named by its id, or of places whose names fit the pattern.
    What is left out is as everywhere on the platform."""

    place: NonEmptyText
    agent: Name | None = None
    persona: NonEmptyText | None = None
    instructions: str = ""
    mention: bool | None = None
    thread: bool | None = None
    topics: tuple[NonEmptyText, ...] | None = None
    ignore_topics: tuple[NonEmptyText, ...] = ()
    wake: tuple[NonEmptyText, ...] = ()
    busy: BusyChoice | None = None
    overhear: bool | None = None
    collect_ms: CollectMs | None = None


class AdapterSettings(Section, frozen=True, kw_only=True):
    """Holds the settings that every platform takes. Without `platform` the section's name says
    which one it is. Without `agent` the default one answers.

    These people may speak: the ids in `allow` ("*" is everybody), everybody in a place of
    `allow_places`, everybody who has a role of `allow_roles`, and everybody who was paired. A bot
    may speak only if it is in `allow_bots`. `operators` may use commands that concern the whole
    gateway.

    Rules about several values together are checked by `named_agents`, `named_places` and
    `problems`, which name the key that each is about.
    """

    platform: Name | None = None
    token: Secret | None = None
    api_url: Url | None = None
    allow: tuple[NonEmptyText, ...] = ()
    allow_places: tuple[NonEmptyText, ...] = ()
    allow_roles: tuple[NonEmptyText, ...] = ()
    allow_bots: tuple[NonEmptyText, ...] = ()
    operators: tuple[NonEmptyText, ...] = ()
    pairing: bool = False
    agent: Name | None = None
    busy: BusyChoice | None = None
    stream: bool = True
    groups: Literal["shared", "person"] = "shared"
    mention: bool = True
    overhear: bool | None = None
    collect_ms: CollectMs = 1_000
    places: tuple[PlaceSection, ...] = ()
    display: DisplaySettings = DisplaySettings()

    def named_agents(self) -> Iterator[tuple[SettingKey, str]]:
        """Yield the agents that must be configured."""
        if self.agent is not None:
            yield ("agent",), self.agent
        for number, place in enumerate(self.places):
            if place.agent is not None:
                yield ("places", number, "agent"), place.agent

    def named_personas(self) -> Iterator[tuple[SettingKey, str]]:
        """Yield the personas that must be configured."""
        for number, place in enumerate(self.places):
            if place.persona is not None:
                yield ("places", number, "persona"), place.persona

    def named_places(self) -> Iterator[tuple[SettingKey, str]]:
        """Yield the addresses on platforms that must be configured."""
        yield from ()

    def problems(self) -> Iterator[tuple[SettingKey, str]]:
        """Yield why the section cannot be used, in words that follow the key: "needs …", "must be
        …"."""
        yield from ()
