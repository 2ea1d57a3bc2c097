"""What is sent, as the Bot API wants it."""

import re
from collections.abc import Sequence
from typing import Final

from perdure.adapters.telegram.entities import Rendered
from perdure.adapters.telegram.names import chat_of, draft_number, message_of
from perdure.adapters.telegram.render import harmless, rendered
from perdure.adapters.telegram.wire import Params, UploadField
from perdure.domain.address import Address
from perdure.domain.errors import NotFound
from perdure.domain.inbound.commands import open_to
from perdure.domain.markdown.units import TextUnit, cut, size_of
from perdure.ports.platform.adapter import Post, Preview, React, Upload

CHOICES_MAX: Final = 12
TEXT_MAX: Final = 4096
PHOTO_BYTES_MAX: Final = 10 * 1024 * 1024
PHOTOS: Final = frozenset({"image/jpeg", "image/png", "image/webp"})
_CAPTION_MAX: Final = 1024
_DATA_BYTES_MAX: Final = 64
_HELP_MAX: Final = 256
# What a header cannot carry, and what leads out of a folder.
_NO_NAME: Final = re.compile(r"[\x00-\x1f\x7f\"\\/]")
_MIME: Final = re.compile(r"[\w.+-]+/[\w.+-]+\Z", re.ASCII)
# Telegram takes only some emoji as reactions; these are the nearest to others in common use.
_REACTIONS: Final = {"✅": "👍", "✔": "👍", "❌": "👎", "🛑": "👎", "⏳": "✍", "⌛": "✍", "⚠": "🤔"}
# Telegram would open every address in an answer to show what is there, before anybody asked.
_NO_PREVIEW: Final = {"is_disabled": True}


def place(address: Address) -> Params:
    thread = {"message_thread_id": int(address.thread)} if address.thread.isdecimal() else {}
    return {"chat_id": chat_of(address.place), **thread}


def words(text: str) -> Params:
    """A text that is empty once it is rendered is shown as it was written."""
    shown = rendered(text)
    if not shown.text:
        shown = Rendered(text)
    return {"text": shown.text, "entities": shown.marks, "link_preview_options": _NO_PREVIEW}


def plain(text: str) -> Params:
    """The text letter by letter, without marks. One that has no room for its signs is shown as it
    reads once they are worked in."""
    shown = harmless(text)
    if size_of(shown, TextUnit.UTF16) > TEXT_MAX:
        shown = rendered(text).text
    return {"text": shown, "link_preview_options": _NO_PREVIEW}


def rich(text: str) -> Params:
    return {"rich_message": {"markdown": text}}


def post(post: Post) -> Params:
    """All but the text."""
    return {**place(post.address), **reply(post.reply_to), **keyboard(post.choices)}


def draft(preview: Preview) -> Params:
    """All but the text. What was shown stays for a moment when a person presses stop, until a
    message takes its place."""
    return {
        **place(preview.address),
        "draft_id": draft_number(preview.key),
        "can_stop": True,
        "keep_on_stop": True,
    }


def draft_words(text: str) -> Params:
    shown = rendered(text)
    return {"text": shown.text, "entities": shown.marks}


def message(receipt: str) -> Params:
    chat, number = message_of(receipt)
    return {"chat_id": chat, "message_id": number}


def reaction(react: React) -> Params:
    plain = react.emoji.replace("\ufe0f", "")
    emoji = _REACTIONS.get(plain, plain)
    chosen = [{"type": "emoji", "emoji": emoji}] if emoji else []
    return {**message(react.external_id), "reaction": chosen}


def upload(upload: Upload, *, is_plain: bool = False) -> Params:
    caption = Rendered(harmless(upload.caption)) if is_plain else rendered(upload.caption)
    if caption.size > _CAPTION_MAX:
        shown = cut(caption.text, TextUnit.UTF16, _CAPTION_MAX - 1) + "…"
        caption = Rendered(shown)
    marks = {} if is_plain else {"caption_entities": caption.marks}
    more = {"caption": caption.text, **marks} if caption.text else {}
    return {**place(upload.address), **reply(upload.reply_to), **more}


def is_photo(upload: Upload) -> bool:
    return upload.mime in PHOTOS and len(upload.data) <= PHOTO_BYTES_MAX


def attachment(upload: Upload, field: str) -> UploadField:
    return UploadField(
        field=field,
        name=_NO_NAME.sub("_", upload.name) or "file",
        mime=upload.mime if _MIME.match(upload.mime) else "application/octet-stream",
        data=upload.data,
    )


def reply(external_id: str) -> Params:
    """Answers to what is no message of a chat (a click, a press of stop) stand alone."""
    try:
        _, number = message_of(external_id)
    except NotFound:
        return {}
    return {"reply_parameters": {"message_id": number, "allow_sending_without_reply": True}}


def keyboard(choices: Sequence[str]) -> Params:
    if not choices:
        return {}
    buttons = [
        [{"text": word, "callback_data": _data(number, word)}]
        for number, word in enumerate(choices[:CHOICES_MAX])
    ]
    return {"reply_markup": {"inline_keyboard": buttons}}


def _data(number: int, word: str) -> str:
    """What comes back with a click: the word, or as much of it as fits and tells it from others."""
    if size_of(word, TextUnit.BYTES) <= _DATA_BYTES_MAX:
        return word
    return cut(f"{number} {word}", TextUnit.BYTES, _DATA_BYTES_MAX)


def commands() -> Params:
    shown = [
        {"command": command.name, "description": command.help[:_HELP_MAX]}
        for command in open_to(is_operator=False)
    ]
    return {"commands": shown}
