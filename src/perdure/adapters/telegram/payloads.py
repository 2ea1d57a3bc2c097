"""Builds the parameters of calls to the Bot API. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from perdure.adapters.telegram.entities import Rendered
from perdure.adapters.telegram.names import chat_of, draft_number, message_of
from perdure.adapters.telegram.render import harmless, rendered
from perdure.adapters.telegram.wire import Params, UploadField
from perdure.domain.address import Address
from perdure.domain.errors import NotFound
from perdure.domain.ids import QuestionId
from perdure.domain.inbound.commands import open_to
from perdure.domain.markdown.units import TextUnit, cut, size_of
from perdure.ports.platform.adapter import Post, Preview, React, Upload
from perdure.ports.platform.buttons import button_data, button_label, press_in

CHOICES_MAX: Final = 12
# Limits of the Bot API: UTF-16 units of a text and of a caption, bytes of a photo and of the data
# of a button, characters of a command's description.
TEXT_MAX: Final = 4096
PHOTO_BYTES_MAX: Final = 10 * 1024 * 1024
PHOTOS: Final = frozenset({"image/jpeg", "image/png", "image/webp"})
_CAPTION_MAX: Final = 1024
_DATA_BYTES_MAX: Final = 64
_HELP_MAX: Final = 256
# Telegram publishes no limit for the label of a button. No screen shows as much as this.
_LABEL_MAX: Final = 100
# Characters that a header cannot carry, and separators of paths.
_NO_NAME: Final = re.compile(r"[\x00-\x1f\x7f\"\\/]")
_MIME: Final = re.compile(r"[\w.+-]+/[\w.+-]+\Z", re.ASCII)
# Telegram accepts only some emoji as reactions. These are the nearest to others in common use.
_REACTIONS: Final = {"✅": "👍", "✔": "👍", "❌": "👎", "🛑": "👎", "⏳": "✍", "⌛": "✍", "⚠": "🤔"}
# Otherwise Telegram would fetch every URL in an answer to show a preview, before anybody asked for
# it.
_NO_PREVIEW: Final = {"is_disabled": True}


def place(address: Address) -> Params:
    """Return the parameters that name the chat and the topic."""
    thread = {"message_thread_id": int(address.thread)} if address.thread.isdecimal() else {}
    return {"chat_id": chat_of(address.place), **thread}


def words(text: str) -> Params:
    """Return a text with its marks. A text that is empty once it is rendered is shown as
    written."""
    shown = rendered(text)
    if not shown.text:
        shown = Rendered(text)
    return {"text": shown.text, "entities": shown.marks, "link_preview_options": _NO_PREVIEW}


def plain(text: str) -> Params:
    """Return a text without marks, letter by letter. If it is too long with its markdown signs, it
    is rendered, and only the marks are left out."""
    shown = harmless(text)
    if size_of(shown, TextUnit.UTF16) > TEXT_MAX:
        shown = rendered(text).text
    return {"text": shown, "link_preview_options": _NO_PREVIEW}


def rich(text: str) -> Params:
    """Return the text of a rich message, which Telegram parses itself."""
    return {"rich_message": {"markdown": text}}


def post(post: Post) -> Params:
    """Return all parameters of a message except its text."""
    buttons = keyboard(post.choices, post.question)
    return {**place(post.address), **reply(post.reply_to), **buttons}


def draft(preview: Preview) -> Params:
    """Return all parameters of a draft except its text. When a person presses stop, the draft stays
    until a message takes its place."""
    return {
        **place(preview.address),
        "draft_id": draft_number(preview.key),
        "can_stop": True,
        "keep_on_stop": True,
    }


def draft_words(text: str) -> Params:
    """Return the text of a draft with its marks."""
    shown = rendered(text)
    return {"text": shown.text, "entities": shown.marks}


def message(receipt: str) -> Params:
    """Return the parameters that name a message. Raises `NotFound` if the receipt names none."""
    chat, number = message_of(receipt)
    return {"chat_id": chat, "message_id": number}


def reaction(react: React) -> Params:
    """Return the parameters of a reaction. An empty emoji removes it."""
    plain = react.emoji.replace("\ufe0f", "")
    emoji = _REACTIONS.get(plain, plain)
    chosen = [{"type": "emoji", "emoji": emoji}] if emoji else []
    return {**message(react.external_id), "reaction": chosen}


def upload(upload: Upload, *, is_plain: bool = False) -> Params:
    """Return all parameters of a file except the file. A caption that is too long is cut, without
    marks."""
    caption = Rendered(harmless(upload.caption)) if is_plain else rendered(upload.caption)
    if caption.size > _CAPTION_MAX:
        shown = cut(caption.text, TextUnit.UTF16, _CAPTION_MAX - 1) + "…"
        caption = Rendered(shown)
    marks = {} if is_plain else {"caption_entities": caption.marks}
    more = {"caption": caption.text, **marks} if caption.text else {}
    return {**place(upload.address), **reply(upload.reply_to), **more}


def kind_of(upload: Upload) -> str:
    """Return as what a file is sent: `voice`, `photo` or `document`."""
    if upload.is_voice:
        return "voice"
    is_photo = upload.mime in PHOTOS and len(upload.data) <= PHOTO_BYTES_MAX
    return "photo" if is_photo else "document"


def attachment(upload: Upload, field: str) -> UploadField:
    """Return the file as a form field, with a safe name and a valid type."""
    return UploadField(
        field=field,
        name=_NO_NAME.sub("_", upload.name) or "file",
        mime=upload.mime if _MIME.match(upload.mime) else "application/octet-stream",
        data=upload.data,
    )


def reply(external_id: str) -> Params:
    """Return the parameters that name the answered message. What is no message (a click, a press of
    stop) cannot be answered, so then there are none."""
    try:
        _, number = message_of(external_id)
    except NotFound:
        return {}
    return {"reply_parameters": {"message_id": number, "allow_sending_without_reply": True}}


def keyboard(choices: Sequence[str], question: QuestionId | None = None) -> Params:
    """Return the buttons under a message, one in each row. An edit without them removes those that
    the message had."""
    if not choices:
        return {}
    rows = [[_button(number, word, question)] for number, word in enumerate(choices[:CHOICES_MAX])]
    return {"reply_markup": {"inline_keyboard": rows}}


def _button(number: int, word: str, question: QuestionId | None) -> dict[str, str]:
    if question is None:
        return {"text": word, "callback_data": _data(number, word)}
    return {
        "text": button_label(word, number, _LABEL_MAX),
        "callback_data": button_data(question, number),
    }


def _data(number: int, word: str) -> str:
    """Return what comes back with a click: the word, or as much as fits, after its number so that
    it stays unique. A word that would be taken for the press of a question's button also comes
    after its number."""
    if size_of(word, TextUnit.BYTES) <= _DATA_BYTES_MAX and press_in(word) is None:
        return word
    return cut(f"{number} {word}", TextUnit.BYTES, _DATA_BYTES_MAX)


def commands() -> Params:
    """Return the commands that Telegram shows in its menu. Those for operators are left out."""
    shown = [
        {"command": command.name, "description": command.help[:_HELP_MAX]}
        for command in open_to(is_operator=False)
    ]
    return {"commands": shown}
