"""Builds the text and blocks of Slack messages from markdown. Pure.

Slack reads markdown itself, in a special block, so a text is sent as it is. Only what could become
a mention is broken up.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from perdure.adapters.slack.text.mentions import unaddressed
from perdure.adapters.slack.text.mrkdwn import escaped, mrkdwn
from perdure.domain.ids import QuestionId
from perdure.domain.markdown.split import split
from perdure.domain.markdown.units import TextUnit, cut
from perdure.ports.platform.buttons import button_data, button_label

# A markdown block takes 12,000 characters. The rest is room for buttons below it, and for
# differences in how Slack counts.
TEXT_MAX: Final = 11_000
CHOICES_MAX: Final = 25
# Begin the ids of our own buttons: of those that say a word, and of those under a question.
ACTION: Final = "perdure_choice"
QUESTION_ACTION: Final = "perdure_question"

# Slack refuses an edit whose notification text is longer.
_FALLBACK_MAX: Final = 3_000
_SECTION_MAX: Final = 3_000
_LABEL_MAX: Final = 75


class Words(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """Holds a text in a block; `kind` says how Slack reads it."""

    kind: str
    text: str


class Letters(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """Holds a text in which Slack reads no formatting, no mentions and no emoji."""

    text: str
    kind: str = "plain_text"
    emoji: bool = False


class Button(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    text: Words
    action_id: str
    value: str
    kind: str = "button"


class Markdown(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    text: str
    kind: str = "markdown"


class SectionBlock(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    text: Words | Letters
    kind: str = "section"


class Actions(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    elements: tuple[Button, ...]
    kind: str = "actions"


SlackBlock = Markdown | SectionBlock | Actions


class Content(msgspec.Struct, frozen=True):
    """Holds what a message shows: `blocks` in the window, `text` in notifications."""

    text: str
    blocks: tuple[SlackBlock, ...]


class Writing(msgspec.Struct, frozen=True):
    """Holds what a message has to say. `choices` are offered as buttons, under the `question` if
    there is one. `is_plain` asks for the text without any formatting."""

    text: str
    choices: tuple[str, ...] = ()
    question: QuestionId | None = None
    is_plain: bool = False


def forms(writing: Writing) -> Iterator[Content]:
    """Yield the forms in which a text can be sent. Each is for a server that refused those
    before."""
    text, below = writing.text, buttons(writing.choices, writing.question)
    # A question's own text says how it is answered.
    named = writing.choices if writing.question is None else ()
    if writing.is_plain:
        yield plain_content(text, below)
        yield bare_content(text, named)
    else:
        yield content(text, below)
        yield plainer_content(text, below)


def markdown(text: str) -> str:
    """Return the markdown that is sent for a text."""
    return unaddressed(text)


def size(text: str) -> int:
    """Return the length of the markdown that is sent for a text."""
    return len(markdown(text))


def content(text: str, below: tuple[Actions, ...] = ()) -> Content:
    """Return a text as a markdown block, with its buttons below."""
    return Content(_fallback(text), (Markdown(markdown(text)), *below))


def plainer_content(text: str, below: tuple[Actions, ...] = ()) -> Content:
    """Return a text in Slack's own markup, for a server without the markdown block."""
    pieces = split(text, size=lambda piece: len(mrkdwn(piece)), limit=_SECTION_MAX)
    sections = tuple(SectionBlock(Words("mrkdwn", mrkdwn(piece))) for piece in pieces)
    return Content(_fallback(text), (*sections, *below))


def plain_content(text: str, below: tuple[Actions, ...] = ()) -> Content:
    """Return a text without formatting, in blocks."""
    sections = tuple(SectionBlock(Letters(piece)) for piece in _pieces(unaddressed(text)))
    return Content(_cut_escaped(text), (*sections, *below))


def bare_content(text: str, choices: tuple[str, ...] = ()) -> Content:
    """Return a text without formatting and without blocks. It cannot have buttons, so the choices
    are named in the text."""
    named = f"\n\n(Answer: {' / '.join(choices)})" if choices else ""
    return Content(escaped(text + named), ())


def caption(text: str) -> str:
    """Return the text beside a file."""
    return mrkdwn(text)


def buttons(choices: tuple[str, ...], question: QuestionId | None = None) -> tuple[Actions, ...]:
    """Return the choices as a block of buttons, or nothing if there are none."""
    if not choices:
        return ()
    shown = choices[:CHOICES_MAX]
    return (Actions(tuple(_button(index, word, question) for index, word in enumerate(shown))),)


def _button(index: int, word: str, question: QuestionId | None) -> Button:
    if question is None:
        label = Words("plain_text", cut(word, TextUnit.CHARS, _LABEL_MAX))
        return Button(label, f"{ACTION}_{index}", word)
    label = Words("plain_text", button_label(word, index, _LABEL_MAX))
    return Button(label, f"{QUESTION_ACTION}_{index}", button_data(question, index))


def _fallback(text: str) -> str:
    """Return the text for notifications, short enough for Slack."""
    shown = mrkdwn(cut(text, TextUnit.CHARS, _FALLBACK_MAX))
    # Escaping has made it too long. Cutting it could cut a mark in two, so the text is sent without
    # any marks instead.
    return shown if len(shown) <= _FALLBACK_MAX else _cut_escaped(text)


def _cut_escaped(text: str) -> str:
    """Return the escaped text, cut so that no escape is cut in two."""
    shown = escaped(cut(text, TextUnit.CHARS, _FALLBACK_MAX))
    if len(shown) <= _FALLBACK_MAX:
        return shown
    return escaped(cut(text, TextUnit.CHARS, _FALLBACK_MAX // len("&amp;")))


def _pieces(text: str) -> Iterator[str]:
    """Divide a text into pieces that fit into sections, at line ends where possible."""
    while len(text) > _SECTION_MAX:
        piece = cut(text, TextUnit.CHARS, _SECTION_MAX) or text[:_SECTION_MAX]
        lines, line_end, _ = piece.rpartition("\n")
        piece = lines + line_end if lines.strip() else piece
        yield piece
        text = text[len(piece) :]
    if text:
        yield text
