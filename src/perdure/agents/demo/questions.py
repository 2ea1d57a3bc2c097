"""Reads what the demo agent was asked, and plans its answer.

    demo words=N delay_ms=M    N words, M ms between them
    demo fail                  no word, then a provider's error
    demo cut                   some words, then the stream breaks off
    demo tool NAME {json}      a tool call; its result is quoted in the next answer
    demo file NAME words...    a file of that name that holds these words
    anything else              is said back

The question is the last text that a person wrote; notes do not count. Words of the assistant after
it come from an attempt that was interrupted, so the answer continues there.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Final

import msgspec

from perdure.domain.journal.attachments import GIVEN, in_words
from perdure.domain.journal.events import Attachment
from perdure.domain.prompt.prompt import (
    CallBlock,
    MediaBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
)
from perdure.domain.tools.framing import unframed

WORDS_MAX: Final = 100_000
DELAY_MAX_MS: Final = 60_000
_WORDS_DEFAULT: Final = 50
_WORDS_BEFORE_CUT: Final = 5
_SYLLABLES: Final = (
    "river", "stone", "lamp", "window", "paper", "garden", "bridge", "letter", "harbour", "clock",
    "meadow", "thread", "copper", "island", "ladder", "orchard",
)  # fmt: skip
_OPTION: Final = re.compile(r"(?:(words|delay_ms)=(\d{1,9})|(fail|cut))")
_TOOL: Final = re.compile(r"demo\s+tool\s+(\S+)\s*(.*)", re.DOTALL)
_FILE: Final = re.compile(r"demo\s+file\s+(\S+)\s*(.*)", re.DOTALL)
# In a group, the gateway puts a line with the sender's name before the text. A line that introduces
# a forwarded message is kept, because it is part of what was said.
_SENDER: Final = re.compile(r"\A\[(?!Forwarded from )[^\]\n]*\]\n")
_PIECE: Final = re.compile(r"\S+\s*")
# Longer questions hold no options. Dividing one into its words would hold up everybody.
_OPTIONS_LENGTH_MAX: Final = 10_000
_OFFLINE: Final = "I am the offline demo agent; name a model in perdure.toml for real answers."


class AnswerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an answer before it is given: words to stream, a call or a file, and how it ends. An
    earlier attempt has said the first `words_said` words."""

    text: str = ""
    words_said: int = 0
    delay_ms: int | None = None
    tool: str = ""
    arguments: str = ""
    file: str = ""
    content: str = ""
    fails: bool = False
    is_cut: bool = False

    def pieces(self) -> Iterator[str]:
        """Yield the words that are left to say. A long text is not divided at once."""
        words = (found[0] for found in _PIECE.finditer(self.text))
        return islice(words, self.words_said, None)


@dataclass(slots=True)
class QuestionSoFar:
    """Holds the question, and what has happened since it was asked."""

    question: str = ""
    files: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    words_said: int = 0
    has_given: bool = False
    call_ids: set[str] = field(default_factory=set)


def hear(messages: Iterable[PromptMessage]) -> QuestionSoFar:
    """Find the question and what has happened since, in the messages of a request."""
    heard = QuestionSoFar()
    for message in messages:
        for block in message.blocks:
            match block:
                case TextBlock(text) if message.role is Role.USER:
                    question = _SENDER.sub("", text, count=1).strip()
                    heard = QuestionSoFar(question=question, call_ids=heard.call_ids)
                case TextBlock(text) if text.startswith(GIVEN):
                    heard.has_given = True
                case TextBlock(text):
                    heard.words_said += len(text.split())
                case MediaBlock(attachment=attachment):
                    heard.files.append(_called(attachment))
                case ResultBlock(text=text):
                    heard.results.append(unframed(text))
                    heard.words_said = 0
                case CallBlock(id=call_id):
                    heard.call_ids.add(call_id)
                case _:
                    pass
    return heard


def _called(attachment: Attachment) -> str:
    """Return a file's name. A sticker is described as it is to any model."""
    if attachment.sticker is not None:
        return in_words(attachment)
    return attachment.name or attachment.mime or "a file"


def plan(heard: QuestionSoFar) -> AnswerPlan:
    """Plan the answer, without the words that were said already."""
    tool = _TOOL.fullmatch(heard.question)
    if tool and heard.results:
        quoted = " and ".join(f'"{result}"' for result in heard.results)
        return _rest(AnswerPlan(text=f"The tool {tool[1]} answered: {quoted}."), heard)
    if tool:
        return AnswerPlan(tool=tool[1], arguments=tool[2].strip() or "{}")
    file = _FILE.fullmatch(heard.question)
    if file:
        whole = AnswerPlan(text=f"Here is {file[1]}.", file=file[1], content=file[2])
        return _rest(whole, heard)
    return _rest(_options(heard.question) or AnswerPlan(text=_echo(heard)), heard)


def _options(question: str) -> AnswerPlan | None:
    """Plan what `demo` was told to do. Returns None if the words are not its options."""
    if len(question) > _OPTIONS_LENGTH_MAX:
        return None
    first, *rest = question.split() or [""]
    options = [_OPTION.fullmatch(word) for word in rest]
    if first != "demo" or not options:
        return None
    numbers: dict[str, int] = {}
    flags: set[str] = set()
    for option in options:
        if option is None:
            return None
        if option[3]:
            flags.add(option[3])
        else:
            numbers[option[1]] = int(option[2])
    wanted = numbers.get("words", _WORDS_BEFORE_CUT if "cut" in flags else _WORDS_DEFAULT)
    delay_ms = numbers.get("delay_ms")
    return AnswerPlan(
        text=long_answer(min(wanted, WORDS_MAX)),
        delay_ms=None if delay_ms is None else min(delay_ms, DELAY_MAX_MS),
        fails="fail" in flags,
        is_cut="cut" in flags,
    )


def long_answer(words: int) -> str:
    """Return that many words. All are different, so a missing or repeated one is noticed."""
    rounds = (f"{word}{number or ''}" for number in count() for word in _SYLLABLES)
    return " ".join(islice(rounds, words))


def _echo(heard: QuestionSoFar) -> str:
    said = f'You said: "{heard.question}".' if heard.question else "You said nothing."
    sent = f" You sent: {', '.join(heard.files)}." if heard.files else ""
    return f"{said}{sent} {_OFFLINE}"


def _rest(whole: AnswerPlan, heard: QuestionSoFar) -> AnswerPlan:
    """Return the plan without what an earlier attempt has said or given."""
    file = "" if heard.has_given else whole.file
    return msgspec.structs.replace(whole, words_said=heard.words_said, file=file)
