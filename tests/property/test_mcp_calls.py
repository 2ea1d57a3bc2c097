"""Checks the names of servers' tools, and the forms that servers send, with whatever they may
hold."""

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import Rejected
from perdure.domain.tools.globs import is_match
from perdure.tools.mcp.calls.form_fields import fields_of
from perdure.tools.mcp.calls.forms import content_of, question_of
from perdure.tools.mcp.calls.names import rule_name, wire_name, wire_names
from perdure.tools.mcp.link import InputNeeded

SERVERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}", fullmatch=True)
OWNS = st.text(max_size=140) | st.from_regex(r"[a-z_.]{1,8}", fullmatch=True)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    PLAIN, lambda e: st.lists(e, max_size=4) | st.dictionaries(st.text(max_size=8), e, max_size=4)
)
FIELDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "number", "integer", "boolean", "array"])},
    optional={
        "enum": st.lists(st.text(max_size=6), max_size=5),
        "items": st.fixed_dictionaries({"enum": st.lists(st.text(max_size=6), max_size=5)}),
        "default": JSON,
        "minimum": PLAIN,
        "maximum": PLAIN,
        "minLength": PLAIN,
        "title": JSON,
        "description": JSON,
        "format": JSON,
    },
)


@given(server=SERVERS, owns=st.sets(OWNS, max_size=12))
def test_every_tool_has_one_name_that_models_take(server: str, owns: set[str]) -> None:
    names = wire_names(server, owns)
    assert set(names.values()) == owns
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert names == wire_names(server, sorted(owns, reverse=True))
    assert all(wire_name(server, own) == name for name, own in names.items())
    assert all(is_match(f"mcp.{server}.*", rule_name(server, own)) for own in owns)


@given(one=st.tuples(SERVERS, OWNS), other=st.tuples(SERVERS, OWNS))
def test_two_tools_never_have_the_same_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (wire_name(*one) == wire_name(*other)) is (one == other)


@given(schema=JSON | st.fixed_dictionaries({"properties": st.dictionaries(st.text(), FIELDS)}))
def test_a_strange_form_is_asked_or_refused(schema: Any) -> None:
    asked = InputNeeded(message="?", schema=_text(schema))
    try:
        assert question_of("server", asked).text
    except Rejected:
        return


@given(
    schema=st.fixed_dictionaries(
        {"properties": st.dictionaries(st.text(min_size=1, max_size=5), FIELDS, max_size=4)},
        optional={"required": st.lists(st.text(max_size=5), max_size=3)},
    ),
    said=st.text(max_size=60) | JSON.map(lambda value: json.dumps(value, default=str)),
)
def test_whatever_people_say_fits_or_is_refused(schema: dict[str, Any], said: str) -> None:
    try:
        content = content_of(fields_of(_text(schema)), said)
    except Rejected:
        return
    assert set(content) <= set(schema["properties"])


def _text(schema: Any) -> str:
    """Write a schema as JSON. Numbers that JSON does not know become words."""
    return json.dumps(_known(schema))


def _known(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < 1e300 else str(value)
    if isinstance(value, dict):
        return {key: _known(each) for key, each in value.items()}
    return [_known(each) for each in value] if isinstance(value, list) else value
