"""Decides who may speak, by stable ids, before anything becomes work.

Nobody may speak unless the configuration or a pairing allows it. Strangers get no answer, and that
they wrote is recorded. Where pairing is on, a stranger gets a code in private, and nothing else.

`decide` is asked when something arrives, and `refusal` whenever a turn begins, which may be days
later: after a crash, behind other turns, or as an errand. Both ask `may_speak`, so when a person's
access ends, their waiting work ends too.
"""

from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.address import HTTP
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.journal.events import NO_TRAITS, SenderTraits
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy

EVERYBODY: Final = "*"
# The beginning of a turn's reason if it was refused or stopped because its person's access ended.
ACCESS_ENDED: Final = "access ended"


class AccessVerdict(StrEnum):
    """Says what is done with an arrival. WELCOME: accept it. PAIRING: the sender is a stranger who
    may ask for access. STRANGER: do not answer, but record it. ASIDE: do neither, because it is not
    meant for the bot."""

    WELCOME = "welcome"
    PAIRING = "pairing"
    STRANGER = "stranger"
    ASIDE = "aside"


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the configuration says about a platform. `allow` holds ids of people. People in
    one of the `places` or with one of the `roles` may speak as well. A bot may speak only if its id
    is in `bots`."""

    allow: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    bots: frozenset[str] = frozenset()
    has_pairing: bool = False
    needs_mention: bool = True
    is_closed: bool = False  # nobody may speak any more, also people who were let in before


class PlaceTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the configuration says about one place, which is named by its id, or about places
    whose names fit a pattern. What is None is as everywhere on the platform."""

    place: str = ""
    agent: str = ""
    persona: str = ""
    instructions: str = ""
    needs_mention: bool | None = None
    has_own_threads: bool | None = None
    topics: frozenset[str] | None = None
    ignored_topics: frozenset[str] = frozenset()
    wake: tuple[str, ...] = ()
    busy: Busy | None = None
    overhears: bool | None = None
    collect_ms: int | None = None


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the terms on which the people of a platform are served, and those of single `places`;
    `domain/people/places.py` decides which count. `overhears`: what people of a group say among
    themselves is told with the next message to the bot. `collect_ms` counts in private chats."""

    rules: AccessRules = AccessRules()
    operators: frozenset[str] = frozenset()
    agent: str = ""
    busy: Busy | None = None
    is_per_person: bool = False  # each person of a group has a conversation of their own
    overhears: bool | None = None
    collect_ms: int = 0
    places: tuple[PlaceTerms, ...] = ()


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the person that a turn is for, as the store knows them when the turn begins.

    `name` is the name of their principal. `adapter` and `place` say where they wrote, or where
    their errand belongs, and `former_place` is the id that this place had before. `has_token`: a
    token of theirs is not revoked. `is_paired`: they are paired with the account that they wrote
    to. `traits` are those of the time when the message came.
    """

    name: str
    adapter: str
    place: str
    has_token: bool
    is_paired: bool
    traits: SenderTraits = NO_TRAITS
    former_place: str = ""

    @property
    def sender(self) -> Sender | None:
        """Return who they are on the platform, or None if they come with a token. Names of a
        platform's principals begin with the platform's name."""
        prefix = f"{self.adapter}:"
        if self.adapter == HTTP or not self.name.startswith(prefix):
            return None
        traits = self.traits
        return Sender(id=self.name.removeprefix(prefix), is_bot=traits.is_bot, roles=traits.roles)


def may_speak(rules: AccessRules, sender: Sender, place: str, *, is_paired: bool) -> bool:
    """Tell whether these rules let this sender speak in this place."""
    if rules.is_closed:
        return False
    if sender.is_bot:
        return sender.id in rules.bots
    return (
        is_paired
        or sender.id in rules.allow
        or EVERYBODY in rules.allow
        or place in rules.places
        or not rules.roles.isdisjoint(sender.roles)
    )


def rules_in(rules: AccessRules, place: str, *, former: str) -> AccessRules:
    """Return the rules for a place. If it was allowed under its former id, it still is."""
    if former not in rules.places or place in rules.places:
        return rules
    return msgspec.structs.replace(rules, places=rules.places | {place})


def access_refusal(rules: AccessRules, speaker: Speaker) -> str:
    """Return why a turn of this speaker may not begin any more, or an empty string if it may.
    `rules` are the present rules of the speaker's adapter. A token decides over HTTP, where there
    are no rules, and for operators who speak in a platform's conversation without being one of its
    people."""
    sender = speaker.sender
    if sender is None:
        if speaker.has_token:
            return ""
        return f"{ACCESS_ENDED}: no token of {speaker.name} is valid any more"
    here = rules_in(rules, speaker.place, former=speaker.former_place)
    if may_speak(here, sender, speaker.place, is_paired=speaker.is_paired):
        return ""
    if rules.is_closed:
        return f"{ACCESS_ENDED}: nobody is served on {speaker.adapter} any more"
    return f"{ACCESS_ENDED}: {sender.id} may not speak on {speaker.adapter} any more"


def is_access_ended(reason: str) -> bool:
    """Tell whether this reason says that a turn was settled because its person's access had
    ended."""
    return reason.startswith(ACCESS_ENDED)


def decide(
    rules: AccessRules, arrival: Arrival, *, is_paired: bool, is_engaged: bool
) -> AccessVerdict:
    """Decide what is done with an arrival. `is_paired`: its sender is paired. `is_engaged`: it is
    about a message that the bot answers, or belongs to a thread in which the bot takes part."""
    sender, is_private = arrival.sender, arrival.place_kind is PlaceKind.PRIVATE
    if rules.is_closed:
        return AccessVerdict.STRANGER
    if arrival.kind == UpdateKind.DELETE and not sender.id:
        # Some platforms do not say who has deleted a message. That it is gone is a fact anyway.
        return AccessVerdict.WELCOME if is_engaged else AccessVerdict.ASIDE
    is_known = may_speak(rules, sender, arrival.place, is_paired=is_paired)
    if sender.is_bot and not is_known:
        return AccessVerdict.ASIDE
    is_for_all = (is_engaged or not rules.needs_mention) and not arrival.is_for_another
    if not (is_private or arrival.is_addressed or is_for_all):
        return AccessVerdict.ASIDE
    if is_known:
        return AccessVerdict.WELCOME
    may_ask = rules.has_pairing and is_private and arrival.kind == UpdateKind.MESSAGE
    return AccessVerdict.PAIRING if may_ask else AccessVerdict.STRANGER
