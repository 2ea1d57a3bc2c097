"""Implements the tool `files`: reads, writes, edits, lists and searches files of configured
folders.

Nothing outside of these folders is reached, whatever the paths and the links on the disk say:
`opening.py` says how. What a call would change is shown before it happens, as a diff, together with
a digest of what is there now. The disk is used in threads, so it never holds up the gateway.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Annotated, Final, Literal, assert_never, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.builtin.files.bounds import DEFAULT_BOUNDS, FilesBounds
from perdure.tools.builtin.files.decoding import ReadingDeadline
from perdure.tools.builtin.files.edits import edited
from perdure.tools.builtin.files.exact import read_exactly
from perdure.tools.builtin.files.listing import list_page
from perdure.tools.builtin.files.reading import read_page
from perdure.tools.builtin.files.roots import FileRoots, RootedPath
from perdure.tools.builtin.files.searching import FileQuery, search_files
from perdure.tools.builtin.files.writing import Change, FileWriter, PresentFile, checked_text
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of
from perdure.tools.workroom import Workroom

NAME: Final = "files"
COUNT_MAX: Final = 10_000
_OFFSET_MAX: Final = 1_000_000_000
_WORDS_MAX: Final = 1_000
_GLOB_MAX: Final = 200
_DESCRIPTION: Final = (
    "Work with files of text in {folders}. read shows lines; write replaces a whole file or makes "
    "a new one; edit replaces an exact text that occurs once; list shows a folder; search finds "
    "lines that hold words, or files by their names. Read a file before you change it."
)

Action = Literal["read", "write", "edit", "list", "search"]
_REPEATS: Final[dict[Action, Repeat]] = {"write": Repeat.REPEATABLE, "edit": Repeat.ONCE}


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    action: Annotated[Action, Meta(description="what to do")]
    path: Annotated[
        str,
        Meta(description="the file or folder, from the top of the folder; empty for the top"),
    ] = ""
    text: Annotated[str | UnsetType, Meta(description="write: the whole new text")] = UNSET
    old: Annotated[str, Meta(description="edit: the exact text to replace")] = ""
    new: Annotated[str | UnsetType, Meta(description="edit: the text in its place")] = UNSET
    all: Annotated[bool, Meta(description="edit: replace old everywhere, not just once")] = False
    words: Annotated[
        str,
        Meta(
            description="search: text that a line holds, capital or small letters alike",
            max_length=_WORDS_MAX,
        ),
    ] = ""
    names: Annotated[
        str,
        Meta(
            description="search, list: only names like this; * any letters, ** also across /",
            max_length=_GLOB_MAX,
        ),
    ] = ""
    offset: Annotated[
        int,
        Meta(
            description="read, list, search: how many lines, entries or hits to leave out",
            ge=0,
            le=_OFFSET_MAX,
        ),
    ] = 0
    count: Annotated[
        int,
        Meta(
            description="read, list, search: how many at most; 0 for as many as fit",
            ge=0,
            le=COUNT_MAX,
        ),
    ] = 0


def traits_of_file_call(action: Action) -> CallTraits:
    """Return the traits of a kind of call, without its path."""
    return CallTraits(
        names=(NAME, f"{NAME}.{action}"),
        repeat=_REPEATS.get(action, Repeat.PURE),
        permission=Permission.ACT if action in _REPEATS else Permission.READ,
    )


class FilesTool:
    """Serves the `files` tool for some folders. Raises `Rejected` if one is missing, or holds
    another one."""

    name: str = NAME
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        bounds: FilesBounds = DEFAULT_BOUNDS,
        work: Workroom | None = None,
    ) -> None:
        """Serve these folders. The tools of several agents may share one workroom."""
        self._roots = FileRoots(roots)
        self._bounds = bounds
        self._work = work or Workroom()
        main, *others = self._roots.folders
        folders = f"{main} (where relative paths begin)"
        self.description: str = _DESCRIPTION.format(folders=", ".join([folders, *others]))

    def traits(self, arguments: str) -> CallTraits:
        asked, path = self._asked(arguments)
        return msgspec.structs.replace(
            traits_of_file_call(asked.action), paths=(path.absolute, path.below), folder=path.root
        )

    def kinds(self) -> Sequence[CallTraits]:
        return tuple(traits_of_file_call(action) for action in get_args(Action))

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        asked, path = self._asked(call.arguments)
        if asked.action not in _REPEATS:
            return NOTHING_AHEAD
        writer = self._writer(asked, path, call)
        return await self._work.run(lambda _: writer.foresee(), who=caller.principal)

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        asked, path = self._asked(call.arguments)
        match asked.action:
            case "read" | "list" | "search":
                return await self._work.run(partial(self._look, asked, path), who=caller.principal)
            case "write" | "edit":
                writer = self._writer(asked, path, call)
                make = asked.action == "write"
                return await self._work.run(
                    lambda is_unwanted: writer.write(make_folders=make, is_unwanted=is_unwanted),
                    who=caller.principal,
                )
            case _:
                assert_never(asked.action)

    async def read_exactly(self, path: str, caller: ToolCaller, *, offset: int, count: int) -> str:
        """Return lines of a file as they are, for a program that writes them back. With a `count`
        of 0 they are all that follow."""
        found, bounds = self._roots.path(path), self._bounds

        def read(is_unwanted: Event) -> str:
            deadline = ReadingDeadline(bounds.seconds, is_unwanted)
            return read_exactly(found, offset=offset, count=count, bounds=bounds, deadline=deadline)

        return await self._work.run(read, who=caller.principal)

    def _asked(self, arguments: str) -> tuple[_Arguments, RootedPath]:
        """Return the arguments, and what their path names. Raises `Rejected` for a call that can
        never work, so that nobody is asked about it."""
        asked = arguments_of(arguments, _Arguments, tool=NAME)
        path = self._roots.path(asked.path)
        if not path.parts and asked.action not in ("list", "search"):
            raise Rejected(f"{asked.action} needs the path of a file; list shows what there is")
        if lacking := _lacking(asked):
            raise Rejected(lacking)
        checked_text(asked.text or "", self._bounds)
        return asked, path

    def _look(self, asked: _Arguments, path: RootedPath, is_unwanted: Event) -> str:
        """Do what changes nothing."""
        bounds = self._bounds
        deadline = ReadingDeadline(bounds.seconds, is_unwanted)
        if asked.action == "read":
            count = asked.count or COUNT_MAX
            return read_page(
                path, offset=asked.offset, count=count, bounds=bounds, deadline=deadline
            )
        if asked.action == "list":
            count = asked.count or bounds.listed
            return list_page(
                path, offset=asked.offset, count=count, names=asked.names, bounds=bounds
            )
        sought = FileQuery(
            words=asked.words,
            names=asked.names,
            offset=asked.offset,
            count=asked.count or bounds.hits,
        )
        return search_files(path, sought, bounds=bounds, deadline=deadline)

    def _writer(self, asked: _Arguments, path: RootedPath, call: ToolCall) -> FileWriter:
        return FileWriter(path, self._change(asked, path), call.id, self._bounds)

    def _change(self, asked: _Arguments, path: RootedPath) -> Change:
        """Return what a call makes of a file."""
        text, new = asked.text or "", asked.new or ""
        if asked.action == "write":
            return lambda _: text

        def change(present: PresentFile | None) -> str:
            before = _text_of(present, path)
            limit = self._bounds.text_bytes
            return edited(before, asked.old, new, is_all=asked.all, chars_max=limit)

        return change


def _text_of(present: PresentFile | None, path: RootedPath) -> str:
    """Return the text that an edit begins with. Raises `Rejected` if there is none."""
    if present is None:
        raise NotFound(f"there is no {path.shown}; list shows what there is, write makes a file")
    if present.text is None:
        raise Rejected(
            f"{path.shown} is not text in UTF-8, so it cannot be edited; write replaces it whole"
        )
    return present.text


def _lacking(asked: _Arguments) -> str:
    """Return what the action lacks in its arguments, and what to do; an empty string if nothing."""
    match asked.action:
        case "write":
            is_given = asked.text is not UNSET
            return "" if is_given else "write needs text, the whole new text; call again with it"
        case "edit":
            return _lacking_in_edit(asked)
        case "search":
            return _lacking_in_search(asked)
        case "read" | "list":
            return ""
        case _:
            assert_never(asked.action)


def _lacking_in_edit(asked: _Arguments) -> str:
    if not asked.old:
        return "edit needs old, the exact text to replace; write makes new files"
    if asked.new is UNSET:
        return "edit needs new, which may be empty; call again with it"
    is_same = asked.old == asked.new
    return "old and new are the same text, so there is nothing to change" if is_same else ""


def _lacking_in_search(asked: _Arguments) -> str:
    if not asked.words.strip() and not asked.names:
        return "search needs words, or names to find files by their names"
    is_broken = "\n" in asked.words
    return "search finds words within one line; leave the line break out" if is_broken else ""
