"""What goes out, as JSON. The text stays markdown: what shows it is the receiver's choice."""

from typing import Final

import msgspec

from perdure.ports.platform.adapter import Post

# One JSON document holds a whole answer; this only keeps a runaway one from being sent as one.
TEXT_MAX: Final = 1_000_000


class Message(msgspec.Struct, frozen=True, kw_only=True, tag="message", tag_field="type"):
    """An answer, or what the agent says of its own accord: then `in_reply_to` is null."""

    id: str
    conversation: str
    text: str
    in_reply_to: str | None


class TakenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The request is durable. `poll` is where its answer can be asked for."""

    id: str
    poll: str


def message(post: Post, *, in_reply_to: str) -> bytes:
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
