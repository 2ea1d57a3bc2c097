"""Decides how much a model is asked to reason, and which reasoning it gets back.

The word of a call or of a conversation goes before the one in the agent's settings. Where none is
said, nothing is asked, and the model reasons as its server lets it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.agents.chat.manifest import ChatSettings
from perdure.domain.journal.model.options import EFFORTS, NO_EFFORT, Options
from perdure.domain.prompt.prompt import PromptMessage, ResultBlock, Role, ThoughtBlock

# How many tokens of reasoning each word allows on a wire that wants a number.
_BUDGETS: Final = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384}
_BUDGETS_ELSE: Final = _BUDGETS["high"]
BUDGET_MIN: Final = 1_024
# Which part of a limited answer may be reasoning.
_SHARE_MAX: Final = 0.75


def effort_for(asked: Options, settings: ChatSettings) -> str:
    """Return the word for `reasoning_effort`, or an empty string if nothing is asked."""
    return asked.reasoning_effort or EFFORTS.get(settings.reasoning, "")


def is_reasoning(effort: str) -> bool:
    """Tell whether the model is asked to reason."""
    return effort not in ("", NO_EFFORT)


def budget_for(effort: str, *, within: int | None) -> int:
    """Return how many tokens of reasoning this word allows in an answer of at most `within` tokens,
    or 0 if there is no room for reasoning."""
    wanted = _BUDGETS.get(effort, _BUDGETS_ELSE)
    budget = wanted if within is None else min(wanted, int(within * _SHARE_MAX))
    return budget if budget >= BUDGET_MIN else 0


def with_own_thoughts(message: PromptMessage, settings: ChatSettings) -> PromptMessage:
    """Return the message with only the reasoning that this model has given itself: others cannot
    read it, and refuse the signatures in it."""
    foreign = [b for b in message.blocks if _is_foreign(b, settings.thinker)]
    if not foreign:
        return message
    own = tuple(b for b in message.blocks if not _is_foreign(b, settings.thinker))
    return msgspec.structs.replace(message, blocks=own)


def _is_foreign(block: object, thinker: str) -> bool:
    return isinstance(block, ThoughtBlock) and block.thinker != thinker


def loop_has_thoughts(messages: Sequence[PromptMessage]) -> bool | None:
    """Tell whether the run of tool calls with which these messages end began with reasoning, or
    return None if they do not end with results. Such a run is one answer to the provider, which may
    not begin to reason or stop it in between."""
    first: PromptMessage | None = None
    for message in reversed(messages):
        if message.role is Role.ASSISTANT:
            first = message
        elif not any(isinstance(block, ResultBlock) for block in message.blocks):
            break
    if not messages or not _ends_with_results(messages):
        return None
    if first is None:
        return False  # the calls belong to an earlier turn, which is told without thoughts
    return bool(first.blocks) and isinstance(first.blocks[0], ThoughtBlock)


def _ends_with_results(messages: Sequence[PromptMessage]) -> bool:
    return any(isinstance(block, ResultBlock) for block in messages[-1].blocks)
