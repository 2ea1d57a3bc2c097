"""Applies summaries that replace the older turns of a chain, for the model only.

The journal is only added to. A summary applies to all chains that contain the turn it goes up to,
and to none once it is dropped.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.events import AnyEvent, Recorded
from perdure.domain.journal.session_events import Compacted, CompactionFailed
from perdure.domain.prompt.compaction import KEEP_TURNS_MAX, KEEP_TURNS_MIN, back_off_ms, background
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.sayings.saying import worded
from perdure.domain.text import sentence
from perdure.store.operations import journal
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, many, one, run

# Reads the turns from the head back to the newest summary on the chain, up to a number of turns.
_BACK = """
    WITH RECURSIVE chain (id, parent_id, depth, summary_id, context_tokens) AS (
        SELECT id, parent_id, 0, summary_id, context_tokens FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, chain.depth + 1, t.summary_id, t.context_tokens
        FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.summary_id IS NULL AND chain.depth < $2)
    SELECT id, summary_id, context_tokens FROM chain ORDER BY depth"""
# Tells whether the chain contains this turn. Turns before the newest summary are not told to the
# model, so the search stops there.
_IS_ON_CHAIN = """
    WITH RECURSIVE chain (id, parent_id, summary_id) AS (
        SELECT id, parent_id, summary_id FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, t.summary_id FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.id <> $2 AND chain.summary_id IS NULL)
    SELECT 1 FROM chain WHERE id = $2 LIMIT 1"""
# Counts the turns that a summary up to this one replaces, without those of the summary before it.
_COUNT = """
    WITH RECURSIVE chain (id, parent_id, summary_id) AS (
        SELECT id, parent_id, NULL FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, t.summary_id FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.summary_id IS NULL)
    SELECT count(*) FROM chain WHERE summary_id IS NULL"""
# Locks a session, and reads its head and how often compaction failed.
_SESSION = "SELECT head_turn, compact_failures FROM sessions WHERE id = $1 FOR UPDATE"
# Finds the measured context of this turn, or of the newest turn before it that was measured.
_TOKENS = """
    WITH RECURSIVE chain (parent_id, context_tokens, depth) AS (
        SELECT parent_id, context_tokens, 0 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.parent_id, t.context_tokens, chain.depth + 1
        FROM chain JOIN turns t ON t.id = chain.parent_id WHERE chain.context_tokens = 0)
    SELECT context_tokens FROM chain ORDER BY depth DESC LIMIT 1"""
# Finds the summaries on a chain.
_SUMMARIES = """
    WITH RECURSIVE chain (id, parent_id, summary_id, depth) AS (
        SELECT id, parent_id, summary_id, 0 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, t.summary_id, chain.depth + 1
        FROM chain JOIN turns t ON t.id = chain.parent_id)
    SELECT id, summary_id FROM chain WHERE summary_id IS NOT NULL ORDER BY depth"""
# Makes a summary (or none) represent a turn and all before it.
_APPLY = "UPDATE turns SET summary_id = $1 WHERE id = $2"
# Resets the count of failed compactions.
_TRY_AGAIN = "UPDATE sessions SET compact_failures = 0, compact_after = 0 WHERE id = $1"
# Changes the view of all sessions of a conversation: they share turns, so each of them may tell the
# model these turns.
_RETELL = """
    UPDATE sessions SET view = $1 WHERE kind = ''
      AND conversation_id = (SELECT s.conversation_id FROM sessions s WHERE s.id = $2)"""
# Counts a failed compaction, and delays the next attempt.
_BACK_OFF = """
    UPDATE sessions SET compact_failures = compact_failures + 1, compact_after = $1
    WHERE id = $2"""
# A summary larger than this share of what it replaces is not worth the details it loses.
SHRINKS_TO: Final = 0.7


class _OnChain(NamedTuple):
    turn: TurnId
    summary: MessageId | None
    tokens: int


class _Held(NamedTuple):
    head: TurnId | None
    failures: int


class InForce(NamedTuple):
    """Holds a summary on a chain: the turn it goes up to, and its id."""

    upto: TurnId
    summary: MessageId


class WrittenSummary(NamedTuple):
    """Holds the result of a summary errand; `failure` says why there is no text. `tokens` is how
    much the summary stands for, if that was counted."""

    errand: TurnId
    session: SessionId
    upto: TurnId
    text: str
    failure: str
    cost: int
    tokens: int = 0


def choose(head: TurnId, *, keep_tokens: int) -> Op[TurnId | None]:
    """Return the turn to compact up to, or None if nothing older is left. The newest turns stay:
    those that fit in `keep_tokens`, and at least `KEEP_TURNS_MIN`."""
    found = yield from many(_OnChain, _BACK, head, KEEP_TURNS_MAX)
    # A turn that was cut short has no measurement: its count is 0.
    tokens = next((each.tokens for each in found if each.tokens), 0)
    for depth, each in enumerate(found):
        if each.summary is not None:
            return None
        if depth < KEEP_TURNS_MIN:
            continue
        if each.tokens and tokens - each.tokens > keep_tokens:
            return found[max(depth - 1, KEEP_TURNS_MIN)].turn
        if depth == KEEP_TURNS_MAX:
            return each.turn
    return found[KEEP_TURNS_MIN].turn if len(found) > KEEP_TURNS_MIN else None


def in_force(head: TurnId) -> Op[list[InForce]]:
    """Return the summaries on this chain, newest first."""
    return (yield from many(InForce, _SUMMARIES, head))


def drop(session: SessionId, turns: Sequence[TurnId], view: str) -> Op[None]:
    """Remove the summaries at these turns. `view` is the new name of how the chain is told."""
    yield from _retell(session, None, turns, view)


def _retell(
    session: SessionId, summary: MessageId | None, turns: Sequence[TurnId], view: str
) -> Op[None]:
    """Make a summary (or none) represent everything up to each of these turns, and change the
    view."""
    for turn in turns:
        yield from run(_APPLY, summary, turn)
    yield from run(_TRY_AGAIN, session)
    yield from run(_RETELL, view, session)


def apply(summary: WrittenSummary, stamp: Stamp) -> Op[list[Recorded]]:
    """Apply a summary to the turns it was made from. If it is missing or empty, does not shrink
    anything, or its turns are not on the chain any more, record the failure and delay the next
    attempt."""
    held = yield from one(_Held, _SESSION, summary.session)
    assert held is not None
    failure = summary.failure or (yield from _flaw(summary, held.head))
    if failure:
        after = stamp.at + back_off_ms(held.failures + 1)
        yield from run(_BACK_OFF, after, summary.session)
        failed = CompactionFailed(errand=summary.errand, reason=failure)
        return (yield from journal.append(summary.session, [failed], at=stamp.at))
    message = MessageId(stamp.mint("msg"))
    turns = yield from one(int, _COUNT, summary.upto)
    assert turns is not None, "a count is always one row"
    event = Compacted(
        upto=summary.upto,
        message=message,
        summary=summary.text,
        turns=turns,
        tokens_before=summary.tokens or (yield from _tokens(summary.upto)),
        tokens_after=tokens_of(background(summary.text)),
        errand=summary.errand,
        cost=summary.cost,
    )
    events: list[AnyEvent] = [event]
    recorded = yield from journal.append(summary.session, events, at=stamp.at)
    yield from _retell(summary.session, message, [summary.upto], message)
    return recorded


def _tokens(upto: TurnId) -> Op[int]:
    """Return how many tokens the model reads to know everything up to this turn."""
    tokens = yield from one(int, _TOKENS, upto)
    assert tokens is not None
    return tokens


def _flaw(summary: WrittenSummary, head: TurnId | None) -> Op[str]:
    """Return why a summary cannot be applied, or an empty string."""
    if not summary.text.strip():
        return "the summary was empty"
    before = summary.tokens or (yield from _tokens(summary.upto))
    after = tokens_of(background(summary.text))
    if before and after > before * SHRINKS_TO:
        return f"the summary was not shorter ({before} to {after} tokens)"
    is_on_chain = head is not None and (yield from exists(_IS_ON_CHAIN, head, summary.upto))
    return "" if is_on_chain else "the conversation has gone another way meanwhile"


def told(recorded: Sequence[Recorded]) -> str:
    """Return what to tell the person who asked for the compaction."""
    match recorded[0].event:
        case Compacted(turns=turns, tokens_before=before, tokens_after=after):
            return worded(
                "Compacted: {turns}, {before:,} tokens, are now told to the model in {after:,}. "
                "Nothing is deleted; /compact off shows it everything again.",
                turns=worded("1 turn") if turns == 1 else worded("{count:,} turns", count=turns),
                before=before,
                after=after,
            )
        case CompactionFailed(reason=reason):
            return f"Not compacted: {sentence(reason)} Everything is as before."
        case other:
            raise AssertionError(other)
