"""Checks what people are asked for a tool server, and how their answers are read."""

import json
from typing import Any

import msgspec
import pytest

from perdure.domain.errors import Rejected
from perdure.ports.turns.tools import ToolReply
from perdure.tools.mcp.calls.form_fields import fields_of
from perdure.tools.mcp.calls.forms import asked_in, content_of, given_by, question_of
from perdure.tools.mcp.link import InputNeeded

COLOUR = {"type": "string", "enum": ["red", "green"], "default": "green"}
TITLED = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g"}]}
NUMBER = {"type": "integer", "minimum": 1, "maximum": 9}
SEVERAL = {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2}


def form(*required: str, **properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties, "required": list(required)})


def needed(schema: str = "", message: str = "Which one?", url: str = "") -> InputNeeded:
    return InputNeeded(message=message, schema=schema, url=url, state="kept")


def said(answer: str, schema: str) -> dict[str, Any]:
    return content_of(fields_of(schema), answer)


def refused(answer: str, schema: str) -> str:
    with pytest.raises(Rejected) as caught:
        said(answer, schema)
    return caught.value.message


def test_one_choice_is_asked_with_buttons() -> None:
    question = question_of("paint", needed(form("colour", colour=COLOUR)))
    assert question.choices == ("red", "green", "Decline")
    assert "The tool server **paint** asks" in question.text
    assert "> Which one?" in question.text
    assert "Your answer goes to the server." in question.text
    assert asked_in(question.state) == needed(form("colour", colour=COLOUR))


def test_yes_and_no_are_buttons() -> None:
    schema = form("sure", sure={"type": "boolean"})
    assert question_of("paint", needed(schema)).choices == ("Yes", "No", "Decline")
    assert said("No", schema) == {"sure": False}


def test_a_form_without_fields_is_accepted_or_not() -> None:
    assert question_of("paint", needed(form())).choices == ("Accept", "Decline")
    assert said("accept", form()) == {}
    assert "Accept or Decline" in refused("what?", form())


def test_a_label_that_pretends_to_decline_makes_no_buttons() -> None:
    schema = form("colour", colour={"type": "string", "enum": ["red", "decline"]})
    assert question_of("paint", needed(schema)).choices == ()


def test_several_fields_are_asked_in_words() -> None:
    question = question_of("paint", needed(form("colour", colour=COLOUR, number=NUMBER)))
    assert question.choices == ()
    assert "**colour** (one of red, green; green if you leave it out)" in question.text
    assert "**number** (a whole number from 1 to 9; you may leave it out)" in question.text
    assert "or say Decline" in question.text


def test_an_address_is_shown_and_visited_or_not() -> None:
    asked = needed(url="https://example.org/login\n?a=1")
    question = question_of("paint", asked)
    assert question.choices == ("Done", "Decline")
    assert "https://example.org/login?a=1" in question.text
    done = given_by(ToolReply(answer="Done", state=""), asked)
    assert (done.action, done.content, done.state) == ("accept", {}, "kept")
    with pytest.raises(Rejected, match="say Done"):
        given_by(ToolReply(answer="hm", state=""), asked)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "https://a.example/login?client_id=1&x=_b_",
            "`https://a.example/login?client_id=1&x=_b_`",
        ),
        ("[https://bank.example](https://evil.example)", ""),
        (
            "https://evil.example/](https://bank.example)",
            "`https://evil.example/](https://bank.example)`",
        ),
        ("https://evil.example/`*a*", "`https://evil.example/%60*a*`"),
        ("https://bank.example@evil.example/", ""),
        ("https://bank.example\\@evil.example/", ""),
        ("javascript:alert(1)", ""),
        ("https://evil.example/" + "a" * 2_000, ""),
    ],
)
def test_an_address_looks_like_what_it_is_or_nobody_is_asked(url: str, shown: str) -> None:
    if shown:
        assert question_of("paint", needed(url=url)).text.endswith(f"where it leads: {shown}")
    else:
        with pytest.raises(Rejected, match="address opened"):
            question_of("paint", needed(url=url))


def test_no_link_in_the_words_of_a_server_hides_where_it_leads() -> None:
    said = "[bank.example](https://evil.example) [a][b]\n[b]: https://evil.example"
    asked = msgspec.structs.replace(needed(form("n", n=NUMBER)), message=said)
    text = question_of("paint", asked).text
    assert "> [bank.example] (https://evil.example) [a] [b]\n> [b] : https://evil.example" in text


def test_what_is_taken_if_nothing_is_said_is_told_in_words() -> None:
    fields = {"one": {**TITLED, "default": "r"}, "some": {**SEVERAL, "default": ["a", "b"]}}
    text = question_of("paint", needed(form(**fields))).text
    assert "(one of Red, g; Red if you leave it out)" in text
    assert "; a, b if you leave it out)" in text


def test_whoever_is_asked_for_a_secret_is_warned() -> None:
    question = question_of("paint", needed(form("k", k={"type": "string", "title": "API key"})))
    assert "looks like a question for a password" in question.text


@pytest.mark.parametrize("words", ["Decline", "decline", " DECLINE. "])
def test_a_person_can_always_decline(words: str) -> None:
    schema = form("name", name={"type": "string"})
    assert given_by(ToolReply(answer=words, state=""), needed(schema)).action == "decline"


def test_nobody_answering_cancels() -> None:
    reply = ToolReply(answer="", state="", reason="deadline")
    assert given_by(reply, needed(form("colour", colour=COLOUR))).action == "cancel"


@pytest.mark.parametrize(
    ("answer", "schema", "content"),
    [
        ("Ada: Lovelace", form("name", name={"type": "string"}), {"name": "Ada: Lovelace"}),
        ("name: Ada", form("name", name={"type": "string"}), {"name": "Ada"}),
        ("7", form("number", number=NUMBER), {"number": 7}),
        ("1.5", form("n", n={"type": "number"}), {"n": 1.5}),
        ("RED", form("colour", colour=COLOUR), {"colour": "red"}),
        ("Red", form("colour", colour=TITLED), {"colour": "r"}),
        ("g", form("colour", colour=TITLED), {"colour": "g"}),
        ("a, c", form("some", some=SEVERAL), {"some": ["a", "c"]}),
        ("number: 3", form(colour=COLOUR, number=NUMBER), {"colour": "green", "number": 3}),
        (
            "- Colour: red\n* number: 3",
            form("colour", colour=COLOUR, number=NUMBER),
            {"colour": "red", "number": 3},
        ),
        ('{"colour": "red", "number": 3}', form(colour=COLOUR, number=NUMBER),
         {"colour": "red", "number": 3}),
        ("accept", form(colour=COLOUR, number=NUMBER), {"colour": "green"}),
    ],
)  # fmt: skip
def test_words_become_the_content_of_a_form(
    answer: str, schema: str, content: dict[str, Any]
) -> None:
    assert said(answer, schema) == content


@pytest.mark.parametrize(
    ("answer", "schema", "problem"),
    [
        ("12", form("number", number=NUMBER), "number must be a whole number from 1 to 9"),
        ("1.5", form("number", number=NUMBER), "number must be a whole number"),
        ("many", form("number", number=NUMBER), "number must be a whole number"),
        ("nan", form("n", n={"type": "number"}), "n must be a number"),
        ("1e999", form("n", n={"type": "number"}), "n must be a number"),
        ("blue", form("colour", colour=COLOUR), "colour must be one of red, green"),
        ("a, b, c", form("some", some=SEVERAL), "some must be some of a, b, c"),
        ("maybe", form("sure", sure={"type": "boolean"}), "sure must be yes or no"),
        ("ab", form("t", t={"type": "string", "minLength": 3}), "t must have 3 to"),
        ("x" * 20_000, form("t", t={"type": "string"}), "t must have 0 to 10000 characters"),
        ("hello", form(colour=COLOUR, number=NUMBER), "one line for each field"),
        ("colour: red", form("number", colour=COLOUR, number=NUMBER), "number is missing"),
        ('{"size": 3}', form(colour=COLOUR), "there is no field size"),
        ('{"number": true}', form(number=NUMBER), "number must be a whole number"),
        ("{half", form(number=NUMBER), "begins like JSON"),
    ],
)
def test_words_that_do_not_fit_are_told(answer: str, schema: str, problem: str) -> None:
    assert problem in refused(answer, schema)


def test_a_wrong_answer_is_asked_again_with_what_was_wrong() -> None:
    question = question_of("paint", needed(form("n", n=NUMBER)), problem="n must be a number")
    assert question.text.startswith("That does not fit: n must be a number.")


@pytest.mark.parametrize(
    "schema",
    [
        "[]",
        "{broken",
        "[" * 10_000,
        '{"properties": []}',
        '{"properties": {"a": 1}}',
        '{"properties": {"a": {"type": "object"}}}',
        '{"properties": {"a": {"type": "array"}}}',
        '{"required": "a"}',
        json.dumps({"properties": {f"f{n}": NUMBER for n in range(30)}}),
        json.dumps({"properties": {"a": {"enum": [str(n) for n in range(1000)]}}}),
        json.dumps({"properties": {"x" * 100: NUMBER}}),
    ],
)
def test_a_form_that_nobody_can_fill_in_is_refused(schema: str) -> None:
    with pytest.raises(Rejected, match="form"):
        fields_of(schema)


@pytest.mark.parametrize("bound", [True, "3", None, [], 10**400])
def test_a_bound_that_makes_no_sense_bounds_nothing(bound: Any) -> None:
    schema = form("n", n={"type": "integer", "minimum": bound})
    assert said("5", schema) == {"n": 5}


def test_a_long_message_is_cut() -> None:
    question = question_of("paint", needed(form(), message="x\n" * 10_000))
    assert len(question.text) < 4_000
