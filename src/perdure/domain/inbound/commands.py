"""Declares what people can tell the gateway itself.

A command is a first word that begins with a slash and holds letters only, so a path such as
`/usr/bin` stays text. Commands come through the same door as messages, and have taken effect when
the door answers. The journal records them as commands, and the model never reads them.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.sayings.saying import in_one_line, worded
from perdure.domain.text import most_like

_SHAPE: Final = re.compile(r"/([a-z]+)(?:\s+(.*))?\Z", re.DOTALL | re.IGNORECASE)
_TURN: Final = re.compile(r"(trn_[0-9a-z]{1,60})(?:\s+|\Z)")
COUNT_MAX: Final = 1_000
RESTART: Final = "restart"


class Takes(StrEnum):
    """Says what may follow a command."""

    NOTHING = "nothing"
    WORDS = "words"
    MAYBE_WORDS = "maybe words"
    MAYBE_COUNT = "maybe a count"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Declares a command. `is_beside`: it may send an errand, so that its turn is not a turn of the
    conversation."""

    name: str
    usage: str
    help: str
    takes: Takes = Takes.NOTHING
    aliases: tuple[str, ...] = ()
    is_for_operators: bool = False
    is_beside: bool = False


class Given(msgspec.Struct, frozen=True):
    """Holds a command as it was typed. `command` is None if no command has that name."""

    name: str
    arguments: str
    command: Command | None

    @property
    def count(self) -> int:
        """Return the number that follows the command, or 1."""
        return int(self.arguments or 1)

    @property
    def problem(self) -> str:
        """Return what is wrong with the command and what to do, or an empty string if it is
        right."""
        command = self.command
        if command is None:
            return unknown_text(self.name)
        match command.takes:
            case Takes.NOTHING if self.arguments:
                return f"/{self.name} takes nothing after it. {command.usage}: {command.help}."
            case Takes.WORDS if not self.arguments:
                return f"/{self.name} needs something after it. {command.usage}: {command.help}."
            case Takes.MAYBE_COUNT if self.arguments and not self._is_count():
                return f"{command.usage}: a whole number from 1 to {COUNT_MAX:,} may follow."
            case _:
                return ""

    def _is_count(self) -> bool:
        is_number = self.arguments.isascii() and self.arguments.isdigit()
        return is_number and len(self.arguments) < 6 and 1 <= int(self.arguments) <= COUNT_MAX


_ALL: Final = (
    Command(
        name="new",
        usage="/new [title]",
        help="begin a new session; the old one stays and can be resumed",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(name="reset", usage="/reset", help="begin a new session, as /new does"),
    Command(
        name="retry",
        usage="/retry [turn]",
        help="ask the last message again, or that of an earlier turn",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="edit",
        usage="/edit [turn] text",
        help="ask the last message again in other words, or that of an earlier turn",
        takes=Takes.WORDS,
    ),
    Command(
        name="continue",
        usage="/continue",
        help="go on with an answer that was cut",
    ),
    Command(
        name="undo",
        usage="/undo [N]",
        help="take back the last message, or the last N, with their answers",
        takes=Takes.MAYBE_COUNT,
    ),
    Command(name="redo", usage="/redo", help="bring back what was undone last"),
    Command(
        name="branch",
        usage="/branch [turn] [name]",
        help="go on from here, or from an earlier turn, in a new session and keep this one",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="resume",
        usage="/resume [session]",
        help="go back to the session before this one, or to one by its number, id or title",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="sessions",
        usage="/sessions [words]",
        help="the sessions of this conversation, or your messages with these words",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="title",
        usage="/title [text]",
        help="what this session is called, or call it something else",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="compact",
        usage="/compact [focus]",
        help="shorten what the model reads of older turns (off: show it everything again)",
        takes=Takes.MAYBE_WORDS,
        is_beside=True,
        aliases=("compress",),
    ),
    Command(
        name="stop",
        usage="/stop [all]",
        help="stop what is running (all: also what waits)",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="queue",
        usage="/queue text",
        help="say this after what is running, whatever the mode",
        takes=Takes.WORDS,
    ),
    Command(
        name="steer",
        usage="/steer text",
        help="say this to the answer that is being written",
        takes=Takes.WORDS,
    ),
    Command(
        name="background",
        usage="/background text",
        help="have this answered beside the conversation; the result comes back here",
        takes=Takes.WORDS,
        is_beside=True,
    ),
    Command(
        name="agent",
        usage="/agent [name]",
        help="who answers here, or choose another",
        takes=Takes.MAYBE_WORDS,
        aliases=("model",),
    ),
    Command(
        name="persona",
        usage="/persona [name]",
        help="how it answers here, or choose another (none: as configured)",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="think",
        usage="/think [low | medium | high | off]",
        help="how much it reasons here before it answers (default: as configured)",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="voice",
        usage="/voice [on | off]",
        help="whether answers are spoken here too",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(name="status", usage="/status", help="where this conversation stands"),
    Command(name="usage", usage="/usage", help="what was spent here and today"),
    Command(
        name="why",
        usage="/why [message]",
        help="what happened to the last message, or to the one named",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(name="home", usage="/home", help="make this your home conversation"),
    Command(
        name="link",
        usage="/link [CODE | off]",
        help="go on with this conversation in another place of yours, or end that",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="memory",
        usage="/memory [add TEXT | here TEXT | edit N TEXT | forget N | forget all]",
        help="what is remembered about you; add to it, correct it, erase it",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="approve",
        usage="/approve [id] [call | session | forever | 30m]",
        help="allow what an agent wants to do, once or for longer",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="deny",
        usage="/deny [id]",
        help="do not allow what an agent wants to do",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="grants",
        usage="/grants [revoke ID]",
        help="what you have allowed for longer; take it back",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="effects",
        usage="/effects [ID happened | ID not]",
        help="calls that may or may not have happened; say which",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(name="tools", usage="/tools", help="what the agent may do here, and why not the rest"),
    Command(
        name="remind",
        usage="/remind me TIME to TEXT",
        help="say this to you at a time, once or again and again",
        takes=Takes.WORDS,
    ),
    Command(
        name="jobs",
        usage="/jobs [add TIME TEXT | pause ID | resume ID | run ID | remove ID]",
        help="what runs for you on a schedule; add to it, change it",
        takes=Takes.MAYBE_WORDS,
        is_beside=True,
    ),
    Command(
        name="timezone",
        usage="/timezone [ZONE]",
        help="the time zone in which your times are read, or choose another",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(name="whoami", usage="/whoami", help="who you are to the gateway"),
    Command(name="help", usage="/help", help="this list"),
    Command(
        name=RESTART,
        usage="/restart",
        help="finish what runs, then restart the gateway",
        is_for_operators=True,
    ),
)
COMMANDS: Final[Mapping[str, Command]] = {command.name: command for command in _ALL}
_NAMES: Final[Mapping[str, Command]] = {
    name: command for command in _ALL for name in (command.name, *command.aliases)
}


def command_in(text: str) -> Given | None:
    """Return the command in this text, or None if the text is something to say."""
    stripped = text.strip()
    matched = _SHAPE.match(stripped) if stripped.startswith("/") else None
    if matched is None:
        return None
    typed = matched.group(1).lower()
    command = _NAMES.get(typed)
    name = command.name if command else typed
    return Given(name, (matched.group(2) or "").strip(), command)


def turn_and_words(arguments: str) -> tuple[TurnId, str]:
    """Return the turn that a command names first, or an empty id, and the words after it."""
    named = _TURN.match(arguments)
    if named is None:
        return TurnId(""), arguments
    return TurnId(named.group(1)), arguments[named.end() :]


def is_beside(name: str) -> bool:
    """Tell whether this command sends an errand, so that its turn is not a turn of the
    conversation."""
    command = COMMANDS.get(name)
    return command is not None and command.is_beside


def unknown_text(name: str) -> str:
    """Return the answer to a command that does not exist, with the nearest name that does."""
    near = most_like(name, _NAMES)
    hint = worded("Did you mean /{command}?", command=near) if near else ""
    known = worded("There is no command /{command}.", command=name)
    return in_one_line(known, hint, worded("/help lists them."))


def open_to(*, is_operator: bool) -> list[Command]:
    """Return the commands that a person may use."""
    return [c for c in _ALL if is_operator or not c.is_for_operators]


def help_text(*, is_operator: bool) -> str:
    """Return the list of commands that a person may use, with what each of them does."""
    shown = open_to(is_operator=is_operator)
    width = max(len(command.usage) for command in shown if len(command.usage) < 24)
    return "\n".join(f"{command.usage.ljust(width)}  {command.help}" for command in shown)
