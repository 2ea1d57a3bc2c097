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
from perdure.domain.sayings.saying import worded
from perdure.store.operations.commands.command_result import (
    STOPPED_TOO,
    CommandResult,
    end,
    started,
)
from perdure.store.operations.turn_context import NO_PERSONA, TurnContext
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
_NOT_HERE: Final = worded(
    "Answers are spoken on chat platforms, as voice messages. Here they can only be read."
)
_NOBODY: Final = worded(
    "There is nobody to speak: add [speech] with the url of a speech server to perdure.toml."
)


def agent(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Choose the agent that answers here, or go back to the one that is configured, and stop the
    running turn; without a name, list the agents."""
    menu, wanted = context.menu, given.arguments
    offered = worded("Available: {names}.", names=", ".join(map(menu.in_words, menu.agents)))
    if not wanted:
        others = [name for name in menu.agents if name != menu.answering(context.place.answering)]
        choices = tuple(f"/{given.name} {name}" for name in others[:CHOICES_MAX])
        return CommandResult(
            worded("{first} {second}", first=_answering(context), second=offered), choices=choices
        )
    is_back = wanted == CONFIGURED and wanted not in menu.agents
    if wanted not in menu.agents and not is_back:
        return CommandResult(
            worded("There is no agent {name!r}. {offered}", name=wanted, offered=offered)
        )
    running = started(context)
    recorded = yield from end(context, running)
    yield from run(_AGENT, "" if is_back else wanted, context.conversation)
    told = worded("{name} answers here from now on.", name=wanted)
    if is_back:
        configured = menu.answering(context.place.place_agent)
        told = worded("{name} answers here from now on, as configured.", name=configured)
    if running:
        told = worded("{first} {second}", first=told, second=STOPPED_TOO)
    return CommandResult(told, recorded, running)


def _answering(context: TurnContext) -> str:
    """Return which agent answers here, in words, and whether somebody has chosen it."""
    place, menu = context.place, context.menu
    meant, answers = place.answering, menu.answering(place.answering)
    if meant not in ("", answers):
        return worded(
            "{name} answers here: {chosen} was chosen, and is gone.", name=answers, chosen=meant
        )
    configured = menu.answering(place.place_agent)
    if place.agent and answers != configured:
        return worded(
            "{name} answers here. It was chosen with /agent; /agent default goes back to {other}.",
            name=answers,
            other=configured,
        )
    return worded("{name} answers here.", name=answers)


def persona(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Choose the persona for this conversation, none, or the one that is configured for the place;
    without a name, list the personas."""
    menu, wanted, place = context.menu, given.arguments, context.place
    offered = (
        worded("Available: {names}.", names=", ".join(menu.personas))
        if menu.personas
        else worded("None are configured; add [personas.NAME] with instructions to perdure.toml.")
    )
    if not wanted:
        here = place.speaking_as or worded("none")
        if place.place_persona and not place.persona:
            here = worded("{name}, as configured for this place", name=here)
        return CommandResult(worded("Persona here: {name}. {offered}", name=here, offered=offered))
    is_back = wanted == CONFIGURED and wanted not in menu.personas
    if wanted != NO_PERSONA and not is_back and wanted not in menu.personas:
        return CommandResult(
            worded("There is no persona {name!r}. {offered}", name=wanted, offered=offered)
        )
    # Without a persona of the place, having none is the same as having chosen none.
    is_unset = is_back or (wanted == NO_PERSONA and not place.place_persona)
    yield from run(_PERSONA, "" if is_unset else wanted, context.conversation)
    now = place._replace(persona="" if is_unset else wanted).speaking_as
    told = (
        worded("Persona here from now on: {name}.", name=now)
        if now
        else worded("No persona here from now on.")
    )
    return CommandResult(told)


def home(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Make this conversation the person's home."""
    here = context.place.via or context.conversation
    yield from run(_HOME, here, context.update.principal)
    return CommandResult(worded("This is your home conversation now."))


def think(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Choose how much the model reasons here; without a word, say what is set and offer the
    words."""
    wanted, chosen = given.arguments.lower(), context.place.effort
    if not wanted:
        others = [word for word in _WORDS if word != (chosen or CONFIGURED)]
        choices = tuple(f"/{given.name} {word}" for word in others)
        return CommandResult(_offered(context), choices=choices)
    if wanted not in _WORDS:
        offered = ", ".join(f"/{given.name} {word}" for word in _WORDS)
        return CommandResult(worded("Say how much: {offered}.", offered=offered))
    effort = "" if wanted == CONFIGURED else wanted
    yield from run(_EFFORT, effort, context.conversation)
    told = _in_words(context, effort)
    return CommandResult(worded("From your next message on: {what}.", what=told))


def _offered(context: TurnContext) -> str:
    """Return how much the model reasons here, and the words that choose otherwise."""
    chosen, offered = context.place.effort, worded("Available: {names}.", names=", ".join(_WORDS))
    if chosen:
        return worded("Thinking {how}, chosen with /think. {offered}", how=chosen, offered=offered)
    configured = context.menu.offer(context.place.answering).reasoning
    if configured:
        return worded("Thinking {how}, as configured. {offered}", how=configured, offered=offered)
    return worded("Thinking as the model does. {offered}", offered=offered)


def voice(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Choose whether answers are spoken here too; without a word, say what is set."""
    if context.update.address.adapter == HTTP:
        return CommandResult(_NOT_HERE)
    here = context.place.via or context.conversation
    wanted = given.arguments.lower()
    if not wanted:
        is_spoken = yield from one(int, _IS_SPOKEN, here)
        told = worded("Answers here are only written.")
        if is_spoken:
            told = worded("Answers here are spoken too.")
        choices = tuple(f"/{given.name} {word}" for word in _VOICE_WORDS)
        return CommandResult(told, choices=choices)
    if wanted not in _VOICE_WORDS:
        return CommandResult(worded("Say /voice on or /voice off."))
    if wanted == "on" and not context.menu.can_speak:
        return CommandResult(_NOBODY)
    yield from run(_SPEAK, _VOICE_WORDS[wanted], here)
    if wanted == "on":
        return CommandResult(worded("Answers here are spoken too, from the next one on."))
    return CommandResult(worded("Answers here are only written from now on."))


def effort_here(context: TurnContext) -> str:
    """Return how much the model reasons in this conversation, in words."""
    return _in_words(context, context.place.effort)


def _in_words(context: TurnContext, chosen: str) -> str:
    if chosen:
        return worded("thinking {how}, chosen with /think", how=chosen)
    configured = context.menu.offer(context.place.answering).reasoning
    if configured:
        return worded("thinking {how}, as configured", how=configured)
    return worded("thinking as the model does")
