"""Keeps the line in which a session's turns wait, and marks a session as ready to be claimed.

The line is ordered by arrival: `queued_seq` is the seq of the event that recorded the arrival of
the turn's message. A turn that is made later from an earlier message takes its place by that
number.

The first turn in line may be claimed once its files are stored and the rest of its album has had
time to arrive. The turns behind it wait for it, whatever it waits for.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from perdure.domain.ids import MessageId, SessionId
from perdure.domain.journal.events import Recorded, ToolFinished, TurnQueued
from perdure.domain.kinds import UNASKED
from perdure.domain.turn.turn import State
from perdure.store.operations import attaching, journal
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import turn_rows
from perdure.store.operations.turns.turn_rows import ALONE, Album
from perdure.store.statement import Op, exists, run, sql_list

# Makes a session impossible to claim.
_NOT_READY = "UPDATE sessions SET ready_at = NULL WHERE id = $1"
# How long a turn waits for more of its album: platforms deliver an album message by message.
ALBUM_MS: Final = 800
# The name of the album of messages that a person has sent quickly one after the other, and the
# longest time for which more of them are waited for.
COLLECTED: Final = "(collected)"
COLLECT_MS_MAX: Final = 5_000
# The end of the wait for an album, and of a session's hold. If the clock was set back, no wait
# becomes longer than it was when it was written.
_LONGEST = f"CASE WHEN next.album = '{COLLECTED}' THEN {COLLECT_MS_MAX} ELSE {ALBUM_MS} END"
_WHOLE = f"""
    CASE WHEN next.not_before - {_LONGEST} > $1 THEN {_LONGEST} + CAST($1 AS BIGINT)
         ELSE next.not_before END"""
_HELD = "CASE WHEN held_at > $1 THEN hold_until - held_at + $1 ELSE hold_until END"
# The rank of a session among the ready ones: after the same person's other sessions, or level with
# the first in line if the person has none. So people take turns, however many turns one has.
_RANK = """
    COALESCE((SELECT MAX(r.ready_rank) + 1 FROM sessions r
              WHERE r.ready_at IS NOT NULL AND r.ready_by = next.principal_id),
             (SELECT MIN(r.ready_rank) FROM sessions r WHERE r.ready_at IS NOT NULL), 0)"""
# Marks a session as ready. `ready_seq` is larger than those of all ready sessions: first come,
# first served. Turns of unasked kinds (results, messages sent from elsewhere) do not wait for an
# interrupted turn, because that one may wait for its people for ever.
_MAKE_READY = f"""
    UPDATE sessions SET ready_at = $1,
        ready_seq = (SELECT COALESCE(MAX(r.ready_seq), 0) + 1 FROM sessions r
                     WHERE r.ready_at IS NOT NULL),
        ready_by = next.principal_id, ready_rank = {_RANK},
        wait_until = CASE WHEN {_HELD} > $1 AND {_HELD} > {_WHOLE} THEN {_HELD}
                          WHEN {_WHOLE} > $1 THEN {_WHOLE} END
    FROM turns next
    WHERE next.id = (SELECT t.id FROM turns t WHERE t.session_id = $2 AND t.outcome IS NULL
                     AND t.state = '{State.QUEUED}' ORDER BY t.queued_seq LIMIT 1)
      AND next.fetching = 0 AND sessions.id = $2 AND sessions.ready_at IS NULL
      AND sessions.state = 'open'
      AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = sessions.id
                      AND t.outcome IS NULL AND t.state <> '{State.QUEUED}'
                      AND NOT (t.state = '{State.INTERRUPTED}' AND t.kind NOT IN {sql_list(UNASKED)}
                               AND next.kind IN {sql_list(UNASKED)}))
    RETURNING sessions.id"""


# For `queue_rows`: no message has a place of its own in line.
AT_THE_END: Final[Mapping[MessageId, int]] = {}


def queue_rows(
    recorded: Sequence[Recorded],
    stamp: Stamp,
    *,
    places: Mapping[MessageId, int] = AT_THE_END,
    album: Album = ALONE,
) -> Op[None]:
    """Write the rows for each `TurnQueued`, and the rows of its files. A turn goes to the end of
    the line unless `places` names another position for its message."""
    for each in recorded:
        event = each.event
        if isinstance(event, TurnQueued):
            place = places.get(event.message, each.seq)
            yield from turn_rows.queue(each, event, place=place, album=album)
            yield from attaching.put(event, stamp)


def queue_turn(
    session: SessionId,
    queued: TurnQueued,
    stamp: Stamp,
    *,
    album: Album = ALONE,
    results: Sequence[ToolFinished] = (),
) -> Op[list[Recorded]]:
    """Append a turn's `TurnQueued`, with the results that came with its message, and put the turn
    at the end of the line."""
    recorded = yield from journal.append(session, [queued, *results], at=stamp.at)
    yield from queue_rows(recorded, stamp, album=album)
    yield from make_ready(session, stamp)
    return recorded


def make_ready(session: SessionId, stamp: Stamp) -> Op[bool]:
    """Mark the session as ready if its first turn can begin: no turn is at work, and its files are
    stored. Returns whether that was changed."""
    return (yield from exists(_MAKE_READY, stamp.at, session))


def look_again(session: SessionId, stamp: Stamp) -> Op[bool]:
    """Recompute whether the session is ready, after the head of its line or what that waits for
    changed."""
    yield from run(_NOT_READY, session)
    return (yield from make_ready(session, stamp))
