"""What was spent."""

from typing import NamedTuple

from perdure.domain.budgets import day_of
from perdure.domain.codec import decode
from perdure.domain.commands import Given
from perdure.domain.events import Compacted
from perdure.domain.prices import money_text
from perdure.store.operations.commands.given import Taken
from perdure.store.operations.setting import Setting
from perdure.store.statement import Op, row, rows

_CONTEXT = "SELECT context_tokens FROM turns WHERE id = $1"
_SUMS = """
    SELECT CAST(COALESCE(SUM(turns), 0) AS BIGINT),
           CAST(COALESCE(SUM(input_tokens), 0) AS BIGINT),
           CAST(COALESCE(SUM(output_tokens), 0) AS BIGINT),
           CAST(COALESCE(SUM(cache_read_tokens), 0) AS BIGINT),
           CAST(COALESCE(SUM(money), 0) AS BIGINT),
           CAST(COALESCE(SUM(CASE WHEN money = 0 THEN input_tokens + output_tokens ELSE 0 END), 0)
                AS BIGINT)
    FROM spending WHERE """
_OF_CONVERSATION = _SUMS + "conversation_id = $1 AND day >= $2"
_OF_PERSON = _SUMS + "principal_id = $1 AND day = $2"
_COMPACTIONS = "SELECT kind, body FROM journal WHERE session_id = $1 AND kind = 'compacted'"


class Spent(NamedTuple):
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    money: int
    unpriced_tokens: int

    def __str__(self) -> str:
        if not self.turns:
            return "nothing"
        cached = self.cached_tokens / max(self.input_tokens, 1)
        turns = "1 turn" if self.turns == 1 else f"{self.turns:,} turns"
        return (
            f"{turns}, {self.input_tokens:,} tokens in ({cached:.0%} cached),"
            f" {self.output_tokens:,} out, {self._money}"
        )

    @property
    def _money(self) -> str:
        if not self.money:
            return "price unknown"
        known = f"cost {money_text(self.money)}"
        if not self.unpriced_tokens:
            return known
        return f"{known} (price of {self.unpriced_tokens:,} tokens unknown)"


def usage(setting: Setting, given: Given) -> Op[Taken]:
    """Turns that still run are not in it."""
    today = day_of(setting.stamp.at)
    here, person = setting.conversation, setting.update.principal
    here_today = yield from _spent(_OF_CONVERSATION, here, today)
    here_in_all = yield from _spent(_OF_CONVERSATION, here, 0)
    person_today = yield from _spent(_OF_PERSON, person, today)
    lines = [
        *(yield from _context(setting)),
        f"This conversation today: {here_today}",
        f"This conversation in all: {here_in_all}",
        f"You today: {person_today}",
        *(yield from _compactions(setting)),
    ]
    return Taken("\n".join(lines))


def _spent(sql: str, owner: str, since: int) -> Op[Spent]:
    found = yield from row(sql, owner, since)
    assert found is not None
    return Spent(*found)


def _context(setting: Setting) -> Op[list[str]]:
    head = setting.place.head
    found = (yield from row(_CONTEXT, head)) if head else None
    return [f"Context: about {found[0]:,} tokens"] if found and found[0] else []


def _compactions(setting: Setting) -> Op[list[str]]:
    found = yield from rows(_COMPACTIONS, setting.session)
    events = [decode(kind, body) for kind, body in found]
    made = [event for event in events if isinstance(event, Compacted)]
    if not made:
        return []
    saved = sum(event.tokens_before - event.tokens_after for event in made)
    times = "once" if len(made) == 1 else f"{len(made)} times"
    return [f"Compacted {times} in this session: {saved:,} tokens saved"]
