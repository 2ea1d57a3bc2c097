"""Finds the prompt that a message names, and reads its arguments.

A tool server may offer prompts: texts that people ask for by name. The first word of a message
names one, as `/time__brief Zurich`, where `time` is the server; `/brief Zurich` does too if no
command and no other prompt has that name. Some platforms keep words that begin with a slash to
themselves, so an exclamation mark may stand in its place. What follows are the arguments, in the
order of the prompt: a word for each, and the rest for the last. `name=value` gives one by its name.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.inbound.commands import command_in
from perdure.domain.text import harmless_line

# What a reply quotes stands above the person's own words.
_QUOTED: Final = re.compile(r"(?:>[^\n]*\n+)*")
# On some platforms the name of the bot follows the command that is meant for it.
_NAMING: Final = re.compile(r"[/!]([\w.-]{1,128})(?:@\w+)?(?:\s+(.*))?\Z", re.DOTALL | re.ASCII)
_TOKEN: Final = re.compile(r"\S+")
_WORD: Final = re.compile(r"""\s*(?:"([^"]*)"|(\S+))""")
# How much of a server's own words people are shown.
_DESCRIPTION_MAX: Final = 200
_NAME_MAX: Final = 64
_SHOWN_MAX: Final = 20


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True):
    """Describes an argument of a prompt."""

    name: str
    description: str = ""
    is_required: bool = False


class NamedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a prompt. `name` is the one that no other prompt has, and `own` is what its
    `server` calls it."""

    name: str
    server: str
    own: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()

    @property
    def usage(self) -> str:
        """Return how the prompt is called, with the names of its arguments."""
        more = ["…"] if len(self.arguments) > _SHOWN_MAX else []
        shown = [_shown(each) for each in self.arguments[:_SHOWN_MAX]]
        return " ".join([f"/{self.name}", *shown, *more])

    @property
    def about(self) -> str:
        """Return what the server says of the prompt, as one harmless line."""
        return harmless_line(self.description[:_DESCRIPTION_MAX])


class PromptFound(msgspec.Struct, frozen=True, kw_only=True):
    """Says what came of looking for the prompt that a message names: its text, or the `problem` why
    there is none. `is_mistake`: the person can mend that. Without a `name`, the message names no
    prompt."""

    name: str = ""
    text: str = ""
    problem: str = ""
    is_mistake: bool = False


NO_PROMPT: Final = PromptFound()


class TypedName(NamedTuple):
    """Holds the name with which a message begins, and what follows it."""

    name: str
    rest: str


def typed_name(text: str) -> TypedName | None:
    """Return the name that may be that of a prompt, or None if a message begins with none."""
    said = text.strip()
    quoted = _QUOTED.match(said)
    found = _NAMING.match(said, quoted.end() if quoted else 0)
    return TypedName(found[1], (found[2] or "").strip()) if found else None


def names_prompt(text: str) -> bool:
    """Tell whether a message may name a prompt."""
    return typed_name(text) is not None


def short_names(prompts: Iterable[NamedPrompt]) -> dict[str, NamedPrompt]:
    """Return the prompts by those of their own names, in small letters, that mean nothing else."""
    by_name = [(each.own.casefold(), each) for each in prompts]
    times = Counter(name for name, _ in by_name)
    return {name: each for name, each in by_name if times[name] == 1 and not _is_command(name)}


def _is_command(name: str) -> bool:
    given = command_in(f"/{name}")
    return given is not None and given.command is not None


def prompt_named(name: str, prompts: Sequence[NamedPrompt]) -> NamedPrompt | None:
    """Return the prompt that is meant by a name, or None."""
    wanted = name.casefold()
    full = next((each for each in prompts if each.name.casefold() == wanted), None)
    return full or short_names(prompts).get(wanted)


def arguments_in(prompt: NamedPrompt, rest: str) -> dict[str, str]:
    """Return the arguments that follow the name of a prompt. What fits no argument stays in the
    message, where the model reads it."""
    names = {each.name for each in prompt.arguments}
    places = [
        (each.start(), name)
        for each in _TOKEN.finditer(rest)
        if "=" in each[0] and (name := each[0].partition("=")[0]) in names
    ]
    given: dict[str, str] = {}
    ends = [start for start, _ in places[1:]] + [len(rest)]
    for (start, name), end in zip(places, ends, strict=False):
        given[name] = _unquoted(rest[start + len(name) + 1 : end])
    in_order = [each.name for each in prompt.arguments if each.name not in given]
    return given | _in_order(rest[: places[0][0]] if places else rest, in_order)


def _in_order(words: str, names: Sequence[str]) -> dict[str, str]:
    """Return a word for each name, and the rest for the last."""
    given: dict[str, str] = {}
    at = 0
    for name in names[:-1]:
        found = _WORD.match(words, at)
        if found is None:
            return given
        given[name] = found[1] if found[1] is not None else found[2]
        at = found.end()
    if names and (last := _unquoted(words[at:])):
        given[names[-1]] = last
    return given


def _unquoted(value: str) -> str:
    kept = value.strip()
    is_quoted = len(kept) > 1 and kept[0] == kept[-1] == '"' and '"' not in kept[1:-1]
    return kept[1:-1] if is_quoted else kept


def missing_text(prompt: NamedPrompt, given: Mapping[str, str]) -> str:
    """Return what the person is told if required arguments are missing, or an empty string."""
    missing = [each for each in prompt.arguments if each.is_required and not given.get(each.name)]
    if not missing:
        return ""
    told = ", ".join(_explained(each) for each in missing[:_SHOWN_MAX])
    return f"/{prompt.name} needs {told}. Write: {prompt.usage}"


def _explained(argument: PromptArgument) -> str:
    about = harmless_line(argument.description[:_DESCRIPTION_MAX])
    name = harmless_line(argument.name[:_NAME_MAX])
    return f"{name} ({about})" if about else name


def _shown(argument: PromptArgument) -> str:
    name = harmless_line(argument.name[:_NAME_MAX])
    return name if argument.is_required else f"[{name}]"
