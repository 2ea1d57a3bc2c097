"""What is remembered about a person: theirs to read, correct and erase.

A memory can be erased, the journal cannot: so what is journalled of these commands, and what
answers them, holds none of the words, except where the person asks to see them.
"""

from difflib import get_close_matches
from typing import Final

from perdure.domain.address import is_shared
from perdure.domain.errors import Rejected
from perdure.domain.ids import ConversationId
from perdure.domain.inbound.commands import Given
from perdure.domain.people.memory import Memory
from perdure.store.operations.commands.given import Taken
from perdure.store.operations.people import memories
from perdure.store.operations.people.memories import Person
from perdure.store.operations.setting import Setting
from perdure.store.statement import Op

_VERBS: Final = ("add", "here", "edit", "forget")
_HOW: Final = (
    "/memory add TEXT adds one, /memory here TEXT one for this conversation only, "
    "/memory edit N TEXT corrects one, /memory forget N or forget all erases."
)


def redacted(given: Given) -> str:
    """Return what is journalled of it: the words themselves live in the memories, where they can be
    erased."""
    verb, rest = _first(given.arguments)
    if verb not in _VERBS:
        return ""
    number, _ = _first(rest)
    is_said = verb in ("edit", "forget") and (number == "all" or _is_number(number))
    return f"{verb} {number}" if is_said else verb


def memory(setting: Setting, given: Given) -> Op[Taken]:
    verb, rest = _first(given.arguments)
    match verb:
        case "":
            return (yield from _listed(setting))
        case "add":
            return (yield from _added(setting, rest, conversation=None))
        case "here":
            return (yield from _added(setting, rest, conversation=setting.conversation))
        case "edit":
            return (yield from _edited(setting, rest))
        case "forget":
            return (yield from _forgotten(setting, rest))
        case _:
            near = get_close_matches(verb, _VERBS, n=1)
            hint = f" Did you mean /memory {near[0]}?" if near else ""
            return Taken(f"/memory does not know that word.{hint} {_HOW}")


def _listed(setting: Setting) -> Op[Taken]:
    known = yield from memories.known(_person(setting))
    lines = [
        f"{number}. {each.text}{' (here only)' if each.is_here else ''}"
        for number, each in enumerate(known.here, 1)
    ]
    if known.elsewhere:
        lines.append(f"{known.elsewhere} more for other conversations only; /memory there.")
    return Taken("\n".join([*(lines or ["Nothing is remembered about you."]), _HOW]))


def _added(setting: Setting, text: str, *, conversation: ConversationId | None) -> Op[Taken]:
    try:
        yield from memories.add(
            text,
            key=setting.stamp.mint("mem"),
            principal=setting.update.principal,
            conversation=conversation,
            at=setting.stamp.at,
        )
    except Rejected as error:
        return Taken(_sentence(error))
    where = "in this conversation" if conversation else "everywhere"
    return Taken(f"Remembered, {where}. /memory shows what is.")


def _edited(setting: Setting, rest: str) -> Op[Taken]:
    number, text = _first(rest)
    found = yield from _numbered(setting, number, usage="/memory edit N TEXT")
    if isinstance(found, str):
        return Taken(found)
    try:
        yield from memories.edit(found.id, text, _person(setting), at=setting.stamp.at)
    except Rejected as error:
        return Taken(_sentence(error))
    return Taken(f"Number {number} is corrected.")


def _forgotten(setting: Setting, rest: str) -> Op[Taken]:
    if rest.lower() == "all":
        count = yield from memories.forget_all(setting.update.principal)
        if not count:
            return Taken("Nothing is remembered about you, so there is nothing to forget.")
        gone = "the one thing" if count == 1 else f"all {count} things"
        return Taken(f"Forgotten: {gone} remembered about you, in every conversation.")
    found = yield from _numbered(setting, rest, usage="/memory forget N, or /memory forget all")
    if isinstance(found, str):
        return Taken(found)
    yield from memories.forget(found.id, _person(setting))
    return Taken(f"Number {rest} is forgotten. Those after it have moved up.")


def _numbered(setting: Setting, number: str, *, usage: str) -> Op[Memory | str]:
    """Return the memory of this number in the list, or what is wrong with the number."""
    if not _is_number(number):
        return f"Say which one by its number in /memory: {usage}."
    known = yield from memories.known(_person(setting))
    count = len(known.here)
    if not count:
        return "Nothing is remembered about you. /memory add TEXT adds something."
    if not 1 <= int(number) <= count:
        there = "only number 1" if count == 1 else f"1 to {count}"
        return f"There is no number {number}, {there}. /memory lists them."
    return known.here[int(number) - 1]


def _person(setting: Setting) -> Person:
    update = setting.update
    shared = is_shared(update.address, update.place_kind)
    return Person(update.principal, setting.conversation, is_shared=shared)


def _first(text: str) -> tuple[str, str]:
    """Return the first word, in lower case, and the rest."""
    word, *rest = text.split(maxsplit=1) or [""]
    return word.lower(), rest[0] if rest else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


def _sentence(error: Rejected) -> str:
    return f"{error.message[0].upper()}{error.message[1:]}."
