"""Find docstrings that do not say what is done: `python tests/house/docstrings.py PATH...`

A docstring is a sentence that begins with a verb ("Reserve room for one call."; a class or module
may say "Holds ..."), so that a reader is told what happens and who does it. The verbs are listed in
`verbs.txt`; add one when it is missing, and nothing that is no verb.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PORTS: Final = ROOT / "src" / "perdure" / "ports"
# Verbs whose third person is not made by adding an "s".
_IRREGULAR: Final = {"do": "does", "go": "goes", "have": "has", "undo": "undoes"}

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def verbs() -> frozenset[str]:
    """Read the verbs, each in the imperative and in the third person."""
    plain = (Path(__file__).parent / "verbs.txt").read_text(encoding="utf-8").split()
    return frozenset(plain) | {_third_person(verb) for verb in plain}


def _third_person(verb: str) -> str:
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb.endswith(("s", "x", "ch", "sh", "z")):
        return f"{verb}es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}s"


def offences(path: Path, known: frozenset[str]) -> Iterator[str]:
    """Yield where a docstring of a file does not begin with a verb, and where one is missing."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, _Documented):
            continue
        text = ast.get_docstring(node)
        name = "the module" if isinstance(node, ast.Module) else node.name
        line = 1 if isinstance(node, ast.Module) else node.lineno
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        where = f"{shown}:{line} {name}"
        if text is None:
            if _must_have_one(node, path):
                yield f"{where}: has no docstring"
        elif text.split()[0].lower() not in known:
            yield f"{where}: begins with {text.split()[0]!r}"


def _must_have_one(node: _Documented, path: Path) -> bool:
    """Tell whether a docstring is required: each file outside of the tests needs one, and so does
    each public name of a port, because editors show it to callers."""
    if isinstance(node, ast.Module):
        return bool(node.body) and "tests" not in path.parts
    return PORTS in path.parents and not node.name.startswith("_")


if __name__ == "__main__":
    known = verbs()
    given = [Path(each).resolve() for each in sys.argv[1:]]
    files = [
        file for each in given for file in (sorted(each.rglob("*.py")) if each.is_dir() else [each])
    ]
    found = [offence for file in files for offence in offences(file, known)]
    sys.stdout.write("\n".join([*found, ""]) if found else "every docstring begins with a verb\n")
    sys.exit(bool(found))
