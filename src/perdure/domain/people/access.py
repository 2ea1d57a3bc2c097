"""Who may speak: one decision, on stable ids, before anything becomes work.

Nobody may, unless the configuration or a pairing says so. Strangers meet silence, which is
recorded; where pairing is on they get a code in private, and nothing else.

`decide` is asked when something arrives, `refusal` whenever a turn begins, which may be days later:
after a crash, behind other turns, or as an errand. Both ask `may_speak`, so that what ends a
person's access ends their work too.
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
# How the reasons of turns begin that were refused or stopped because their person's access ended.
ACCESS_ENDED: Final = "access ended"


class AccessVerdict(StrEnum):
    """WELCOME: take it. PAIRING: a stranger who may ask to be let in. STRANGER: silence, recorded.
    ASIDE: people talking to each other; not ours to record."""

    WELCOME = "welcome"
    PAIRING = "pairing"
    STRANGER = "stranger"
    ASIDE = "aside"


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says. `allow` holds ids of people; whoever is in a place of `places`
    or has a role of `roles` may speak as well; bots only by `bots`."""

    allow: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    bots: frozenset[str] = frozenset()
    has_pairing: bool = False
    needs_mention: bool = True
    is_closed: bool = False  # whoever was let in before is out as well


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """On what terms the people of a platform are served."""

    rules: AccessRules = AccessRules()
    operators: frozenset[str] = frozenset()
    agent: str = ""
    busy: Busy = Busy.INTERRUPT
    is_per_person: bool = False  # in a group everybody has a conversation of their own


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """The person a turn is for, as the store knows them at the moment at which it begins.

    `name` is their principal's; `adapter` and `place` are where they said it, or where an errand of
    theirs belongs. `has_token`: a token that was not revoked stands for them. `is_paired`: a
    pairing of theirs stands on the account that they spoke to. `traits` are as they were when the
    message came.
    """

    name: str
    adapter: str
    place: str
    has_token: bool
    is_paired: bool
    traits: SenderTraits = NO_TRAITS

    @property
    def sender(self) -> Sender | None:
        """Who they are on the platform; None for those who come with a token. Principals of a
        platform are named after it."""
        prefix = f"{self.adapter}:"
        if self.adapter == HTTP or not self.name.startswith(prefix):
            return None
        traits = self.traits
        return Sender(id=self.name.removeprefix(prefix), is_bot=traits.is_bot, roles=traits.roles)


def may_speak(rules: AccessRules, sender: Sender, place: str, *, is_paired: bool) -> bool:
    """Whether these rules let this sender speak in this place."""
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


def refusal(rules: AccessRules, speaker: Speaker) -> str:
    """Why a turn of this speaker may not begin any more; empty if it may. `rules` are those of the
    speaker's adapter, as they are now; over HTTP there are none, and a token decides. Whoever
    speaks on a platform without being one of its people (an operator, over HTTP) comes with a
    token too."""
    sender = speaker.sender
    if sender is None:
        if speaker.has_token:
            return ""
        return f"{ACCESS_ENDED}: no token of {speaker.name} is valid any more"
    if may_speak(rules, sender, speaker.place, is_paired=speaker.is_paired):
        return ""
    if rules.is_closed:
        return f"{ACCESS_ENDED}: nobody is served on {speaker.adapter} any more"
    return f"{ACCESS_ENDED}: {sender.id} may not speak on {speaker.adapter} any more"


def is_access_ended(reason: str) -> bool:
    """Whether a turn was settled for this reason because its person's access had ended."""
    return reason.startswith(ACCESS_ENDED)


def decide(
    rules: AccessRules, arrival: Arrival, *, is_paired: bool, is_engaged: bool
) -> AccessVerdict:
    """`is_paired`: a pairing of this sender stands. `is_engaged`: the arrival speaks of a message
    of ours to answer, or belongs to a thread that the bot takes part in."""
    sender, is_private = arrival.sender, arrival.place_kind is PlaceKind.PRIVATE
    if rules.is_closed:
        return AccessVerdict.STRANGER
    if arrival.kind == UpdateKind.DELETE and not sender.id:
        # Some platforms do not say who has deleted a message: that it is gone is a fact.
        return AccessVerdict.WELCOME if is_engaged else AccessVerdict.ASIDE
    is_known = may_speak(rules, sender, arrival.place, is_paired=is_paired)
    if sender.is_bot and not is_known:
        return AccessVerdict.ASIDE
    is_for_us = is_private or arrival.is_addressed or is_engaged or not rules.needs_mention
    if not is_for_us:
        return AccessVerdict.ASIDE
    if is_known:
        return AccessVerdict.WELCOME
    may_ask = rules.has_pairing and is_private and arrival.kind == UpdateKind.MESSAGE
    return AccessVerdict.PAIRING if may_ask else AccessVerdict.STRANGER
