"""Handles commands that choose something for one conversation: its agent, its persona, how much the
model reasons, and whether it is somebody's home.

What is chosen outlives a new session and a restart, and holds for every message that is accepted
after it. A turn that has begun continues with what held before: providers refuse a change in the
middle of its tool calls.
"""

from typing import Final

from perdure.domain.address import HTTP
from perdure.domain.inbound.commands import Given
from perdure.domain.journal.model.options import EFFORTS
from perdure.store.operations.commands.command_result import (
    STOPPED_TOO,
    CommandResult,
    end,
    started,
)
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op, one, run

# How many agents are offered as buttons; all of them are named in the text.
CHOICES_MAX: Final = 8
# Stores which agent answers in a conversation.
_AGENT = "UPDATE conversations SET agent = $1 WHERE id = $2"
# Stores which persona was chosen for a conversation.
_PERSONA = "UPDATE conversations SET persona = $1 WHERE id = $2"
# Stores which conversation is a person's home.
_HOME = "UPDATE principals SET home_conversation_id = $1 WHERE id = $2"
# The word that goes back to what is configured for the agent.
CONFIGURED: Final = "default"
_WORDS: Final = (*EFFORTS, CONFIGURED)
# Stores how much a model is to reason in a conversation.
_EFFORT = "UPDATE conversations SET effort = $1 WHERE id = $2"
# Reads whether answers in a conversation are spoken.
_IS_SPOKEN = "SELECT is_spoken FROM conversations WHERE id = $1"
# Chooses whether answers in a conversation are spoken.
_SPEAK = "UPDATE conversations SET is_spoken = $1 WHERE id = $2"
_VOICE_WORDS: Final = {"on": 1, "off": 0}
_NOT_HERE: Final = (
    "Answers are spoken on chat platforms, as voice messages. Here they can only be read."
)
_NOBODY: Final = (
    "There is nobody to speak: add [speech] with the url of a speech server to perdure.toml."
)


def agent(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Choose the agent that answers here, and stop the running turn; without a name, list the
    agents."""
    menu, wanted = context.menu, given.arguments
    offered = f"Available: {', '.join(map(menu.in_words, menu.agents))}."
    if not wanted:
        others = [name for name in menu.agents if name != menu.answering(context.place.agent)]
        choices = tuple(f"/{given.name} {name}" for name in others[:CHOICES_MAX])
        return CommandResult(f"{_answering(context)} {offered}", choices=choices)
    if wanted not in menu.agents:
        return CommandResult(f"There is no agent {wanted!r}. {offered}")
    running = started(context)
    recorded = yield from end(context, running)
    yield from run(_AGENT, wanted, context.conversation)
    stopped = f" {STOPPED_TOO}" if running else ""
    return CommandResult(f"{wanted} answers here from now on.{stopped}", recorded, running)


def _answering(context: TurnContext) -> str:
    """Return which agent answers here, in words."""
    chosen = context.place.agent
    answers = context.menu.answering(chosen)
    if chosen in ("", answers):
        return f"{answers} answers here."
    return f"{answers} answers here: {chosen} was chosen, and is gone."


def persona(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Choose the persona for this conversation, or none; without a name, list the personas."""
    menu, wanted = context.menu, given.arguments
    offered = (
        f"Available: {', '.join(menu.personas)}."
        if menu.personas
        else "None are configured; add [personas.NAME] with instructions to perdure.toml."
    )
    if not wanted:
        return CommandResult(f"Persona here: {context.place.persona or 'none'}. {offered}")
    is_none = wanted == "none"
    if not is_none and wanted not in menu.personas:
        return CommandResult(f"There is no persona {wanted!r}. {offered}")
    yield from run(_PERSONA, "" if is_none else wanted, context.conversation)
    told = "No persona here from now on." if is_none else f"Persona here from now on: {wanted}."
    return CommandResult(told)


def home(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Make this conversation the person's home."""
    here = context.place.via or context.conversation
    yield from run(_HOME, here, context.update.principal)
    return CommandResult("This is your home conversation now.")


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


def voice(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Choose whether answers are spoken here too; without a word, say what is set."""
    if context.update.address.adapter == HTTP:
        return CommandResult(_NOT_HERE)
    here = context.place.via or context.conversation
    wanted = given.arguments.lower()
    if not wanted:
        told = "spoken too" if (yield from one(int, _IS_SPOKEN, here)) else "only written"
        choices = tuple(f"/{given.name} {word}" for word in _VOICE_WORDS)
        return CommandResult(f"Answers here are {told}.", choices=choices)
    if wanted not in _VOICE_WORDS:
        return CommandResult(f"Say /{given.name} on or /{given.name} off.")
    if wanted == "on" and not context.menu.can_speak:
        return CommandResult(_NOBODY)
    yield from run(_SPEAK, _VOICE_WORDS[wanted], here)
    told = "spoken too, from the next one on" if wanted == "on" else "only written from now on"
    return CommandResult(f"Answers here are {told}.")


def effort_here(context: TurnContext) -> str:
    """Return how much the model reasons in this conversation, in words."""
    return _in_words(context, context.place.effort)


def _in_words(context: TurnContext, chosen: str) -> str:
    if chosen:
        return f"thinking {chosen}, chosen with /think"
    configured = context.menu.offer(context.place.agent).reasoning
    return f"thinking {configured}, as configured" if configured else "thinking as the model does"
