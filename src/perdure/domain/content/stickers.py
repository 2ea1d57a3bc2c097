"""Describes stickers to models. Stickers are pictures that many people send, each with an id of its
platform.

A model that can see describes a sticker once. The words are stored under the id, and are used
whoever sends the sticker next. Anybody may have drawn the picture. So the words are told as a
description inside one line of ours, and never as something that a person says.
"""

from typing import Final

import msgspec

from perdure.domain.text import harmless_line

# How long the turn that brought a new sticker waits for its description, and how long nobody tries
# again to describe one that could not be described.
WAIT_MS: Final = 20_000
AGAIN_MS: Final = 3_600_000
WORDS_MAX: Final = 300
NAME_MAX: Final = 64
ID_MAX: Final = 300
# The answer of a model that saw no picture.
NOTHING: Final = "nothing"


class Sticker(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a platform says about a sticker. `id` is its stable id there; `name` and
    `set_name` are chosen by its author or its sender, and may be anything."""

    id: str = ""
    emoji: str = ""
    set_name: str = ""
    name: str = ""

    @property
    def is_describable(self) -> bool:
        """Tell whether a description of it can be stored, which takes an id of limited length."""
        return 0 < len(self.id) <= ID_MAX


def harmless(sticker: Sticker) -> Sticker:
    """Return the same sticker, without anything that could leave its line."""
    return Sticker(
        id=sticker.id if sticker.is_describable else "",
        emoji=harmless_line(sticker.emoji)[:NAME_MAX],
        set_name=harmless_line(sticker.set_name)[:NAME_MAX],
        name=harmless_line(sticker.name)[:NAME_MAX],
    )


def sticker_text(sticker: Sticker, words: str) -> str:
    """Describe a sticker to models: what it shows, if that is known, and what it is called."""
    facts = (
        f"emoji {sticker.emoji}" if sticker.emoji else "",
        f"set {sticker.set_name}" if sticker.set_name else "",
        f"named {sticker.name}" if sticker.name else "",
    )
    lead = f"sticker: {harmless_line(words)}" if words else "sticker"
    return f"[{'; '.join(filter(None, (lead, ', '.join(filter(None, facts)))))}]"


def clean_words(text: str) -> str:
    """Return a model's answer as a description: one line of limited length, or an empty string if
    the model saw nothing."""
    line = harmless_line(text).strip(" \"'`*“”„«»")
    if line.rstrip(". ").casefold() == NOTHING:
        return ""
    if len(line) <= WORDS_MAX:
        return line.rstrip(". ")
    return line[: WORDS_MAX - 1].rsplit(" ", 1)[0].rstrip(" .,;") + "…"
