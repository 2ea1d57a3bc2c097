"""Reads chains of turns: from a head back through the parents, also across sessions."""

from typing import Final, NamedTuple

from perdure.domain.errors import NotFound
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import ContentLeftOut, LeftOut, Recorded
from perdure.domain.journal.transcript import ended_turn
from perdure.domain.prompt.refusals import REFUSING
from perdure.store.operations import journal
from perdure.store.statement import Op, many, one

# Follows a chain of parents; the caller appends what to read of it.
_PARENTS = """
    WITH RECURSIVE chain (id, parent_id, depth) AS (
        SELECT id, parent_id, 0 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, chain.depth + 1 FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.depth + 1 < $2 AND t.id <> $3) """
# Reads the events of a chain, oldest turn first.
_CHAIN = (
    _PARENTS
    + """
    SELECT j.session_id, j.seq, j.at, j.kind, j.body, chain.depth
    FROM chain JOIN journal j ON j.turn_id = chain.id
    ORDER BY chain.depth DESC, j.seq"""
)
# Reads how long the turns of a chain are. A subquery for each turn, because for a join with
# grouping SQLite would sort the texts themselves.
_CHAIN_SIZES = (
    _PARENTS
    + """
    SELECT (SELECT COALESCE(SUM(OCTET_LENGTH(j.body)), 0) FROM journal j
            WHERE j.turn_id = chain.id)
    FROM chain ORDER BY chain.depth"""
)
# Finds the turn on a chain that is this one, or has this message.
_ON_CHAIN = """
    WITH RECURSIVE chain (id, parent_id) AS (
        SELECT id, parent_id FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id FROM chain JOIN turns t ON t.id = chain.parent_id)
    SELECT id FROM chain
    WHERE id = $2 OR id IN (SELECT turn_id FROM journal WHERE message_id = $3) LIMIT 1"""
# Reads the events of a chain as the model is told it. The newest summary on the chain represents
# its turn and all before it. The cross join keeps SQLite from reading all messages to find that
# one.
_WINDOW = """
    WITH RECURSIVE chain (id, parent_id, depth, summary_id) AS (
        SELECT id, parent_id, 0, summary_id FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, chain.depth + 1, t.summary_id
        FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.summary_id IS NULL AND chain.depth + 1 < $2)
    SELECT j.session_id, j.seq, j.at, j.kind, j.body, chain.depth
    FROM chain JOIN journal j ON j.turn_id = chain.id WHERE chain.summary_id IS NULL
    UNION ALL
    SELECT j.session_id, j.seq, j.at, j.kind, j.body, chain.depth
    FROM chain CROSS JOIN journal j WHERE j.message_id = chain.summary_id
    ORDER BY 6 DESC, 2"""


# Finds what the turns of a chain leave out of later requests, by the reasons for which such turns
# end. The cross join keeps the databases from reading other turns' events.
_LEFT_OUT = f"""
    WITH RECURSIVE chain (id, parent_id, reason, depth) AS (
        SELECT id, parent_id, reason, 0 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, t.reason, chain.depth + 1
        FROM chain JOIN turns t ON t.id = chain.parent_id)
    SELECT {", ".join(f"j.{each}" for each in journal.COLUMNS.split(", "))}
    FROM chain CROSS JOIN journal j
    WHERE chain.reason IN ($2, $3, $4) AND j.turn_id = chain.id AND j.kind = 'content_left_out'
    ORDER BY chain.depth DESC"""
# Longer than any chain: no limit.
_CHAIN_MAX: Final = 2**31 - 1


class _OnChain(NamedTuple):
    """Holds an event of a turn on a chain, and how far back the turn is."""

    session: SessionId
    seq: int
    at: int
    kind: str
    body: str
    depth: int


def chain(
    head: TurnId, *, limit: int, until: TurnId | None, bytes_max: int
) -> Op[list[list[Recorded]]]:
    """Return the turns from `head` back through their parents, oldest first, as many as fit in
    `bytes_max`, but at least one. None is returned from `until` back."""
    if head == until:
        return []
    if limit > 1:
        sizes = yield from many(int, _CHAIN_SIZES, head, limit, until or "")
        limit = journal.fits(sizes, bytes_max)
    if limit == 1:
        # A single turn may be long; this query does not sort its texts.
        turn = yield from journal.of_turn(head)
        return [turn] if turn else []
    return _by_turn((yield from many(_OnChain, _CHAIN, head, limit, until or "")))


def window(head: TurnId, *, limit: int) -> Op[list[list[Recorded]]]:
    """Return the chain of `head` as the model is told it, from its newest summary on."""
    return _by_turn((yield from many(_OnChain, _WINDOW, head, limit)))


def whole_chain(head: TurnId, *, until: TurnId | None) -> Op[list[list[Recorded]]]:
    """Return the turns from `head` back to the first, or to the one after `until`, however long: it
    is what a model once read."""
    if head == until:
        return []
    return _by_turn((yield from many(_OnChain, _CHAIN, head, _CHAIN_MAX, until or "")))


def size_of_whole(head: TurnId, *, until: TurnId | None) -> Op[int]:
    """Return how many bytes the events of `whole_chain` have, without reading them."""
    if head == until:
        return 0
    return sum((yield from many(int, _CHAIN_SIZES, head, _CHAIN_MAX, until or "")))


def left_out(head: TurnId) -> Op[tuple[LeftOut, ...]]:
    """Return what the turns of this chain leave out of the requests after them."""
    found = yield from many(journal.entry, _LEFT_OUT, head, *REFUSING)
    events = [recorded.event for recorded in found]
    return tuple(
        each for event in events if isinstance(event, ContentLeftOut) for each in event.what
    )


def _by_turn(found: list[_OnChain]) -> list[list[Recorded]]:
    """Return the events of a chain, grouped by turn."""
    turns: dict[int, list[Recorded]] = {}
    for each in found:
        recorded = journal.entry(each.session, each.seq, each.at, each.kind, each.body)
        turns.setdefault(each.depth, []).append(recorded)
    return [journal.where_it_is(turn) for turn in turns.values()]


def turn_on_chain(head: TurnId, entry: str) -> Op[TurnId]:
    """Return the turn on the chain of `head` that a transcript's entry belongs to. Raises
    `NotFound`."""
    found = yield from one(TurnId, _ON_CHAIN, head, ended_turn(entry), entry)
    if found is None:
        raise NotFound(f"there is no message {entry}")
    return found
