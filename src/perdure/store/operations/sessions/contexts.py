"""Reads who answers in a conversation, how much its model reads, and what a summary stands for."""

from typing import Final, NamedTuple

from perdure.domain.ids import ConversationId, MessageId, TurnId
from perdure.domain.journal.session_events import Compacted
from perdure.ports.records.history import ContextView
from perdure.store.operations import journal
from perdure.store.operations.sessions import compaction
from perdure.store.statement import Op, one

# Reads what was chosen in a conversation, and how much is known up to its head.
_CHOSEN: Final = """
    SELECT w.agent, w.persona, w.effort, s.head_turn, h.context_tokens
    FROM conversations c JOIN conversations w ON w.id = COALESCE(c.linked_id, c.id)
    JOIN sessions s ON s.id = w.session_id LEFT JOIN turns h ON h.id = s.head_turn
    WHERE c.id = $1"""


class _Chosen(NamedTuple):
    agent: str
    persona: str
    effort: str
    head: TurnId | None
    tokens: int | None


def context(conversation: ConversationId) -> Op[ContextView]:
    """Return who answers in a conversation, and what its model reads."""
    chosen = yield from one(_Chosen, _CHOSEN, conversation)
    if chosen is None:
        return ContextView()
    found = (yield from compaction.in_force(chosen.head)) if chosen.head else []
    summary = (yield from _summary(found[0].summary)) if found else None
    return ContextView(
        agent=chosen.agent,
        persona=chosen.persona,
        effort=chosen.effort,
        tokens=chosen.tokens or 0,
        summary=summary.summary if summary else "",
        summarized_turns=summary.turns if summary else 0,
    )


def _summary(message: MessageId) -> Op[Compacted | None]:
    """Return the summary with this id."""
    events = [each.event for each in (yield from journal.of_message(message))]
    return next((event for event in events if isinstance(event, Compacted)), None)
