"""Translates requests of the Responses API into the format of chat completions.

Both APIs say the same things, so the rest of the code knows only one of them. Unknown fields are
ignored, and the fields that we need must be valid. Pure.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.journal.model.options import Options
from perdure.domain.text import storable
from perdure.web.openai.completions_wire import call_out, json_text, room

Json = dict[str, Any]
_ROLES: Final = ("user", "assistant", "system", "developer")
_TEXTS: Final = ("input_text", "output_text", "text")
_FUNCTION: Final = ("name", "description", "parameters", "strict")


class Wording(msgspec.Struct):
    format: Json | None = None


class Reasoning(msgspec.Struct):
    effort: str | None = None


class ResponseIn(msgspec.Struct):
    input: str | list[Json] = ""
    model: str = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = False
    metadata: Json | None = None
    tools: list[Json] | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: Wording | None = None
    reasoning: Reasoning | None = None


def response_options(body: ResponseIn) -> Options:
    """Return the options for the model."""
    return Options(
        temperature=body.temperature,
        top_p=body.top_p,
        max_tokens=room(body.max_output_tokens),
        reasoning_effort=storable((body.reasoning and body.reasoning.effort) or ""),
        response_format=json_text(_form(body.text.format) if body.text else None),
        tool_choice=json_text(_choice(body.tool_choice)),
        parallel_tool_calls=body.parallel_tool_calls,
    )


def _form(asked: Json | None) -> Json | None:
    """Return the wanted format as chat completions have it: with the schema in an object of its
    own."""
    if asked is None:
        return None
    kind = _text(asked, "type")
    schema = {key: value for key, value in asked.items() if key != "type"}
    return {"type": kind, kind: schema} if schema else {"type": kind}


def _choice(asked: object) -> object:
    if not isinstance(asked, dict):
        return asked if isinstance(asked, str) else None
    if asked.get("type") != "function":
        raise Rejected(
            f"a `tool_choice` of type {asked.get('type')!r} is not taken; only functions are",
            code="unsupported",
        )
    return {"type": "function", "function": {"name": _text(asked, "name")}}


def messages(body: ResponseIn) -> list[Json]:
    """Return the request's own messages, oldest first. Its instructions become a system message."""
    said: list[Json] = []
    if body.instructions:
        said.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*said, {"role": "user", "content": body.input}]
    for item in body.input:
        _add(said, item)
    return said


def _add(said: list[Json], item: Json) -> None:
    """Translate one input item, and append it to the messages."""
    match item.get("type", "message"):
        case "message":
            said.append(_message(item))
        case "function_call":
            function = {"name": _text(item, "name"), "arguments": _text(item, "arguments")}
            call = {"id": _text(item, "call_id"), "type": "function", "function": function}
            _add_call(said, call)
        case "function_call_output":
            output = item.get("output")
            text = output if isinstance(output, str) else _joined(output)
            said.append({"role": "tool", "tool_call_id": _text(item, "call_id"), "content": text})
        case "reasoning":
            pass  # clients send back whatever any server gave them
        case kind:
            raise Rejected(f"input items of type {kind!r} are not taken", code="unsupported")


def _add_call(said: list[Json], call: Json) -> None:
    """Append a tool call. In chat completions, calls made together and the text before them are one
    message."""
    if not said or said[-1]["role"] != "assistant":
        said.append({"role": "assistant", "content": None})
    # The message is our own, so it is changed in place: copying it for each of its calls would take
    # time that grows with the square of their number.
    last = said[-1]
    last["content"] = last["content"] or None
    last.setdefault("tool_calls", []).append(call)


def _message(item: Json) -> Json:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise Rejected(f"a message's `role` is one of {', '.join(_ROLES)}", code="invalid_messages")
    if isinstance(content, str):
        return {"role": role, "content": content}
    if role == "user":
        return {"role": role, "content": [_part(part) for part in _parts(content)]}
    return {"role": role, "content": _joined(content)}


def _parts(content: object) -> list[Json]:
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise Rejected(
            "`content` and `output` are a string or a list of parts", code="invalid_body"
        )
    return content


def _part(part: Json) -> Json:
    if part.get("type") == "input_image":
        if not isinstance(part.get("image_url"), str):
            raise Rejected(
                "an `input_image` needs an `image_url`; uploaded files are not taken here",
                code="unsupported",
            )
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return {"type": "text", "text": _text_of(part)}


def _joined(content: object) -> str:
    return "\n\n".join(_text_of(part) for part in _parts(content))


def _text_of(part: Json) -> str:
    kind = part.get("type")
    if kind == "refusal":
        return _text(part, "refusal")
    if kind not in _TEXTS:
        raise Rejected(f"content parts of type {kind!r} are not taken here", code="unsupported")
    return _text(part, "text")


def _text(item: Json, field: str) -> str:
    value = item.get(field)
    if not isinstance(value, str):
        kind = item.get("type", "message")
        raise Rejected(f"a {kind!r} needs `{field}`, a string", code="invalid_body")
    return value


def response_tools(tools: Sequence[Json] | None) -> str:
    """Return the caller's functions as JSON in the format of chat completions. Raises `Rejected`
    for tools that a provider would run itself, because nothing here would run them."""
    functions = []
    for tool in tools or ():
        if tool.get("type") != "function":
            raise Rejected(
                f"tools of type {tool.get('type')!r} are not taken; only functions are",
                code="unsupported",
            )
        _text(tool, "name")
        function = {key: tool[key] for key in _FUNCTION if tool.get(key) is not None}
        functions.append({"type": "function", "function": function})
    return msgspec.json.encode(functions).decode() if functions else ""


def exchange(
    text: str, pictures: Sequence[str], answer: str, calls: Sequence[ToolCall]
) -> list[Json]:
    """Return one earlier call as messages: what the user said and what was answered. `pictures` are
    URLs."""
    said: list[Json] = []
    if pictures:
        shown = [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
        words = [{"type": "text", "text": text}] if text.strip() else []
        said.append({"role": "user", "content": [*words, *shown]})
    elif text.strip():
        said.append({"role": "user", "content": text})
    if answer:
        said.append({"role": "assistant", "content": answer})
    for call in calls:
        _add_call(said, call_out(call))
    return said
