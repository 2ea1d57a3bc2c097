"""Reads what a message brings besides its text: files to fetch, and things to describe in words."""

from collections.abc import Iterator
from typing import Final

from perdure.adapters.telegram.hearing.updates import File, Message, TelegramSticker
from perdure.domain.content import stickers
from perdure.domain.inbound.arrivals import FileReference

# The keys under which a rich message has words. It has many kinds of blocks, and more are added, so
# all of them are searched in the same way.
_WORDS: Final = ("summary", "text", "expression", "alternative_text", "caption", "credit")
_PARTS: Final = ("blocks", "items", "cells")


def is_said(message: Message) -> bool:
    """Tell whether a message has any content, without reading it. Service messages have none:
    joins, new titles, pins."""
    brought = (
        message.text,
        message.caption,
        message.photo,
        message.document,
        message.voice,
        message.audio,
        message.video,
        message.video_note,
        message.animation,
        message.sticker,
        message.location,
        message.contact,
        message.poll,
        message.dice,
        message.checklist,
    )
    return any(brought) or message.story is not None or message.rich_message is not None


def files_of(message: Message) -> tuple[FileReference, ...]:
    """Return the files of a message. Of a photo's sizes, the largest is taken."""
    found: list[FileReference] = []
    if message.photo:
        largest = max(
            message.photo, key=lambda size: (size.width * size.height, size.file_size or 0)
        )
        found.append(_reference(largest, mime="image/jpeg", name="photo.jpg"))
    if message.voice:
        found.append(_reference(message.voice, mime="audio/ogg", name="voice.ogg", is_voice=True))
    if message.audio:
        found.append(_reference(message.audio, mime="audio/mpeg", name="audio.mp3"))
    if message.video:
        found.append(_reference(message.video, mime="video/mp4", name="video.mp4"))
    if message.video_note:
        found.append(_reference(message.video_note, mime="video/mp4", name="video-note.mp4"))
    if message.animation:
        found.append(_reference(message.animation, mime="video/mp4", name="animation.mp4"))
    elif message.document:  # an animation is listed as a document as well
        found.append(_reference(message.document, mime="application/octet-stream", name="file"))
    if message.sticker:
        found.append(_sticker(message.sticker))
    return tuple(found)


def _sticker(sticker: TelegramSticker) -> FileReference:
    """Return the file of a sticker. For an animated one, the file is its thumbnail, if it has
    one."""
    emoji, is_moving = sticker.emoji or "", sticker.is_animated or sticker.is_video
    picture = sticker.thumbnail if is_moving else sticker
    return FileReference(
        reference=picture.file_id if picture else "",
        mime="" if is_moving else "image/webp",
        name=f"sticker {emoji}".rstrip(),
        size=(picture.file_size or 0) if picture else 0,
        sticker=stickers.Sticker(
            id=sticker.file_unique_id, emoji=emoji, set_name=sticker.set_name or ""
        ),
    )


def _reference(file: File, *, mime: str, name: str, is_voice: bool = False) -> FileReference:
    return FileReference(
        reference=file.file_id,
        mime=file.mime_type or mime,
        name=file.file_name or name,
        size=file.file_size or 0,
        is_voice=is_voice,
    )


def description(message: Message) -> str:
    """Describe locations, contacts, polls and the like in brackets. Returns an empty string where
    there is nothing to describe."""
    said = (
        _place(message),
        _contact(message),
        _poll(message),
        _checklist(message),
        f"[{message.dice.emoji} {message.dice.value}]" if message.dice else "",
        "[a story]" if message.story is not None else "",
        rich_words(message),
    )
    return "\n".join(filter(None, said))


def _place(message: Message) -> str:
    if message.location is None:
        return ""
    where = f"{message.location.latitude}, {message.location.longitude}"
    if message.venue is None:
        return f"[location {where}]"
    named = ", ".join(filter(None, (message.venue.title, message.venue.address)))
    return f"[location {named} ({where})]"


def _contact(message: Message) -> str:
    contact = message.contact
    if contact is None:
        return ""
    name = " ".join(filter(None, (contact.first_name, contact.last_name)))
    return f"[contact {name}, {contact.phone_number}]"


def _poll(message: Message) -> str:
    if message.poll is None:
        return ""
    options = " / ".join(option.text for option in message.poll.options)
    return f"[poll {message.poll.question}: {options}]"


def _checklist(message: Message) -> str:
    if message.checklist is None:
        return ""
    tasks = " / ".join(task.text for task in message.checklist.tasks)
    return f"[checklist {message.checklist.title}: {tasks}]"


def rich_words(message: Message) -> str:
    """Return the words of a rich message without their formatting, one line for each paragraph."""
    if message.rich_message is None:
        return ""
    return "\n".join(_lines(message.rich_message))


def first_words(message: Message) -> str:
    """Return the first line of a rich message."""
    return next(_lines(message.rich_message), "")


def _lines(node: object) -> Iterator[str]:
    """Yield the words of a tree of blocks, a line for each field that has words."""
    if isinstance(node, list):
        for part in node:
            yield from _lines(part)
    elif isinstance(node, dict):
        words = [_joined(node[key]) for key in _WORDS if key in node]
        yield from filter(None, words)
        for key in _PARTS:
            yield from _lines(node.get(key))


def _joined(node: object) -> str:
    """Join the words of a nested text."""
    if isinstance(node, str):
        return node
    if isinstance(node, list):
        return "".join(map(_joined, node))
    if isinstance(node, dict):
        return "".join(_joined(node[key]) for key in _WORDS if key in node)
    return ""
