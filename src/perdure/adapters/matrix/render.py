"""From markdown to what a room shows. Pure.

Every message carries plain words for clients that show nothing else, and HTML beside them. It also
says, always, that it mentions nobody: then no name and no `@room` in an answer rings a bell.
"""

import json
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import field

from perdure.adapters.matrix.events import REPLACE, THREAD
from perdure.domain.markdown.html import to_html
from perdure.domain.markdown.parse import parse
from perdure.domain.markdown.plain import to_plain

HTML: Final = "org.matrix.custom.html"
# An event may have 65,536 bytes. An edit holds the plain words twice, and encryption adds a third.
TEXT_BYTES_MAX: Final = 16_000
_KINDS: Final = ("image", "audio", "video")


class Nobody(msgspec.Struct, frozen=True):
    """An explicit list of mentions that is empty."""


class ReplyRelation(msgspec.Struct, frozen=True):
    event_id: str


class Relates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    rel_type: str = ""
    event_id: str = ""
    key: str = ""
    is_falling_back: bool = False
    in_reply_to: ReplyRelation | None = field(default=None, name="m.in_reply_to")


class Words(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The words of a message, as posted or as they now read."""

    msgtype: str
    body: str
    format: str = ""
    formatted_body: str = ""
    # Never left out: no field at all would mean that the server looks for names itself.
    mentions: Nobody | None = field(default=None, name="m.mentions")


class Message(Words, frozen=True, kw_only=True, omit_defaults=True):
    relates_to: Relates | None = field(default=None, name="m.relates_to")
    new_content: Words | None = field(default=None, name="m.new_content")


class Facts(msgspec.Struct, frozen=True):
    mimetype: str
    size: int


class FileMessage(Words, frozen=True, kw_only=True, omit_defaults=True):
    """`url` in the open, `file` with its key where the room is encrypted."""

    filename: str
    info: Facts
    url: str = ""
    file: Mapping[str, object] | None = None
    relates_to: Relates | None = field(default=None, name="m.relates_to")


class ReactionContent(msgspec.Struct, frozen=True):
    relates_to: Relates = field(name="m.relates_to")


def message(text: str, *, thread: str = "", reply_to: str = "", is_plain: bool = False) -> Message:
    body, html = (text, "") if is_plain else _rendered(text)
    return Message(
        msgtype="m.text",
        body=body,
        format=HTML if html else "",
        formatted_body=html,
        mentions=Nobody(),
        relates_to=relation(thread=thread, reply_to=reply_to),
    )


def edit(text: str, *, of: str, is_plain: bool = False) -> Message:
    """The star tells clients without edits what this is."""
    body, html = (text, "") if is_plain else _rendered(text)
    words = Words(
        msgtype="m.text",
        body=body,
        format=HTML if html else "",
        formatted_body=html,
        mentions=Nobody(),
    )
    return Message(
        msgtype="m.text",
        body=f"* {body}",
        mentions=Nobody(),
        new_content=words,
        relates_to=Relates(rel_type=REPLACE, event_id=of),
    )


def has_form(words: Words) -> bool:
    """Whether it carries HTML, in itself or in what it changes a message to."""
    inner = words.new_content if isinstance(words, Message) else None
    return bool(words.formatted_body or (inner and inner.formatted_body))


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is on the server already."""

    name: str
    mime: str
    size: int
    url: str


def file_message(
    file: Attached,
    *,
    keys: Mapping[str, object] | None,
    caption: str,
    relates_to: Relates | None,
    is_plain: bool = False,
) -> FileMessage:
    """`keys` open the file where it is sealed. Without a caption its name stands there alone."""
    plain = (caption if caption.strip() else file.name, "")
    body, html = plain if is_plain or not caption.strip() else _rendered(caption)
    return FileMessage(
        msgtype=_file_kind(file.mime),
        body=body,
        format=HTML if html else "",
        formatted_body=html,
        mentions=Nobody(),
        filename=file.name,
        info=Facts(file.mime or "application/octet-stream", file.size),
        url="" if keys else file.url,
        file={**keys, "url": file.url} if keys else None,
        relates_to=relates_to,
    )


def _file_kind(mime: str) -> str:
    family = mime.partition("/")[0]
    return f"m.{family}" if family in _KINDS else "m.file"


def relation(*, thread: str, reply_to: str) -> Relates | None:
    if not thread:
        return Relates(in_reply_to=ReplyRelation(reply_to)) if reply_to else None
    # Clients without threads show it as a reply; those with them must not.
    return Relates(
        rel_type=THREAD,
        event_id=thread,
        is_falling_back=True,
        in_reply_to=ReplyRelation(reply_to or thread),
    )


def size(text: str, *, is_escaped: bool = False) -> int:
    """In bytes as encoded. `is_escaped`: what is encrypted is written in ASCII first."""
    return sum(
        len(json.dumps(part)) if is_escaped else len(msgspec.json.encode(part))
        for part in _rendered(text)
    )


def _rendered(text: str) -> tuple[str, str]:
    blocks = parse(text)
    # What renders to nothing, such as a lone definition of a link, is shown as it was written.
    return to_plain(blocks) or text, to_html(blocks)
