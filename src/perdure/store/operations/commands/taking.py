"""Takes a command: does what was asked, and writes down that it was."""

from collections.abc import Callable, Mapping
from typing import Final

from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.commands import COMMANDS, Given, help_text
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.events import CommandTaken
from perdure.ports.people.principals import Principal
from perdure.ports.turns.inbox import Reception
from perdure.store.operations import journal
from perdure.store.operations.commands import (
    asking,
    choices,
    heads,
    line,
    linking,
    memories,
    rotation,
    spending,
    views,
)
from perdure.store.operations.commands.given import Taken
from perdure.store.operations.delivery.outbox import Words, put_unless_read
from perdure.store.operations.setting import Setting
from perdure.store.statement import Op, one

# Finds the person who gives a command.
_WHO = "SELECT id, name, role FROM principals WHERE id = $1"
_HANDLERS: Final[Mapping[str, Callable[[Setting, Given], Op[Taken]]]] = {
    "new": rotation.new,
    "reset": rotation.new,
    "branch": rotation.branch,
    "resume": rotation.resume,
    "title": rotation.title,
    "retry": heads.retry,
    "undo": heads.undo,
    "redo": heads.redo,
    "stop": line.stop,
    "queue": line.queue,
    "steer": line.steer,
    "background": line.background,
    "agent": choices.agent,
    "persona": choices.persona,
    "continue": line.go_on,
    "home": choices.home,
    "link": linking.link,
    "compact": views.compact,
    "memory": memories.memory,
    "sessions": asking.sessions,
    "status": asking.status,
    "usage": spending.usage,
    "why": asking.why,
    "restart": asking.restart,
}
# These two answer from what is known before any handler is asked.
assert _HANDLERS.keys() | {"help", "whoami"} == COMMANDS.keys()


def take(setting: Setting, given: Given) -> Op[Reception]:
    taken = yield from _taken(setting, given)
    session = taken.session or setting.session
    is_here = any(each.session == session and each.turn == taken.turn for each in taken.recorded)
    event = CommandTaken(
        command=given.name,
        arguments=_kept(given),
        by=setting.update.principal,
        message=setting.fresh.message,
        reply=taken.reply,
        turn=taken.turn if is_here else None,
    )
    at = setting.stamp.at
    recorded = yield from journal.append(session, [event], at=at)
    yield from put_unless_read(
        session,
        None,
        setting.fresh.message,
        Words(taken.reply),
        setting.stamp,
        to=setting.place.via or setting.conversation,
    )
    accepted = Accepted(
        conversation=taken.conversation or setting.conversation,
        session=session,
        turn=taken.turn,
        message=setting.fresh.message,
        effect=taken.effect,
        ended=taken.ended,
        command=given.name,
        reply=taken.reply,
        recorded=(*taken.recorded, *recorded),
        moved=taken.moved,
    )
    return Reception(accepted=accepted, claimed=taken.claimed)


def _kept(given: Given) -> str:
    """Return what the journal keeps of the words after a command: it cannot forget them."""
    match given.name:
        case "memory":
            return memories.redacted(given)
        case "link":
            return linking.redacted(given)
        case _:
            return given.arguments


def was_followed(taken: CommandTaken) -> Op[bool]:
    """Tell whether a command that stands in the journal was one to do, and its sender one who
    may."""
    given = Given(taken.command, taken.arguments, COMMANDS.get(taken.command))
    return not _refusal(given, (yield from _who(taken.by)))


def _taken(setting: Setting, given: Given) -> Op[Taken]:
    who = yield from _who(setting.update.principal)
    refusal = _refusal(given, who)
    if refusal:
        return Taken(refusal)
    if given.name == "help":
        return Taken(help_text(is_operator=who.is_operator))
    if given.name == "whoami":
        return Taken(f"You are {who.name} ({who.role}).")
    return (yield from _HANDLERS[given.name](setting, given))


def _who(principal: PrincipalId) -> Op[Principal]:
    """Return the person of this id."""
    who = yield from one(_principal, _WHO, principal)
    assert who is not None
    return who


def _principal(principal: PrincipalId, name: str, role: str) -> Principal:
    """Make a person of the columns of their row."""
    return Principal(id=principal, name=name, role=role)


def _refusal(given: Given, who: Principal) -> str:
    if given.command is not None and not given.problem:
        is_allowed = who.is_operator or not given.command.is_for_operators
        return "" if is_allowed else f"/{given.name} is for operators."
    return given.problem
