"""Reads the checklist of a heartbeat. While nothing is on it, no model is asked."""

from typing import Final

DEFAULT_PROMPT: Final = "Go through this checklist, and tell me what needs my attention."
# The most of a checklist that a model is told.
CHECKLIST_MAX: Final = 20_000
_RULES: Final = frozenset("-*_= ")
_BOXES: Final = ("[]", "[ ]")


def has_items(checklist: str) -> bool:
    """Tell whether something is on the checklist."""
    return any(map(_is_item, checklist[:CHECKLIST_MAX].splitlines()))


def _is_item(line: str) -> bool:
    """Tell whether a line says something to do: it is no heading, comment or rule, and no item that
    is empty or done."""
    words = line.strip()
    if words.startswith("#") or (words.startswith("<!--") and words.endswith("-->")):
        return False
    if _RULES.issuperset(words):
        return False
    item = words[1:].strip() if words[0] in "-*+" else words
    return item[:3].lower() != "[x]" and item not in _BOXES


def checklist_prompt(prompt: str, checklist: str) -> str:
    """Return what an agent is asked about the checklist."""
    return f"{prompt or DEFAULT_PROMPT}\n\n{checklist[:CHECKLIST_MAX].strip()}"
