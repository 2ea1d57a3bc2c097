"""Reads what a text says, with the marks that Telegram put on it (mentions, commands, links).

Marks are counted in UTF-16 units, so the text is edited in that form. It is edited from its end, so
that the positions of earlier marks stay valid.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.adapters.telegram.hearing.updates import Entity, User
from perdure.domain.inbound.arrivals import SCANNED_MAX

_CODEC: Final = "utf-16-le"
# Telegram sends at most a hundred marks. Each one that is edited copies the text, so more are
# ignored.
_MARKS_MAX: Final = 200
# A command has at most 32 characters, and so has a name. Longer marks are cut here.
_NAMED_MAX: Final = 128
_NAMING: Final = frozenset({"mention", "text_mention", "bot_command"})
_SPACE: Final = " ".encode(_CODEC)


class Addressing(msgspec.Struct, frozen=True):
    """Says whom a text addresses. `is_for_us`: it names the bot, or is a command that we know;
    `is_named` is the first of these alone. `is_for_another`: it is a command that names another
    bot. `names_another`: it mentions another bot."""

    is_for_us: bool = False
    is_for_another: bool = False
    is_named: bool = False
    names_another: bool = False


def addressing(text: str, entities: Sequence[Entity], me: User) -> Addressing:
    """Return whom a text addresses, without editing it. Only as much of each mark is read as a name
    can be long, so this is cheap even for a stranger's text."""
    units = text[:SCANNED_MAX].encode(_CODEC, "surrogatepass")
    is_for_us = is_for_another = names_another = False
    for entity in entities[:_MARKS_MAX]:
        if entity.type not in _NAMING:
            continue
        start = 2 * entity.offset
        end = start + 2 * min(entity.length, _NAMED_MAX)
        marked = units[start:end].decode(_CODEC, "replace")
        shown = _shown(entity, marked, me)
        is_for_us = is_for_us or shown not in (None, marked)
        is_for_another = is_for_another or (shown is None and entity.offset == 0)
        names_another = names_another or (shown == marked and _is_bot(entity, marked))
    return Addressing(is_for_us, is_for_another, is_for_us, names_another)


def _is_bot(entity: Entity, marked: str) -> bool:
    """Tell whether a mention names a bot: on Telegram the names of bots end in `bot`."""
    if entity.type == "text_mention":
        return entity.user is not None and entity.user.is_bot
    return entity.type == "mention" and marked.casefold().endswith("bot")


def read(text: str, entities: Sequence[Entity], me: User) -> str:
    """Return the text without the bot's name, and with the URLs of links that hide behind words."""
    units = text.encode(_CODEC, "surrogatepass")
    is_hailed = False
    for entity in sorted(entities[:_MARKS_MAX], key=lambda each: each.offset, reverse=True):
        start, end = 2 * entity.offset, 2 * (entity.offset + entity.length)
        marked = units[start:end].decode(_CODEC, "replace")
        shown = _shown(entity, marked, me)
        if shown is not None and shown != marked:
            is_hailed = is_hailed or (not shown and not units[:start].strip(b" \n\0"))
            end += 2 if not shown and units[end : end + 2] == _SPACE else 0
            units = units[:start] + shown.encode(_CODEC) + units[end:]
    said = units.decode(_CODEC, "replace").strip()
    return said.lstrip(" ,:\n") if is_hailed else said


def _shown(entity: Entity, marked: str, me: User) -> str | None:
    """Return the text to put in the place of a mark. Returns None for a command to another bot."""
    match entity.type:
        case "mention" if _is_name(marked.removeprefix("@"), me):
            return ""
        case "text_mention" if entity.user is not None and entity.user.id == me.id:
            return ""
        case "bot_command" if "@" in marked:
            command, _, name = marked.partition("@")
            return command if _is_name(name, me) else None
        case "text_link" if entity.url and entity.url.rstrip("/") != marked.rstrip("/"):
            return f"[{marked}]({entity.url})"
        case _:
            return marked


def _is_name(name: str, me: User) -> bool:
    return bool(me.username) and name.casefold() == (me.username or "").casefold()
