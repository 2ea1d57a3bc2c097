"""Describes what is wrong with a configuration file, so that the next edit can fix it.

A problem has its file and line. For an unknown name the nearest valid one is suggested, and the
parser's own complaints come with a hint at their usual cause.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.text import most_like

_PLACE: Final = re.compile(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$")
_HINTS: Final = (
    ("Invalid value", 'text needs quotes: key = "value"'),
    ("Expected '=' after a key", "a setting is written key = value, a section [name]"),
    ("Cannot overwrite", "it is set twice; keep one of the two"),
    ("Cannot declare", "this section is written twice; join the two"),
    ("Cannot mutate immutable", "it is already written as { ... }; put the key inside the braces"),
    ("Unclosed array", "end the list with ]"),
    ("Unclosed inline table", "end the table with } on the same line"),
    ("Unterminated string", "end the text with the quote it began with"),
    ("Illegal character '\\n'", "end the text with the quote it began with, on the same line"),
    ("Illegal character '\\r'", "end the line with a newline"),
    ("Unescaped '\\'", "write \\\\ for a backslash, or use 'single quotes'"),
    ("Expected ']'", "end the section's name with ]"),
    ("Expected newline or end of document", "write one setting per line"),
    ("Invalid statement", "a line is a section [name] or a setting key = value"),
)


class Problem(msgspec.Struct, frozen=True):
    """Describes one thing to correct. Line 0 means the file as a whole."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}"


class ConfigError(Rejected):
    """Says that the configuration cannot be used. Lists every problem found, one per line."""

    default_code = "config"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that was most likely meant, or None if none is close."""
    by_folded = {option.lower().replace("-", "_"): option for option in valid}
    folded = name.lower().replace("-", "_")
    close = most_like(folded, by_folded)
    if close:
        return by_folded[close]
    # "timeout" for "timeout_s" is not close enough for the search above, but clearly meant.
    whole = [option for key, option in by_folded.items() if folded in key or key in folded]
    return whole[0] if folded and len(whole) == 1 else None


def instead(name: str, valid: Sequence[str], *, noun: str = "keys") -> str:
    """Return the advice for an unknown name: the nearest valid one, or all valid ones."""
    meant = nearest(name, valid)
    if meant is not None:
        return f"did you mean {in_quotes(meant)}?"
    if not valid:
        return f"there are no {noun} to choose from"
    return f"valid {noun}: {', '.join(valid)}"


def in_quotes(text: str) -> str:
    """Return the text in double quotes, with escapes."""
    return json.dumps(text, ensure_ascii=False)


def malformed(file: Path, text: str, error: tomllib.TOMLDecodeError) -> Problem:
    """Return the parser's complaint with its line and its usual cause."""
    match = _PLACE.match(str(error))
    message, line, column = match.groups() if match else (str(error), None, None)
    hint = next((hint for start, hint in _HINTS if message.startswith(start)), None)
    where = f" at column {column}" if column else ""
    advice = f"; {hint}" if hint else "; mend this line"
    last_line = text.rstrip().count("\n") + 1
    return Problem(
        str(file), int(line) if line else last_line, f"not valid TOML{where}: {message}{advice}"
    )
