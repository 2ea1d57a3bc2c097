"""Whom a turn is for, as far as the store knows: what the decision who may speak needs again.

Where a turn was said in a place that is linked to another, its speaker is the person of that place,
by whose id they were let in. What was sent from elsewhere is for whoever has sent it.
"""

from typing import Final, NamedTuple

from perdure.domain.access import Speaker
from perdure.domain.events import NO_TRAITS, SENT, AnyEvent, TurnQueued
from perdure.domain.ids import TurnId
from perdure.ports.turns import Unfinished
from perdure.store.operations import journal
from perdure.store.statement import Op, rows

# Of a turn `t` that is answered in the conversation `c`.
WHO: Final = f"""
    JOIN principals who ON who.id = CASE WHEN t.via_id IS NULL OR t.kind = '{SENT}'
                                    THEN t.principal_id ELSE c.principal_id END"""
# People of a platform are named after it: the rest of the name is their id there.
FACTS: Final = """
    who.name,
    EXISTS (SELECT 1 FROM tokens k WHERE k.principal_id = who.id AND k.revoked_at IS NULL),
    EXISTS (SELECT 1 FROM pairings a WHERE a.adapter = c.adapter AND a.account = c.account
            AND a.sender = SUBSTR(who.name, LENGTH(c.adapter) + 2) AND a.state = 'approved')"""
_UNFINISHED: Final = f"""
    SELECT t.id, {FACTS}, c.adapter, c.place, j.session_id, j.seq, j.at, j.kind, j.body
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id) {WHO}
    JOIN journal j ON j.turn_id = t.id AND j.session_id = t.session_id AND j.kind = 'turn_queued'
    WHERE t.outcome IS NULL AND t.id > $1 ORDER BY t.id LIMIT $2"""


class Facts(NamedTuple):
    """What the rows say of a turn's speaker."""

    name: str
    adapter: str
    place: str
    has_token: int
    is_paired: int


def speaker(facts: Facts, queued: AnyEvent) -> Speaker:
    """The speaker of the turn that began with this event."""
    return Speaker(
        name=facts.name,
        adapter=facts.adapter,
        place=facts.place,
        has_token=bool(facts.has_token),
        is_paired=bool(facts.is_paired),
        traits=queued.traits if isinstance(queued, TurnQueued) else NO_TRAITS,
    )


def unfinished(*, after: TurnId | None, limit: int) -> Op[list[Unfinished]]:
    found = yield from rows(_UNFINISHED, after or "", limit)
    turns = []
    for turn, name, has_token, is_paired, adapter, place, *columns in found:
        queued = journal.read_row(tuple(columns)).event
        facts = Facts(name, adapter, place, has_token, is_paired)
        turns.append(Unfinished(turn=turn, speaker=speaker(facts, queued)))
    return turns
