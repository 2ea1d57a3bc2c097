"""Handles the command that says how much a model reasons in a conversation.

What is chosen belongs to the conversation, as the agent does: it outlives a new session and a
restart, and holds for every message that is accepted after it. A turn that has begun continues with
what held before, because providers refuse a change in the middle of its tool calls.
"""

from typing import Final

from perdure.domain.inbound.commands import Given
from perdure.domain.journal.options import EFFORTS
from perdure.store.operations.commands.command_result import CommandResult
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op, run

# The word that goes back to what is configured for the agent.
CONFIGURED: Final = "default"
_WORDS: Final = (*EFFORTS, CONFIGURED)
# Stores how much a model is to reason in a conversation.
_EFFORT = "UPDATE conversations SET effort = $1 WHERE id = $2"


def think(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Choose how much the model reasons here; without a word, say what is set and offer the
    words."""
    wanted, chosen = given.arguments.lower(), context.place.effort
    if not wanted:
        others = [word for word in _WORDS if word != (chosen or CONFIGURED)]
        choices = tuple(f"/{given.name} {word}" for word in others)
        told = effort_here(context)
        offered = f"Available: {', '.join(_WORDS)}."
        return CommandResult(f"{told[0].upper()}{told[1:]}. {offered}", choices=choices)
    if wanted not in _WORDS:
        offered = ", ".join(f"/{given.name} {word}" for word in _WORDS)
        return CommandResult(f"Say how much: {offered}.")
    effort = "" if wanted == CONFIGURED else wanted
    yield from run(_EFFORT, effort, context.conversation)
    told = _in_words(context, effort)
    return CommandResult(f"From your next message on: {told}.")


def effort_here(context: TurnContext) -> str:
    """Return how much the model reasons in this conversation, in words."""
    return _in_words(context, context.place.effort)


def _in_words(context: TurnContext, chosen: str) -> str:
    if chosen:
        return f"thinking {chosen}, chosen with /think"
    configured = context.menu.offer(context.place.agent).reasoning
    return f"thinking {configured}, as configured" if configured else "thinking as the model does"
