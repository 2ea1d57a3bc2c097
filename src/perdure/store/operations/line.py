"""The line in which a session's turns wait.

It is ordered by arrival: `queued_seq` is the number under which the journal holds the arrival of a
turn's message. A turn that is made later of what came earlier takes its place by that number.

The first in line may be claimed once its files are here and what was sent as one with it has had
time to come. Those behind it wait for it, whatever it waits for.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from perdure.domain.errands import UNASKED
from perdure.domain.events import Recorded, TurnQueued
from perdure.domain.ids import MessageId, SessionId
from perdure.store.dialect import Dialect
from perdure.store.operations import attaching, journal
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, row, run

_QUEUE = """
    INSERT INTO turns (id, session_id, message_id, kind, state, reason, detail, attempts,
                       queued_seq, queued_at, alive_at, origin_id, via_id, principal_id, album,
                       not_before)
    SELECT $1, s.id, $2, $3, 'queued', '', '', 0, $4, $5, $5, $6, $7,
           COALESCE($8, s.principal_id), $9, $10
    FROM sessions s WHERE s.id = $11"""
NOT_READY = "UPDATE sessions SET ready_at = NULL WHERE id = $1"
# What is said as it is waits for no interrupted turn: that may wait for its people for ever.
_MAKE_READY = f"""
    UPDATE sessions SET ready_at = CASE
        WHEN hold_until > $1 AND hold_until > next.not_before THEN hold_until
        WHEN next.not_before > $1 THEN next.not_before ELSE $1 END
    FROM turns next
    WHERE next.id = (SELECT t.id FROM turns t WHERE t.session_id = $2 AND t.outcome IS NULL
                     AND t.state = 'queued' ORDER BY t.queued_seq LIMIT 1)
      AND next.fetching = 0 AND sessions.id = $2 AND sessions.ready_at IS NULL
      AND sessions.state = 'open'
      AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = sessions.id
                      AND t.outcome IS NULL AND t.state <> 'queued'
                      AND NOT (t.state = 'interrupted' AND t.kind NOT IN {UNASKED}
                               AND next.kind IN {UNASKED}))
    RETURNING sessions.id"""


class Album(NamedTuple):
    """What a turn is part of, and until when the rest of it may come."""

    name: str
    not_before: int


ALONE = Album("", 0)
AT_THE_END: Final[Mapping[MessageId, int]] = {}


def queue_rows(
    recorded: Sequence[Recorded],
    stamp: Stamp,
    *,
    places: Mapping[MessageId, int] = AT_THE_END,
    album: Album = ALONE,
) -> Op[None]:
    """Write the rows beside each `TurnQueued`, and those of its files. A turn stands at the end of
    the line unless `places` names another place for its message."""
    for each in recorded:
        event = each.event
        if isinstance(event, TurnQueued):
            at = places.get(event.message, each.seq)
            yield from run(
                _QUEUE,
                event.turn, event.message, event.kind, at, each.at, event.origin, event.via,
                event.by, album.name, album.not_before, each.session,
            )  # fmt: skip
            yield from attaching.put(event, stamp)


def queue_turn(
    dialect: Dialect,
    session: SessionId,
    queued: TurnQueued,
    stamp: Stamp,
    *,
    album: Album = ALONE,
) -> Op[list[Recorded]]:
    """Put a turn at the end of the line."""
    recorded = yield from journal.append(dialect, session, [queued], at=stamp.at)
    yield from queue_rows(recorded, stamp, album=album)
    yield from make_ready(session, stamp)
    return recorded


def make_ready(session: SessionId, stamp: Stamp) -> Op[bool]:
    """Let the next turn be claimed, if there is one, nothing is before it and its files are
    here."""
    return (yield from row(_MAKE_READY, stamp.at, session)) is not None


def look_again(session: SessionId, stamp: Stamp) -> Op[bool]:
    """The same, where the first in line is another one now, or waits for something else."""
    yield from run(NOT_READY, session)
    return (yield from make_ready(session, stamp))
