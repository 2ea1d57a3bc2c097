"""Answers the small requests that chat front ends make on their own: titles, tags, follow-ups.

Open WebUI sends them as ordinary completions: a text that starts with `### Task:`, says what it
wants, and has sections for the output and for the chat. Operators can rewrite these texts. So one
section is enough if the text shows the wanted JSON object, and the chat's section is required if
only words say what is wanted. They are answered here from the text itself and never become turns:
no person said them, and no model is asked. Every other text is treated as a message.
"""

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

MARK: Final = "### Task:"
_HISTORY: Final = re.compile(r"<chat_history>|^### Chat History", re.MULTILINE | re.IGNORECASE)
_OUTPUT: Final = re.compile(r"^### Output", re.MULTILINE | re.IGNORECASE)
_SHOWN: Final = re.compile(r'\{\s*"(title|tags|follow_ups|queries|prompt|text)"\s*:')
_NAMED: Final = {
    "follow_ups": re.compile(r"follow[ -]?up", re.IGNORECASE),
    "tags": re.compile(r"\btags?\b", re.IGNORECASE),
    "title": re.compile(r"\btitle\b", re.IGNORECASE),
}
_TITLE_WORDS: Final = 6
_USER: Final = "USER:"
_REST: Final = re.compile(r"\S[^\n]*")
_WORDS: Final = re.compile(r"[\w'-]+")


def answer(text: str) -> str | None:
    """Return the JSON text that the front end expects, or None if the text is not such a task."""
    if not text.lstrip().startswith(MARK):
        return None
    quoted = _HISTORY.search(text)
    asked = text[: quoted.start()] if quoted else text
    wanted = _wanted(asked, has_history=quoted is not None)
    return None if wanted is None else _done(wanted, text[quoted.end() :] if quoted else "")


def _wanted(asked: str, *, has_history: bool) -> str | None:
    """Return the JSON key that a task asks for, or None."""
    shown = _SHOWN.search(asked)
    if shown and (has_history or _OUTPUT.search(asked)):
        return shown[1]
    named = (what for what, words in _NAMED.items() if words.search(asked))
    return next(named, None) if has_history else None


def _done(wanted: str, history: str) -> str:
    """Return the JSON answer to a task."""
    match wanted:
        case "title":
            return _json({"title": _title(history)})
        case "tags":
            return _json({"tags": ["General"]})
        case "prompt":
            latest = deque(_said(history), maxlen=1)
            return _json({"prompt": latest[0] if latest else ""})
        case "text":
            return _json({"text": ""})
        case several:
            return _json({several: []})


def _title(history: str) -> str:
    words = _WORDS.finditer(next(_said(history), ""))
    return " ".join(word[0] for word in islice(words, _TITLE_WORDS)) or "New chat"


def _said(history: str) -> Iterator[str]:
    """Yield what the person said, one line at a time. Each character is searched only once, however
    many lines a history has and however they begin."""
    at, begins_line = 0, True
    while (user := history.find(_USER, at)) >= 0:
        line = history.rfind("\n", at, user)
        lead = history[max(line + 1, at) : user]
        at, is_first = user + len(_USER), line >= 0 or begins_line
        begins_line = False
        if is_first and not lead.strip() and (rest := _REST.search(history, at)):
            at = rest.end()
            yield rest[0].strip()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
