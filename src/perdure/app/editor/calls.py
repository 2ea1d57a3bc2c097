"""Shows tool calls as editors do: a title, a kind, and the changes of files."""

import posixpath
from typing import Any, Final

import msgspec

from perdure.app.editor.edits import FileEdit
from perdure.app.editor.shapes import ContentShown, EditShown, TextShown

TITLE_MAX: Final = 120
_KINDS: Final = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"}
)
_OTHER: Final = "other"
# The tool that stands for what an external agent does by itself.
_PERMISSION: Final = "permission"
_KIND_OF_TOOL: Final = {
    "shell": "execute",
    "fetch": "fetch",
    "search": "search",
    "sessions": "search",
    "todo": "think",
}
_KIND_OF_ACTION: Final = {
    "read": "read",
    "list": "read",
    "search": "search",
    "find": "search",
    "write": "edit",
    "edit": "edit",
    "delete": "delete",
    "move": "move",
}
# The arguments that say best what a call is about, the best first.
_TELLING: Final = ("path", "command", "url", "query", "question", "name", "key")


class CallSeen(msgspec.Struct, kw_only=True):
    """Holds what is known of a call: its title and kind, its arguments, and the changes of files
    that were shown for it."""

    title: str
    kind: str = _OTHER
    raw_input: msgspec.Raw | str = ""
    edits: tuple[FileEdit, ...] = ()


def call_seen(name: str, arguments: str) -> CallSeen:
    """Return what the name and the arguments of a call tell."""
    try:
        given: Any = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return CallSeen(title=name, kind=_KIND_OF_TOOL.get(name, _OTHER), raw_input=arguments)
    given = given if isinstance(given, dict) else {}
    return CallSeen(
        title=_title(name, given),
        kind=_kind(name, given),
        raw_input=msgspec.Raw(arguments.encode()),
        edits=_change(given.get("change")),
    )


def _title(name: str, given: dict[str, Any]) -> str:
    if name == _PERMISSION and isinstance(given.get("tool"), str):
        name = given["tool"]
    action = given.get("action")
    words = [name, action if isinstance(action, str) else ""]
    words.append(next((said for each in _TELLING if (said := _words(given.get(each)))), ""))
    title = " ".join(" ".join(words).split())
    return title if len(title) <= TITLE_MAX else f"{title[: TITLE_MAX - 1]}…"


def _words(value: object) -> str:
    """Return an argument as words: a text, or a list of texts such as a command."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return value if isinstance(value, str) else ""


def _kind(name: str, given: dict[str, Any]) -> str:
    if name == _PERMISSION and given.get("kind") in _KINDS:
        return str(given["kind"])
    if name == "files":
        return _KIND_OF_ACTION.get(str(given.get("action")), _OTHER)
    return _KIND_OF_TOOL.get(name, _OTHER)


def _change(change: object) -> tuple[FileEdit, ...]:
    """Return the change of a file that an external agent asks to make."""
    match change:
        case {"path": str(path), "new": str(new), **more}:
            old = more.get("old")
            return (FileEdit(path, old if isinstance(old, str) else None, new),)
        case _:
            return ()


def shown(
    text: str, edits: tuple[FileEdit, ...], folder: str
) -> tuple[ContentShown | EditShown, ...]:
    """Return what an editor shows below the title of a call. It wants whole paths, so a path that
    is not whole is taken as one in the folder that is open there."""
    changes = [
        EditShown(path=posixpath.join(folder, edit.path), old_text=edit.old, new_text=edit.new)
        for edit in edits
    ]
    said = [ContentShown(content=TextShown(text=text))] if text.strip() else []
    return (*changes, *said)
