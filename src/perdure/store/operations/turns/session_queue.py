"""The line in which a session's turns wait.

It is ordered by arrival: `queued_seq` is the number under which the journal holds the arrival of a
turn's message. A turn that is made later of what came earlier takes its place by that number.

The first in line may be claimed once its files are here and what was sent as one with it has had
time to come. Those behind it wait for it, whatever it waits for.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from perdure.domain.ids import MessageId, SessionId
from perdure.domain.journal.events import Recorded, TurnQueued
from perdure.domain.kinds import UNASKED
from perdure.store.operations import attaching, journal
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import turn_rows
from perdure.store.operations.turns.turn_rows import ALONE, Album
from perdure.store.statement import Op, exists, quoted, run

# Takes a session out of those that can be claimed.
_NOT_READY = "UPDATE sessions SET ready_at = NULL WHERE id = $1"
# Platforms hand over an album piece by piece, within so many milliseconds.
ALBUM_MS: Final = 800
# No wait is longer than it was when it was written, however far the clock was set back since.
_WHOLE = f"""
    CASE WHEN next.not_before - {ALBUM_MS} > $1 THEN {ALBUM_MS} + CAST($1 AS BIGINT)
         ELSE next.not_before END"""
_HELD = "CASE WHEN held_at > $1 THEN hold_until - held_at + $1 ELSE hold_until END"
# Behind what the same person has waiting, else beside whoever is the first now.
_RANK = """
    COALESCE((SELECT MAX(r.ready_rank) + 1 FROM sessions r
              WHERE r.ready_at IS NOT NULL AND r.ready_by = next.principal_id),
             (SELECT MIN(r.ready_rank) FROM sessions r WHERE r.ready_at IS NOT NULL), 0)"""
# Lets a session be claimed. The number is larger than those of all that are ready now: first come,
# first served. What is said as it is waits for no interrupted turn: that may wait for its people
# for ever.
_MAKE_READY = f"""
    UPDATE sessions SET ready_at = $1,
        ready_seq = (SELECT COALESCE(MAX(r.ready_seq), 0) + 1 FROM sessions r
                     WHERE r.ready_at IS NOT NULL),
        ready_by = next.principal_id, ready_rank = {_RANK},
        wait_until = CASE WHEN {_HELD} > $1 AND {_HELD} > {_WHOLE} THEN {_HELD}
                          WHEN {_WHOLE} > $1 THEN {_WHOLE} END
    FROM turns next
    WHERE next.id = (SELECT t.id FROM turns t WHERE t.session_id = $2 AND t.outcome IS NULL
                     AND t.state = 'queued' ORDER BY t.queued_seq LIMIT 1)
      AND next.fetching = 0 AND sessions.id = $2 AND sessions.ready_at IS NULL
      AND sessions.state = 'open'
      AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = sessions.id
                      AND t.outcome IS NULL AND t.state <> 'queued'
                      AND NOT (t.state = 'interrupted' AND t.kind NOT IN {quoted(UNASKED)}
                               AND next.kind IN {quoted(UNASKED)}))
    RETURNING sessions.id"""


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
            place = places.get(event.message, each.seq)
            yield from turn_rows.queue(each, event, place=place, album=album)
            yield from attaching.put(event, stamp)


def queue_turn(
    session: SessionId, queued: TurnQueued, stamp: Stamp, *, album: Album = ALONE
) -> Op[list[Recorded]]:
    """Put a turn at the end of the line."""
    recorded = yield from journal.append(session, [queued], at=stamp.at)
    yield from queue_rows(recorded, stamp, album=album)
    yield from make_ready(session, stamp)
    return recorded


def make_ready(session: SessionId, stamp: Stamp) -> Op[bool]:
    """Let the next turn be claimed, if there is one, nothing is before it and its files are
    here."""
    return (yield from exists(_MAKE_READY, stamp.at, session))


def look_again(session: SessionId, stamp: Stamp) -> Op[bool]:
    """Let the next turn be claimed where the first in line is another one now, or waits for
    something else."""
    yield from run(_NOT_READY, session)
    return (yield from make_ready(session, stamp))
