"""Describes what a person has granted an agent beyond one call."""

from enum import StrEnum

import msgspec

from perdure.domain.ids import GrantId, SessionId
from perdure.domain.journal.question_events import GrantOffer


class Scope(StrEnum):
    """Says for how long an approval holds."""

    CALL = "call"
    SESSION = "session"
    FOREVER = "forever"
    TIME = "time"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a person's permission for more than one call. `session` is set if it holds in one
    session only, `until` is when it ends, or 0 if it does not end by itself."""

    id: GrantId
    offer: GrantOffer
    scope: Scope
    session: SessionId | None = None
    until: int = 0


def covers(grant: Grant, offer: GrantOffer, *, session: SessionId, now_ms: int) -> bool:
    """Tell whether a grant covers a call. A grant ends when the tool's description or schema
    changes."""
    granted = grant.offer
    is_same_tool = (granted.agent, granted.definition) == (offer.agent, offer.definition)
    is_same_act = offer.act == granted.act or offer.act.startswith(f"{granted.act}.")
    is_same_call = granted.pattern in ("", offer.pattern)
    is_in_force = (grant.session is None or grant.session == session) and (
        not grant.until or now_ms < grant.until
    )
    return is_same_tool and is_same_act and is_same_call and is_in_force
