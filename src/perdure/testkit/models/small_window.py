"""Plays a model whose window is small: it refuses longer requests in the words of a provider.

A request is measured like the servers do it, roughly: by the characters of what is sent. So tests
see what a person sees whose local model has 2,000 tokens, while the gateway assumes 128,000.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from perdure.testkit.models.model_script import (
    Reply,
    ScriptedDialect,
    ScriptedRequest,
    error_in_stream,
    say,
    status,
)

# Characters of English text that are about one token.
_CHARACTERS_PER_TOKEN: Final = 4


class WindowWording(msgspec.Struct, frozen=True, kw_only=True):
    """Describes how a provider refuses a request that is too long. `in_stream`: it answers 200, and
    the stream begins with the error."""

    message: str
    code: int = 400
    kind: str = "invalid_request_error"
    in_stream: bool = False


# By provider. `{window}` and `{asked}` are filled in where the provider names them.
WORDINGS_OF_WINDOWS: Final[Mapping[str, WindowWording]] = {
    "openai": WindowWording(
        message="This model's maximum context length is {window} tokens. However, your messages "
        "resulted in {asked} tokens. Please reduce the length of the messages.",
        kind="context_length_exceeded",
    ),
    "anthropic": WindowWording(message="prompt is too long: {asked} tokens > {window} maximum"),
    "vllm": WindowWording(
        message="The decoder prompt (length {asked}) is longer than the maximum model length of "
        "{window}. Make sure that `max_model_len` is no smaller than the number of text tokens.",
        kind="BadRequestError",
    ),
    "llama.cpp": WindowWording(
        message="request ({asked} tokens) exceeds the available context size ({window} tokens), "
        "try increasing it",
        kind="exceed_context_size_error",
    ),
    "ollama": WindowWording(message="the input length exceeds the context length", code=500),
    "lm studio": WindowWording(
        message="Trying to keep the first {asked} tokens when context the overflows. However, the "
        "model is loaded with context length of only {window} tokens, which is not enough. Try to "
        "load the model with a larger context length, or provide a shorter input",
        in_stream=True,
    ),
    "openrouter": WindowWording(
        message="This endpoint's maximum context length is {window} tokens. However, you requested "
        "about {asked} tokens. Please reduce the length of either one.",
    ),
    "gemini": WindowWording(
        message="The input token count ({asked}) exceeds the maximum number of tokens allowed "
        "({window}).",
        kind="INVALID_ARGUMENT",
    ),
    "a proxy": WindowWording(message="Context size has been exceeded.", code=503, kind="server"),
}


def tokens_asked(request: ScriptedRequest) -> int:
    """Return about how many tokens a request has: the words in its messages, instructions and
    tools."""
    body = request.body
    texts = [*_texts(body.get("messages")), *_texts(body.get("system")), *_texts(body.get("tools"))]
    return sum(map(len, texts)) // _CHARACTERS_PER_TOKEN


def small_window(
    tokens: int,
    within: Callable[[ScriptedRequest], Reply] = lambda _: say("Yes."),
    *,
    wording: str = "openai",
) -> Callable[[ScriptedRequest], Reply]:
    """Return a script that refuses requests of more than `tokens` in the words of a provider, and
    gives others to `within`."""
    says = WORDINGS_OF_WINDOWS[wording]

    def script(request: ScriptedRequest) -> Reply:
        asked = tokens_asked(request)
        return within(request) if asked <= tokens else _refusal(says, request, tokens, asked)

    return script


def _refusal(says: WindowWording, request: ScriptedRequest, window: int, asked: int) -> Reply:
    message = says.message.format(window=window, asked=asked)
    if says.in_stream and request.stream:
        return error_in_stream(0, kind=says.kind, message=message)
    error: dict[str, Any] = {"message": message, "type": says.kind}
    is_openai = request.dialect is ScriptedDialect.OPENAI
    told = error | {"code": says.kind} if is_openai else error
    body = {"error": told} if is_openai else {"type": "error", "error": told}
    return status(says.code, body=msgspec.json.encode(body))


def _texts(value: object) -> Iterator[str]:
    """Yield all texts in a part of a request, but not the encoded bytes of pictures."""
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key != "data":
                yield from _texts(each)
