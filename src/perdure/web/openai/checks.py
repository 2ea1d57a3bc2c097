"""Checks whether a model would accept the messages and tools of a call.

A model's server would refuse them too, but only after the call was stored, and in its own words.
Only rules that every server enforces are checked, and unknown fields are let through. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from perdure.domain.errors import Rejected

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
Json = dict[str, Any]


def check_messages(messages: Sequence[Json]) -> None:
    """Raise `Rejected` that names the first invalid message. Tool calls must be answered right
    after the message that makes them, each once."""
    open_calls: Counter[str] = Counter()
    for number, message in enumerate(messages):
        place = f"`messages[{number}]`"
        role = message.get("role")
        if role not in ROLES:
            raise _wrong(f"{place}: `role` is one of {', '.join(ROLES)}, not {role!r}")
        _check_content(place, message.get("content"))
        match role:
            case "tool":
                _answer(place, message.get("tool_call_id"), open_calls)
            case "user" | "assistant":
                _check_answered(open_calls)
                calls = message.get("tool_calls") if role == "assistant" else None
                open_calls = Counter(_calls(place, calls))
            case _:
                pass  # instructions may stand anywhere
    _check_answered(open_calls)


def check_tools(tools: Sequence[object]) -> None:
    """Raise `Rejected` that names the first tool that is not a function."""
    for number, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        is_function = isinstance(tool, dict) and tool.get("type") == "function"
        if not is_function or not _has_name(function):
            raise _unfit(
                f"`tools[{number}]` is not a function; give "
                '{"type": "function", "function": {"name": …}}'
            )


def _check_content(place: str, content: object) -> None:
    if content is None or isinstance(content, str):
        return
    if isinstance(content, list) and all(_has_type(part) for part in content):
        return
    raise _unfit(f"{place}: `content` is a string, null or a list of parts, each with its `type`")


def _answer(place: str, call: object, open_calls: Counter[str]) -> None:
    """Note that a call is answered. Raises `Rejected` if it is not open. The calls are counted by
    id, because there may be many thousands, answered in any order."""
    if not isinstance(call, str) or not call:
        raise _wrong(f"{place}: a tool's message needs `tool_call_id`, the call that it answers")
    if call not in open_calls:
        raise _wrong(
            f"{place}: no call {call!r} waits for an answer here; calls stand right before"
        )
    open_calls[call] -= 1
    if not open_calls[call]:
        del open_calls[call]


def _check_answered(open_calls: Counter[str]) -> None:
    if open_calls:
        first = next(iter(open_calls))
        raise _wrong(f"the tool call {first!r} is never answered; add a tool's message")


def _calls(place: str, calls: object) -> Iterator[str]:
    if calls is not None and not isinstance(calls, list):
        raise _unfit(f"{place}: `tool_calls` is a list")
    for call in calls or ():
        is_named = isinstance(call, dict) and _has_name(call.get("function"))
        if not is_named or not isinstance(call.get("id"), str) or not call["id"]:
            raise _unfit(f"{place}: each of `tool_calls` needs `id` and `function.name`")
        yield call["id"]


def _has_type(part: object) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def _has_name(function: object) -> bool:
    name = function.get("name") if isinstance(function, dict) else None
    return isinstance(name, str) and bool(name)


def _wrong(message: str) -> Rejected:
    return Rejected(message, code="invalid_messages")


def _unfit(message: str) -> Rejected:
    return Rejected(message, code="invalid_body")
