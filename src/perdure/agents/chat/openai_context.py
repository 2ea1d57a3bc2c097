"""Messages that a caller sent in OpenAI's shape, for the OpenAI wire.

They go to the server as the caller wrote them, with one exception: a list of parts that holds
nothing but text becomes a string. Callers' libraries write such lists without being asked, and the
servers that take strings only would refuse them.
"""

from typing import Final

import msgspec

from perdure.domain.errors import Rejected

# Stands between texts that become one.
BETWEEN_TEXTS: Final = "\n\n"


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    text: str | None = None


_json: Final = msgspec.json.Encoder().encode
_messages: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_parts: Final = msgspec.json.Decoder(list[_Part])


def inside(array: str) -> bytes:
    """Return the items of a JSON array of messages as text, without the brackets."""
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
    content = bytes(message.get("content", b""))
    if not content.startswith(b"["):
        return message
    try:
        parts = _parts.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return message  # these parts say more than text; only the server can judge them
    if not parts or any(part.type != "text" or part.text is None for part in parts):
        return message
    joined = BETWEEN_TEXTS.join(part.text or "" for part in parts)
    return message | {"content": msgspec.Raw(_json(joined))}
