"""The whole chain behind one id: what came in, what it became, and what went out for it.

Most updates become a turn. A command is its reply, and may have queued a turn as well; what was
refused, or could not be read, is only that. Whoever asks for what is not theirs is told the same as
for what is not there.
"""

from typing import NamedTuple

from perdure.domain.errors import NotFound
from perdure.domain.events import CommandTaken
from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.ports.history import Arrival, Explanation
from perdure.store.dialect import Dialect
from perdure.store.operations import history, journal, letters, transcripts
from perdure.store.operations.parked import PARTS
from perdure.store.operations.parked import view as part_view
from perdure.store.operations.scopes import SCOPE, Scope
from perdure.store.statement import Op, Row, Rows, row, rows

_PARTS_OF_TURN = PARTS + "WHERE o.turn_id = $1 ORDER BY o.place_in_line"
_PARTS_OF_COMMAND = PARTS + "WHERE o.message_id = $1 AND o.turn_id IS NULL ORDER BY o.place_in_line"
_PART = "SELECT turn_id, message_id FROM outbox WHERE id = $1"
_UPDATE = """
    SELECT i.adapter, i.account, i.external_id, i.kind, i.at, i.turn_id, i.message_id, i.session_id
    FROM inbox i JOIN sessions s ON s.id = i.session_id
    JOIN conversations c ON c.id = s.conversation_id """
_BY_EXTERNAL_ID = (
    _UPDATE
    + f"""
    WHERE i.external_id = $1 AND (CAST($2 AS TEXT) IS NULL OR {SCOPE} = $2)
    ORDER BY i.at DESC LIMIT 1"""
)
# Over HTTP the external id is the client's id, a line feed and the conversation's name.
_BY_CLIENT_ID = (
    _UPDATE
    + f"""
    WHERE {{begins}} AND i.adapter = 'http' AND (CAST($2 AS TEXT) IS NULL OR {SCOPE} = $2)
    ORDER BY i.at DESC LIMIT 1"""
)
# On other surfaces it may be the place, a slash and the sender's id.
_IN_PLACES = (
    _UPDATE
    + """
    JOIN (SELECT DISTINCT adapter, place FROM ({places}) AS known) p ON p.adapter = i.adapter
      AND i.external_id = p.place || '/' || CAST({any_id} AS TEXT)
    WHERE {seen} LIMIT 2"""
)
_IN_ANY_PLACE = _IN_PLACES.format(
    places="""
        SELECT adapter, place FROM conversations WHERE adapter < 'http'
        UNION ALL SELECT adapter, place FROM conversations WHERE adapter > 'http'""",
    any_id="$1",
    seen="1 = 1",
)
# People ask in the place itself, or about where they were lately.
_IN_ONES_PLACES = _IN_PLACES.format(
    places="""
        SELECT adapter, place FROM conversations WHERE id = $1
        UNION ALL SELECT adapter, place FROM (
            SELECT adapter, place FROM conversations WHERE principal_id = $1
            ORDER BY active_at DESC LIMIT 1000) AS recent""",
    any_id="$2",
    seen=f"{SCOPE} = $1",
)
_BY_MESSAGE = _UPDATE + "WHERE i.message_id = $1 ORDER BY i.at LIMIT 1"
_OF_TURN = """
    SELECT i.adapter, i.account, i.external_id, i.kind, i.at, i.turn_id, i.message_id, i.session_id
    FROM journal j JOIN inbox i ON i.message_id = j.message_id
    WHERE j.turn_id = $1 AND i.turn_id = $1
      AND j.kind IN ('turn_queued', 'message_joined', 'steer_accepted')
    ORDER BY j.seq"""
_REFUSED = """
    SELECT adapter, account, external_id, kind, at, place, reason FROM refusals
    WHERE external_id = $1 OR external_id = place || '/' || CAST($1 AS TEXT)
    ORDER BY at DESC LIMIT 1"""


class Came(NamedTuple):
    """An update as it stands in the inbox."""

    arrival: Arrival
    turn: TurnId | None
    message: MessageId
    session: SessionId


def explain(dialect: Dialect, any_id: str, *, scope: Scope | None) -> Op[Explanation]:
    """A turn, message or part id, or the id its sender gave it; two senders may have given the
    same one, so each is shown their own."""
    unknown = NotFound(f"nothing here has the id {any_id}; give a message, turn or part id")
    came = yield from _update(dialect, any_id, scope)
    turn = came.turn if came else (yield from _turn_behind(any_id))
    try:
        if turn is not None:
            return (yield from _of_turn(turn, came, scope))
        if came is not None:
            return (yield from _of_update(came, scope))
    except NotFound:
        raise unknown from None
    found = None if scope else (yield from _not_taken(any_id))
    if found is None:
        raise unknown
    return found


def _update(dialect: Dialect, any_id: str, scope: Scope | None) -> Op[Came | None]:
    if any_id.startswith("trn_"):
        return None
    part = yield from row(_PART, any_id)
    if part is not None and part[0]:
        return None
    found = yield from row(_BY_MESSAGE, part[1] if part else any_id)
    if found is None:
        found = yield from row(_BY_EXTERNAL_ID, any_id, scope)
    if found is None:
        begun = f"{any_id}\n"
        found = yield from row(_BY_CLIENT_ID.format(begins=dialect.begins), begun, scope)
    if found is None:
        several = yield from _in_places(any_id, scope)
        found = several[0] if len(several) == 1 else None
    return _came(found) if found else None


def _in_places(any_id: str, scope: Scope | None) -> Op[Rows]:
    if scope is None:
        return (yield from rows(_IN_ANY_PLACE, any_id))
    return (yield from rows(_IN_ONES_PLACES, scope, any_id))


def _turn_behind(any_id: str) -> Op[TurnId | None]:
    if any_id.startswith("trn_"):
        return TurnId(any_id.partition(".")[0])
    part = yield from row(_PART, any_id)
    if part is not None:
        return TurnId(part[0]) if part[0] else None
    try:
        return (yield from history.turn_of_message(any_id))
    except NotFound:
        return None


def _of_turn(turn_id: TurnId, came: Came | None, scope: Scope | None) -> Op[Explanation]:
    turn = yield from history.turn(turn_id, scope=scope)
    session = yield from history.session(turn.session, scope=scope)
    found = [_came(each) for each in (yield from rows(_OF_TURN, turn_id))]
    # A turn that has moved stands in two journals; a command's own update may stand in neither.
    updates = list(dict.fromkeys(found))
    if came is not None and came not in updates:
        updates.insert(0, came)
    command = (yield from _command(came)) if came else None
    parts = yield from rows(_PARTS_OF_TURN, turn_id)
    if came is not None and command is not None:
        parts += yield from rows(_PARTS_OF_COMMAND, came.message)
    return Explanation(
        turn=turn,
        conversation=session.conversation,
        updates=tuple(each.arrival for each in updates),
        events=tuple((yield from journal.of_turn(turn_id))),
        parts=tuple(part_view(each) for each in parts),
        command=command.command if command else "",
        reply=command.reply if command else "",
        partial=(yield from history.running_text(turn_id)),
        left=(yield from transcripts.left(turn_id, turn.session)) if turn.attempts else "",
    )


def _of_update(came: Came, scope: Scope | None) -> Op[Explanation]:
    session = yield from history.session(came.session, scope=scope)
    command = yield from _command(came)
    parts = yield from rows(_PARTS_OF_COMMAND, came.message)
    return Explanation(
        turn=None,
        conversation=session.conversation,
        updates=(came.arrival,),
        events=tuple((yield from journal.of_message(came.message))),
        parts=tuple(part_view(each) for each in parts),
        command=command.command if command else "",
        reply=command.reply if command else "",
    )


def _command(came: Came) -> Op[CommandTaken | None]:
    events = [recorded.event for recorded in (yield from journal.of_message(came.message))]
    return next((event for event in events if isinstance(event, CommandTaken)), None)


def _not_taken(any_id: str) -> Op[Explanation | None]:
    """What strangers sent, and what could not be read."""
    found = yield from row(_REFUSED, any_id)
    if found is not None:
        *columns, place, reason = found
        arrival = _arrival(tuple(columns))
        conversation = f"{arrival.adapter}:{place}"
        return Explanation(turn=None, conversation=conversation, updates=(arrival,), refused=reason)
    letter = yield from letters.of(any_id)
    if letter is None:
        return None
    arrival, kept = letter
    return Explanation(turn=None, conversation=kept.address, updates=(arrival,), parts=(kept,))


def _came(found: Row) -> Came:
    *columns, turn, message, session = found
    return Came(_arrival(tuple(columns)), turn, message, session)


def _arrival(found: Row) -> Arrival:
    adapter, account, external_id, kind, at = found
    return Arrival(adapter=adapter, account=account, external_id=external_id, kind=kind, at=at)
