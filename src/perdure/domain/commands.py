"""What people can tell the gateway itself, declared once.

A command is a first word that begins with a slash and holds letters only, so that a path such as
`/usr/bin` stays text. Commands are taken by the same door as messages, have taken effect when that
door answers, and are journalled as what they are: the model never reads them.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

import msgspec

_SHAPE: Final = re.compile(r"/([a-z]+)(?:\s+(.*))?\Z", re.DOTALL | re.IGNORECASE)


class Command(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    usage: str
    help: str
    is_for_operators: bool = False


class Given(msgspec.Struct, frozen=True):
    """A command as it was typed. `command` is None for a name nobody declared."""

    name: str
    arguments: str
    command: Command | None


_ALL: Final = (
    Command(name="stop", usage="/stop [all]", help="stop what is running (all: also what waits)"),
    Command(
        name="resume",
        usage="/resume [session]",
        help="go back to the session before this one, or to the one named",
    ),
    Command(name="status", usage="/status", help="where this conversation stands"),
    Command(name="whoami", usage="/whoami", help="who you are to the gateway"),
    Command(name="help", usage="/help", help="this list"),
    Command(
        name="restart",
        usage="/restart",
        help="finish what runs, then restart the gateway",
        is_for_operators=True,
    ),
)
COMMANDS: Final[Mapping[str, Command]] = {command.name: command for command in _ALL}


def given(text: str) -> Given | None:
    """The command in this text, or None: then it is something to say."""
    matched = _SHAPE.match(text.strip())
    if matched is None:
        return None
    name = matched.group(1).lower()
    return Given(name, (matched.group(2) or "").strip(), COMMANDS.get(name))


def unknown_text(name: str) -> str:
    near = get_close_matches(name, COMMANDS, n=1)
    hint = f" Did you mean /{near[0]}?" if near else ""
    return f"There is no command /{name}.{hint} /help lists them."


def help_text(*, is_operator: bool) -> str:
    shown = [c for c in _ALL if is_operator or not c.is_for_operators]
    width = max(len(command.usage) for command in shown)
    return "\n".join(f"{command.usage.ljust(width)}  {command.help}" for command in shown)
