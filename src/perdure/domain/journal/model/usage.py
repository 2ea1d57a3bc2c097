"""Holds what model calls have used, and shows people what an answer took."""

from typing import Final

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    model_calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        names = self.__struct_fields__
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})


NOTHING_USED: Final = Usage()


class AnswerUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Shows people what an answer took: the agent that gave it, its tokens, its cost in millionths,
    and how long its attempts worked. Waiting for a person's word is not work."""

    agent: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    model_calls: int = 0
    cost: int = 0
    took_ms: int = 0


def usage_shown(agent: str, usage: Usage, cost: int, *, took_ms: int = 0) -> AnswerUsage | None:
    """Return what an answer took, or None if no agent was asked."""
    if not agent and usage == NOTHING_USED:
        return None
    counted = msgspec.structs.asdict(usage)
    return AnswerUsage(agent=agent, cost=cost, took_ms=took_ms, **counted)
