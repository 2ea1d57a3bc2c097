"""Decides whether an agent wants to say nothing.

An agent that nobody waits for, such as one that runs on a schedule or reads along in a group, may
find that there is nothing to tell. It answers with one word in brackets then, and nothing is said.
"""

from typing import Final

NOTHING_TO_SAY: Final = "[SILENT]"


def is_silent(text: str) -> bool:
    """Tell whether an answer is exactly the word for silence. An answer that only contains it is
    said like any other."""
    return text.strip() == NOTHING_TO_SAY


def may_become_silent(text: str) -> bool:
    """Tell whether a growing answer may still become the word for silence. It is not shown yet."""
    return NOTHING_TO_SAY.startswith(text.strip())
