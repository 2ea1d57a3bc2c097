"""Renders markdown as the content of Matrix messages. Pure.

Every message has plain text, for clients that show nothing else, and HTML beside it. It also
carries an empty list of mentions, so no name and no `@room` in an answer notifies anybody.
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
# An event may have 65,536 bytes. An edit contains the plain text twice, and encryption adds a
# third.
TEXT_BYTES_MAX: Final = 16_000
_KINDS: Final = ("image", "audio", "video")


class Nobody(msgspec.Struct, frozen=True):
    """Represents an explicit, empty list of mentions."""


class ReplyRelation(msgspec.Struct, frozen=True):
    event_id: str


class Relates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds the relation of a message to an earlier one, as it is sent."""

    rel_type: str = ""
    event_id: str = ""
    key: str = ""
    is_falling_back: bool = False
    in_reply_to: ReplyRelation | None = field(default=None, name="m.in_reply_to")


class Words(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds the text of a message, as posted or as edited."""

    msgtype: str
    body: str
    format: str = ""
    formatted_body: str = ""
    # Always sent. Without this field, servers search the text for names and notify people.
    mentions: Nobody | None = field(default=None, name="m.mentions")


class Message(Words, frozen=True, kw_only=True, omit_defaults=True):
    """Holds a text message. With `new_content` it is an edit of the message in `relates_to`."""

    relates_to: Relates | None = field(default=None, name="m.relates_to")
    new_content: Words | None = field(default=None, name="m.new_content")


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds the type and the size of a file, and the length of a recording in milliseconds."""

    mimetype: str
    size: int
    duration: int = 0


class Marked(msgspec.Struct, frozen=True):
    """Stands for a field whose presence is all that it says."""


class FileMessage(Words, frozen=True, kw_only=True, omit_defaults=True):
    """Holds a message with a file: `url` where it is not encrypted, else `file` with its address
    and key."""

    filename: str
    info: Facts
    url: str = ""
    file: Mapping[str, object] | None = None
    relates_to: Relates | None = field(default=None, name="m.relates_to")
    # Clients show a recording with this field as a voice message.
    voice: Marked | None = field(default=None, name="org.matrix.msc3245.voice")


class ReactionContent(msgspec.Struct, frozen=True):
    relates_to: Relates = field(name="m.relates_to")


def message(text: str, *, thread: str = "", reply_to: str = "", is_plain: bool = False) -> Message:
    """Return a new text message. `is_plain` sends the text without formatting."""
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
    """Return an edit of the message `of`. Clients that do not know edits show the text after a
    star."""
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
    """Tell whether a message carries HTML, in itself or in its edited text."""
    inner = words.new_content if isinstance(words, Message) else None
    return bool(words.formatted_body or (inner and inner.formatted_body))


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a file that was uploaded to the server. `voice_s` is the length of a voice message,
    and None for other files."""

    name: str
    mime: str
    size: int
    url: str
    voice_s: int | None = None


def file_message(
    file: Attached,
    *,
    keys: Mapping[str, object] | None,
    caption: str,
    relates_to: Relates | None,
    is_plain: bool = False,
) -> FileMessage:
    """Return a message that shows a file. `keys` decrypt the file where it is encrypted. Without a
    caption the text is the file's name."""
    plain = (caption if caption.strip() else file.name, "")
    body, html = plain if is_plain or not caption.strip() else _rendered(caption)
    return FileMessage(
        msgtype=_file_kind(file.mime),
        body=body,
        format=HTML if html else "",
        formatted_body=html,
        mentions=Nobody(),
        filename=file.name,
        info=Facts(file.mime or "application/octet-stream", file.size, 1000 * (file.voice_s or 0)),
        voice=None if file.voice_s is None else Marked(),
        url="" if keys else file.url,
        file={**keys, "url": file.url} if keys else None,
        relates_to=relates_to,
    )


def _file_kind(mime: str) -> str:
    family = mime.partition("/")[0]
    return f"m.{family}" if family in _KINDS else "m.file"


def relation(*, thread: str, reply_to: str) -> Relates | None:
    """Return how a message relates to its thread and to the message that it answers, or None."""
    if not thread:
        return Relates(in_reply_to=ReplyRelation(reply_to)) if reply_to else None
    # Clients that cannot show threads show a reply instead. `is_falling_back` keeps the other
    # clients from showing it as a reply as well.
    return Relates(
        rel_type=THREAD,
        event_id=thread,
        is_falling_back=True,
        in_reply_to=ReplyRelation(reply_to or thread),
    )


def size(text: str, *, is_escaped: bool = False) -> int:
    """Return the size of a text's plain and HTML forms together, in bytes of encoded JSON. With
    `is_escaped`, characters outside ASCII count as escape sequences, because the encryption library
    encodes them so."""
    return sum(
        len(json.dumps(part)) if is_escaped else len(msgspec.json.encode(part))
        for part in _rendered(text)
    )


def _rendered(text: str) -> tuple[str, str]:
    """Return the plain text and the HTML of a markdown text."""
    blocks = parse(text)
    # A text that renders to nothing, such as a lone link definition, is shown as written.
    return to_plain(blocks) or text, to_html(blocks)
