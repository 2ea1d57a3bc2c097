"""Answers `/usage`: what was spent by this person and in this conversation."""

from typing import NamedTuple

from perdure.domain.ids import TurnId
from perdure.domain.inbound.commands import Given
from perdure.domain.journal.codec import decode
from perdure.domain.journal.events import AnyEvent
from perdure.domain.journal.session_events import Compacted
from perdure.domain.people.budgets import day_of
from perdure.domain.people.prices import money_text
from perdure.domain.sayings.saying import in_lines, worded
from perdure.store.operations.commands.command_result import CommandResult
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op, SqlValue, many, one

# Finds how many tokens the model reads to know everything up to a turn.
_CONTEXT = "SELECT context_tokens FROM turns WHERE id = $1"
# Sums what was spent; the caller appends by whom, where and when.
_SUMS = """
    SELECT CAST(COALESCE(SUM(turns), 0) AS BIGINT),
           CAST(COALESCE(SUM(input_tokens), 0) AS BIGINT),
           CAST(COALESCE(SUM(output_tokens), 0) AS BIGINT),
           CAST(COALESCE(SUM(cache_read_tokens), 0) AS BIGINT),
           CAST(COALESCE(SUM(money), 0) AS BIGINT),
           CAST(COALESCE(SUM(CASE WHEN money = 0 THEN input_tokens + output_tokens ELSE 0 END), 0)
                AS BIGINT),
           COUNT(DISTINCT principal_id)
    FROM spending WHERE """
# Sums a conversation's spending of all days.
_IN_ALL = _SUMS + "conversation_id = $1"
# Sums a conversation's spending of one day. Exactly that day: if a clock was wrong for a while,
# there may be rows of future days.
_OF_CONVERSATION = _SUMS + "conversation_id = $1 AND day = $2"
# Sums a person's spending of one day.
_OF_PERSON = _SUMS + "principal_id = $1 AND day = $2"
# Sums a person's spending of all days. The key begins with the day. There are few days and many
# conversations, so the days are found one after another, and the person's rows in each.
_OF_PERSON_IN_ALL = f"""{_SUMS} principal_id = $1 AND day IN (
    WITH RECURSIVE days (day) AS (
        SELECT MIN(day) FROM spending
        UNION ALL
        SELECT (SELECT MIN(later.day) FROM spending later WHERE later.day > days.day)
        FROM days WHERE days.day IS NOT NULL)
    SELECT day FROM days WHERE day IS NOT NULL)"""
# Reads the compactions of a session.
_COMPACTIONS = "SELECT kind, body FROM journal WHERE session_id = $1 AND kind = 'compacted'"


class _SpentTotal(NamedTuple):
    """Holds the sums of what was spent."""

    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    money: int
    unpriced_tokens: int
    people: int

    @property
    def by(self) -> str:
        """Return how many people spent it, if more than one."""
        return worded(", {count:,} people", count=self.people) if self.people > 1 else ""

    @property
    def told(self) -> str:
        """Return what was spent, in words."""
        if not (self.turns or self.input_tokens or self.output_tokens):
            return worded("nothing")
        count = self.turns
        return worded(
            "{turns}, {read:,} tokens in ({cached:.0%} cached), {wrote:,} out, {cost}",
            turns=worded("1 turn") if count == 1 else worded("{count:,} turns", count=count),
            read=self.input_tokens,
            cached=self.cached_tokens / max(self.input_tokens, 1),
            wrote=self.output_tokens,
            cost=self._money,
        )

    @property
    def _money(self) -> str:
        """Return the cost in words, as far as prices are known."""
        if not self.money:
            return worded("price unknown")
        known = money_text(self.money)
        if not self.unpriced_tokens:
            return worded("cost {money}", money=known)
        return worded(
            "cost {money} (price of {count:,} tokens unknown)",
            money=known,
            count=self.unpriced_tokens,
        )


def usage(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Say what was spent here and by this person, without attempts that still run. A turn
    counts once it is over."""
    today = day_of(context.stamp.at)
    here, person = context.conversation, context.update.principal
    here_today = yield from _spent(_OF_CONVERSATION, here, today)
    here_in_all = yield from _spent(_IN_ALL, here)
    person_today = yield from _spent(_OF_PERSON, person, today)
    person_in_all = yield from _spent(_OF_PERSON_IN_ALL, person)
    lines = [
        *(yield from _context(context)),
        worded("This conversation today{by}: {spent}", by=here_today.by, spent=here_today.told),
        worded("This conversation in all{by}: {spent}", by=here_in_all.by, spent=here_in_all.told),
        worded("You today: {spent}", spent=person_today.told),
        worded("You in all: {spent}", spent=person_in_all.told),
        *(yield from _compactions(context)),
    ]
    return CommandResult(in_lines(*lines))


def _spent(sql: str, *of: SqlValue) -> Op[_SpentTotal]:
    """Return the sums that a query finds."""
    spent = yield from one(_SpentTotal, sql, *of)
    assert spent is not None, "a sum is always one row"
    return spent


def context_of(head: TurnId | None) -> Op[int]:
    """Return how many tokens the model reads to know everything up to a turn; 0 if unknown."""
    return ((yield from one(int, _CONTEXT, head)) if head else None) or 0


def _context(context: TurnContext) -> Op[list[str]]:
    """Return the line about the size of the context, if it is known."""
    tokens = yield from context_of(context.place.head)
    return [worded("Context: about {count:,} tokens", count=tokens)] if tokens else []


def _compactions(context: TurnContext) -> Op[list[str]]:
    """Return the line about compactions of this session, if there are any."""
    events: list[AnyEvent] = yield from many(decode, _COMPACTIONS, context.session)
    made = [event for event in events if isinstance(event, Compacted)]
    if not made:
        return []
    saved = sum(event.tokens_before - event.tokens_after for event in made)
    if len(made) == 1:
        return [worded("Compacted once in this session: {saved:,} tokens saved", saved=saved)]
    return [
        worded(
            "Compacted {count} times in this session: {saved:,} tokens saved",
            count=len(made),
            saved=saved,
        )
    ]
