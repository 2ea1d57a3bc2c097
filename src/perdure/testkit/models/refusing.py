"""Plays models whose servers refuse what they do not take: lists of parts, pictures, forbidden
words. Each refuses in the words of a provider, and otherwise answers as its script says."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from perdure.testkit.models.model_script import Reply, Script, ScriptedRequest, status

# A picture of one point.
PICTURE: Final = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b"
    "550000000a49444154789c636000000002000148afa4710000000049454e44ae"
    "426082"
)
# A word that the servers of these tests do not take.
FORBIDDEN: Final = "forbidden"


def strings_only(script: Script) -> Script:
    """Return a script that takes messages only as strings, like many small servers."""

    def answer(request: ScriptedRequest) -> Reply:
        for index, message in enumerate(request.messages):
            if any(_pictures([message])):
                return refusal(f"messages[{index}].content must be a string")
        return script(request)

    return answer


def without_pictures(script: Script) -> Script:
    """Return a script of a model that sees no pictures."""

    def answer(request: ScriptedRequest) -> Reply:
        if any(_pictures(request.messages)):
            return refusal("This model does not support image input")
        return script(request)

    return answer


def by_policy(script: Script, *, code: int = 400) -> Script:
    """Return a script of a server that refuses every request with the forbidden word in it, be it
    in a message, an answer or a tool's result."""

    def answer(request: ScriptedRequest) -> Reply:
        if any(FORBIDDEN in text for text in _texts(request.messages)):
            words = "Your request was flagged as potentially violating our usage policy."
            return refusal(words, code=code, kind="content_policy_violation")
        return script(request)

    return answer


def refusal(message: str, *, code: int = 400, kind: str = "invalid_request_error") -> Reply:
    """Return a refusal in the form that both wires know."""
    error = {"message": message, "type": kind, "code": kind}
    return status(code, body=msgspec.json.encode({"type": "error", "error": error}))


def _pictures(messages: list[dict[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the picture parts of messages on either wire."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            yield from (part for part in content if part.get("type") in ("image_url", "image"))


def _texts(value: object) -> Iterator[str]:
    """Yield all texts in a value, but not the data of pictures."""
    if isinstance(value, str) and not value.startswith("data:"):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


KINDS_OF_REFUSAL: Final[Mapping[str, Callable[[Script], Script]]] = {
    "strings only": strings_only,
    "no pictures": without_pictures,
    "by policy": by_policy,
}
