"""Dead letters: what came in and broke us, kept whole."""

from perdure.domain.errors import Conflict, NotFound
from perdure.domain.records import LETTER, PartView
from perdure.ports.access import Letter
from perdure.ports.history import Arrival
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, Row, row, rows, run

PAYLOAD_MAX = 100_000
LETTERS_MAX = 1_000
_PARK = """
    INSERT INTO letters (id, external_id, adapter, account, kind, payload, error, state, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'parked', $8)
    ON CONFLICT (external_id, adapter, account, kind) DO NOTHING"""
# Anybody can send what cannot be read: old letters give way.
_FORGET = """
    DELETE FROM letters WHERE adapter = $1 AND account = $2 AND at <= (
        SELECT l.at FROM letters l WHERE l.adapter = $1 AND l.account = $2
        ORDER BY l.at DESC LIMIT 1 OFFSET $3)"""


_LETTER = """
    SELECT id, adapter, account, external_id, payload, error, state, at FROM letters"""
_PAGE = f"""{_LETTER} WHERE state = 'parked' AND (at < $1 OR (at = $1 AND id < $2))
    ORDER BY at DESC, id DESC LIMIT $3"""
_OF = """
    SELECT id, adapter, account, external_id, payload, error, state, at, kind FROM letters
    WHERE id = $1 OR external_id = $1 ORDER BY at DESC LIMIT 1"""
_ONE = f"{_LETTER} WHERE id = $1"
_END = "UPDATE letters SET state = $1 WHERE id = $2 AND state = 'parked' RETURNING id"


def is_letter(any_id: str) -> bool:
    return any_id.startswith("ltr_")


def page(at: int, last: str, limit: int) -> Op[list[PartView]]:
    return [_view(found) for found in (yield from rows(_PAGE, at, last, limit))]


def one(letter: str) -> Op[PartView]:
    found = yield from row(_ONE, letter)
    if found is None:
        raise NotFound(f"there is no letter {letter}; `perdure parked list` shows what is parked")
    return _view(found)


def of(any_id: str) -> Op[tuple[Arrival, PartView] | None]:
    """The letter with this id, or that came under it; and how it came."""
    found = yield from row(_OF, any_id)
    if found is None:
        return None
    *columns, kind = found
    view = _view(tuple(columns))
    _, adapter, account, external_id, *_ = columns
    arrival = Arrival(
        adapter=adapter, account=account, external_id=external_id, kind=kind, at=view.at
    )
    return arrival, view


def end(letter: str, state: str) -> Op[PartView]:
    """It was taken after all, or nobody wants it any more."""
    if (yield from row(_END, state, letter)) is None:
        known = yield from one(letter)
        raise Conflict(f"letter {letter} is {known.state} already", code="not_parked")
    return (yield from one(letter))


def _view(found: Row) -> PartView:
    letter, adapter, account, external_id, payload, error, state, at = found
    return PartView(
        id=letter,
        message=external_id,
        turn=None,
        part=0,
        adapter=adapter,
        state=state,
        attempts=0,
        receipt="",
        error=error,
        text=payload,
        step=LETTER,
        at=at,
        address=f"{adapter}:{account}",
    )


def park(letter: Letter, stamp: Stamp) -> Op[None]:
    where = letter.address
    yield from run(
        _PARK,
        stamp.mint("ltr"), letter.external_id, where.adapter, where.account, letter.kind,
        letter.payload[:PAYLOAD_MAX], letter.error, stamp.at,
    )  # fmt: skip
    yield from run(_FORGET, where.adapter, where.account, LETTERS_MAX)
