"""Limits what a caller may read about how a turn ended: operators see every detail, others only
what concerns them."""

from typing import TypeVar

import msgspec

from perdure.domain.journal.events import AssistantSaid, Recorded, TurnSettled
from perdure.domain.journal.records import PartView
from perdure.domain.journal.transcript import Entry
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.endings import (
    Audience,
    in_a_sentence,
    reach_as_told,
    visible_reason,
)
from perdure.ports.people.principals import Principal
from perdure.ports.records.history import Explanation

S = TypeVar("S", bound=msgspec.Struct)


def audience_of(principal: Principal) -> Audience:
    """Return the audience a principal belongs to."""
    return Audience.of(is_operator=principal.is_operator)


def as_told(ending: S, audience: Audience) -> S:
    """Return anything that says how a turn ended (an entry, a piece of news, a turn, an event) with
    the ending in a sentence, and with only the detail that this audience may read. A value that
    says nothing of it is returned unchanged."""
    outcome = getattr(ending, "outcome", None)
    detail = getattr(ending, "detail", "")
    if not outcome and not detail:
        return ending
    reason = getattr(ending, "reason", "")
    changed: dict[str, str] = {}
    if outcome and hasattr(ending, "ending"):
        words = in_a_sentence(Outcome(outcome), reason, detail)
        changed["ending"] = words or _if_silent(ending)
    if detail and audience is not Audience.OPERATORS:
        known = Outcome(outcome) if outcome else None
        changed["detail"] = visible_reason(known, reason, detail, audience)
    return msgspec.structs.replace(ending, **changed) if changed else ending


def _if_silent(ending: msgspec.Struct) -> str:
    """Return the words for a finished answer without text or files, or an empty string."""
    is_silent = isinstance(ending, Entry) and not (ending.text.strip() or ending.attachments)
    return "The agent has answered nothing. /retry asks again." if is_silent else ""


def event_as_told(recorded: Recorded, audience: Audience) -> Recorded:
    """Return a journal event with only what this audience may read: of a settlement, and of what
    the model said. Only operators see its thoughts."""
    event = recorded.event
    if isinstance(event, AssistantSaid) and audience is not Audience.OPERATORS:
        return msgspec.structs.replace(
            recorded, event=msgspec.structs.replace(event, thoughts=None)
        )
    if not isinstance(event, TurnSettled):
        return recorded
    reach = reach_as_told(event.reach, audience)
    shown = msgspec.structs.replace(as_told(event, audience), reach=reach)
    return msgspec.structs.replace(recorded, event=shown)


def explanation_as_told(found: Explanation, audience: Audience) -> Explanation:
    """Return an explanation for an audience. Only operators see why a platform refused a part."""
    if audience is Audience.OPERATORS:
        return found
    return msgspec.structs.replace(
        found,
        turn=as_told(found.turn, audience) if found.turn else None,
        events=tuple(event_as_told(each, audience) for each in found.events),
        parts=tuple(_without_error(part) for part in found.parts),
    )


def _without_error(part: PartView) -> PartView:
    return msgspec.structs.replace(part, error="")
