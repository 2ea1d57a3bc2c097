"""Finds who speaks in a turn, so that it can be decided again whether they may.

If a turn was said in a place linked to another, its speaker is the person of that place, whose id
was admitted there. A message sent from elsewhere belongs to the person who sent it, and an
answer that was sent on is judged by the rules of the platform from which it comes.
"""

from typing import Final, NamedTuple

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import NO_TRAITS, AnyEvent, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.people.access import Speaker
from perdure.ports.turns.turns import Unfinished
from perdure.store.operations import journal
from perdure.store.operations.sessions import relocating
from perdure.store.statement import Op, many

# Joins the principal who speaks in turn `t`, which is answered in conversation `c`.
WHO: Final = f"""
    JOIN principals who ON who.id = CASE WHEN t.via_id IS NULL OR t.kind = '{TurnKind.SENT}'
                                    THEN t.principal_id ELSE c.principal_id END"""
# Reads what is known of that principal. People of a platform are named after it; the rest of the
# name is their id on the platform.
_FORMER = relocating.FORMER.format(adapter="c.adapter", account="c.account", place="c.place")
FACTS: Final = f"""
    who.name,
    EXISTS (SELECT 1 FROM tokens k WHERE k.principal_id = who.id AND k.revoked_at IS NULL),
    EXISTS (SELECT 1 FROM pairings a WHERE a.adapter = c.adapter AND a.account = c.account
            AND a.sender = SUBSTR(who.name, LENGTH(c.adapter) + 2) AND a.state = 'approved'),
    ({_FORMER})"""
# Reads unfinished turns with their speakers and their first events.
_UNFINISHED: Final = f"""
    SELECT t.id, {FACTS}, c.adapter, c.place, j.session_id, j.seq, j.at, j.kind, j.body
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id) {WHO}
    JOIN journal j ON j.turn_id = t.id AND j.session_id = t.session_id AND j.kind = 'turn_queued'
    WHERE t.outcome IS NULL AND t.id > $1 ORDER BY t.id LIMIT $2"""


class SpeakerFacts(NamedTuple):
    """Holds what the rows say about a turn's speaker."""

    name: str
    adapter: str
    place: str
    has_token: int
    is_paired: int
    former_place: str | None


class _Begun(NamedTuple):
    """Holds an unfinished turn, what is known of its speaker, and its first event."""

    turn: TurnId
    name: str
    has_token: int
    is_paired: int
    former_place: str | None
    adapter: str
    place: str
    session: SessionId
    seq: int
    at: int
    kind: str
    body: str


def speaker(facts: SpeakerFacts, queued: AnyEvent) -> Speaker:
    """Return the speaker of the turn that began with this event. What an agent has sent elsewhere
    was admitted in the turn that sent it; its person may have no token, and speak on another
    platform."""
    is_admitted = (
        isinstance(queued, TurnQueued)
        and queued.kind is TurnKind.SENT
        and queued.ordered_by is not None
    )
    sent_from = queued.sent_from if isinstance(queued, TurnQueued) else ""
    return Speaker(
        name=facts.name,
        adapter=sent_from or facts.adapter,
        place=facts.place,
        has_token=bool(facts.has_token) or is_admitted,
        is_paired=bool(facts.is_paired),
        traits=queued.traits if isinstance(queued, TurnQueued) else NO_TRAITS,
        former_place=facts.former_place or "",
    )


def unfinished(*, after: TurnId | None, limit: int) -> Op[list[Unfinished]]:
    """Return a page of unfinished turns with their speakers, ordered by id."""
    turns = []
    for each in (yield from many(_Begun, _UNFINISHED, after or "", limit)):
        queued = journal.entry(each.session, each.seq, each.at, each.kind, each.body).event
        facts = SpeakerFacts(
            each.name,
            each.adapter,
            each.place,
            each.has_token,
            each.is_paired,
            each.former_place,
        )
        turns.append(Unfinished(turn=each.turn, speaker=speaker(facts, queued)))
    return turns
