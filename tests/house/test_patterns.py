"""Every regular expression of the package takes time that grows with its text, and no faster.

Patterns meet other people's text, and one that backtracks lets a stranger hold up everybody. So
each is found in the source and asked about texts that are made to hurt it: what its own parts
match, repeated, behind what leads there and before what makes it fail. Time is the processor time
of this thread, so that a busy machine changes nothing.
"""

import ast
import importlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, product
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

import pytest

SOURCE: Final = Path(__file__).parents[2] / "src"
_ASKED: Final = frozenset(
    {"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
)
_FLAGS_AT: Final = {"compile": 1, "split": 3, "sub": 4, "subn": 4}
# Patterns that others are given as values, by the name of what takes them.
_VALUES: Final = {"Meta": {"pattern"}, "AddressForm": {"pattern", "thread", "person"}}
# It asks the patterns of `AddressForm`, which are found where they are written.
_ASKS_VALUES: Final = "perdure/domain/address.py"

# From one size to the next a text is four times as long: a linear pattern then takes four times as
# long, a quadratic one sixteen times.
_SIZES: Final = (24, 500, 2_000, 8_000, 32_000)
_ENOUGH: Final = 8_000
_SUSPECT_S: Final = 0.003
_GROWTH_MAX: Final = 10
_TIME_MAX_S: Final = 0.25
_TRIES: Final = 4
# No machine is so busy that a linear pattern takes as long.
_HOPELESS_S: Final = 4 * _TIME_MAX_S
# What text may consist of that no pattern names.
_ORDINARY: Final = (" ", "\n", "a", "A", "0", "_", "<", "|", "[", "\\", "<@A|", "<script ")
_TEXTS_MAX: Final = 400
_FAILING: Final = "\x00x!"


class Use(NamedTuple):
    """A pattern as some line of the source asks it; None for one that is put together as the
    program runs."""

    place: str
    pattern: "re.Pattern[Any] | None"
    verb: str


def _uses(source: Path = SOURCE) -> Iterator[Use]:
    trees = {path: ast.parse(path.read_bytes()) for path in sorted(source.rglob("*.py"))}
    public = _asked(trees.values())
    for path, tree in trees.items():
        place = path.relative_to(source).as_posix()
        names, own = _names(tree), _asked([tree])
        for call in _calls(tree):
            verb, name = call.func.attr, names.get(call, "")  # type: ignore[attr-defined]
            asked = {verb} if verb in _ASKED else (own if name.startswith("_") else public)[name]
            if place != _ASKS_VALUES:
                pattern = _made(path, call.args[0], *_flags(call, verb))
                yield Use(f"{place}:{call.lineno}", pattern, _hardest(asked))
        for value in _values(tree):
            yield Use(f"{place}:{value.lineno}", _made(path, value), "fullmatch")


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re" | "re2"), attr=verb)):
                if verb in _ASKED or verb == "compile":
                    yield node
            case _:
                pass


def _values(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=taker), keywords=words) if taker in _VALUES:
                yield from (word.value for word in words if word.arg in _VALUES[taker])
            case _:
                pass


def _names(tree: ast.Module) -> dict[ast.AST, str]:
    """The names that patterns are given, by the call that makes them."""
    found: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[value] = name
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[value] = name
            case _:
                pass
    return found


def _asked(trees: Iterable[ast.Module]) -> Mapping[str, AbstractSet[str]]:
    """What is asked of each name; of one that is only handed on it may be anything."""
    asked: defaultdict[str, set[str]] = defaultdict(lambda: set(_ASKED))
    for node in chain.from_iterable(map(ast.walk, trees)):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=verb) if verb in _ASKED:
                asked.setdefault(name, set()).add(verb)
            case _:
                pass
    return asked


def _hardest(asked: AbstractSet[str]) -> str:
    """Whoever looks at every place of a text asks for all that one place takes, and more."""
    return min(sorted(asked), key=("fullmatch", "match").__contains__)


def _flags(call: ast.Call, verb: str) -> list[ast.expr]:
    named = [word.value for word in call.keywords if word.arg == "flags"]
    return named + call.args[_FLAGS_AT.get(verb, 2) :][:1]


def _made(path: Path, *written: ast.expr) -> "re.Pattern[Any] | None":
    """The pattern as its module makes it."""
    names = path.relative_to(SOURCE).with_suffix("").parts
    module = importlib.import_module(".".join(names).removesuffix(".__init__"))
    try:
        source, *flags = (
            eval(compile(ast.Expression(each), str(path), "eval"), vars(module)) for each in written
        )
    except NameError:
        return None
    return re.compile(source, *flags)


def _examples(items: Sequence[Any]) -> Iterator[str]:
    """Texts that the beginnings of a pattern match, and those of every pattern within it."""
    text = ""
    for number, (operator, value) in enumerate(items):
        for inner in map(list, _inside(operator, value)):
            for example in _examples(inner):
                yield from (example, text + example)
        text += _example(operator, value)
        behind = items[number + 1][0] if number + 1 < len(items) else None
        if (operator, behind) != (sre.LITERAL, sre.LITERAL):
            yield text


def _inside(operator: Any, value: Any) -> Iterator[Sequence[Any]]:
    match operator:
        case sre.MAX_REPEAT | sre.MIN_REPEAT | sre.POSSESSIVE_REPEAT:
            yield value[2]
        case sre.SUBPATTERN:
            yield value[3]
        case sre.ATOMIC_GROUP:
            yield value
        case sre.BRANCH:
            yield from value[1]
        case sre.ASSERT | sre.ASSERT_NOT:
            yield value[1]
        case _:
            pass


def _example(operator: Any, value: Any) -> str:
    match operator:
        case sre.LITERAL:
            return chr(value)
        case sre.NOT_LITERAL:
            return next(c for c in "a " if ord(c) != value)
        case sre.ANY:
            return "a"
        case sre.IN:
            return _member(value)
        case sre.MAX_REPEAT | sre.MIN_REPEAT | sre.POSSESSIVE_REPEAT:
            return _whole(value[2]) * max(int(value[0]), 1)
        case sre.BRANCH:
            return _whole(value[1][0])
        case sre.ASSERT | sre.ASSERT_NOT:
            return ""
        case _:
            return "".join(_whole(inner) for inner in _inside(operator, value))


def _whole(items: Sequence[Any]) -> str:
    return "".join(_example(operator, value) for operator, value in items)


def _member(members: Sequence[Any]) -> str:
    """A character of a class."""
    if members[0][0] is not sre.NEGATE:
        return next(_characters(members), "a")
    avoided = set(_characters(members[1:]))
    return next((c for c in "a 0!\n" if c not in avoided), "a")


_OF_CATEGORY: Final = {
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_DIGIT: "0",
    sre.CATEGORY_NOT_WORD: "!",
}


def _characters(members: Sequence[Any]) -> Iterator[str]:
    for operator, value in members:
        match operator:
            case sre.LITERAL:
                yield chr(value)
            case sre.RANGE:
                yield from (chr(value[0]), chr(value[1]))
            case sre.CATEGORY:
                yield _OF_CATEGORY.get(value, "a")
            case _:
                pass


def _excluded(items: Sequence[Any]) -> Iterator[str]:
    """The characters that some class of a pattern does not take: what may end a long match."""
    for operator, value in items:
        if operator is sre.NOT_LITERAL:
            yield chr(value)
        elif operator is sre.IN and value[0][0] is sre.NEGATE:
            yield from _characters(value[1:])
        for inner in _inside(operator, value):
            yield from _excluded(list(inner))


def hostile(pattern: "re.Pattern[Any]") -> Iterator[Callable[[int], str]]:
    """Texts that may hurt a pattern, each as a function of how long it is to be."""
    parsed = list(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
    examples = list(dict.fromkeys(filter(None, _examples(parsed))))
    letters = sorted({c for example in examples for c in example if not c.isalnum()})
    pumps = dict.fromkeys((*examples, *letters, *_ORDINARY))
    endings = ("", *(f"{c}{_FAILING}" for c in dict.fromkeys(("", *_excluded(parsed)))))
    texts = list(product(("", *examples), pumps, endings))
    # Of a long pattern there are thousands, which say much the same.
    for lead, pump, ending in texts[:: len(texts) // _TEXTS_MAX * 2 + 1]:
        yield lambda size, lead=lead, pump=pump, ending=ending: (  # type: ignore[misc]
            lead + pump * (size // len(pump)) + ending
        )


def _asking(pattern: "re.Pattern[Any]", verb: str) -> Callable[[str], object]:
    ask = getattr(pattern, verb if verb.endswith("match") else "findall")
    if isinstance(pattern.pattern, bytes):
        return lambda text: ask(text.encode())
    return ask  # type: ignore[no-any-return]


def _cost_s(ask: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    ask(text)
    return time.thread_time() - began


def slowness(ask: Callable[[str], object], text: Callable[[int], str]) -> str:
    """Say how these texts are answered too slowly; empty if they are not."""
    before = 0.0
    for size in _SIZES:
        given = text(size)
        cost = _cost_s(ask, given)
        if _SUSPECT_S < cost < _HOPELESS_S:
            cost = min(cost, *(_cost_s(ask, given) for _ in range(_TRIES)))
        is_steep = cost > _SUSPECT_S and before and cost > _GROWTH_MAX * before
        if cost > _TIME_MAX_S or is_steep:
            return f"{cost:.3f} s for {size} characters like {given[:40]!r} … {given[-5:]!r}"
        if cost <= _SUSPECT_S and size >= _ENOUGH:
            return ""
        before = cost
    return ""


def _first_slowness(pattern: "re.Pattern[Any]", verb: str) -> str:
    ask = _asking(pattern, verb)
    return next(filter(None, (slowness(ask, text) for text in hostile(pattern))), "")


@pytest.mark.parametrize("use", list(_uses()), ids=lambda use: f"{use.place}-{use.verb}")
def test_a_pattern_takes_linear_time(use: Use) -> None:
    assert use.pattern is not None, "make the pattern when the module is loaded, or walk the text"
    found = _first_slowness(use.pattern, use.verb)
    assert not found, f"{use.pattern.pattern!r} takes {found}"


@pytest.mark.parametrize(
    ("pattern", "verb"),
    [
        (r"\s+\Z", "search"),
        (r"\s*,?\s*@bot\s*\Z", "sub"),
        (r"(?m)^\s*USER:", "findall"),
        (r"<@([A-Z0-9]+)(?:\|[^>]*)?>", "findall"),
        (r"<(script|style)\b.*?</\1>", "sub"),
        (r" it is tried again[^;]*\Z", "sub"),
        (r"(a+)+b", "fullmatch"),
        (r"(?:x\w*)*y", "match"),
    ],
)
def test_slow_patterns_are_found(pattern: str, verb: str) -> None:
    """Proves the test above: these are what it must never let through."""
    assert _first_slowness(re.compile(pattern), verb)
