"""Turns parsed TOML into typed values, and collects every problem on the way.

The types decide: a struct is a table whose fields are its keys, a mapping is a table with free
names, a union of tagged structs is chosen by its tag, a `Secret` may point to a variable or a file,
and everything else is a plain value that msgspec checks. A wrong value becomes None and adds a
problem, so reading continues and the person sees all problems at once. The caller must use the
result only if there are no problems.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Final, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from perdure.app.config.toml_errors import Problem, in_quotes, instead, nearest
from perdure.app.config.toml_positions import KeyPath, Positions
from perdure.app.config.toml_words import (
    SECRET_KEYS,
    SECRET_WORDS,
    bare,
    expected,
    key_text,
    metas,
    one_of,
    shown_value,
    stripped,
)
from perdure.domain.secret import Secret

T = TypeVar("T", bound=msgspec.Struct)
# What other programs call our sections.
_ELSEWHERE: Final[Mapping[str, str]] = dict.fromkeys(
    ("mcp", "mcpServers", "mcp_servers"), "[tools.mcp.NAME]"
)


class TomlSource(msgspec.Struct, frozen=True, kw_only=True):
    """Says where the text comes from, and where its secrets are looked up."""

    file: Path
    positions: Positions
    environ: Mapping[str, str]

    @property
    def home(self) -> Path:
        return self.file.parent


class TomlReader:
    """Reads one document."""

    def __init__(self, source: TomlSource) -> None:
        self.problems: list[Problem] = []
        self._source = source
        self._named: dict[type, Mapping[str, type[msgspec.Struct]]] = {}

    def allow(self, kind: type, entries: Mapping[str, type[msgspec.Struct]]) -> None:
        """Allow only these entries in mappings of that struct."""
        self._named[kind] = entries

    def complain(self, path: KeyPath, text: str) -> None:
        """Add a problem at the line of a key."""
        line = self._source.positions.line(path)
        self.problems.append(Problem(str(self._source.file), line, text))

    def table(self, kind: type[T], value: object, path: KeyPath) -> T | None:
        """Read a table into a struct. Returns None if there was a problem in it."""
        if not isinstance(value, dict):
            self._no_table(path)
            return None
        before = len(self.problems)
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        tag = kind.__struct_config__.tag_field
        self._refuse_unknown(value, [*([tag] if tag else []), *fields], path)
        self._ask_for_missing(value, fields, path)
        read = {
            field.name: self.value(field.type, value[key], (*path, key))
            for key, field in fields.items()
            if key in value
        }
        return kind(**read) if len(self.problems) == before else None

    def value(self, kind: object, value: object, path: KeyPath) -> object:
        """Read a value of any type. Returns None beside a problem if it is wrong."""
        wanted = bare(kind)
        shape = stripped(wanted)
        origin = get_origin(shape)
        result: object
        if shape is Secret:
            result = self._secret(value, path)
        elif isinstance(shape, type) and issubclass(shape, msgspec.Struct):
            result = self.table(shape, value, path)
        elif origin in {Union, UnionType}:
            result = self._either(get_args(shape), value, path)
        elif origin is tuple:
            result = self._list(wanted, value, path)
        elif _is_mapping(shape):
            result = self._mapping(shape, value, path)
        else:
            result = self._plain(wanted, value, path)
        return result

    def _refuse_unknown(
        self, value: Mapping[str, object], valid: Sequence[str], path: KeyPath
    ) -> None:
        where = f"in {key_text(path)}" if path else "at the top of the file"
        for key in value:
            if key not in valid:
                place = None if path else _ELSEWHERE.get(key)
                advice = instead(key, valid) if place is None else f"did you mean {place}?"
                text = f"unknown key {in_quotes(key)} {where}; {advice}"
                self.complain((*path, key), text)

    def _ask_for_missing(
        self, value: Mapping[str, object], fields: Mapping[str, FieldInfo], path: KeyPath
    ) -> None:
        for key, field in fields.items():
            if field.required and key not in value:
                self.complain(path, f"{key_text(path)} needs {key} = ...: {expected(field.type)}")

    def _either(self, kinds: Sequence[object], value: object, path: KeyPath) -> object:
        """Read a value of one of several types: structs that a tag names, or a table of entries
        and something plain."""
        table = next((kind for kind in kinds if _is_mapping(kind)), None)
        if table is None:
            return self._tagged(cast("Sequence[type[msgspec.Struct]]", kinds), value, path)
        plain = next(kind for kind in kinds if kind is not table)
        return self.value(table if isinstance(value, dict) else plain, value, path)

    def _tagged(
        self, kinds: Sequence[type[msgspec.Struct]], value: object, path: KeyPath
    ) -> object:
        """Read a table into the struct that its tag names, such as `kind = "chat"`."""
        by_tag = {str(kind.__struct_config__.tag): kind for kind in kinds}
        field = str(kinds[0].__struct_config__.tag_field)
        if not isinstance(value, dict):
            self._no_table(path)
            return None
        if field not in value:
            self.complain(path, f"{key_text(path)} needs {field} = ...: {one_of(by_tag)}")
            return None
        tag = value[field]
        if not isinstance(tag, str) or tag not in by_tag:
            self._wrong((*path, field), one_of(by_tag), tag, meant=_meant(tag, by_tag))
            return None
        return self.table(by_tag[tag], value, path)

    def _list(self, kind: object, value: object, path: KeyPath) -> object:
        item = get_args(stripped(kind))[0]
        shortest = max((meta.min_length or 0 for meta in metas(kind)), default=0)
        if not isinstance(value, list) or len(value) < shortest:
            self._wrong(path, expected(kind), value)
            return None
        return tuple(self.value(item, each, (*path, index)) for index, each in enumerate(value))

    def _mapping(self, kind: object, value: object, path: KeyPath) -> object:
        """Read a table of named entries. Where the valid names are known, others are refused."""
        if not isinstance(value, dict):
            self._no_table(path)
            return None
        key_kind, item = get_args(kind)
        named = self._named.get(item) if isinstance(item, type) else None
        if named is not None:
            self._refuse_unknown(value, list(named), path)
            known = {key: each for key, each in value.items() if key in named}
            return {key: self.value(named[key], each, (*path, key)) for key, each in known.items()}
        for key in value:
            self._plain(key_kind, key, (*path, key))
        return {key: self.value(item, each, (*path, key)) for key, each in value.items()}

    def _plain(self, kind: object, value: object, path: KeyPath) -> object:
        """Read a value that msgspec checks. Infinity and not-a-number are refused."""
        options = get_args(kind) if get_origin(kind) is Literal else ()
        try:
            if not isinstance(value, float) or math.isfinite(value):
                return msgspec.convert(value, cast("type[object]", kind))
        except msgspec.ValidationError:
            pass
        self._wrong(path, expected(kind), value, meant=_meant(value, options))
        return None

    def _no_table(self, path: KeyPath) -> None:
        # The value is not quoted: it may be a secret that was put one level too high.
        self.complain(path, f"{key_text(path)} must be a table: a section, or {{ key = value }}")

    def _wrong(
        self, path: KeyPath, expectation: str, value: object, *, meant: str | None = None
    ) -> None:
        question = f"; did you mean {in_quotes(meant)}?" if meant is not None else ""
        self.complain(
            path, f"{key_text(path)} must be {expectation}, not {shown_value(value)}{question}"
        )

    def _secret(self, value: object, path: KeyPath) -> Secret | None:
        """Read a secret: the text itself, or the name of a variable or file that holds it. Its
        value never appears in a problem."""
        match value:
            case str() if value:
                return Secret(value)
            case {"env": str(name), **rest} if name and not rest:
                return self._from_environ(name, path)
            case {"file": str(name), **rest} if name and not rest:
                return self._from_file(name, path)
            case "":
                self.complain(path, f"{key_text(path)} is empty; fill it in or leave the key out")
            case dict():
                self._no_secret(value, path)
            case _:
                # The value is not quoted: it may be the secret itself, for example an unquoted
                # number.
                self.complain(path, f"{key_text(path)} must be {SECRET_WORDS}; text needs quotes")
        return None

    def _no_secret(self, table: Mapping[str, object], path: KeyPath) -> None:
        found = ", ".join(table) or "nothing"
        text = f"{key_text(path)} must be {SECRET_WORDS}, not a table of {found}"
        wrong = next((key for key in table if key not in SECRET_KEYS), "")
        meant = nearest(wrong, SECRET_KEYS) if wrong else None
        question = f"; did you mean {in_quotes(meant)}?" if meant is not None else ""
        self.complain((*path, wrong) if wrong else path, text + question)

    def _from_environ(self, name: str, path: KeyPath) -> Secret | None:
        found = self._source.environ.get(name)
        if found:
            return Secret(found)
        state = "is not set" if found is None else "is empty"
        self.complain(
            path,
            f"{key_text(path)} is read from the environment variable {name}, which {state}; "
            f"set {name} before the start",
        )
        return None

    def _from_file(self, name: str, path: KeyPath) -> Secret | None:
        file = self._source.home / name
        advice = f"put the secret into {file}"
        try:
            found = file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            text = f"{key_text(path)} is read from {file}, which cannot be read ({why}); {advice}"
            self.complain(path, text)
            return None
        if not found:
            self.complain(path, f"{key_text(path)} is read from {file}, which is empty; {advice}")
            return None
        return Secret(found)


def _is_mapping(kind: object) -> bool:
    """Tell whether a type is that of a table of named entries."""
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _meant(value: object, options: Sequence[str] | Mapping[str, object]) -> str | None:
    return nearest(value, options) if isinstance(value, str) else None
