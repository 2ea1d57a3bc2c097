"""What a scripted model is asked and what it answers, as values.

A script is a plain function from a `ScriptedRequest` to a `Reply`. Replies are frozen values that
know nothing of wires: the same `say("hello")` is rendered for either dialect, streaming or not.
Faults wrap other replies, so `slow(50, cut_after(120, say("hello")))` is a model that thinks,
starts to answer and is cut off at byte 120 of its body.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec


class ScriptedDialect(StrEnum):
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class ScriptedRequest(msgspec.Struct, frozen=True):
    """One model call as a script sees it; `number` counts the server's model calls from 1."""

    number: int
    dialect: ScriptedDialect
    model: str
    messages: list[dict[str, Any]]
    stream: bool
    body: dict[str, Any]
    body_bytes: int

    @property
    def include_usage(self) -> bool:
        options = self.body.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def last_user_text(self) -> str:
        """The text of the newest user message that has any, its blocks joined by line ends."""
        texts = (text_of(m) for m in reversed(self.messages) if m["role"] == "user")
        return next((text for text in texts if text), "")


def text_of(message: dict[str, Any]) -> str:
    """The text of a message in either dialect; blocks that are not text count for nothing."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(b["text"]) for b in content if b.get("type") == "text")
    return str(content or "")


class ScriptedUsage(msgspec.Struct, frozen=True):
    prompt: int
    completion: int


class ScriptedToolCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    arguments: str = "{}"


class ScriptedAnswer(msgspec.Struct, frozen=True):
    """A model's message: text in chunks, then tool calls.

    `finish` is in the words of the OpenAI wire and is translated for the other one; None means
    that the provider never says it has finished. Without `usage` it is estimated from the sizes.
    """

    chunks: tuple[str, ...] = ()
    calls: tuple[ScriptedToolCall, ...] = ()
    fragments: int = 1
    interleaved: bool = False
    delay_ms: float = 0
    finish: str | None = "stop"
    usage: ScriptedUsage | None = None

    @property
    def text(self) -> str:
        return "".join(self.chunks)


class Status(msgspec.Struct, frozen=True):
    code: int
    message: str
    body: bytes | None = None
    retry_after: str | None = None


class ScriptedGarbage(msgspec.Struct, frozen=True):
    body: bytes


class Redirect(msgspec.Struct, frozen=True):
    location: str
    code: int


class CutAfter(msgspec.Struct, frozen=True):
    body_bytes: int
    inner: "Reply"


class Hang(msgspec.Struct, frozen=True):
    at: Literal["before_headers", "after_headers"] | int
    inner: "Reply"


class ErrorInStream(msgspec.Struct, frozen=True):
    after_chunks: int
    inner: ScriptedAnswer
    kind: str | None
    message: str


class Slow(msgspec.Struct, frozen=True):
    think_ms: float
    inner: "Reply"


Reply = (
    ScriptedAnswer | Status | ScriptedGarbage | Redirect | CutAfter | Hang | ErrorInStream | Slow
)
Script = Callable[[ScriptedRequest], Reply]


def by_words(text: str) -> tuple[str, ...]:
    """Cut a text before each word; the pieces join to the same text."""
    return tuple(re.findall(r"\S+\s*|\s+", text))


def in_fragments(text: str, *, count: int) -> tuple[str, ...]:
    """Cut a text into at most `count` pieces of about the same length, none of them empty."""
    size = max(1, -(-len(text) // count))
    return tuple(text[start : start + size] for start in range(0, len(text), size))


def say(
    text: str = "",
    *,
    chunks: Sequence[str] | None = None,
    delay_ms: float = 0,
    finish: str = "stop",
    usage: ScriptedUsage | None = None,
) -> ScriptedAnswer:
    """Answer with a text, word by word or in the given chunks, `delay_ms` before each."""
    pieces = by_words(text) if chunks is None else tuple(chunks)
    if text and "".join(pieces) != text:
        raise ValueError(f"chunks join to {''.join(pieces)!r}, not to the text {text!r}: fix one")
    return ScriptedAnswer(chunks=pieces, delay_ms=delay_ms, finish=finish, usage=usage)


def call_tools(
    calls: Sequence[tuple[str, str, str]],
    *,
    text: str = "",
    fragments: int = 1,
    interleaved: bool = False,
    delay_ms: float = 0,
    usage: ScriptedUsage | None = None,
) -> ScriptedAnswer:
    """Ask for tools, each (id, name, arguments as JSON text), after an optional text.

    When streaming, the arguments of each call arrive in at most `fragments` pieces. On the OpenAI
    wire, where a fragment names its call by index, `interleaved` mixes those of parallel calls.
    """
    if not calls or fragments < 1:
        raise ValueError("call_tools needs at least one call and one fragment per call")
    return ScriptedAnswer(
        chunks=by_words(text),
        calls=tuple(ScriptedToolCall(*call) for call in calls),
        fragments=fragments,
        interleaved=interleaved,
        delay_ms=delay_ms,
        finish="tool_calls",
        usage=usage,
    )


def status(
    code: int,
    *,
    body: bytes | None = None,
    message: str = "scripted failure",
    retry_after: float | str | None = None,
) -> Status:
    """Refuse with a status: the given body, or the message in the provider's error shape."""
    wait = None if retry_after is None else str(retry_after)
    return Status(code=code, message=message, body=body, retry_after=wait)


def garbage(body: bytes = b"<html>\x00\xff not a model") -> ScriptedGarbage:
    """Answer 200 with these bytes, in the content type that the client hopes for."""
    return ScriptedGarbage(body=body)


def redirect(location: str, *, code: int = 307) -> Redirect:
    return Redirect(location=location, code=code)


def cut_after(body_bytes: int, inner: Reply) -> CutAfter:
    """Drop the connection after exactly this many bytes of the inner reply's body.

    At or past the body's length all of it arrives; a stream still lacks the end of its transfer.
    """
    if body_bytes < 0:
        raise ValueError(f"cannot cut after {body_bytes} bytes: give 0 or more")
    return CutAfter(body_bytes=body_bytes, inner=inner)


def cut_without_finish(inner: ScriptedAnswer) -> ScriptedAnswer:
    """End the stream cleanly with no finish marker; unstreamed, the finish reason is null."""
    return msgspec.structs.replace(inner, finish=None)


def hang(
    at: Literal["before_headers", "after_headers"] | int = "before_headers",
    inner: Reply | None = None,
) -> Hang:
    """Stop at a point, or after that many chunks of content, until the server is released.

    A released reply goes on with `inner`. Closing the server drops the connection.
    """
    return Hang(at=at, inner=say("released at last") if inner is None else inner)


def error_in_stream(
    after_chunks: int,
    inner: ScriptedAnswer | None = None,
    *,
    kind: str | None = None,
    message: str = "Overloaded",
) -> ErrorInStream:
    """Fail after that many chunks of content, once the status 200 has gone out.

    Unstreamed there is no such moment: the reply is the same error as a status.
    """
    answer = say("this answer will not be finished") if inner is None else inner
    return ErrorInStream(after_chunks=after_chunks, inner=answer, kind=kind, message=message)


def slow(think_ms: float, inner: Reply) -> Slow:
    """Wait before the headers of the inner reply, as a model that thinks does."""
    return Slow(think_ms=think_ms, inner=inner)


def in_turn(*replies: Reply) -> Script:
    """A script that gives the replies in order, by request number, and repeats the last."""
    if not replies:
        raise ValueError("in_turn needs at least one reply")
    return lambda request: replies[min(request.number, len(replies)) - 1]


def echo(request: ScriptedRequest) -> ScriptedAnswer:
    """The script of a server that was given none."""
    return say(f"echo: {request.last_user_text}")
