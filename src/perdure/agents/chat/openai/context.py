"""Prepares messages that a caller sent in OpenAI's shape for the OpenAI wire.

They are passed on as the caller wrote them, with one exception: a list of parts that holds only
text becomes a string. Client libraries write such lists by themselves, and servers that accept only
strings would refuse them.
"""

from typing import Final

import msgspec

from perdure.domain.errors import Rejected

# Separates texts that are joined into one.
BETWEEN_TEXTS: Final = "\n\n"


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    """Reads a text part. Unknown fields are refused, so a part that says more is passed on as it
    is."""

    type: str
    text: str | None = None


_json: Final = msgspec.json.Encoder().encode
_messages: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_parts: Final = msgspec.json.Decoder(list[_Part])


def inside(array: str) -> bytes:
    """Return the items of a JSON array of messages, without the brackets. Raises `Rejected` if it
    is no array of messages."""
    text = array.strip()
    if not text:
        return b""
    if not (text.startswith("[") and text.endswith("]")):
        raise Rejected("the earlier messages are not a JSON array; send messages as a list")
    encoded = text.encode()
    if b'"text"' not in encoded:
        return encoded[1:-1].strip()
    try:
        messages = _messages.decode(encoded)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Rejected(f"the earlier messages cannot be read: {error}; fix them") from error
    return b",".join(_json(_with_string(message)) for message in messages)


def _with_string(message: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return the message with its content as one string, if it is a list of texts."""
    content = bytes(message.get("content", b""))
    if not content.startswith(b"["):
        return message
    try:
        parts = _parts.decode(content)
    except (msgspec.DecodeError, RecursionError):
        # These parts say more than text, so the server has to judge them.
        return message
    if not parts or any(part.type != "text" or part.text is None for part in parts):
        return message
    joined = BETWEEN_TEXTS.join(part.text or "" for part in parts)
    return message | {"content": msgspec.Raw(_json(joined))}
