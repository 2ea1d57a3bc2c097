"""Small requests that chat front ends make on their own: titles, tags, follow-ups.

Open WebUI sends them as ordinary completions whose text starts with `### Task:`. They are answered
here from the text itself and never become turns: nobody said them, and no model is asked.
"""

import re
from typing import Final

import msgspec

MARK: Final = "### Task:"
_TITLE_WORDS: Final = 6
_USER_LINE: Final = re.compile(r"^\s*USER:\s*(.+)$", re.MULTILINE)
_WORDS: Final = re.compile(r"[\w'-]+")


def is_chore(text: str) -> bool:
    return text.lstrip().startswith(MARK)


def answer(text: str) -> str:
    """The JSON text that the front end expects for the kind of thing it asks for."""
    wants = text.lower()
    if '"follow_ups"' in wants or "follow-up" in wants or "follow_up" in wants:
        return _json({"follow_ups": []})
    if '"tags"' in wants:
        return _json({"tags": ["General"]})
    if '"queries"' in wants:
        return _json({"queries": []})
    if '"title"' in wants:
        return _json({"title": _title(text)})
    return ""


def _title(text: str) -> str:
    said = _USER_LINE.search(text)
    words = _WORDS.findall(said.group(1)) if said else []
    return " ".join(words[:_TITLE_WORDS]) or "New chat"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
