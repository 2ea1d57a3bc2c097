"""Lists what a strict provider refuses in a model request, as pure functions over the decoded body.

Each wire has one public function that returns every rule that the body breaks, in the order of the
messages. An empty list means that the strictest server of that family accepts the request. Where
the servers of a family differ, the stricter rule applies: OpenAI itself accepts tool arguments that
are not JSON, but other servers with its wire do not.

The functions judge and never repair. They accept any decoded JSON: a body of the wrong shape is a
violation, never an exception.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from perdure.testkit.models.thinking_rules import thinking_violations

_Json = Mapping[str, object]

_OPENAI_ROLES: Final = frozenset({"developer", "system", "user", "assistant", "tool"})
_OPENAI_MESSAGE_KEYS: Final = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio"}
)
# What servers that reason accept besides, in assistant messages only.
_OPENAI_THOUGHTS: Final = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
_OPENAI_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "developer": frozenset({"text"}),
    "system": frozenset({"text"}),
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text"}),
}
_ANTHROPIC_BLOCKS: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result"}),
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use"}),
}
_ANTHROPIC_BLOCK_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
}
_OPENAI_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANTHROPIC_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ANTHROPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_CACHE_MARKS_MAX: Final = 4
_GEMINI_KEYS: Final = frozenset(
    {
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "safetySettings",
        "generationConfig",
        "cachedContent",
    }
)
# A part holds exactly one of these kinds of data, and besides it only keys of `_GEMINI_BESIDES`.
_GEMINI_DATA: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "inlineData", "fileData", "functionResponse"}),
    "model": frozenset(
        {"text", "inlineData", "functionCall", "executableCode", "codeExecutionResult"}
    ),
}
_GEMINI_BESIDES: Final = frozenset({"thought", "thoughtSignature", "videoMetadata"})
_GEMINI_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def openai_violations(body: object) -> list[str]:
    """Return every rule of the chat-completions wire that this decoded request breaks."""
    if not isinstance(body, dict):
        return ["body: expected a JSON object"]
    return [*_model(body), *_openai_options(body), *_openai_messages(body)]


def anthropic_violations(body: object) -> list[str]:
    """Return every rule of the messages wire that this decoded request breaks."""
    if not isinstance(body, dict):
        return ["body: expected a JSON object"]
    messages = _anthropic_messages(body)
    return [*_model(body), *_anthropic_options(body), *messages, *thinking_violations(body)]


def gemini_violations(body: object) -> list[str]:
    """Return every rule of the generateContent wire that this decoded request breaks."""
    if not isinstance(body, dict):
        return ["body: expected a JSON object"]
    return [*_unknown_keys(body, _GEMINI_KEYS, at="body"), *_gemini_contents(body)]


def _model(body: _Json) -> Iterator[str]:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        yield "model: a non-empty string is required"


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _objects(value: object) -> list[_Json]:
    return [item for item in _items(value) if isinstance(item, dict)]


def _tag(item: object, key: str) -> str:
    """Return the string under this key, or an empty string if the value is not a string."""
    value = item.get(key) if isinstance(item, dict) else None
    return value if isinstance(value, str) else ""


def _unknown_keys(item: _Json, known: frozenset[str], *, at: str) -> Iterator[str]:
    if not known.issuperset(item):
        extra = sorted(str(key) for key in item if key not in known)
        yield f"{at}: extra keys are not permitted: {', '.join(extra)}"


def _openai_options(body: _Json) -> Iterator[str]:
    if body.get("stream_options") is not None and body.get("stream") is not True:
        yield "stream_options: only allowed when stream is true"
    if "tools" not in body:
        if "tool_choice" in body or "parallel_tool_calls" in body:
            yield "tool_choice, parallel_tool_calls: only allowed when tools are given"
        return
    if not _items(body["tools"]):
        yield "tools: expected a non-empty array"
    for index, tool in enumerate(_items(body["tools"])):
        yield from _openai_tool(tool, at=f"tools[{index}]")


def _openai_tool(tool: object, *, at: str) -> Iterator[str]:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or tool.get("type") != "function":
        yield f"{at}.type: expected 'function'"
    elif not isinstance(function, dict):
        yield f"{at}.function: expected an object"
    else:
        yield from _name(function.get("name"), _OPENAI_NAME, at=f"{at}.function.name")
        if not isinstance(function.get("parameters", {}), dict):
            yield f"{at}.function.parameters: expected a JSON schema object"


def _name(value: object, pattern: re.Pattern[str], *, at: str) -> Iterator[str]:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        yield f"{at}: expected a string matching {pattern.pattern}"


def _openai_messages(body: _Json) -> Iterator[str]:
    messages = _items(body.get("messages"))
    if not messages:
        yield "messages: expected a non-empty array"
    unanswered: dict[str, None] = {}
    for index, message in enumerate(messages):
        at = f"messages[{index}]"
        if not isinstance(message, dict) or _tag(message, "role") not in _OPENAI_ROLES:
            yield f"{at}.role: expected an object with one of {sorted(_OPENAI_ROLES)}"
            continue
        thoughts = _OPENAI_THOUGHTS if message["role"] == "assistant" else frozenset[str]()
        yield from _unknown_keys(message, _OPENAI_MESSAGE_KEYS | thoughts, at=at)
        yield from _openai_content(message, at=at)
        if message["role"] == "tool":
            yield from _openai_tool_answer(message, unanswered, at=at)
            continue
        yield from _openai_unanswered(unanswered, at=at)
        unanswered.clear()
        if "tool_calls" in message:
            yield from _openai_tool_calls(message, unanswered, at=at)
    yield from _openai_unanswered(unanswered, at="messages")


def _openai_content(message: _Json, *, at: str) -> Iterator[str]:
    role, content = str(message["role"]), message.get("content")
    if content is None:
        if role != "assistant" or not (message.get("tool_calls") or message.get("refusal")):
            yield f"{at}.content: null is only allowed for an assistant message with tool_calls"
    elif not isinstance(content, str):
        if not _items(content):
            yield f"{at}.content: expected a string or a non-empty array of parts"
        kinds = {_tag(part, "type") for part in _items(content)}
        if kinds == {"text"}:  # some servers with this wire accept only strings
            yield f"{at}.content: expected a string, for there is nothing but text in it"
        for index, part in enumerate(_items(content)):
            yield from _openai_part(part, role, at=f"{at}.content[{index}]")


def _openai_part(part: object, role: str, *, at: str) -> Iterator[str]:
    kind = _tag(part, "type")
    if not isinstance(part, dict) or kind not in _OPENAI_PARTS[role]:
        yield f"{at}.type: {role} content takes {sorted(_OPENAI_PARTS[role])}"
    elif kind == "text" and not isinstance(part.get("text"), str):
        yield f"{at}.text: expected a string"


def _openai_tool_answer(message: _Json, unanswered: dict[str, None], *, at: str) -> Iterator[str]:
    call_id = _tag(message, "tool_call_id")
    if call_id not in unanswered:
        yield (
            f"{at}.tool_call_id: {call_id!r} answers no open call; a tool message must follow "
            "the assistant message whose tool_calls it answers, once"
        )
    else:
        del unanswered[call_id]


def _openai_unanswered(unanswered: dict[str, None], *, at: str) -> Iterator[str]:
    if unanswered:
        yield f"{at}: tool calls not answered before this point: {', '.join(unanswered)}"


def _openai_tool_calls(message: _Json, unanswered: dict[str, None], *, at: str) -> Iterator[str]:
    if message["role"] != "assistant":
        yield f"{at}.tool_calls: only allowed in assistant messages"
        return
    if not _items(message["tool_calls"]):
        yield f"{at}.tool_calls: expected a non-empty array; leave the key out instead"
    for index, call in enumerate(_items(message["tool_calls"])):
        here = f"{at}.tool_calls[{index}]"
        yield from _openai_tool_call(call, at=here)
        call_id = _tag(call, "id")
        if not call_id or call_id in unanswered:
            yield f"{here}.id: expected a non-empty string, unique in the message"
        else:
            unanswered[call_id] = None


def _openai_tool_call(call: object, *, at: str) -> Iterator[str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or call.get("type") != "function":
        yield f"{at}.type: expected 'function'"
    if not isinstance(function, dict):
        yield f"{at}.function: expected an object"
        return
    yield from _name(function.get("name"), _OPENAI_NAME, at=f"{at}.function.name")
    if not _is_json_object_text(function.get("arguments")):
        yield f"{at}.function.arguments: expected a string holding a JSON object"


def _is_json_object_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return isinstance(msgspec.json.decode(value), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def _anthropic_options(body: _Json) -> Iterator[str]:
    max_tokens = body.get("max_tokens")
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
        yield "max_tokens: a positive integer is required"
    system = body.get("system")
    if system is not None and not isinstance(system, str):
        for index, block in enumerate(_items(system)):
            yield from _anthropic_text(block, at=f"system[{index}]")
    for index, tool in enumerate(_items(body.get("tools"))):
        yield from _anthropic_tool(tool, at=f"tools[{index}]")
    if (marks := _cache_marks(body)) > _CACHE_MARKS_MAX:
        yield f"cache_control: at most {_CACHE_MARKS_MAX} blocks may carry it, found {marks}"


def _anthropic_tool(tool: object, *, at: str) -> Iterator[str]:
    if not isinstance(tool, dict):
        yield f"{at}: expected an object"
        return
    yield from _name(tool.get("name"), _ANTHROPIC_NAME, at=f"{at}.name")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield f"{at}.input_schema: expected a JSON schema of type object"


def _cache_marks(body: _Json) -> int:
    blocks = [*_objects(body.get("system")), *_objects(body.get("tools"))]
    for message in _objects(body.get("messages")):
        blocks.extend(_objects(message.get("content")))
    return sum(block.get("cache_control") is not None for block in blocks)


def _anthropic_messages(body: _Json) -> Iterator[str]:
    messages = _items(body.get("messages"))
    if not messages:
        yield "messages: expected a non-empty array"
        return
    expected, open_calls, seen = "user", set[str](), set[str]()
    for index, message in enumerate(messages):
        at = f"messages[{index}]"
        role = _tag(message, "role")
        if not isinstance(message, dict) or role != expected:
            yield f"{at}.role: expected {expected!r}: messages alternate, the first is user's"
            return
        yield from _unknown_keys(message, frozenset({"role", "content"}), at=at)
        yield from _anthropic_content(message, at=at)
        blocks = _objects(message.get("content"))
        if role == "user":
            yield from _anthropic_tool_results(blocks, open_calls, at=at)
            open_calls, expected = set(), "assistant"
        else:
            calls = [str(b.get("id")) for b in blocks if b.get("type") == "tool_use"]
            yield from _anthropic_unique(calls, seen, at=at)
            open_calls, expected = set(calls), "user"
    if expected == "user":
        yield "messages: the last message must have the role user, not assistant"


def _anthropic_content(message: _Json, *, at: str) -> Iterator[str]:
    role, content = str(message["role"]), message.get("content")
    if isinstance(content, str):
        if not content.strip():
            yield f"{at}.content: text must contain something other than whitespace"
        return
    if not _items(content):
        yield f"{at}.content: expected a string or a non-empty array of blocks"
    for index, block in enumerate(_items(content)):
        here = f"{at}.content[{index}]"
        kind = _tag(block, "type")
        if not isinstance(block, dict) or kind not in _ANTHROPIC_BLOCKS[role]:
            yield f"{here}.type: {role} content takes {sorted(_ANTHROPIC_BLOCKS[role])}"
        else:
            yield from _anthropic_block(block, kind, at=here)


def _anthropic_block(block: _Json, kind: str, *, at: str) -> Iterator[str]:
    if kind in _ANTHROPIC_BLOCK_KEYS:
        yield from _unknown_keys(block, _ANTHROPIC_BLOCK_KEYS[kind], at=at)
    if kind == "text":
        yield from _anthropic_text(block, at=at)
    elif kind == "tool_use":
        yield from _name(block.get("id"), _ANTHROPIC_ID, at=f"{at}.id")
        yield from _name(block.get("name"), _ANTHROPIC_NAME, at=f"{at}.name")
        if not isinstance(block.get("input"), dict):
            yield f"{at}.input: expected an object"
    elif kind == "tool_result" and not isinstance(block.get("content", ""), str):
        for index, part in enumerate(_items(block.get("content"))):
            if not isinstance(part, dict) or part.get("type") == "text":
                yield from _anthropic_text(part, at=f"{at}.content[{index}]")


def _anthropic_text(block: object, *, at: str) -> Iterator[str]:
    text = block.get("text") if isinstance(block, dict) else None
    if not isinstance(text, str) or not text.strip():
        yield f"{at}.text: text blocks must contain something other than whitespace"


def _anthropic_tool_results(
    blocks: Sequence[_Json], open_calls: set[str], *, at: str
) -> Iterator[str]:
    results = [b for b in blocks if b.get("type") == "tool_result"]
    if any(b.get("type") == "tool_result" for b in blocks[len(results) :]):
        yield f"{at}.content: tool_result blocks must come before any other block"
    answered = set[str]()
    for result in results:
        call_id = str(result.get("tool_use_id"))
        if call_id not in open_calls:
            yield f"{at}.content: tool_result {call_id!r} has no tool_use in the message before"
        if call_id in answered:
            yield f"{at}.content: tool_use {call_id!r} has more than one tool_result"
        answered.add(call_id)
    if missing := sorted(open_calls - answered):
        yield f"{at}.content: tool_use without tool_result right after: {', '.join(missing)}"


def _anthropic_unique(calls: Sequence[str], seen: set[str], *, at: str) -> Iterator[str]:
    for call_id in calls:
        if call_id in seen:
            yield f"{at}.content: tool_use ids must be unique, {call_id!r} is repeated"
        seen.add(call_id)


def _gemini_contents(body: _Json) -> Iterator[str]:
    """Check that roles alternate. There is one exception: the user's words after function responses
    are a content of their own, because a content with function responses may hold nothing else."""
    contents = _items(body.get("contents"))
    if not contents:
        yield "contents: expected a non-empty array"
        return
    last, open_calls = "model", list[str]()
    for index, content in enumerate(contents):
        at = f"contents[{index}]"
        role = _tag(content, "role")
        if not isinstance(content, dict) or role not in _GEMINI_DATA:
            yield f"{at}.role: expected an object with one of {sorted(_GEMINI_DATA)}"
            return
        yield from _unknown_keys(content, frozenset({"role", "parts"}), at=at)
        yield from _gemini_parts(content, role, at=at)
        answers = _named(content, "functionResponse")
        if role == last:
            yield f"{at}.role: {role!r} follows {last!r}: contents alternate, the first is user's"
        if role == "user" and (answers or open_calls):
            yield from _gemini_answers(content, answers, open_calls, at=at)
        open_calls = _named(content, "functionCall")
        last = "function" if answers else role
    if last == "model":
        yield "contents: the last content must have the role user, not model"


def _gemini_parts(content: _Json, role: str, *, at: str) -> Iterator[str]:
    parts = _items(content.get("parts"))
    if not parts:
        yield f"{at}.parts: expected a non-empty array"
    for index, part in enumerate(parts):
        here = f"{at}.parts[{index}]"
        data = part.keys() - _GEMINI_BESIDES if isinstance(part, dict) else set[str]()
        if not isinstance(part, dict) or len(data) != 1 or not data <= _GEMINI_DATA[role]:
            yield f"{here}: {role} parts hold exactly one of {sorted(_GEMINI_DATA[role])}"
        else:
            yield from _gemini_data(part, at=here)


def _gemini_data(part: _Json, *, at: str) -> Iterator[str]:
    if "text" in part:
        text = part["text"]
        if not isinstance(text, str) or not text:
            yield f"{at}.text: expected a non-empty string"
    for kind, inside in (("functionCall", "args"), ("functionResponse", "response")):
        if kind not in part:
            continue
        value = part[kind]
        if not isinstance(value, dict):
            yield f"{at}.{kind}: expected an object"
            continue
        yield from _unknown_keys(value, frozenset({"id", "name", inside}), at=f"{at}.{kind}")
        yield from _name(value.get("name"), _GEMINI_NAME, at=f"{at}.{kind}.name")
        is_required = kind == "functionResponse"
        if not isinstance(value.get(inside, None if is_required else {}), dict):
            yield f"{at}.{kind}.{inside}: expected an object"


def _named(content: _Json, kind: str) -> list[str]:
    """Return each function that is called or answered in this content, as its id, if there is one,
    and its name."""
    found = [part[kind] for part in _objects(content.get("parts")) if kind in part]
    return [f"{_tag(each, 'id')} {_tag(each, 'name')}".strip() for each in found]


def _gemini_answers(
    content: _Json, answers: Sequence[str], open_calls: Sequence[str], *, at: str
) -> Iterator[str]:
    if sorted(answers) != sorted(open_calls):
        yield f"{at}: function calls {list(open_calls)} are answered by {list(answers)}"
    if len(answers) != len(_items(content.get("parts"))):
        yield f"{at}: a content with function responses holds nothing else"
