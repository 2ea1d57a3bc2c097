"""Checks the schema of a tool's arguments, before a model's server does.

A model's server refuses a whole request for one wrong schema in it. So a tool with a schema that
makes no sense is left out, and the others are kept. Only what would be refused is looked at; the
time is linear in the size of the schema.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

DEPTH_MAX: Final = 40
_TYPES: Final = frozenset(
    {"array", "boolean", "integer", "null", "number", "object", "string"},
)
# The keywords that hold one schema, a list of schemas, and schemas by name.
_ONE: Final = ("additionalProperties", "contains", "else", "if", "items", "not", "then")
_LIST: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


def schema_problem(parameters: str) -> str:
    """Return what is wrong with the schema of a tool's arguments, as JSON text; empty if it can be
    shown to models."""
    try:
        whole = msgspec.json.decode(parameters)
    except (msgspec.DecodeError, RecursionError):
        return "it is no JSON"
    if not isinstance(whole, dict):
        return "it is no object"
    if whole.get("type", "object") != "object":
        return "it does not describe an object"
    waiting: list[tuple[Any, int]] = [(whole, 0)]
    while waiting:
        schema, depth = waiting.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            return "a part of it is no schema"
        if depth > DEPTH_MAX:
            return "it is nested too deeply"
        if problem := _problem(schema, whole):
            return problem
        waiting += [(part, depth + 1) for part in _parts(schema)]
    return ""


def required_by(parameters: str) -> tuple[str, ...]:
    """Return the names of the arguments that a schema requires, if it can be shown to models."""
    return tuple(msgspec.json.decode(parameters).get("required", ()))


def _problem(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Return what is wrong with one schema, without its parts."""
    kinds = schema.get("type", "object")
    names = kinds if isinstance(kinds, list) else [kinds]
    if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
        return "it has a type that does not exist"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        return "what it requires is no list of names"
    if len(set(required)) < len(required):
        return "it requires something twice"
    if not all(isinstance(schema.get(key, {}), dict) for key in _NAMED):
        return "its properties are no object"
    lists = [schema[key] for key in (*_LIST, "enum") if key in schema]
    if not all(isinstance(each, list) and each for each in lists):
        return "a list of choices in it is empty, or is none"
    reference = schema.get("$ref", "#")
    if not isinstance(reference, str) or not _is_found(reference, whole):
        return "it refers to something that is not in it"
    return ""


def _parts(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas inside of one."""
    for key in _ONE:
        part = schema.get(key, True)
        # Older dialects have a list of schemas here.
        yield from part if isinstance(part, list) else [part]
    for key in _LIST:
        yield from schema.get(key, [])
    for key in _NAMED:
        yield from schema.get(key, {}).values()


def _is_found(reference: str, whole: Mapping[str, Any]) -> bool:
    """Tell whether a reference leads to a part of the schema."""
    if not reference.startswith("#"):
        return False
    found: Any = whole
    for step in reference[1:].split("/")[1 : DEPTH_MAX + 1]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            return False
        found = found[name]
    return isinstance(found, dict | bool)
