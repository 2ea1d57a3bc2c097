"""Checks that the time of every regular expression in the package grows linearly with its text.

Patterns are applied to other people's text, and a pattern that backtracks would let a stranger
block everybody. So each pattern is found in the source and applied to texts that are made to hurt
it: what its parts match, repeated, behind what leads to them and before what makes the match fail.
The measured time is the processor time of this thread, so a busy machine changes nothing.
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
# The modules that make patterns.
_MAKERS: Final = frozenset({"re", "re2", "regex"})
_FLAGS_AT: Final = {"compile": 1, "split": 3, "sub": 4, "subn": 4}
# Keyword arguments that take a pattern as a plain string, by the class they are given to.
_VALUES: Final = {"Meta": {"pattern"}, "AddressForm": {"pattern", "thread", "person"}}
# This module applies the patterns of `AddressForm`, which are tested where they are written.
_ASKS_VALUES: Final = "perdure/domain/address.py"

# Each size is at most four times the one before: a linear pattern then takes four times as long, a
# quadratic one sixteen times. An exponential pattern would not end at the larger sizes. So the
# short texts grow in small steps, and for them any measurable time is too long; otherwise a fast
# machine would go on to a text that takes years.
_SHORT: Final = (24, 48, 96, 192)
_SIZES: Final = (*_SHORT, 500, 2_000, 8_000, 32_000)
_ENOUGH: Final = 8_000
_SUSPECT_S: Final = 0.003
_GROWTH_MAX: Final = 10
_TIME_MAX_S: Final = 0.25
_TRIES: Final = 4
# A linear pattern does not take this long, however busy the machine is.
_HOPELESS_S: Final = 4 * _TIME_MAX_S
# Ordinary pieces of text, which patterns may meet without naming them.
_ORDINARY: Final = (" ", "\n", "a", "A", "0", "_", "<", "|", "[", "\\", "<@A|", "<script ")
_TEXTS_MAX: Final = 400
_FAILING: Final = "\x00x!"


class Use(NamedTuple):
    """Holds a pattern as one line of the source uses it. The pattern is None if it is put together
    while the program runs."""

    place: str
    pattern: "re.Pattern[Any] | None"
    verb: str


# The parts of a module that tell of patterns.
Tree = Sequence[ast.AST]


def _uses(source: Path = SOURCE) -> Iterator[Use]:
    trees = {path: _tree(path) for path in sorted(source.rglob("*.py"))}
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


def _tree(path: Path) -> Tree:
    """Return what the functions below look for. The whole tree is walked only once, because that
    takes longer than all else."""
    wanted = (ast.Assign, ast.AnnAssign, ast.Attribute, ast.Call)
    return [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, wanted)]


def _calls(tree: Tree) -> Iterator[ast.Call]:
    for node in tree:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re" | "re2"), attr=verb)):
                if verb in _ASKED or verb == "compile":
                    yield node
            case _:
                pass


def _values(tree: Tree) -> Iterator[ast.expr]:
    for node in tree:
        match node:
            case ast.Call(func=ast.Name(id=taker), keywords=words) if taker in _VALUES:
                yield from (word.value for word in words if word.arg in _VALUES[taker])
            case _:
                pass


def _names(tree: Tree) -> dict[ast.AST, str]:
    """Return the names that patterns are assigned to, by the call that makes them."""
    found: dict[ast.AST, str] = {}
    for node in tree:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[value] = name
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[value] = name
            case _:
                pass
    return found


def _asked(trees: Iterable[Tree]) -> Mapping[str, AbstractSet[str]]:
    """Return the methods that are called on each name. A name without such a call is only passed
    on, so any method may be called on it."""
    asked: defaultdict[str, set[str]] = defaultdict(lambda: set(_ASKED))
    for node in chain.from_iterable(trees):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=verb) if verb in _ASKED:
                asked.setdefault(name, set()).add(verb)
            case _:
                pass
    return asked


def _hardest(asked: AbstractSet[str]) -> str:
    """Return the method that takes the most time: one that tries every place of a text takes at
    least as long as one that tries a single place."""
    return min(sorted(asked), key=("fullmatch", "match").__contains__)


def _flags(call: ast.Call, verb: str) -> list[ast.expr]:
    named = [word.value for word in call.keywords if word.arg == "flags"]
    return named + call.args[_FLAGS_AT.get(verb, 2) :][:1]


def _made(path: Path, *written: ast.expr) -> "re.Pattern[Any] | None":
    """Return the pattern as its module makes it, or None if it uses names that exist only at run
    time."""
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
    """Yield texts that the beginnings of a pattern match, and those of every pattern within it."""
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
    """Return a character that a class matches."""
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
    """Yield the characters that a class of the pattern does not match: they may end a long
    match."""
    for operator, value in items:
        if operator is sre.NOT_LITERAL:
            yield chr(value)
        elif operator is sre.IN and value[0][0] is sre.NEGATE:
            yield from _characters(value[1:])
        for inner in _inside(operator, value):
            yield from _excluded(list(inner))


def hostile(pattern: "re.Pattern[Any]") -> Iterator[Callable[[int], str]]:
    """Yield texts that may hurt a pattern, each as a function of its length."""
    parsed = list(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
    examples = list(dict.fromkeys(filter(None, _examples(parsed))))
    letters = sorted({c for example in examples for c in example if not c.isalnum()})
    pumps = dict.fromkeys((*examples, *letters, *_ORDINARY))
    endings = ("", *(f"{c}{_FAILING}" for c in dict.fromkeys(("", *_excluded(parsed)))))
    texts = list(product(("", *examples), pumps, endings))
    # A long pattern has thousands of such texts, and many of them are alike.
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
    """Return a description of how slowly these texts are matched. It is empty if they are not
    slow."""
    before = 0.0
    for size in _SIZES:
        given = text(size)
        cost = _cost_s(ask, given)
        if _is_slow(cost, before, size) and cost < _HOPELESS_S:
            # Something else may have disturbed this one.
            cost = min(cost, *(_cost_s(ask, given) for _ in range(_TRIES)))
        if _is_slow(cost, before, size):
            return f"{cost:.3f} s for {size} characters like {given[:40]!r} … {given[-5:]!r}"
        if cost <= _SUSPECT_S and size >= _ENOUGH:
            return ""
        before = cost
    return ""


def _is_slow(cost: float, before: float, size: int) -> bool:
    """Tell whether a text takes too long, by itself or beside the shorter one before it."""
    is_steep = before > 0 and cost > _GROWTH_MAX * before
    return cost > _TIME_MAX_S or (cost > _SUSPECT_S and (is_steep or size in _SHORT))


def _first_slowness(pattern: "re.Pattern[Any]", verb: str) -> str:
    ask = _asking(pattern, verb)
    return next(filter(None, (slowness(ask, text) for text in hostile(pattern))), "")


@pytest.mark.timeout(300)  # it is one long test, because finding the patterns takes seconds
def test_a_pattern_takes_linear_time() -> None:
    uses = list(_uses())
    unmade = [use.place for use in uses if use.pattern is None]
    assert not unmade, f"make the pattern when the module is loaded, or walk the text: {unmade}"
    places: defaultdict[tuple[re.Pattern[Any], str], list[str]] = defaultdict(list)
    for place, pattern, verb in uses:
        if pattern is not None:
            places[pattern, verb].append(place)
    slow = [
        f"{pattern.pattern!r}, {verb}, in {' and '.join(found)}: {took}"
        for (pattern, verb), found in places.items()
        if (took := _first_slowness(pattern, verb))
    ]
    assert not slow, "\n".join(slow)


def _hidden(source: str) -> list[int]:
    """Return the lines that import a module of patterns in a way that `_calls` does not find."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=module) if module in _MAKERS:
                found.append(node.lineno)
            case ast.Import(names=names) if any(
                each.name == "regex" or (each.name in _MAKERS and each.asname) for each in names
            ):
                found.append(node.lineno)
            case _:
                pass
    return found


def test_no_pattern_is_made_where_it_is_not_looked_for() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): lines
        for path in sorted(SOURCE.rglob("*.py"))
        if (lines := _hidden(path.read_text()))
    }
    assert not found, "write `import re` and `re.compile(…)`, so that the pattern is found"


@pytest.mark.parametrize(
    "line",
    ["from re import compile", "import re as patterns", "import regex", "from re2 import sub"],
)
def test_a_hidden_maker_is_found(line: str) -> None:
    assert _hidden(f"import re\nimport re2\n{line}\n") == [3]


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
    # Proves that `test_a_pattern_takes_linear_time` would fail for such patterns.
    assert _first_slowness(re.compile(pattern), verb)
