"""Who may speak: one decision, on stable ids, before anything becomes work.

Nobody may, unless the configuration or a pairing says so. Strangers meet silence, which is
recorded; where pairing is on they get a code in private, and nothing else.
"""

from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.arrivals import Arrival, PlaceKind
from perdure.domain.outcomes import Busy
from perdure.domain.updates import DELETE, MESSAGE

EVERYBODY: Final = "*"


class Verdict(StrEnum):
    """WELCOME: take it. PAIRING: a stranger who may ask to be let in. STRANGER: silence, recorded.
    ASIDE: people talking to each other; not ours to record."""

    WELCOME = "welcome"
    PAIRING = "pairing"
    STRANGER = "stranger"
    ASIDE = "aside"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
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

    rules: Rules = Rules()
    operators: frozenset[str] = frozenset()
    agent: str = ""
    busy: Busy = Busy.INTERRUPT
    is_per_person: bool = False  # in a group everybody has a conversation of their own


def decide(rules: Rules, arrival: Arrival, *, is_paired: bool, is_engaged: bool) -> Verdict:
    """`is_paired`: a pairing of this sender stands. `is_engaged`: the arrival speaks of a message
    of ours to answer, or belongs to a thread that the bot takes part in."""
    sender, is_private = arrival.sender, arrival.place_kind is PlaceKind.PRIVATE
    if rules.is_closed:
        return Verdict.STRANGER
    if arrival.kind == DELETE and not sender.id:
        # Some platforms do not say who has deleted a message: that it is gone is a fact.
        return Verdict.WELCOME if is_engaged else Verdict.ASIDE
    if sender.is_bot:
        if sender.id not in rules.bots:
            return Verdict.ASIDE
        is_known = True
    else:
        is_known = (
            is_paired
            or sender.id in rules.allow
            or EVERYBODY in rules.allow
            or arrival.place in rules.places
            or not rules.roles.isdisjoint(sender.roles)
        )
    is_for_us = is_private or arrival.is_addressed or is_engaged or not rules.needs_mention
    if not is_for_us:
        return Verdict.ASIDE
    if is_known:
        return Verdict.WELCOME
    may_ask = rules.has_pairing and is_private and arrival.kind == MESSAGE
    return Verdict.PAIRING if may_ask else Verdict.STRANGER
