"""Stickers: pictures that many people send, each known by an id of its platform.

A model is told of a sticker in words. A model that sees describes it once, and the words are kept
by the id, whoever sends it next. They say what a picture shows, which anybody may have drawn, so
they are told as a description inside one line of ours, and never as something that somebody says.
"""

from typing import Final

import msgspec

from perdure.domain.text import one_line

# How long the turn that brought a new sticker waits for its description, and how long one that
# could not be described is left alone.
WAIT_MS: Final = 20_000
AGAIN_MS: Final = 3_600_000
WORDS_MAX: Final = 300
NAME_MAX: Final = 64
ID_MAX: Final = 300
# What a model answers that was shown no picture.
NOTHING: Final = "nothing"


class Sticker(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform says of a sticker. `id` is its stable one there; `name` and `set_name` are
    what its author or its sender call it, and may be anything."""

    id: str = ""
    emoji: str = ""
    set_name: str = ""
    name: str = ""

    @property
    def is_describable(self) -> bool:
        """Whether words about it could be kept."""
        return 0 < len(self.id) <= ID_MAX


def harmless(sticker: Sticker) -> Sticker:
    """The same sticker, with nothing in it that could leave its line."""
    return Sticker(
        id=sticker.id if sticker.is_describable else "",
        emoji=one_line(sticker.emoji)[:NAME_MAX],
        set_name=one_line(sticker.set_name)[:NAME_MAX],
        name=one_line(sticker.name)[:NAME_MAX],
    )


def told(sticker: Sticker, words: str) -> str:
    """Word a sticker for models: what it shows, as far as that is known, and what it is called."""
    facts = (
        f"emoji {sticker.emoji}" if sticker.emoji else "",
        f"set {sticker.set_name}" if sticker.set_name else "",
        f"named {sticker.name}" if sticker.name else "",
    )
    lead = f"sticker: {one_line(words)}" if words else "sticker"
    return f"[{'; '.join(filter(None, (lead, ', '.join(filter(None, facts)))))}]"


def clean_words(text: str) -> str:
    """A model's answer as a description: one line of bounded length; empty if it saw nothing."""
    line = one_line(text).strip(" \"'`*“”„«»")
    if line.rstrip(". ").casefold() == NOTHING:
        return ""
    if len(line) <= WORDS_MAX:
        return line.rstrip(". ")
    return line[: WORDS_MAX - 1].rsplit(" ", 1)[0].rstrip(" .,;") + "…"
