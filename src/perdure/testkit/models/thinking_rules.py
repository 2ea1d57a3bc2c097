"""Lists what the Anthropic wire refuses in a request in which the model is to think."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_BUDGET_MIN: Final = 1_024
_TOP_P_MIN: Final = 0.95
_Block = Mapping[str, Any]


def thinking_violations(body: Mapping[str, Any]) -> list[str]:
    """Return every rule about thinking that this decoded request breaks."""
    thinking = body.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, dict) else thinking
    if kind not in (None, "enabled", "disabled"):
        return ["thinking.type: expected 'enabled' or 'disabled'"]
    if kind != "enabled" or not isinstance(thinking, dict):
        return []
    return [*_options(body, thinking.get("budget_tokens")), *_beginning(body)]


def _options(body: Mapping[str, Any], budget: object) -> Iterator[str]:
    limit, choice = body.get("max_tokens"), body.get("tool_choice")
    if not isinstance(budget, int) or budget < _BUDGET_MIN:
        yield f"thinking.budget_tokens: at least {_BUDGET_MIN}"
    elif isinstance(limit, int) and limit <= budget:
        yield "max_tokens: must be greater than thinking.budget_tokens"
    if body.get("temperature", 1) != 1:
        yield "temperature: may only be set to 1 when thinking is enabled"
    top_p = body.get("top_p", 1)
    if not isinstance(top_p, int | float) or top_p < _TOP_P_MIN:
        yield f"top_p: must be at least {_TOP_P_MIN} when thinking is enabled"
    if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        yield "tool_choice: thinking may not be enabled when it forces tool use"


def _beginning(body: Mapping[str, Any]) -> Iterator[str]:
    """Check that the run of tool calls at the end, if there is one, begins with a thought."""
    first: Sequence[_Block] = ()
    messages = [_blocks(each) for each in body.get("messages") or () if isinstance(each, dict)]
    for index in range(len(messages) - 1, 0, -2):
        if not any(block.get("type") == "tool_result" for block in messages[index]):
            break
        first = messages[index - 1]
    if first and first[0].get("type") not in ("thinking", "redacted_thinking"):
        yield "messages: a final assistant message must start with a thinking block"


def _blocks(message: Mapping[str, Any]) -> Sequence[_Block]:
    content = message.get("content")
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else ()
