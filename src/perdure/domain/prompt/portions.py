"""Divides a conversation for a small window: into what is summarised and what stays, and the former
into portions that are summarised one after another.

A portion is text in one message, with a line before each speaker. So no rule about roles or about
calls and their results can be broken, wherever the text is cut.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from perdure.domain.ids import TurnId
from perdure.domain.journal.attachments import in_words
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.session_events import Compacted
from perdure.domain.prompt.prompt import (
    CallBlock,
    MediaBlock,
    PromptBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    messages_of,
    tokens_of_messages,
)
from perdure.domain.prompt.tokens import tokens_of

_SPEAKERS: Final = {Role.USER: "Person:", Role.ASSISTANT: "Assistant:"}
_BYTES_PER_TOKEN: Final = 3


def divided_at(
    chain: Sequence[Sequence[Recorded]], *, keep_tokens: int, again: bool = False
) -> TurnId | None:
    """Return the turn up to which a chain must be summarised, because the model cannot read it. The
    chain begins with the newest summary, if there is one.

    The newest turns stay that have at most `keep_tokens`, which may be none of them; if all would
    stay, none does. A chain that is only a summary has nothing to summarise: then None is returned,
    or with `again` the turn of that summary, to make it shorter.
    """
    head = _turn_of(chain[-1])
    if _is_summary(chain[-1]):
        return head if again else None
    left = keep_tokens
    for turn in reversed(chain):
        left -= tokens_of_messages(messages_of(turn))
        if _is_summary(turn):
            break
        if left < 0:
            return _turn_of(turn)
    return head


def tokens_told(chain: Sequence[Sequence[Recorded]], *, upto: TurnId) -> int:
    """Return about how many tokens the model reads to know everything up to a turn of the chain."""
    ids = [_turn_of(turn) for turn in chain]
    told = chain[: ids.index(upto) + 1]
    return tokens_of_messages(each for turn in told for each in messages_of(turn))


def _is_summary(turn: Sequence[Recorded]) -> bool:
    return isinstance(turn[0].event, Compacted)


def _turn_of(turn: Sequence[Recorded]) -> TurnId:
    """Return the turn that these events are of, or that a summary goes up to."""
    first = turn[0]
    if isinstance(first.event, Compacted):
        return first.event.upto
    assert first.turn is not None
    return first.turn


def told_in_words(messages: Sequence[PromptMessage]) -> str:
    """Return a conversation as one text."""
    return "\n\n".join(
        f"{_SPEAKERS[message.role]}\n{words}"
        for message in messages
        if (words := "\n".join(filter(None, map(_words, message.blocks))))
    )


def _words(block: PromptBlock) -> str:
    match block:
        case TextBlock(text=text):
            return text
        case MediaBlock(attachment=attachment):
            return in_words(attachment)
        case CallBlock(name=name, arguments=arguments):
            return f"[calls the tool {name} with {arguments}]"
        case ResultBlock(text=text):
            return f"[the tool gives: {text}]"
        case _:
            return ""


def portions(text: str, *, tokens_max: int) -> Iterator[str]:
    """Yield the text in portions of at most `tokens_max` tokens, cut at the end of a line or a word
    where that is possible."""
    at, size = 0, max(tokens_max * _BYTES_PER_TOKEN, 1)
    while at < len(text):
        end = min(at + size, len(text))
        while end > at + 1 and tokens_of(text[at:end]) > tokens_max:
            end = at + (end - at) // 2
        if end < len(text):
            end = _break_before(text, at, end)
        yield text[at:end]
        at = end


def _break_before(text: str, at: int, end: int) -> int:
    """Return the place of a good cut in the second half of a portion, or its end."""
    half = (at + end) // 2
    for mark in ("\n\n", "\n", " "):
        place = text.rfind(mark, half, end)
        if place >= 0:
            return place + len(mark)
    return end


def beginning(text: str, *, tokens_max: int) -> str:
    """Return a text, or its beginning if it is longer than `tokens_max`."""
    if tokens_of(text) <= tokens_max:
        return text
    return next(portions(text, tokens_max=max(tokens_max, 1)), "").rstrip()
