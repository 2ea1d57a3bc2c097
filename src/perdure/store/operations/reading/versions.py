"""Finds the other versions of a turn: the turns that ask its message again, and those that ask it
in other words.

Nothing is rewritten: each of them names the turn that it asks again as its origin. So the turns
with one first origin are the versions of one message.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from perdure.domain.ids import TurnId
from perdure.domain.journal.spoken import NO_VERSIONS, TurnVersions, said_in
from perdure.domain.kinds import TurnKind
from perdure.store.operations import journal
from perdure.store.statement import Op, listed, many

# How many versions of a message are told of at most, and how far back its first one is looked for.
VERSIONS_MAX: Final = 50
DEPTH_MAX: Final = 200

# Finds the families of some turns: for each of them the turns with the same first origin that have
# begun. The caller puts the list of turns in.
_FAMILIES = f"""
    WITH RECURSIVE up (turn_id, id, origin_id, depth) AS (
        SELECT id, id, origin_id, 1 FROM turns WHERE kind = '{TurnKind.MESSAGE}' AND id IN %s
        UNION ALL
        SELECT up.turn_id, t.id, t.origin_id, up.depth + 1 FROM up
        JOIN turns t ON t.id = up.origin_id
        WHERE t.kind = '{TurnKind.MESSAGE}' AND up.depth < {DEPTH_MAX}),
    first (turn_id, id) AS (
        SELECT turn_id, id FROM up WHERE NOT EXISTS (
            SELECT 1 FROM up more WHERE more.turn_id = up.turn_id AND more.depth > up.depth)),
    family (turn_id, id, depth) AS (
        SELECT turn_id, id, 1 FROM first
        UNION ALL
        SELECT family.turn_id, t.id, family.depth + 1 FROM family
        JOIN turns t ON t.origin_id = family.id
        WHERE t.kind = '{TurnKind.MESSAGE}' AND family.depth < {DEPTH_MAX})
    SELECT family.turn_id, t.id FROM family JOIN turns t ON t.id = family.id
    WHERE t.attempts > 0 ORDER BY family.turn_id, t.id"""


class _Member(NamedTuple):
    turn: TurnId
    version: TurnId


def versions(turns: Sequence[TurnId]) -> Op[Mapping[TurnId, TurnVersions]]:
    """Return the versions of those turns that have others, each in the order in which they came."""
    if not turns:
        return {}
    found = yield from many(_Member, _FAMILIES % listed(1, len(turns)), *turns)
    told: dict[TurnId, TurnVersions] = {}
    for turn, members in groupby(found, lambda each: each.turn):
        family = [each.version for each in members][-VERSIONS_MAX:]
        if len(family) > 1 and turn in family:
            told[turn] = yield from _sorted_out(turn, family)
    return told


def _sorted_out(turn: TurnId, family: Iterable[TurnId]) -> Op[TurnVersions]:
    """Return which turns of a family have the same words as this one, and one turn for each other
    wording: the newest."""
    words: dict[TurnId, str] = {}
    for each in family:
        words[each] = said_in((yield from journal.of_turn(each))).text
    answers = tuple(each for each in words if words[each] == words[turn])
    newest = {text: each for each, text in words.items()} | {words[turn]: turn}
    wordings = tuple(newest[text] for text in dict.fromkeys(words.values()))
    if len(answers) == 1 and len(wordings) == 1:
        return NO_VERSIONS
    return TurnVersions(
        wordings=wordings if len(wordings) > 1 else (),
        answers=answers if len(answers) > 1 else (),
    )
