"""Describes what a scripted model is asked and what it answers, as values.

A script is a plain function from a `ScriptedRequest` to a `Reply`. Replies are frozen values that
know nothing of wires: the same `say("hello")` is rendered for either dialect, streamed or not.
Faults wrap other replies. So `slow(50, cut_after(120, say("hello")))` is a model that thinks,
starts to answer and is cut off at byte 120 of its body.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec

# The line before a message that tells when it came.
TIME_LINE = re.compile(r"^\[\w+day, \d{4}-\d\d-\d\d \d\d:\d\d, UTC[-+:\d]*\]\n+", re.MULTILINE)


class ScriptedDialect(StrEnum):
    """Names the wire that a request came by."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class ScriptedRequest(msgspec.Struct, frozen=True):
    """Holds one model call as a script sees it. `number` counts the server's model calls from 1."""

    number: int
    dialect: ScriptedDialect
    model: str
    messages: list[dict[str, Any]]
    stream: bool
    body: dict[str, Any]
    body_bytes: int

    @property
    def include_usage(self) -> bool:
        """Tell whether the caller wants the usage at the end of the stream."""
        options = self.body.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def last_user_text(self) -> str:
        """Return the text of the newest user message that has any, its blocks joined by line
        breaks, without the line that tells its time."""
        texts = (text_of(m) for m in reversed(self.messages) if m["role"] == "user")
        return TIME_LINE.sub("", next((text for text in texts if text), ""))


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message in either dialect. Blocks that are not text are left out."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(b["text"]) for b in content if b.get("type") == "text")
    return str(content or "")


class ScriptedUsage(msgspec.Struct, frozen=True):
    """Holds how many tokens a call has used."""

    prompt: int
    completion: int


class ScriptedToolCall(msgspec.Struct, frozen=True):
    """Holds a tool call in a scripted answer."""

    id: str
    name: str
    arguments: str = "{}"


class ScriptedThought(msgspec.Struct, frozen=True):
    """Holds a piece of reasoning with the signature over it. If it `is_redacted`, its text is not
    for reading."""

    text: str
    signature: str = ""
    is_redacted: bool = False


class ScriptedAnswer(msgspec.Struct, frozen=True):
    """Holds a model's message: thoughts, then text in chunks, then tool calls.

    `finish` is a word of the OpenAI wire and is translated for the other one; None means that the
    provider never says that it has finished. Without `usage`, the usage is estimated from the
    sizes. On the OpenAI wire, thoughts come in the field `thought_field`.
    """

    chunks: tuple[str, ...] = ()
    calls: tuple[ScriptedToolCall, ...] = ()
    fragments: int = 1
    interleaved: bool = False
    delay_ms: float = 0
    finish: str | None = "stop"
    usage: ScriptedUsage | None = None
    thoughts: tuple[ScriptedThought, ...] = ()
    thought_field: str = "reasoning_content"

    @property
    def text(self) -> str:
        """Return the whole text."""
        return "".join(self.chunks)


class Status(msgspec.Struct, frozen=True):
    """Holds a refusal with an HTTP status."""

    code: int
    message: str
    body: bytes | None = None
    retry_after: str | None = None


class ScriptedGarbage(msgspec.Struct, frozen=True):
    """Holds bytes that are no answer of a model."""

    body: bytes


class Redirect(msgspec.Struct, frozen=True):
    """Holds a redirect to another address."""

    location: str
    code: int


class CutAfter(msgspec.Struct, frozen=True):
    """Holds a reply whose connection is dropped after some bytes."""

    body_bytes: int
    inner: "Reply"


class Hang(msgspec.Struct, frozen=True):
    """Holds a reply that stops at a point until the server is released."""

    at: Literal["before_headers", "after_headers"] | int
    inner: "Reply"


class ErrorInStream(msgspec.Struct, frozen=True):
    """Holds an answer that ends with an error after some chunks."""

    after_chunks: int
    inner: ScriptedAnswer
    kind: str | None
    message: str


class Slow(msgspec.Struct, frozen=True):
    """Holds a reply that begins after a wait."""

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
    """Refuse with a status: with the given body, or with the message in the provider's error
    form."""
    wait = None if retry_after is None else str(retry_after)
    return Status(code=code, message=message, body=body, retry_after=wait)


def garbage(body: bytes = b"<html>\x00\xff not a model") -> ScriptedGarbage:
    """Answer 200 with these bytes, in the content type that the client expects."""
    return ScriptedGarbage(body=body)


def redirect(location: str, *, code: int = 307) -> Redirect:
    """Answer with a redirect to another address."""
    return Redirect(location=location, code=code)


def cut_after(body_bytes: int, inner: Reply) -> CutAfter:
    """Drop the connection after exactly this many bytes of the inner reply's body.

    If the body is not longer than that, all of it arrives, but a stream still lacks the end of its
    transfer.
    """
    if body_bytes < 0:
        raise ValueError(f"cannot cut after {body_bytes} bytes: give 0 or more")
    return CutAfter(body_bytes=body_bytes, inner=inner)


def cut_without_finish(inner: ScriptedAnswer) -> ScriptedAnswer:
    """End the stream without an error and without a finish marker. In an answer that is not
    streamed, the finish reason is null."""
    return msgspec.structs.replace(inner, finish=None)


def hang(
    at: Literal["before_headers", "after_headers"] | int = "before_headers",
    inner: Reply | None = None,
) -> Hang:
    """Stop at a point, or after that many chunks of content, until the server is released.

    A released reply continues with `inner`. Closing the server drops the connection.
    """
    return Hang(at=at, inner=say("released at last") if inner is None else inner)


def error_in_stream(
    after_chunks: int,
    inner: ScriptedAnswer | None = None,
    *,
    kind: str | None = None,
    message: str = "Overloaded",
) -> ErrorInStream:
    """Fail after that many chunks of content, when the status 200 has been sent already.

    An answer that is not streamed has no such moment, so it is the same error with an error status.
    """
    answer = say("this answer will not be finished") if inner is None else inner
    return ErrorInStream(after_chunks=after_chunks, inner=answer, kind=kind, message=message)


def slow(think_ms: float, inner: Reply) -> Slow:
    """Wait before the headers of the inner reply, as a model does that thinks."""
    return Slow(think_ms=think_ms, inner=inner)


def in_turn(*replies: Reply) -> Script:
    """Return a script that gives the replies in order, by request number, and then repeats the
    last."""
    if not replies:
        raise ValueError("in_turn needs at least one reply")
    return lambda request: replies[min(request.number, len(replies)) - 1]


def echo(request: ScriptedRequest) -> ScriptedAnswer:
    """Repeat the user's words. A server without a script uses this one."""
    return say(f"echo: {request.last_user_text}")
