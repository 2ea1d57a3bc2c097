"""Answers `/memory`: people read, correct and erase what is remembered about them.

A memory can be erased, the journal cannot. So the journal keeps none of the words of these
commands, and the answers repeat none, except where the person asks to see them.
"""

from typing import Final

from perdure.domain.address import is_shared
from perdure.domain.errors import Rejected
from perdure.domain.ids import ConversationId
from perdure.domain.inbound.commands import Given
from perdure.domain.people.memory import Memory
from perdure.domain.sayings.saying import in_lines, in_one_line, worded
from perdure.domain.text import most_like
from perdure.store.operations.commands.command_result import CommandResult
from perdure.store.operations.people import memories
from perdure.store.operations.people.memories import MemoryOwner
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op

_VERBS: Final = ("add", "here", "edit", "forget")
_HOW: Final = worded(
    "/memory add TEXT adds one, /memory here TEXT one for this conversation only, "
    "/memory edit N TEXT corrects one, /memory forget N or forget all erases."
)


def redacted(given: Given) -> str:
    """Return what the journal keeps of the command. The words themselves are stored with the
    memories, where they can be erased."""
    verb, rest = _first(given.arguments)
    if verb not in _VERBS:
        return ""
    number, _ = _first(rest)
    is_said = verb in ("edit", "forget") and (number == "all" or _is_number(number))
    return f"{verb} {number}" if is_said else verb


def memory(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Carry out `/memory`: list, add, edit or forget."""
    verb, rest = _first(given.arguments)
    match verb:
        case "":
            return (yield from _listed(context))
        case "add":
            return (yield from _added(context, rest, conversation=None))
        case "here":
            return (yield from _added(context, rest, conversation=context.conversation))
        case "edit":
            return (yield from _edited(context, rest))
        case "forget":
            return (yield from _forgotten(context, rest))
        case _:
            near = most_like(verb, _VERBS)
            hint = worded("Did you mean /memory {word}?", word=near) if near else ""
            return CommandResult(
                in_one_line(worded("/memory does not know that word."), hint, _HOW)
            )


def _listed(context: TurnContext) -> Op[CommandResult]:
    """List what is remembered about the person, as seen from here."""
    known = yield from memories.known(_person(context))
    lines = [
        worded("{number}. {text} (here only)", number=number, text=each.text)
        if each.is_here
        else f"{number}. {each.text}"
        for number, each in enumerate(known.here, 1)
    ]
    if known.elsewhere:
        lines.append(
            worded(
                "{count} more for other conversations only; /memory there.", count=known.elsewhere
            )
        )
    return CommandResult(in_lines(*(lines or [worded("Nothing is remembered about you.")]), _HOW))


def _added(
    context: TurnContext, text: str, *, conversation: ConversationId | None
) -> Op[CommandResult]:
    """Add a memory, for everywhere or for one conversation."""
    try:
        yield from memories.add(
            text,
            key=context.stamp.mint("mem"),
            principal=context.update.principal,
            conversation=conversation,
            at=context.stamp.at,
        )
    except Rejected as error:
        return CommandResult(_sentence(error))
    if conversation:
        return CommandResult(worded("Remembered, in this conversation. /memory shows what is."))
    return CommandResult(worded("Remembered, everywhere. /memory shows what is."))


def _edited(context: TurnContext, rest: str) -> Op[CommandResult]:
    """Change the memory that has this number."""
    number, text = _first(rest)
    found = yield from _numbered(context, number, usage="/memory edit N TEXT")
    if isinstance(found, str):
        return CommandResult(found)
    try:
        yield from memories.edit(found.id, text, _person(context), at=context.stamp.at)
    except Rejected as error:
        return CommandResult(_sentence(error))
    return CommandResult(worded("Number {number} is corrected.", number=number))


def _forgotten(context: TurnContext, rest: str) -> Op[CommandResult]:
    """Erase the memory with a number, or all of them in every conversation."""
    if rest.lower() == "all":
        count = yield from memories.forget_all(context.update.principal)
        if not count:
            return CommandResult(
                worded("Nothing is remembered about you, so there is nothing to forget.")
            )
        if count == 1:
            return CommandResult(worded("Forgotten: the one thing remembered about you."))
        return CommandResult(
            worded(
                "Forgotten: all {count} things remembered about you, in every conversation.",
                count=count,
            )
        )
    found = yield from _numbered(context, rest, usage="/memory forget N, or /memory forget all")
    if isinstance(found, str):
        return CommandResult(found)
    yield from memories.forget(found.id, _person(context))
    return CommandResult(
        worded("Number {number} is forgotten. Those after it have moved up.", number=rest)
    )


def _numbered(context: TurnContext, number: str, *, usage: str) -> Op[Memory | str]:
    """Return the memory with this number in the list, or what is wrong with the number."""
    if not _is_number(number):
        return worded("Say which one by its number in /memory: {usage}.", usage=usage)
    known = yield from memories.known(_person(context))
    count = len(known.here)
    if not count:
        return worded("Nothing is remembered about you. /memory add TEXT adds something.")
    if not 1 <= int(number) <= count:
        there = worded("only number 1") if count == 1 else worded("1 to {count}", count=count)
        return worded(
            "There is no number {number}, {there}. /memory lists them.", number=number, there=there
        )
    return known.here[int(number) - 1]


def _person(context: TurnContext) -> MemoryOwner:
    """Return whose memories are meant, and from where they are seen."""
    update = context.update
    shared = is_shared(update.address, update.place_kind)
    return MemoryOwner(update.principal, context.conversation, is_shared=shared)


def _first(text: str) -> tuple[str, str]:
    """Return the first word in lower case, and the rest."""
    word, *rest = text.split(maxsplit=1) or [""]
    return word.lower(), rest[0] if rest else ""


def _is_number(text: str) -> bool:
    """Tell whether this is a number that a list could have."""
    return text.isascii() and text.isdigit() and len(text) < 6


def _sentence(error: Rejected) -> str:
    """Return an error's text as a sentence."""
    return f"{error.message[0].upper()}{error.message[1:]}."
