"""Keeps dead letters: incoming messages that could not be handled because of an error of ours."""

from typing import Any, NamedTuple

from perdure.domain.errors import Conflict, NotFound
from perdure.domain.journal.records import LETTER, PartView
from perdure.ports.people.access import DeadLetter
from perdure.ports.records.history import ArrivalRecord
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, many, one, run

# Longer payloads are cut: a letter is for finding the fault.
PAYLOAD_MAX = 100_000
# How many letters are kept for each account; older ones are deleted.
LETTERS_MAX = 1_000
# Stores an arrival that could not be handled, once.
_PARK = """
    INSERT INTO letters (id, external_id, adapter, account, kind, payload, error, state, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'parked', $8)
    ON CONFLICT (external_id, adapter, account, kind) DO NOTHING"""
# Deletes old letters of an account: anybody can send what cannot be read, and must not fill the
# disk.
_FORGET = """
    DELETE FROM letters WHERE adapter = $1 AND account = $2 AND at <= (
        SELECT l.at FROM letters l WHERE l.adapter = $1 AND l.account = $2
        ORDER BY l.at DESC LIMIT 1 OFFSET $3)"""
# The columns of a `_Row`.
_COLUMNS = "id, adapter, account, external_id, payload, error, state, at"
# Reads a page of the parked letters, newest first.
_PAGE = f"""
    SELECT {_COLUMNS} FROM letters WHERE state = 'parked' AND (at < $1 OR (at = $1 AND id < $2))
    ORDER BY at DESC, id DESC LIMIT $3"""
# Reads the newest letter with this id or this external id, and its kind.
_OF = f"""
    SELECT kind, {_COLUMNS} FROM letters
    WHERE id = $1 OR external_id = $1 ORDER BY at DESC LIMIT 1"""
# Reads one letter.
_ONE = f"SELECT {_COLUMNS} FROM letters WHERE id = $1"
# Ends a parked letter.
_END = "UPDATE letters SET state = $1 WHERE id = $2 AND state = 'parked' RETURNING id"


class _Row(NamedTuple):
    """Holds a letter."""

    id: str
    adapter: str
    account: str
    external_id: str
    payload: str
    error: str
    state: str
    at: int


def is_letter(any_id: str) -> bool:
    """Tell whether this is the id of a letter."""
    return any_id.startswith("ltr_")


def page(at: int, last: str, limit: int) -> Op[list[PartView]]:
    """Return parked letters older than this one, newest first."""
    return [_view(found) for found in (yield from many(_Row, _PAGE, at, last, limit))]


def get(letter: str) -> Op[PartView]:
    """Return one letter. Raises `NotFound`."""
    found = yield from one(_Row, _ONE, letter)
    if found is None:
        raise NotFound(f"there is no letter {letter}; `perdure parked list` shows what is parked")
    return _view(found)


def of(any_id: str) -> Op[tuple[ArrivalRecord, PartView] | None]:
    """Return the letter with this id or external id, and how it arrived; None if there is none."""
    return (yield from one(_arrived, _OF, any_id))


def _arrived(kind: str, *columns: Any) -> tuple[ArrivalRecord, PartView]:
    """Return the letter in a row of `_OF`, and how it arrived."""
    found = _Row(*columns)
    arrival = ArrivalRecord(
        adapter=found.adapter,
        account=found.account,
        external_id=found.external_id,
        kind=kind,
        at=found.at,
    )
    return arrival, _view(found)


def end(letter: str, state: str) -> Op[PartView]:
    """End a parked letter as replayed or dropped. Raises `Conflict` if it is not parked any
    more."""
    if not (yield from exists(_END, state, letter)):
        known = yield from get(letter)
        raise Conflict(f"letter {letter} is {known.state} already", code="not_parked")
    return (yield from get(letter))


def _view(found: _Row) -> PartView:
    """Return a letter in the form in which parts are shown."""
    return PartView(
        id=found.id,
        message=found.external_id,
        turn=None,
        part=0,
        adapter=found.adapter,
        state=found.state,
        attempts=0,
        receipt="",
        error=found.error,
        text=found.payload,
        step=LETTER,
        at=found.at,
        address=f"{found.adapter}:{found.account}",
    )


def park(letter: DeadLetter, stamp: Stamp) -> Op[None]:
    """Store an arrival that could not be handled, and delete old letters of its account."""
    where = letter.address
    yield from run(
        _PARK,
        stamp.mint("ltr"), letter.external_id, where.adapter, where.account, letter.kind,
        letter.payload[:PAYLOAD_MAX], letter.error, stamp.at,
    )  # fmt: skip
    yield from run(_FORGET, where.adapter, where.account, LETTERS_MAX)
