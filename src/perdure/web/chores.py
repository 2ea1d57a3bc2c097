"""Small requests that chat front ends make on their own: titles, tags, follow-ups.

Open WebUI sends them as ordinary completions: a text that starts with `### Task:`, shows the JSON
object it wants and quotes the chat. They are answered here from the text itself and never become
turns: nobody said them, and no model is asked. A text that lacks one of the three is somebody's
words, however it begins.
"""

import re
from typing import Final

import msgspec

MARK: Final = "### Task:"
_HISTORY: Final = "<chat_history>"
_WANTED: Final = re.compile(r'\{\s*"(title|tags|follow_ups|queries|prompt|text)"\s*:')
_TITLE_WORDS: Final = 6
_USER_LINE: Final = re.compile(r"^\s*USER:\s*(.+)$", re.MULTILINE)
_WORDS: Final = re.compile(r"[\w'-]+")


def answer(text: str) -> str | None:
    """The JSON text that the front end expects; None for what is no chore."""
    asked, mark, history = text.lstrip().partition(_HISTORY)
    wanted = _WANTED.search(asked)
    if not asked.startswith(MARK) or not mark or wanted is None:
        return None
    match wanted[1]:
        case "title":
            return _json({"title": _title(history)})
        case "tags":
            return _json({"tags": ["General"]})
        case "prompt":
            said = _USER_LINE.findall(history)
            return _json({"prompt": said[-1].strip() if said else ""})
        case "text":
            return _json({"text": ""})
        case several:
            return _json({several: []})


def _title(history: str) -> str:
    said = _USER_LINE.search(history)
    words = _WORDS.findall(said[1]) if said else []
    return " ".join(words[:_TITLE_WORDS]) or "New chat"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
