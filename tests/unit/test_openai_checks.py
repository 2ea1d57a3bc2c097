"""Checks what a call without a conversation may contain: messages and tools that any model
takes."""

from typing import Any

import pytest

from perdure.domain.errors import Rejected
from perdure.web.openai.checks import check_messages, check_tools
from perdure.web.openai.completions_wire import CompletionRequest, read_completion

USER = {"role": "user", "content": "look"}


def calling(*ids: str) -> dict[str, Any]:
    calls = [
        {"id": each, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for each in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answering(call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "blue"}


GOOD: list[list[dict[str, Any]]] = [
    [],
    [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "x"}, USER],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "novel"}], "name": "n"}],
    [USER, {"role": "assistant", "content": "", "refusal": None, "tool_calls": None}, USER],
    [USER, calling("a", "b"), answering("b"), answering("a")],
    [USER, calling("a"), {"role": "system", "content": "Hm."}, answering("a"), USER],
    [USER, calling("a"), answering("a"), calling("a"), answering("a"), USER],
]


@pytest.mark.parametrize("messages", GOOD)
def test_what_models_take_passes(messages: list[dict[str, Any]]) -> None:
    check_messages(messages)


BAD: list[tuple[list[dict[str, Any]], str, str]] = [
    ([{"role": "wizard", "content": "x"}, USER], "invalid_messages", r"messages\[0\].*wizard"),
    ([{"content": "x"}, USER], "invalid_messages", r"messages\[0\].*role"),
    ([USER, {"role": ["user"], "content": "x"}], "invalid_messages", r"messages\[1\]"),
    ([{"role": "user", "content": 5}, USER], "invalid_body", r"messages\[0\].*content"),
    ([{"role": "user", "content": ["x"]}, USER], "invalid_body", "parts"),
    ([USER, calling("a"), {"role": "tool", "content": "x"}], "invalid_messages", "tool_call_id"),
    ([USER, answering("a")], "invalid_messages", r"messages\[1\]`: no call 'a'"),
    ([USER, calling("a"), answering("b")], "invalid_messages", "no call 'b'"),
    ([calling("a"), answering("a"), answering("a")], "invalid_messages", "no call 'a'"),
    ([calling("a"), answering("a"), USER, answering("a")], "invalid_messages", "no call 'a'"),
    ([USER, calling("a"), USER], "invalid_messages", "'a' is never answered"),
    ([USER, calling("a", "b"), answering("a")], "invalid_messages", "'b' is never answered"),
    ([{"role": "assistant", "tool_calls": "a"}, USER], "invalid_body", "tool_calls"),
    ([{"role": "assistant", "tool_calls": [{"id": "a"}]}, USER], "invalid_body", "function.name"),
    ([calling(""), USER], "invalid_body", "`id`"),
]


@pytest.mark.parametrize(("messages", "code", "words"), BAD, ids=[words for *_, words in BAD])
def test_what_no_model_takes_is_named(
    messages: list[dict[str, Any]], code: str, words: str
) -> None:
    with pytest.raises(Rejected, match=words) as caught:
        check_messages(messages)
    assert caught.value.code == code


def test_tools_are_functions_with_names() -> None:
    good = {"type": "function", "function": {"name": "look", "novel": 1}, "novel": 2}
    check_tools([good])
    for bad in (
        {"type": "web_search"},
        {"type": "function"},
        {"type": "function", "function": "look"},
        {"type": "function", "function": {"name": ""}},
        {"type": "function", "name": "look"},
        "look",
    ):
        with pytest.raises(Rejected, match=r"tools\[1\].*is not a function") as caught:
            check_tools([good, bad])
        assert caught.value.code == "invalid_body"


@pytest.mark.parametrize("has_conversation", [True, False])
@pytest.mark.parametrize("url", ["http://127.0.0.1/a.png", "data:image/png;base64,broken"])
def test_a_message_takes_twenty_pictures_and_links_and_no_more(
    url: str, *, has_conversation: bool
) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}

    def asked(count: int) -> CompletionRequest:
        content = [{"type": "text", "text": "look"}, *[part] * count]
        said = [{"role": "user", "content": content}]
        return read_completion(said, has_conversation=has_conversation)

    # They are counted before any of them is decoded: the broken ones are not noticed.
    with pytest.raises(Rejected, match="at most 20 pictures and links, and this one has 20,000"):
        asked(20_000)
    if url.startswith("http"):
        assert len(asked(20).urls) == 20
