"""Describes the two wires as values, so that no other code asks which wire it speaks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from perdure.agents.chat.answer.answer import ModelAnswer
from perdure.agents.chat.anthropic import request as anthropic
from perdure.agents.chat.anthropic import stream as anthropic_stream
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.openai import request as openai
from perdure.agents.chat.openai import stream as openai_stream
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage


@dataclass(frozen=True, slots=True)
class ModelDialect:
    """Holds the functions of one wire.

    `body` raises `Rejected` for a request that the wire cannot express. `read` and `read_whole`
    raise `Garbage`.
    """

    url: Callable[[str], str]
    headers: Callable[[ChatSettings], Mapping[str, str]]
    encode: Callable[[PromptMessage], bytes]
    body: Callable[[ModelRequest, ChatSettings], list[bytes]]
    read: Callable[[bytes, ModelAnswer], None]
    read_whole: Callable[[bytes, ModelAnswer], None]


DIALECTS: Final[Mapping[str, ModelDialect]] = {
    "openai": ModelDialect(
        url=openai.url,
        headers=openai.headers,
        encode=openai.encode,
        body=openai.body,
        read=openai_stream.read,
        read_whole=openai_stream.read_whole,
    ),
    "anthropic": ModelDialect(
        url=anthropic.url,
        headers=anthropic.headers,
        encode=anthropic.encode,
        body=anthropic.body,
        read=anthropic_stream.read,
        read_whole=anthropic_stream.read_whole,
    ),
}
