"""What people can tell the gateway itself, declared once.

A command is a first word that begins with a slash and holds letters only, so that a path such as
`/usr/bin` stays text. Commands are taken by the same door as messages, have taken effect when that
door answers, and are journalled as what they are: the model never reads them.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

import msgspec

_SHAPE: Final = re.compile(r"/([a-z]+)(?:\s+(.*))?\Z", re.DOTALL | re.IGNORECASE)
COUNT_MAX: Final = 1_000
RESTART: Final = "restart"


class Takes(StrEnum):
    """What may stand after a command."""

    NOTHING = "nothing"
    WORDS = "words"
    MAYBE_WORDS = "maybe words"
    MAYBE_COUNT = "maybe a count"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    usage: str
    help: str
    takes: Takes = Takes.NOTHING
    aliases: tuple[str, ...] = ()
    is_for_operators: bool = False
    is_beside: bool = False


class Given(msgspec.Struct, frozen=True):
    """A command as it was typed. `command` is None for a name nobody declared."""

    name: str
    arguments: str
    command: Command | None

    @property
    def count(self) -> int:
        return int(self.arguments or 1)

    @property
    def problem(self) -> str:
        """What is wrong with it, with the remedy; empty if nothing is."""
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
    Command(name="retry", usage="/retry", help="ask the last message again"),
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
        usage="/branch [name]",
        help="go on from here in a new session and keep this one as it is",
        takes=Takes.MAYBE_WORDS,
    ),
    Command(
        name="resume",
        usage="/resume [session]",
        help="go back to the session before this one, or to the one named",
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


def given(text: str) -> Given | None:
    """The command in this text, or None: then it is something to say."""
    stripped = text.strip()
    matched = _SHAPE.match(stripped) if stripped.startswith("/") else None
    if matched is None:
        return None
    typed = matched.group(1).lower()
    command = _NAMES.get(typed)
    name = command.name if command else typed
    return Given(name, (matched.group(2) or "").strip(), command)


def is_beside(name: str) -> bool:
    """Does this command send an errand, so that its turn is not the conversation's?"""
    command = COMMANDS.get(name)
    return command is not None and command.is_beside


def unknown_text(name: str) -> str:
    near = get_close_matches(name, _NAMES, n=1)
    hint = f" Did you mean /{near[0]}?" if near else ""
    return f"There is no command /{name}.{hint} /help lists them."


def open_to(*, is_operator: bool) -> list[Command]:
    return [c for c in _ALL if is_operator or not c.is_for_operators]


def help_text(*, is_operator: bool) -> str:
    shown = open_to(is_operator=is_operator)
    width = max(len(command.usage) for command in shown if len(command.usage) < 24)
    return "\n".join(f"{command.usage.ljust(width)}  {command.help}" for command in shown)
