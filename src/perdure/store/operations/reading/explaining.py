"""Explains what happened behind one id: what came in, what it became, and what was sent for it.

Most updates become a turn. A command has a reply, and may have queued a turn as well; a refused or
unreadable arrival is only that. A question and a tool call are explained with their turn. Something
that belongs to another person is reported as not found.
"""

import re
from typing import Final, NamedTuple, TypeVar

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.ids import MessageId, QuestionId, SessionId, TurnId
from perdure.domain.journal.in_short import entry_in_short, struct_in_short
from perdure.domain.journal.records import PartView
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.journal.transcript import RunningText
from perdure.ports.records.history import PAGE_BYTES, ArrivalRecord, Explanation
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations import journal
from perdure.store.operations.delivery import dead_letters
from perdure.store.operations.delivery.parked import PARTS, ShownPart
from perdure.store.operations.delivery.parked import view as part_view
from perdure.store.operations.questions import effects, question_rows
from perdure.store.operations.reading import history, pieces, transcripts
from perdure.store.operations.sessions.scopes import SCOPE, SearchScope
from perdure.store.statement import Op, many, one

S = TypeVar("S", bound=msgspec.Struct)
_CALL: Final = re.compile("call_[0-9a-z]{1,64}")
# Reads the parts of a turn, in the order of their line.
_PARTS_OF_TURN = PARTS + "WHERE o.turn_id = $1 ORDER BY o.place_in_line"
# Reads the parts of a message that became no turn, in the order of their line.
_PARTS_OF_COMMAND = PARTS + "WHERE o.message_id = $1 AND o.turn_id IS NULL ORDER BY o.place_in_line"
# Finds what a part belongs to.
_PART = "SELECT turn_id, message_id FROM outbox WHERE id = $1"
# The columns of an `_Update`.
_COLUMNS: Final = """
    i.adapter, i.account, i.external_id, i.kind, i.at, i.turn_id, i.message_id, i.session_id"""
# Reads updates; the caller appends which.
_UPDATE = f"""
    SELECT {_COLUMNS}
    FROM inbox i JOIN sessions s ON s.id = i.session_id
    JOIN conversations c ON c.id = s.conversation_id """
# Finds the newest update with the id that its sender gave it.
_BY_EXTERNAL_ID = (
    _UPDATE
    + f"""
    WHERE i.external_id = $1 AND (CAST($2 AS TEXT) IS NULL OR {SCOPE} = $2)
    ORDER BY i.at DESC LIMIT 1"""
)
# Finds the newest update over HTTP with the id that its client gave it. The external id is that id,
# a line feed, and the conversation's name.
_BY_CLIENT_ID = (
    _UPDATE
    + f"""
    WHERE {{begins}} AND i.adapter = 'http' AND (CAST($2 AS TEXT) IS NULL OR {SCOPE} = $2)
    ORDER BY i.at DESC LIMIT 1"""
)
# Finds updates whose id is unique only within a place: on platforms the external id may be the
# place, a slash, and the platform's message id.
_IN_PLACES = (
    _UPDATE
    + """
    JOIN (SELECT DISTINCT adapter, place FROM ({places}) AS known) p ON p.adapter = i.adapter
      AND i.external_id = p.place || '/' || CAST({any_id} AS TEXT)
    WHERE {seen} LIMIT 2"""
)
# Searches such an id in every place.
_IN_ANY_PLACE = _IN_PLACES.format(
    places="""
        SELECT adapter, place FROM conversations WHERE adapter < 'http'
        UNION ALL SELECT adapter, place FROM conversations WHERE adapter > 'http'""",
    any_id="$1",
    seen="1 = 1",
)
# Searches such an id for one person: in the place where they ask, and where they were lately.
_IN_ONES_PLACES = _IN_PLACES.format(
    places="""
        SELECT adapter, place FROM conversations WHERE id = $1
        UNION ALL SELECT adapter, place FROM (
            SELECT adapter, place FROM conversations WHERE principal_id = $1
            ORDER BY active_span DESC, active_at DESC LIMIT 1000) AS recent""",
    any_id="$2",
    seen=f"{SCOPE} = $1",
)
# Finds the update that brought a message.
_BY_MESSAGE = _UPDATE + "WHERE i.message_id = $1 ORDER BY i.at LIMIT 1"
# Reads the updates that a turn was made of.
_OF_TURN = f"""
    SELECT {_COLUMNS}
    FROM journal j JOIN inbox i ON i.message_id = j.message_id
    WHERE j.turn_id = $1 AND i.turn_id = $1
      AND j.kind IN ('turn_queued', 'message_joined', 'steer_accepted')
    ORDER BY j.seq"""
# Finds the turn that has made a call whose result is not stored yet.
_CALLING = """
    SELECT t.id FROM turns t JOIN journal j ON j.turn_id = t.id
    WHERE t.outcome IS NULL AND j.kind = 'assistant_said' AND j.body LIKE $1 LIMIT 1"""
# Finds the newest refused arrival with this id.
_REFUSED = """
    SELECT adapter, account, external_id, kind, at, place, reason FROM refusals
    WHERE external_id = $1 OR external_id = place || '/' || CAST($1 AS TEXT)
    ORDER BY at DESC LIMIT 1"""


class _Update(NamedTuple):
    """Holds an update as it is in the inbox."""

    adapter: str
    account: str
    external_id: str
    kind: str
    at: int
    turn: TurnId | None
    message: MessageId
    session: SessionId

    @property
    def arrival(self) -> ArrivalRecord:
        """Return how the update arrived."""
        return _arrival(self.adapter, self.account, self.external_id, self.kind, self.at)


class _OfPart(NamedTuple):
    """Holds what a part belongs to."""

    turn: TurnId | None
    message: str


class _Refused(NamedTuple):
    """Holds a refused arrival."""

    adapter: str
    account: str
    external_id: str
    kind: str
    at: int
    place: str
    reason: str


def explain(dialect: Dialect, any_id: str, *, scope: SearchScope | None) -> Op[Explanation]:
    """Return what happened behind the id of a turn, message, part, question or call, or behind an
    id that a sender gave. Two senders may have given the same id; with a scope, a person is shown
    only their own. Raises `NotFound`."""
    unknown = NotFound(
        f"nothing here has the id {any_id}; give a message, turn, part, question or call id"
    )
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


def _update(dialect: Dialect, any_id: str, scope: SearchScope | None) -> Op[_Update | None]:
    """Return the update that has this id, or whose message has it; None if there is none."""
    if any_id.startswith(("trn_", "qst_")):
        return None
    part = yield from _of_part(any_id)
    if part is not None and part.turn:
        return None
    found = yield from one(_Update, _BY_MESSAGE, part.message if part else any_id)
    if found is None:
        found = yield from one(_Update, _BY_EXTERNAL_ID, any_id, scope)
    if found is None:
        by_client_id = _BY_CLIENT_ID.format(begins=dialect.begins)
        found = yield from one(_Update, by_client_id, f"{any_id}\n", scope)
    if found is None:
        several = yield from _in_places(any_id, scope)
        found = several[0] if len(several) == 1 else None
    return found


def _of_part(any_id: str) -> Op[_OfPart | None]:
    """Return what the part with this id belongs to, or None."""
    return (yield from one(_OfPart, _PART, any_id))


def _in_places(any_id: str, scope: SearchScope | None) -> Op[list[_Update]]:
    """Return updates whose id is unique only within a place: two at most, which is enough to know
    that the id is ambiguous."""
    if scope is None:
        return (yield from many(_Update, _IN_ANY_PLACE, any_id))
    return (yield from many(_Update, _IN_ONES_PLACES, scope, any_id))


def _turn_behind(any_id: str) -> Op[TurnId | None]:
    """Return the turn that an id names or belongs to, or None."""
    if any_id.startswith("trn_"):
        return TurnId(any_id.partition(".")[0])
    if any_id.startswith("qst_"):
        question = yield from question_rows.question(QuestionId(any_id))
        return question.turn if question else None
    part = yield from _of_part(any_id)
    if part is not None:
        return part.turn or None
    try:
        return (yield from history.turn_of_message(any_id))
    except NotFound:
        return (yield from _calling(any_id))


def _calling(any_id: str) -> Op[TurnId | None]:
    """Return the turn that has made the call with this id, if its result is not stored yet."""
    if not _CALL.fullmatch(any_id):
        return None
    return (yield from one(TurnId, _CALLING, f'%"{any_id}"%'))


def _of_turn(turn_id: TurnId, came: _Update | None, scope: SearchScope | None) -> Op[Explanation]:
    """Explain a turn, and the command that has queued it."""
    turn = yield from history.turn(turn_id, scope=scope)
    session = yield from history.session(turn.session, scope=scope)
    found = yield from many(_Update, _OF_TURN, turn_id)
    # A moved turn is in two journals, so an update may be found twice; a command's own update may
    # be found in neither.
    updates = list(dict.fromkeys(found))
    if came is not None and came not in updates:
        updates.insert(0, came)
    command = (yield from _command(came)) if came else None
    parts = yield from many(ShownPart, _PARTS_OF_TURN, turn_id)
    if came is not None and command is not None:
        parts += yield from _parts_of_command(came)
    asked = yield from question_rows.of_turns([turn_id], principal=None)
    unknown = yield from effects.of_turns([turn_id], principal=None)
    return Explanation(
        turn=turn,
        conversation=session.conversation,
        updates=tuple(each.arrival for each in updates),
        events=tuple((yield from pieces.in_short(turn_id, bytes_max=PAGE_BYTES))),
        parts=tuple(_part(each) for each in parts),
        command=command.command if command else "",
        reply=command.reply if command else "",
        partial=(yield from _partial(turn_id)),
        left=(yield from transcripts.left(turn_id, turn.session)) if turn.attempts else "",
        questions=tuple(map(_in_short, asked)),
        effects=tuple(map(_in_short, unknown)),
    )


def _in_short(view: S) -> S:
    """Return a question or a call with only the beginnings of long texts."""
    return struct_in_short(view, where="GET /api/approvals or /api/effects has all of them")


def _parts_of_command(came: _Update) -> Op[list[ShownPart]]:
    """Return the parts of a command's reply."""
    return (yield from many(ShownPart, _PARTS_OF_COMMAND, came.message))


def _part(found: ShownPart) -> PartView:
    """Return a part with the beginning of its text."""
    return struct_in_short(part_view(found), where="the turn's messages have all of them")


def _partial(turn: TurnId) -> Op[RunningText | None]:
    """Return the beginning of what a turn is writing, or None."""
    running = yield from history.running_text(turn)
    return struct_in_short(running, where="it is still being written") if running else None


def _of_update(came: _Update, scope: SearchScope | None) -> Op[Explanation]:
    """Explain an update that became no turn."""
    session = yield from history.session(came.session, scope=scope)
    command = yield from _command(came)
    parts = yield from _parts_of_command(came)
    return Explanation(
        turn=None,
        conversation=session.conversation,
        updates=(came.arrival,),
        events=tuple(map(entry_in_short, (yield from journal.of_message(came.message)))),
        parts=tuple(_part(each) for each in parts),
        command=command.command if command else "",
        reply=command.reply if command else "",
    )


def _command(came: _Update) -> Op[CommandTaken | None]:
    """Return the command that an update was, or None."""
    events = [recorded.event for recorded in (yield from journal.of_message(came.message))]
    return next((event for event in events if isinstance(event, CommandTaken)), None)


def _not_taken(any_id: str) -> Op[Explanation | None]:
    """Explain an arrival that was refused or could not be read; None if there is none."""
    found = yield from one(_Refused, _REFUSED, any_id)
    if found is not None:
        arrival = _arrival(found.adapter, found.account, found.external_id, found.kind, found.at)
        return Explanation(
            turn=None,
            conversation=f"{found.adapter}:{found.place}",
            updates=(arrival,),
            refused=found.reason,
        )
    letter = yield from dead_letters.of(any_id)
    if letter is None:
        return None
    arrival, kept = letter
    return Explanation(turn=None, conversation=kept.address, updates=(arrival,), parts=(kept,))


def _arrival(adapter: str, account: str, external_id: str, kind: str, at: int) -> ArrivalRecord:
    """Return how something arrived."""
    return ArrivalRecord(
        adapter=adapter, account=account, external_id=external_id, kind=kind, at=at
    )
