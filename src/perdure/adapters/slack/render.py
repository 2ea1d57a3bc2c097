"""From markdown to what Slack takes.

Slack reads markdown itself, in a block of its own, so a text goes out as it is. Only what could
address people is broken.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from perdure.adapters.slack.mentions import unaddressed
from perdure.adapters.slack.mrkdwn import escaped, mrkdwn
from perdure.domain.markdown.split import split
from perdure.domain.markdown.units import TextUnit, cut

# A markdown block takes 12,000; an action under it and Slack's own counting want room.
TEXT_MAX: Final = 11_000
CHOICES_MAX: Final = 25
ACTION: Final = "perdure_choice"

# An update with a longer text is refused.
_FALLBACK_MAX: Final = 3_000
_SECTION_MAX: Final = 3_000
_LABEL_MAX: Final = 75


class Words(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """A piece of text in a block."""

    kind: str
    text: str


class Letters(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """A piece of text in which nothing is read as a mark, a mention or an emoji."""

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
    """What a message shows: `blocks` in the window, `text` in notifications."""

    text: str
    blocks: tuple[SlackBlock, ...]


class Writing(msgspec.Struct, frozen=True):
    """What a message is to say. `is_plain`: letter by letter, without any formatting."""

    text: str
    choices: tuple[str, ...] = ()
    is_plain: bool = False


def forms(writing: Writing) -> Iterator[Content]:
    """Yield the forms in which a text can be sent: each for a server that refuses those before."""
    text, choices = writing.text, writing.choices
    if writing.is_plain:
        yield plain_content(text, choices)
        yield bare_content(text, choices)
    else:
        yield content(text, choices)
        yield plainer_content(text, choices)


def markdown(text: str) -> str:
    return unaddressed(text)


def size(text: str) -> int:
    return len(markdown(text))


def content(text: str, choices: tuple[str, ...] = ()) -> Content:
    return Content(_fallback(text), (Markdown(markdown(text)), *buttons(choices)))


def plainer_content(text: str, choices: tuple[str, ...] = ()) -> Content:
    """For a server that does not know the block for markdown."""
    pieces = split(text, size=lambda piece: len(mrkdwn(piece)), limit=_SECTION_MAX)
    sections = tuple(SectionBlock(Words("mrkdwn", mrkdwn(piece))) for piece in pieces)
    return Content(_fallback(text), (*sections, *buttons(choices)))


def plain_content(text: str, choices: tuple[str, ...] = ()) -> Content:
    sections = tuple(SectionBlock(Letters(piece)) for piece in _pieces(unaddressed(text)))
    return Content(_cut_escaped(text), (*sections, *buttons(choices)))


def bare_content(text: str, choices: tuple[str, ...] = ()) -> Content:
    """Without any block, so without buttons: the words to choose from are named."""
    named = f"\n\n(Answer: {' / '.join(choices)})" if choices else ""
    return Content(escaped(text + named), ())


def caption(text: str) -> str:
    """The words beside a file."""
    return mrkdwn(text)


def buttons(choices: tuple[str, ...]) -> tuple[Actions, ...]:
    if not choices:
        return ()
    return (
        Actions(
            tuple(
                Button(
                    Words("plain_text", cut(choice, TextUnit.CHARS, _LABEL_MAX)),
                    f"{ACTION}_{index}",
                    choice,
                )
                for index, choice in enumerate(choices[:CHOICES_MAX])
            )
        ),
    )


def _fallback(text: str) -> str:
    shown = mrkdwn(cut(text, TextUnit.CHARS, _FALLBACK_MAX))
    # If so much was escaped: better no marks than a mark cut in two.
    return shown if len(shown) <= _FALLBACK_MAX else _cut_escaped(text)


def _cut_escaped(text: str) -> str:
    shown = escaped(cut(text, TextUnit.CHARS, _FALLBACK_MAX))
    if len(shown) <= _FALLBACK_MAX:
        return shown
    return escaped(cut(text, TextUnit.CHARS, _FALLBACK_MAX // len("&amp;")))


def _pieces(text: str) -> Iterator[str]:
    """Divide a text into what fits into sections, at the ends of lines where there are any."""
    while len(text) > _SECTION_MAX:
        piece = cut(text, TextUnit.CHARS, _SECTION_MAX) or text[:_SECTION_MAX]
        lines, line_end, _ = piece.rpartition("\n")
        piece = lines + line_end if lines.strip() else piece
        yield piece
        text = text[len(piece) :]
    if text:
        yield text
