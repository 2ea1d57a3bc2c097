"""Declares what SQLite and PostgreSQL each say in SQL of their own. Everything else is shared."""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.ports.turns.turns import TextPiece
from perdure.store.statement import Op

# Characters of a message that the full-text index takes. Longer messages are found by their start.
INDEXED_TEXT_MAX = 100_000
# Everything between two words.
_NO_WORD = re.compile(r"[\W_]+")
# Kana, Chinese characters and Hangul: written without spaces, so each is indexed as a word.
_IDEOGRAPH = re.compile("([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")


def words_of(text: str) -> str:
    """Return text as both full-text indexes take it: lower case, without accents, only words
    separated by spaces, and each ideograph as a word. With punctuation gone, neither database sees
    a query operator or an address in it."""
    if text.isascii():
        return _NO_WORD.sub(" ", text.lower())
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return _NO_WORD.sub(" ", _IDEOGRAPH.sub(r" \1 ", unicodedata.normalize("NFC", kept)))


class Searchable(NamedTuple):
    """Holds one message for the full-text index. `scope` says who may find it: the id of a person,
    or the id of the conversation if several people talk there."""

    recorded: Recorded
    scope: str
    message: MessageId
    role: str
    text: str


class Found(NamedTuple):
    """Names a journal entry whose message was found. `cursor` leads to the next page."""

    cursor: int
    session: SessionId
    seq: int


class Written(NamedTuple):
    """Names the attempt of a turn whose text was written."""

    turn: TurnId
    attempt: int


class Dialect(Protocol):
    """Provides the SQL in which the two databases differ.

    `is_exclusive` means that having the database open is itself the lease: every other node is
    gone. `now_ms` is the SQL expression for the clock that leases are measured with.
    `one_at_a_time` is a statement that makes transactions with the same $1 wait for one another
    until they end. `begins` is a condition on an update `i` that came over HTTP: its external id
    begins with $1, followed by the name of its conversation if that has one; if $2 is given, the
    update belongs to account $2.
    """

    name: str
    is_exclusive: bool
    now_ms: str
    one_at_a_time: str
    begins: str

    def index(self, message: Searchable) -> Op[None]:
        """Write one message into the full-text index."""

    def search(
        self,
        query: str,
        *,
        scope: str | None,
        before: int | None,
        limit: int,
        with_hidden: bool = False,
    ) -> Op[list[Found]]:
        """Find journal entries whose message contains all words of `query`, newest first. The last
        one's cursor is `before` of the next page. Those of conversations that their person has
        hidden are found only `with_hidden`."""

    def flush(self, pieces: Sequence[TextPiece]) -> Op[set[Written]]:
        """Write pieces of growing text to `partials`, each only if its lease still holds. Returns
        whose pieces were written; the others wrote nothing. Writing a piece again with a longer
        text replaces it."""
        ...
