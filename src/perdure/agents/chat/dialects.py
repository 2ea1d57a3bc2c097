"""The two wires as values, so that nothing else asks which one it speaks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from perdure.agents.chat import anthropic, anthropic_stream, openai, openai_stream
from perdure.agents.chat.answer import Answer
from perdure.agents.chat.manifest import ChatSettings
from perdure.domain.prompt.prompt import Message, Request


@dataclass(frozen=True, slots=True)
class Dialect:
    """`body` raises `Rejected` for a request it cannot put into words, the readers `Garbage`."""

    url: Callable[[str], str]
    headers: Callable[[ChatSettings], Mapping[str, str]]
    encode: Callable[[Message], bytes]
    body: Callable[[Request, ChatSettings], list[bytes]]
    read: Callable[[bytes, Answer], None]
    read_whole: Callable[[bytes, Answer], None]


DIALECTS: Final[Mapping[str, Dialect]] = {
    "openai": Dialect(
        url=openai.url,
        headers=openai.headers,
        encode=openai.encode,
        body=openai.body,
        read=openai_stream.read,
        read_whole=openai_stream.read_whole,
    ),
    "anthropic": Dialect(
        url=anthropic.url,
        headers=anthropic.headers,
        encode=anthropic.encode,
        body=anthropic.body,
        read=anthropic_stream.read,
        read_whole=anthropic_stream.read_whole,
    ),
}
