"""Takes a command: finds its handler, runs it, and records the command with its reply.

The effect, the record and the reply are one transaction. After a crash the same update finds its
inbox row and gets the same reply, and the command is not carried out twice.
"""

from collections.abc import Callable, Mapping
from typing import Final

from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.commands import COMMANDS, Given, help_text
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.sayings.saying import in_language, worded
from perdure.ports.people.principals import Principal
from perdure.ports.turns.inbox import Reception
from perdure.store.operations import journal
from perdure.store.operations.commands import (
    asking,
    choices,
    heads,
    linking,
    memories,
    permitting,
    rotation,
    spending,
    turn_control,
    views,
)
from perdure.store.operations.commands.command_result import CommandResult
from perdure.store.operations.commands.jobs import scheduling
from perdure.store.operations.delivery.outbox import PartText, put_unless_read
from perdure.store.operations.people import open_groups
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op, one

# Finds the person who gives a command.
_WHO = "SELECT id, name, role FROM principals WHERE id = $1"
_HANDLERS: Final[Mapping[str, Callable[[TurnContext, Given], Op[CommandResult]]]] = {
    "new": rotation.new,
    "reset": rotation.new,
    "branch": rotation.branch,
    "resume": rotation.resume,
    "title": rotation.title,
    "retry": heads.retry,
    "edit": heads.edit,
    "undo": heads.undo,
    "redo": heads.redo,
    "stop": turn_control.stop,
    "queue": turn_control.queue,
    "steer": turn_control.steer,
    "background": turn_control.background,
    "agent": choices.agent,
    "persona": choices.persona,
    "think": choices.think,
    "voice": choices.voice,
    "continue": turn_control.go_on,
    "home": choices.home,
    "link": linking.link,
    "compact": views.compact,
    "memory": memories.memory,
    "sessions": asking.sessions,
    "status": asking.status,
    "usage": spending.usage,
    "why": asking.why,
    "restart": asking.restart,
    "approve": permitting.approve,
    "deny": permitting.deny,
    "grants": permitting.list_grants,
    "effects": permitting.list_effects,
    "tools": permitting.tools,
    "remind": scheduling.remind,
    "jobs": scheduling.jobs,
    "timezone": scheduling.timezone,
}
# `help` and `whoami` have no handler: `_taken` answers them.
assert _HANDLERS.keys() | {"help", "whoami"} == COMMANDS.keys()


def take(context: TurnContext, given: Given) -> Op[Reception]:
    """Carry out a command, append `CommandTaken`, and send the reply."""
    taken = yield from _taken(context, given)
    reply = in_language(taken.reply, context.language)
    session = taken.session or context.session
    is_here = any(each.session == session and each.turn == taken.turn for each in taken.recorded)
    event = CommandTaken(
        command=given.name,
        arguments=_kept(given),
        by=context.update.principal,
        message=context.fresh.message,
        reply=reply,
        turn=taken.turn if is_here else None,
        choices=taken.choices,
    )
    at = context.stamp.at
    recorded = yield from journal.append(session, [event], at=at)
    yield from put_unless_read(
        session,
        None,
        context.fresh.message,
        PartText(reply, choices=taken.choices),
        context.stamp,
        to=context.place.via or context.conversation,
    )
    accepted = Accepted(
        conversation=taken.conversation or context.conversation,
        session=session,
        turn=taken.turn,
        message=context.fresh.message,
        effect=taken.effect,
        ended=taken.ended,
        command=given.name,
        reply=reply,
        choices=taken.choices,
        recorded=(*taken.recorded, *recorded),
        moved=taken.moved,
    )
    return Reception(accepted=accepted, claimed=taken.claimed)


def _kept(given: Given) -> str:
    """Return the arguments as the journal may keep them, without secrets and memories: it cannot
    forget."""
    match given.name:
        case "memory":
            return memories.redacted(given)
        case "link":
            return linking.redacted(given)
        case _:
            return given.arguments


def was_followed(taken: CommandTaken) -> Op[bool]:
    """Tell whether a recorded command was valid, and its sender allowed to give it."""
    given = Given(taken.command, taken.arguments, COMMANDS.get(taken.command))
    return not _refusal(given, (yield from _who(taken.by)))


def _taken(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Run a command's handler, or return why it is refused."""
    who = yield from _who(context.update.principal)
    refusal = _refusal(given, who) or (yield from open_groups.refusal(context, given, who))
    if refusal:
        return CommandResult(refusal)
    if given.name == "help":
        return CommandResult(help_text(is_operator=who.is_operator))
    if given.name == "whoami":
        return CommandResult(worded("You are {name} ({role}).", name=who.name, role=who.role))
    return (yield from _HANDLERS[given.name](context, given))


def _who(principal: PrincipalId) -> Op[Principal]:
    """Return the person with this id."""
    who = yield from one(_principal, _WHO, principal)
    assert who is not None
    return who


def _principal(principal: PrincipalId, name: str, role: str) -> Principal:
    """Return the person that a row holds."""
    return Principal(id=principal, name=name, role=role)


def _refusal(given: Given, who: Principal) -> str:
    """Return why a command is not carried out, or an empty string."""
    if given.command is not None and not given.problem:
        is_allowed = who.is_operator or not given.command.is_for_operators
        return "" if is_allowed else worded("/{command} is for operators.", command=given.name)
    return given.problem
