"""Reads the text of a Slack message as people see it. Pure.

Slack escapes three characters, and writes people, channels, groups, links and dates between angle
brackets. Everything else is plain text.
"""

import re
from collections.abc import Mapping
from typing import Final

_PERSON: Final = re.compile(r"<@([A-Z0-9]+)(?:\|[^<>]*)?>")
_TOKEN: Final = re.compile(r"<([^<>\n]+)>")
_SCHEME: Final = re.compile(r"(?:https?://|mailto:|tel:)")


def mentioned(text: str) -> tuple[str, ...]:
    """Return the ids of the people whom a text mentions, in order and without repetition."""
    return tuple(dict.fromkeys(_PERSON.findall(text)))


def read(text: str, *, bot: str, names: Mapping[str, str]) -> str:
    """Return the plain text, without a mention at its ends that only addresses the bot."""
    shown = _TOKEN.sub(lambda found: _shown(found[1], names), _unaddressed(text, bot))
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _unaddressed(text: str, bot: str) -> str:
    """Cut mentions of the bot from both ends. One inside the text is part of what is said."""
    text = text.strip()
    start, end = 0, len(text)
    while behind := _behind_mention(text, start, bot):
        start = behind
        while start < end and (text[start].isspace() or text[start] in ",:"):
            start += 1
    while end > start and text[end - 1] == ">":
        begin = text.rfind("<", start, end)
        if begin < 0 or _behind_mention(text, begin, bot) != end:
            break
        end = begin
        while end > start and text[end - 1].isspace():
            end -= 1
    return text[start:end]


def _behind_mention(text: str, at: int, user: str) -> int:
    """Return where the mention of `user` that begins at `at` ends, or 0 if none begins."""
    opening = f"<@{user}"
    if not text.startswith(opening, at):
        return 0
    end = text.find(">", at)
    label = text[at + len(opening) : end]
    is_whole = end > 0 and (not label or (label[0] == "|" and "<" not in label))
    return end + 1 if is_whole else 0


def _shown(token: str, names: Mapping[str, str]) -> str:
    """Return what people see for the content of angle brackets."""
    target, _, label = token.partition("|")
    match target[:1]:
        case "":  # not a form that Slack writes, so it is shown as it is
            return f"<{token}>"
        case "@":
            return f"@{names.get(target[1:]) or label or target[1:]}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            # `<!here>`, `<!subteam^S1|@team>`, `<!date^…|yesterday>`
            return label or f"@{target[1:].partition('^')[0]}"
        case _:
            return _link(target, label)


def _link(target: str, label: str) -> str:
    bare = _SCHEME.sub("", target, count=1)
    if not label or label in (target, bare):
        return bare if target.startswith(("mailto:", "tel:")) else target
    return f"[{label}]({target})"
