"""Builds the JSON that goes out. Pure. The text stays markdown, for the receiver to display."""

from typing import Final

import msgspec

from perdure.ports.platform.adapter import Post

# One JSON document can hold a whole reply. The limit only bounds a reply that does not end.
TEXT_MAX: Final = 1_000_000


class Message(msgspec.Struct, frozen=True, kw_only=True, tag="message", tag_field="type"):
    """Holds one message. `in_reply_to` is null if it answers no request."""

    id: str
    conversation: str
    text: str
    in_reply_to: str | None


class TakenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a request was stored. `poll` is the URL at which its reply can be polled."""

    id: str
    poll: str


def message(post: Post, *, in_reply_to: str) -> bytes:
    """Return the body of a callback."""
    return msgspec.json.encode(
        Message(
            id=post.key,
            conversation=post.address.thread,
            text=post.text,
            in_reply_to=in_reply_to or None,
        )
    )


def size(text: str) -> int:
    return len(text)
