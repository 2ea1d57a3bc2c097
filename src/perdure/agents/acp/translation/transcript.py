"""Puts a request into words for an agent that keeps sessions of its own. It is pure.

A session that is bound gets the person's new message alone. A new session gets what the journal
holds: the instructions, a record of what was said and done, and then the message. Whether a session
that is bound has been told exactly what the journal holds, `Told` tells: the requests of one
conversation grow only at their end, so the next one begins with the bytes of the one before it, as
long as nobody has undone, edited or summarised anything.
"""

import hashlib
from typing import Final

import msgspec

from perdure.domain.journal.attachments import in_words
from perdure.domain.prompt.prompt import (
    CallBlock,
    MediaBlock,
    ModelRequest,
    Note,
    PromptBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    ThoughtBlock,
)

# Agents take a message that begins like this for a command of their own. A character that nobody
# sees, before it, makes it words.
_COMMANDS: Final = ("/", "$", "!", "@", "#")
UNSEEN: Final = "\u200b"
_RECORD: Final = (
    "[What follows is the record of this conversation so far, as lines of JSON, oldest first: what "
    "the person and you have said, the tools that you have called, and what they returned. It is "
    "over: do not answer it, and make none of its calls again. It ends at {mark}.]"
)
_NEW: Final = "[The person's new message, which you are to answer:]"
_GO_ON: Final = (
    "[Your session was lost in the middle of your answer, and the record holds it so far. Go on "
    "where it ends, without repeating what you have said and done.]"
)
_INSTRUCTIONS: Final = "[Instructions for this conversation:]"
_CHANGED: Final = "[The instructions for this conversation have changed. From now on:]"
_CONTEXT: Final = "[What the program that asks has sent before, as JSON:]"
_lines: Final = msgspec.json.Decoder(list[dict[str, str | bool]])


class Told(msgspec.Struct, frozen=True):
    """Identifies what a session was told: a digest of the first `size` bytes of a request."""

    size: int
    digest: str


def encoded(message: PromptMessage) -> bytes:
    """Return a message as lines of the record: JSON objects, joined by commas. Notes are left out,
    because they belong to one request, and so are thoughts, which no other session may read."""
    lines = (_line_of(message.role, block) for block in message.blocks)
    return b",".join(msgspec.json.encode(line) for line in lines if line)


def told_by(request: ModelRequest) -> Told:
    """Return what a session was told that has got this request."""
    whole = _whole(request)
    return Told(len(whole), _digest(whole))


def goes_on_from(told: Told, request: ModelRequest) -> bool:
    """Tell whether a request says to a session only what is new to it: it begins with what the
    session was told, then comes what the agent itself has said and done, and then new words."""
    whole = _whole(request)
    if whole[told.size : told.size + 1] != b"," or _digest(whole[: told.size]) != told.digest:
        return False
    lines = _lines.decode(b"[%b]" % whole[told.size + 1 :])
    new = len(lines)
    while new and _is_new(lines[new - 1]):
        new -= 1
    return 0 < new < len(lines) and not any(map(_is_new, lines[:new]))


def new_words(request: ModelRequest) -> str:
    """Return what a session is told that knows everything else."""
    return _unlike_a_command(added_words(request))


def added_words(request: ModelRequest) -> str:
    """Return what was said beside the results with which a request ends."""
    return "\n\n".join(_newest(request))


def whole_words(request: ModelRequest) -> str:
    """Return what a session is told that knows nothing yet."""
    parts = [f"{_INSTRUCTIONS}\n{request.instructions}"] if request.instructions else []
    parts += [f"{_CONTEXT}\n{request.context}"] if request.context else []
    record = _record(request)
    newest = _newest(request)
    if record:
        mark = _digest(record)[:16]
        parts.append(f"{_RECORD.format(mark=mark)}\n{record.decode()}\n[{mark}]")
    if not newest:
        parts.append(_GO_ON)
    elif parts and _has_words(request):
        parts.append(_NEW)
    return _unlike_a_command("\n\n".join([*parts, *newest]))


def changed_words(instructions: str) -> str:
    """Return how a session is told that its instructions are others now."""
    return f"{_CHANGED}\n{instructions or '(none)'}"


def instructions_digest(request: ModelRequest) -> str:
    """Return what tells whether the instructions are still the same."""
    return _digest(request.instructions.encode())


def results_of(request: ModelRequest) -> list[ResultBlock]:
    """Return the results with which a request ends, in the order of their calls."""
    if len(request.messages) < 2:
        return []
    calls = [b.id for b in request.messages[-2].blocks if isinstance(b, CallBlock)]
    found = {b.call: b for b in request.messages[-1].blocks if isinstance(b, ResultBlock)}
    return [found[call] for call in calls if call in found]


def _newest(request: ModelRequest) -> list[str]:
    """Return the new words of a request: its last message without the results of calls."""
    texts = (_words(block) for block in request.messages[-1].blocks) if request.messages else ()
    return [text for text in texts if text]


def _has_words(request: ModelRequest) -> bool:
    """Tell whether a person has said the new words, or a part of them."""
    return any(isinstance(b, TextBlock | MediaBlock) for b in request.messages[-1].blocks)


def _words(block: PromptBlock) -> str:
    match block:
        case TextBlock(text=text) | Note(text=text):
            return text
        case MediaBlock(attachment=attachment):
            return in_words(attachment)
        case _:
            return ""


def _record(request: ModelRequest) -> bytes:
    """Return everything that was said and done before the new words, as lines of JSON."""
    messages = list(request.messages)
    if messages:
        results = tuple(b for b in messages[-1].blocks if isinstance(b, ResultBlock))
        messages[-1] = PromptMessage(role=Role.USER, blocks=results)
    stretches = [*request.history, *filter(None, map(encoded, messages))]
    lines = _lines.decode(b"[%b]" % b",".join(stretches))
    return b"\n".join(map(msgspec.json.encode, lines))


def _whole(request: ModelRequest) -> bytes:
    """Return all messages of a request, as they will be encoded when they are history."""
    messages = filter(None, map(encoded, request.messages))
    return b",".join((*request.history, *messages))


def _line_of(role: Role, block: PromptBlock) -> dict[str, str | bool] | None:
    who = "you" if role is Role.ASSISTANT else "person"
    match block:
        case TextBlock(text=text):
            return {"from": who, "text": text}
        case MediaBlock(attachment=attachment):
            return {"from": who, "file": in_words(attachment)}
        case CallBlock(id=call, name=name, arguments=arguments):
            return {"from": "you", "called": name, "with": arguments, "call": call}
        case ResultBlock(call=call, text=text, is_error=is_error):
            return {"from": "tool", "call": call, "text": text, "failed": is_error}
        case ThoughtBlock() | Note():
            return None


def _is_new(line: dict[str, str | bool]) -> bool:
    return line["from"] == "person"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _unlike_a_command(text: str) -> str:
    """Return a text that no agent takes for a command of its own."""
    return f"{UNSEEN}{text}" if text.lstrip().startswith(_COMMANDS) else text
