"""Reads and writes the bodies of OpenAI's chat completions.

Unknown fields of a request are ignored, because clients send many; the fields that we need must be
valid. Pure.
"""

import base64
import binascii
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import CallId
from perdure.domain.journal.events import ToolCall
from perdure.domain.journal.model.options import Options
from perdure.domain.journal.model.usage import Usage
from perdure.domain.text import storable
from perdure.domain.tools.callers import CallerResult, check_repeats
from perdure.web.api.native import ATTACHMENTS_MAX
from perdure.web.openai.checks import check_messages, check_tools


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _ResponseFormat(msgspec.Struct, omit_defaults=True):
    """Holds the format that the answer is to have."""

    type: str
    json_schema: dict[str, Any] | None = None


class _ChosenFunction(msgspec.Struct):
    name: str


class _ToolChoice(msgspec.Struct):
    """Names the function that the model must call."""

    type: str
    function: _ChosenFunction


class CompletionIn(msgspec.Struct):
    messages: list[dict[str, Any]]
    model: str = ""
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Any] | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    response_format: _ResponseFormat | None = None
    tool_choice: str | _ToolChoice | None = None
    parallel_tool_calls: bool | None = None


class Picture(msgspec.Struct, frozen=True):
    mime: str
    data: bytes


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a request in our own terms: `text`, `pictures` and `urls` are the new message,
    `instructions` apply to this call only, and `context` is what was said before. `results` are
    those of the caller's own tools, and are part of the new message."""

    text: str
    pictures: tuple[Picture, ...]
    urls: tuple[str, ...]
    instructions: str
    context: str
    results: tuple[CallerResult, ...] = ()


def completion_options(body: CompletionIn) -> Options:
    """Return the options for the model. Raises `Rejected` if more than one answer is wanted."""
    if body.n not in (None, 1):
        raise Rejected(
            "a call has one answer here; leave `n` out, and call once for each answer",
            code="unsupported",
        )
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return Options(
        temperature=body.temperature,
        top_p=body.top_p,
        max_tokens=room(limit),
        stop=tuple(storable(each) for each in _listed(body.stop)),
        seed=body.seed,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        reasoning_effort=storable(body.reasoning_effort or ""),
        response_format=json_text(body.response_format),
        tool_choice=json_text(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
    )


def room(tokens: int | None) -> int | None:
    """Return the limit of an answer's length. Raises `Rejected` if it allows no token."""
    if tokens is not None and tokens < 1:
        raise Rejected("an answer needs room: at least one token", code="invalid_body")
    return tokens


def _listed(stop: str | list[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else stop or []


def json_text(value: object) -> str:
    """Return a value as the JSON text that is stored; empty for None."""
    return "" if value is None else storable(msgspec.json.encode(value).decode())


def completion_tools(tools: list[Any] | None) -> str:
    """Return the caller's functions as JSON."""
    if not tools:
        return ""
    check_tools(tools)
    return json_text(tools)


def read_completion(messages: list[dict[str, Any]], *, has_conversation: bool) -> CompletionRequest:
    """Split a request into its parts. In a conversation the gateway has the history, so only the
    last message is new, and the results of tool calls directly before it or in its place."""
    if not has_conversation:
        check_messages(messages)
    system = [m for m in messages if m.get("role") in ("system", "developer")]
    rest = [m for m in messages if m.get("role") not in ("system", "developer")]
    if not rest:
        raise Rejected("a call needs a message from the user; add one", code="invalid_messages")
    last = rest[-1]
    if last.get("role") == "user":
        text, pictures, urls = _content(last.get("content"))
        before = rest[:-1]
    elif last.get("role") == "tool":
        text, pictures, urls, before = "", (), (), rest
    else:
        raise Rejected(
            "the last message must be the user's, or a tool's result", code="invalid_messages"
        )
    results = _results(before) if has_conversation else ()
    has_words = bool(text.strip() or pictures or urls)
    is_empty = not results if has_conversation else not before
    if is_empty and not has_words:
        raise Rejected("the user's message is empty", code="empty_message")
    context = b"" if has_conversation or not before else msgspec.json.encode(before)
    return CompletionRequest(
        text=text,
        pictures=pictures,
        urls=urls,
        instructions="\n\n".join(_content(m.get("content"))[0] for m in system),
        context=storable(context.decode()),
        results=results,
    )


def _results(messages: Sequence[dict[str, Any]]) -> tuple[CallerResult, ...]:
    """Return the results of tool calls with which the messages end, in their order."""
    trailing = takewhile(lambda message: message.get("role") == "tool", reversed(messages))
    results = tuple(_result(message) for message in reversed(list(trailing)))
    check_repeats(results)
    return results


def _result(message: dict[str, Any]) -> CallerResult:
    """Read a tool's message."""
    call, content = message.get("tool_call_id"), message.get("content")
    if not isinstance(call, str) or not call:
        raise Rejected(
            "a tool's message needs `tool_call_id`, the call that it answers",
            code="invalid_messages",
        )
    text, pictures, urls = ("", (), ()) if content is None else _content(content)
    if pictures or urls:
        raise Rejected("a tool's message takes only text", code="unsupported")
    return CallerResult(call=CallId(storable(call)), text=text)


def _content(content: object) -> tuple[str, tuple[Picture, ...], tuple[str, ...]]:
    """Return the text, inline pictures and links of a message's content, a string or a list of
    parts."""
    if isinstance(content, str):
        return storable(content), (), ()
    if not isinstance(content, list):
        raise Rejected("a message's `content` is a string or a list of parts", code="invalid_body")
    _check_files(content)
    texts: list[str] = []
    pictures: list[Picture] = []
    urls: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(storable(part["text"]))
        elif kind == "image_url":
            picture = _picture(part.get("image_url"))
            if isinstance(picture, Picture):
                pictures.append(picture)
            else:
                urls.append(picture)
        else:
            raise Rejected(f"content parts of type {kind!r} are not taken", code="unsupported")
    return "\n\n".join(texts), tuple(pictures), tuple(urls)


def _check_files(content: list[Any]) -> None:
    """Raise `Rejected` if a message brings too many pictures and links. They are counted before any
    of them is decoded, because each of them costs time here and when the message is stored."""
    files = sum(isinstance(part, dict) and part.get("type") == "image_url" for part in content)
    if files > ATTACHMENTS_MAX:
        raise Rejected(
            f"a message takes at most {ATTACHMENTS_MAX} pictures and links, and this one has "
            f"{files:,}; send them in several messages",
            code="too_many",
        )


def _picture(image: object) -> Picture | str:
    """Return an inline picture, or the link to one."""
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str):
        raise Rejected("`image_url` needs a url", code="invalid_body")
    if url.startswith(("http://", "https://")):
        return storable(url)
    head, _, data = url.partition(",")
    mime = head.removeprefix("data:").partition(";")[0]
    if not head.startswith("data:") or not head.endswith(";base64"):
        raise Rejected("an image is an http(s) or a base64 data url", code="invalid_body")
    try:
        return Picture(mime, base64.b64decode(data, validate=True))
    except binascii.Error as error:
        raise Rejected(f"an image's base64 is broken: {error}", code="invalid_body") from error


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the fields that are the same in all chunks of an answer."""

    id: str
    created: int
    model: str

    def whole(
        self, text: str, finish: str, calls: tuple[ToolCall, ...], usage: Usage
    ) -> dict[str, object]:
        message: dict[str, object] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [call_out(call) for call in calls]
        elif not text:
            message["content"] = ""
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage_out(usage)}

    def chunk(self, delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def calls_chunk(self, calls: tuple[ToolCall, ...]) -> dict[str, object]:
        return self.chunk(
            {"tool_calls": [{"index": n, **call_out(call)} for n, call in enumerate(calls)]}
        )

    def usage_chunk(self, usage: Usage) -> dict[str, object]:
        head = self._head("chat.completion.chunk")
        return {**head, "choices": [], "usage": usage_out(usage)}

    def _head(self, kind: str) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def call_out(call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def usage_out(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }
