"""Decides on which terms the people of one place are served.

The configuration says how a bot serves everybody, and may say otherwise for single places. This is
decided once for each arrival, by `terms_at`. The inlet asks it, and nothing else reads the settings
of places.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.domain.content.silence import NOTHING_TO_SAY
from perdure.domain.inbound.arrivals import SCANNED_MAX, Arrival, PlaceKind
from perdure.domain.outcomes import Busy
from perdure.domain.people.access import EVERYBODY, AccessRules, PlaceTerms, Terms, rules_in
from perdure.domain.tools.globs import is_match

# What a model is told in a place where it reads along.
_READS_ALONG: Final = (
    "You read along in this place, and most of what is said here is not for you. If a message needs"
    f" no answer of yours, answer exactly {NOTHING_TO_SAY}, and nothing is posted."
)


class LocalTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the terms of one place, after everything was decided. `persona` counts unless people
    have chosen another. `is_open`: everybody may speak here. `may_be_silent`: the agent may decide
    that a message needs no answer. `has_own_threads`: each question begins a thread, where the
    platform has such; None is the platform's own way. `is_left_out`: the bot does not serve this
    topic. `wake` are words that call the bot."""

    rules: AccessRules
    operators: frozenset[str] = frozenset()
    is_per_person: bool = False
    agent: str = ""
    persona: str = ""
    instructions: str = ""
    busy: Busy = Busy.QUEUE
    overhears: bool = False
    collect_ms: int = 0
    has_own_threads: bool | None = None
    is_open: bool = False
    is_left_out: bool = False
    may_be_silent: bool = False
    wake: tuple[str, ...] = ()


def terms_at(terms: Terms, arrival: Arrival, *, former: str = "") -> LocalTerms:
    """Return the terms for the place of an arrival: those of the first section that fits the place,
    and the platform's own where that section says nothing. What names the `former` id of the place
    is about it too."""
    place = next((each for each in terms.places if _fits(each, arrival, former)), PlaceTerms())
    needs = place.needs_mention
    rules = rules_in(terms.rules, arrival.place, former=former)
    rules = rules if needs is None else _with_mention(rules, needs=needs)
    is_group = arrival.place_kind is PlaceKind.GROUP
    reads_along = is_group and not rules.needs_mention
    said = [place.instructions, _READS_ALONG if reads_along else ""]
    return LocalTerms(
        rules=rules,
        operators=terms.operators,
        is_per_person=terms.is_per_person,
        agent=place.agent or terms.agent,
        persona=place.persona,
        instructions="\n\n".join(filter(None, said)),
        busy=place.busy or terms.busy or (Busy.QUEUE if is_group else Busy.INTERRUPT),
        overhears=_overhears(terms, rules, place, arrival),
        collect_ms=_collect_ms(terms, place, is_group=is_group),
        has_own_threads=place.has_own_threads,
        is_open=is_group and not terms.is_per_person and _is_open(rules, arrival.place),
        is_left_out=is_group and _is_left_out(place, arrival.thread),
        may_be_silent=reads_along,
        wake=place.wake if is_group else (),
    )


def _with_mention(rules: AccessRules, *, needs: bool) -> AccessRules:
    return msgspec.structs.replace(rules, needs_mention=needs)


def _fits(place: PlaceTerms, arrival: Arrival, former: str) -> bool:
    """Tell whether a section is about the place of an arrival: by its id, by the id that it had
    before, or by a pattern for its name."""
    if place.place in (arrival.place, former):
        return True
    label = arrival.label if arrival.place_kind is PlaceKind.GROUP else ""
    return bool(label) and is_match(place.place.casefold(), label.casefold())


def _is_left_out(place: PlaceTerms, thread: str) -> bool:
    """Tell whether the bot leaves a topic alone. What is said outside of topics is not left out."""
    is_unlisted = place.topics is not None and thread not in place.topics
    return bool(thread) and (is_unlisted or thread in place.ignored_topics)


def _is_open(rules: AccessRules, place: str) -> bool:
    """Tell whether everybody may speak in a place."""
    return EVERYBODY in rules.allow or place in rules.places


def _overhears(terms: Terms, rules: AccessRules, place: PlaceTerms, arrival: Arrival) -> bool:
    """Tell whether the bot is told what people of the place say among themselves. If nothing says
    so, it is where everybody may speak to it: where only listed people may be heard, the others
    are not heard by this way either. Where each person has a conversation of their own, nothing is
    overheard."""
    if arrival.place_kind is not PlaceKind.GROUP or terms.is_per_person or terms.rules.is_closed:
        return False
    for said in (place.overhears, terms.overhears):
        if said is not None:
            return said
    return _is_open(rules, arrival.place)


def _collect_ms(terms: Terms, place: PlaceTerms, *, is_group: bool) -> int:
    """Return within how many milliseconds messages of a person are one message. In groups, where
    others may write between them, none are unless the place says so."""
    if place.collect_ms is not None:
        return place.collect_ms
    return 0 if is_group else terms.collect_ms


def is_woken(words: Iterable[str], text: str) -> bool:
    """Tell whether a text has one of these words, in any case, and not within a longer word."""
    scanned = text[:SCANNED_MAX].casefold()
    return any(_has_word(scanned, word.casefold()) for word in words)


def _has_word(text: str, word: str) -> bool:
    """Tell whether a text has this word, and not within a longer one."""
    at = text.find(word) if word else -1
    while at >= 0:
        end = at + len(word)
        if not _is_of_word(text[at - 1 : at]) and not _is_of_word(text[end : end + 1]):
            return True
        at = text.find(word, end)
    return False


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"
