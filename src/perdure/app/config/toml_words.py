"""Describes types and values of the configuration in words, for complaints about them."""

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Final, Literal, Union, get_args, get_origin

import msgspec

from perdure.app.config.toml_errors import in_quotes
from perdure.app.config.toml_positions import KeyPath
from perdure.domain.secret import Secret

SECRET_KEYS: Final = ("env", "file")
SECRET_WORDS: Final = 'text, { env = "NAME" } or { file = "PATH" }'  # noqa: S105 - words, no secret

_PLAIN: Final[Mapping[object, str]] = {
    str: "text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}


def expected(kind: object) -> str:
    """Say in words what a value must be."""
    for meta in metas(kind):
        if meta.description:
            return meta.description
    wanted = bare(kind)
    if get_origin(wanted) is Literal:
        return one_of(get_args(wanted))
    if get_origin(wanted) is tuple:
        return f"a list, each of it {expected(get_args(wanted)[0])}"
    if wanted is Secret:
        return SECRET_WORDS
    return _PLAIN.get(wanted, "a table")


def key_text(path: KeyPath) -> str:
    """Name a key as people know it: `[server]` for a section, `[server] port` for a key,
    `[agents.main] tools[1]` for an item of a list."""
    if not path:
        return "the file"
    depth = 2 if path[0] in {"agents", "adapters"} else 1
    depth = 3 if path[:1] == ("budgets",) or path[:2] == ("tools", "mcp") else depth
    section, rest = path[:depth], path[depth:]
    keys = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
    header = f"[{'.'.join(str(part) for part in section)}]"
    return f"{header} {keys.removeprefix('.')}" if keys else header


def shown_value(value: object) -> str:
    """Show a wrong value, shortened, and without what may be secret."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() if "://" in value:
            return "this address"  # an address may contain a password or a key
        case str():
            return in_quotes(value if len(value) <= 60 else f"{value[:60]}...")
        case dict():
            return "a table"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return str(value)


def one_of(options: Sequence[str] | Mapping[str, object]) -> str:
    return f"one of {', '.join(in_quotes(str(option)) for option in options)}"


def bare(kind: object) -> object:
    """Return the type without `| None`."""
    if get_origin(kind) in {Union, UnionType}:
        rest = [each for each in get_args(kind) if each is not NoneType]
        if len(rest) == 1:
            return bare(rest[0])
    return kind


def stripped(kind: object) -> object:
    """Return the type without its annotations."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def metas(kind: object) -> list[msgspec.Meta]:
    """Return the annotations that msgspec checks."""
    wanted = bare(kind)
    extras = get_args(wanted)[1:] if get_origin(wanted) is Annotated else ()
    return [extra for extra in extras if isinstance(extra, msgspec.Meta)]
