"""Reads what a gateway's database says of the messages, their turns, and the parts of the
answers."""

import msgspec
from tests.fault.soak.rest import Database
from tests.fault.storm.model import Word, asked_in, words_in

PARKED = ("unknown", "failed", "expired")
# The same parts that `perdure parked list` shows: a preview that failed was never seen.
PARKED_SQL = """
    SELECT id FROM outbox WHERE state IN ('unknown', 'failed', 'expired') AND error <> 'withdrawn'
    AND dropped_at IS NULL AND (step <> 'bubble' OR state = 'unknown')"""


class Part(msgspec.Struct, frozen=True):
    id: str
    step: str
    state: str
    words: tuple[Word, ...]
    receipt: str
    error: str

    @property
    def is_parked(self) -> bool:
        return self.state in PARKED and self.error != "withdrawn"


class Turn(msgspec.Struct, kw_only=True):
    """Holds a turn and its end; `said` is everything that the model said in it, in order."""

    id: str
    state: str
    outcome: str
    number: int | None = None
    said: list[Word] = msgspec.field(default_factory=list)
    parts: list[Part] = msgspec.field(default_factory=list)

    @property
    def receipts(self) -> set[str]:
        return {part.receipt for part in self.parts if part.state == "sent"}

    @property
    def parked(self) -> list[Part]:
        return [part for part in self.parts if part.is_parked]


class Stored(msgspec.Struct, frozen=True):
    """Holds the turn of each message in `inbox`, the edits and deletions in `changes`, and what
    ended in another recorded way in `ended`."""

    inbox: dict[str, str | None]
    changes: set[str]
    ended: set[str]
    turns: dict[str, Turn]

    def turns_of(self, number: int) -> list[Turn]:
        """Return the turns that asked a message, in their order."""
        return [turn for turn in self.turns.values() if turn.number == number]


async def read_stored(database: Database) -> Stored:
    inbox = await database.rows("SELECT external_id, turn_id FROM inbox WHERE kind = 'message'")
    changes = await database.rows("SELECT external_id FROM inbox WHERE kind <> 'message'")
    ended = await database.rows(
        "SELECT external_id FROM letters UNION SELECT external_id FROM refusals"
    )
    rows = await database.rows("SELECT id, state, outcome FROM turns ORDER BY queued_at, id")
    turns = {id_: Turn(id=id_, state=state, outcome=outcome or "") for id_, state, outcome in rows}
    await _read_journal(database, turns)
    for turn, id_, step, state, text, receipt, error in await database.rows(
        "SELECT turn_id, id, step, state, text, receipt, error FROM outbox"
        " WHERE turn_id IS NOT NULL ORDER BY place_in_line"
    ):
        turns[turn].parts.append(Part(id_, step, state, tuple(words_in(text)), receipt, error))
    return Stored(dict(inbox), _names(changes), _names(ended), turns)


def _names(rows: list[tuple[str]]) -> set[str]:
    return {name for (name,) in rows}


async def _read_journal(database: Database, turns: dict[str, Turn]) -> None:
    # A turn that moved stands in two journals with the same words, so words are not counted twice.
    for turn, kind, body in await database.rows(
        "SELECT turn_id, kind, body FROM journal WHERE kind IN ('turn_queued', 'assistant_said')"
        " ORDER BY at, seq"
    ):
        event, known = msgspec.json.decode(body), turns[turn]
        if kind == "turn_queued":
            known.number = asked_in(event["text"])
        else:
            known.said += [word for word in words_in(event["text"]) if word not in known.said]
