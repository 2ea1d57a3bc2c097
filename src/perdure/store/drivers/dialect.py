"""Where the two databases differ, all of it."""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from perdure.domain.ids import MessageId
from perdure.domain.journal.events import Recorded
from perdure.ports.turns.turns import TextPiece
from perdure.store.statement import Op, Rows

INDEXED_TEXT_MAX = 100_000
_NO_WORD = re.compile(r"[\W_]+")
_IDEOGRAPH = re.compile("([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")


def words_of(text: str) -> str:
    """Text as both indexes take it: words and nothing else, so that neither database sees an
    address or an operator in it; no case, no accents, each ideograph a word of its own."""
    if text.isascii():
        return _NO_WORD.sub(" ", text.lower())
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return _NO_WORD.sub(" ", _IDEOGRAPH.sub(r" \1 ", unicodedata.normalize("NFC", kept)))


class Searchable(NamedTuple):
    """A message as the full-text index takes it. `scope` is whose it is: a person's id, or that of
    the conversation where several people talk."""

    recorded: Recorded
    scope: str
    message: MessageId
    role: str
    text: str


class Dialect(Protocol):
    """What a driver must say in its own words.

    `is_exclusive`: holding the database open is itself the lease, so every other node is gone.
    `now_ms` is SQL for the clock that leases are measured with. `one_at_a_time` is a statement that
    makes transactions which name the same thing wait for one another, until they end. `begins` is a
    condition on the update `i`, which came over HTTP: its external id is $1 and the name of its
    conversation, if that has one, and it is $2's, if that is given. `search` finds entries of the
    journal: the cursor behind each, its session and its number.
    """

    name: str
    is_exclusive: bool
    now_ms: str
    one_at_a_time: str
    begins: str

    def index(self, message: Searchable) -> Op[None]: ...

    def search(
        self, query: str, *, scope: str | None, before: int | None, limit: int
    ) -> Op[Rows]: ...

    def flush(self, pieces: Sequence[TextPiece]) -> Op[set[tuple[str, int]]]:
        """The (turn, attempt) of each piece whose lease is good; the others write nothing."""
        ...
