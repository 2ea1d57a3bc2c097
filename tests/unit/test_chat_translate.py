"""Checks the chat agent's translations in both directions, without a network."""

from typing import Any

import msgspec
import pytest

from perdure.agents.chat import failures
from perdure.agents.chat.answer.answer import Garbage, ModelAnswer
from perdure.agents.chat.anthropic import request as anthropic
from perdure.agents.chat.complaints import Complaint, complaint
from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.intake import AnswerIntake
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.openai import request as openai
from perdure.domain.errors import Rejected
from perdure.domain.journal.events import Attachment
from perdure.domain.journal.model.options import Options
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.bounds import AnswerRoom, Bounds, Measure
from perdure.domain.prompt.prompt import (
    CallBlock,
    MediaBlock,
    ModelRequest,
    Note,
    PromptBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
)
from perdure.domain.turn.stream import AgentCall
from perdure.testkit.models.wire_rules import anthropic_violations, openai_violations

SETTINGS = ChatSettings(base_url="http://127.0.0.1:1/v1", model="m")
RULES = {"openai": openai_violations, "anthropic": anthropic_violations}
PNG = Attachment(mime="image/png", name="cat.png", url="https://files.example/bot-token/cat.png")
TOOLS = (
    '[{"type":"function","function":{"name":"look","description":"Look.","parameters":'
    '{"type":"object","properties":{"at":{"type":"string"}}}}},'
    '{"type":"function","function":{"name":"wait"}}]'
)
NOTHING = ModelRequest(instructions="", prefix=b"", messages=())


def user(*blocks: PromptBlock) -> PromptMessage:
    return PromptMessage(role=Role.USER, blocks=blocks)


def assistant(*blocks: PromptBlock) -> PromptMessage:
    return PromptMessage(role=Role.ASSISTANT, blocks=blocks)


def call(call_id: str, arguments: str = "{}", name: str = "look") -> CallBlock:
    return CallBlock(id=call_id, name=name, arguments=arguments)


def result(call_id: str, text: str = "seen", *, is_error: bool = False) -> ResultBlock:
    return ResultBlock(call=call_id, text=text, is_error=is_error)


HISTORY = (
    user(TextBlock("hi"), MediaBlock(attachment=PNG, data=b"\x89PNG")),
    assistant(TextBlock("Looking."), call("c1", '{"at": "sea"}'), call("c 2", "not json", "a.b")),
    user(result("c1"), result("c 2", "bad arguments", is_error=True)),
    assistant(TextBlock("It is"), TextBlock("blue.")),
    user(TextBlock("and now?"), Note("[you were interrupted]")),
)


def sent(api: str, request: ModelRequest, settings: ChatSettings = SETTINGS) -> dict[str, Any]:
    decoded = msgspec.json.decode(b"".join(DIALECTS[api].body(request, settings)))
    assert isinstance(decoded, dict)
    return decoded


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_note_is_told_to_the_model(api: str) -> None:
    encoded = DIALECTS[api].encode(user(TextBlock("hello"), Note("[you were interrupted]")))

    assert b"hello" in encoded
    assert b"[you were interrupted]" in encoded


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize("cut", [0, 2, 4])
def test_a_history_is_valid_wherever_its_encoded_part_ends(api: str, cut: int) -> None:
    prefix = b",".join(map(DIALECTS[api].encode, HISTORY[:cut]))

    body = sent(
        api,
        ModelRequest(instructions="Be brief.", prefix=prefix, messages=HISTORY[cut:], tools=TOOLS),
    )

    assert RULES[api](body) == []


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_the_encoded_part_stands_in_the_request_byte_by_byte(api: str) -> None:
    prefix = b'{"never":  "opened"}'

    body = b"".join(
        DIALECTS[api].body(
            ModelRequest(instructions="x", prefix=prefix, messages=HISTORY[:1], tools=TOOLS),
            SETTINGS,
        )
    )

    assert b"," + prefix + b"," in body or b"[" + prefix + b"," in body


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_file_that_cannot_be_seen_is_named_without_its_address(api: str) -> None:
    for media in (
        MediaBlock(attachment=PNG),
        MediaBlock(attachment=Attachment(mime="image/heic", name="cat.png"), data=b"x"),
    ):
        encoded = DIALECTS[api].encode(user(media))

        assert b"cat.png" in encoded
        assert b"bot-token" not in encoded
        assert b"base64" not in encoded


def test_openai_gives_each_result_its_own_message() -> None:
    encoded = openai.encode(user(result("a"), result("b"), TextBlock("go on")))

    assert msgspec.json.decode(b"[" + encoded + b"]") == [
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
        {"role": "tool", "tool_call_id": "b", "content": "seen"},
        {"role": "user", "content": "go on"},
    ]


def test_openai_joins_the_texts_of_an_assistant() -> None:
    assert msgspec.json.decode(openai.encode(HISTORY[3])) == {
        "role": "assistant",
        "content": "It is\n\nblue.",
    }
    assert msgspec.json.decode(openai.encode(assistant(call("c", '{"a":1}'))))["content"] is None


NOTES = Attachment(mime="text/plain", name="notes.txt", text="milk, bread")
ONLY_TEXT = {
    "two messages after a stop": user(TextBlock("first"), TextBlock("second")),
    "a note behind a message": user(TextBlock("go on"), Note("[you were interrupted]")),
    "a text document": user(TextBlock("read this"), MediaBlock(attachment=NOTES)),
    "a picture that nobody can see": user(TextBlock("see"), MediaBlock(attachment=PNG)),
    "a result and two messages": user(result("c"), TextBlock("and"), TextBlock("then")),
    "an answer in two pieces": assistant(TextBlock("It is"), TextBlock("blue."), call("c")),
}


@pytest.mark.parametrize("message", ONLY_TEXT.values(), ids=ONLY_TEXT)
def test_openai_tells_what_is_only_text_as_one_string(message: PromptMessage) -> None:
    encoded = msgspec.json.decode(b"[" + openai.encode(message) + b"]")

    assert all(isinstance(each["content"], str) for each in encoded)
    told = "\n\n".join(each["content"] for each in encoded)
    for block in message.blocks:
        if isinstance(block, TextBlock | Note | ResultBlock):
            assert block.text in told


def test_openai_keeps_a_list_where_a_picture_is_in_it() -> None:
    content = msgspec.json.decode(openai.encode(HISTORY[0]))["content"]

    assert [part["type"] for part in content] == ["text", "image_url"]


def test_openai_tells_a_callers_lists_of_text_as_strings() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://files.example/cat.png"}}
    marked = {"type": "text", "text": "kept", "cache_control": {"type": "ephemeral"}}
    texts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    lists: list[list[dict[str, Any]]] = [texts, [*texts, picture], [marked], []]
    context = msgspec.json.encode(
        [{"role": "user", "content": each, "name": "Ada"} for each in lists]
    ).decode()

    body = sent("openai", ModelRequest(instructions="", prefix=b"", messages=(), context=context))

    told = [message["content"] for message in body["messages"]]
    assert told == ["one\n\ntwo", *lists[1:]]
    assert {message["name"] for message in body["messages"]} == {"Ada"}


def test_openai_shows_a_picture_as_a_data_url() -> None:
    content = msgspec.json.decode(openai.encode(HISTORY[0]))["content"]

    assert content[1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="


def test_openai_splices_the_callers_messages_after_the_instructions() -> None:
    context = ' [{"role": "user", "content": "a"}, {"role":"assistant","content":"b"}] '

    body = sent(
        "openai", ModelRequest(instructions="i", prefix=b"", messages=HISTORY[4:], context=context)
    )

    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("http://127.0.0.1/v1", "max_tokens"),
        ("https://api.openai.com/v1", "max_completion_tokens"),
    ],
)
def test_openai_names_the_token_limit_as_the_server_knows_it(base_url: str, name: str) -> None:
    settings = ChatSettings(base_url=base_url, model="m", max_tokens=5, temperature=0.5)

    body = sent("openai", ModelRequest(instructions="", prefix=b"", messages=HISTORY[4:]), settings)

    assert body[name] == 5
    assert body["temperature"] == 0.5


OPTIONS = Options(
    temperature=1.5,
    top_p=0.9,
    max_tokens=7,
    stop=("end",),
    seed=3,
    presence_penalty=0.1,
    reasoning_effort="low",
    tool_choice='{"type":"function","function":{"name":"look at"}}',
    parallel_tool_calls=False,
)


def asking(options: Options, tools: str = TOOLS) -> ModelRequest:
    return ModelRequest(
        instructions="", prefix=b"", messages=HISTORY[4:], tools=tools, options=options
    )


def test_openai_is_asked_in_the_callers_words() -> None:
    form = '{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object"}}}'
    settings = ChatSettings(base_url="http://127.0.0.1/v1", model="m", temperature=0.5)
    request = asking(msgspec.structs.replace(OPTIONS, response_format=form))

    body = sent("openai", request, settings)

    assert RULES["openai"](body) == []
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (1.5, 0.9, 7)
    assert (body["stop"], body["seed"], body["presence_penalty"]) == (["end"], 3, 0.1)
    assert (body["reasoning_effort"], body["parallel_tool_calls"]) == ("low", False)
    assert body["tool_choice"]["function"]["name"] == "look at"
    assert body["response_format"]["json_schema"]["name"] == "a"
    assert "frequency_penalty" not in body


def test_anthropic_is_asked_in_its_own_words() -> None:
    body = sent("anthropic", asking(OPTIONS))

    assert RULES["anthropic"](body) == []
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (1.0, 0.9, 7)
    assert body["stop_sequences"] == ["end"]
    choice = body["tool_choice"]
    assert (choice["type"], choice["disable_parallel_tool_use"]) == ("tool", True)
    assert {"seed", "stop", "presence_penalty", "reasoning_effort"} & {*body} == set()


@pytest.mark.parametrize(
    ("said", "meant"), [("auto", "auto"), ("required", "any"), ("none", "none")]
)
def test_a_choice_among_tools_is_the_same_on_both_wires(said: str, meant: str) -> None:
    options = Options(tool_choice=f'"{said}"')

    assert sent("openai", asking(options))["tool_choice"] == said
    assert sent("anthropic", asking(options))["tool_choice"] == {"type": meant}


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_without_tools_there_is_no_choice(api: str) -> None:
    body = sent(api, asking(OPTIONS, tools=""))

    assert {"tool_choice", "parallel_tool_calls"} & {*body} == set()


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_an_agents_own_limit_is_not_exceeded(api: str) -> None:
    settings = ChatSettings(base_url="http://127.0.0.1/v1", model="m", max_tokens=5)

    assert sent(api, asking(Options(max_tokens=9)), settings)["max_tokens"] == 5
    assert sent(api, asking(Options(max_tokens=3)), settings)["max_tokens"] == 3


def test_anthropic_refuses_a_form_it_has_no_word_for() -> None:
    sent("anthropic", asking(Options(response_format='{"type":"text"}')))
    with pytest.raises(Rejected, match="response_format"):
        sent("anthropic", asking(Options(response_format='{"type":"json_object"}')))


def marks(value: object, path: str = "") -> list[str]:
    if isinstance(value, dict):
        here = [path] if "cache_control" in value else []
        return here + [m for k, v in value.items() for m in marks(v, f"{path}/{k}")]
    if isinstance(value, list):
        return [m for i, v in enumerate(value) for m in marks(v, f"{path}/{i}")]
    return []


def test_anthropic_marks_what_the_next_request_will_repeat() -> None:
    prefix = b",".join(map(anthropic.encode, HISTORY[:2]))
    request = ModelRequest(instructions="i", prefix=prefix, messages=HISTORY[2:], tools=TOOLS)

    body = sent("anthropic", request)

    assert marks(body) == ["/tools/1", "/system/0", "/messages/4/content/0"]
    assert b"".join(anthropic.body(request, SETTINGS)).count(prefix) == 1


def test_anthropic_translates_tools_and_arguments() -> None:
    body = sent(
        "anthropic", ModelRequest(instructions="", prefix=b"", messages=HISTORY, tools=TOOLS)
    )

    assert body["tools"][0]["input_schema"]["properties"] == {"at": {"type": "string"}}
    calls = body["messages"][1]["content"][1:]
    assert [c["input"] for c in calls] == [{"at": "sea"}, {}]
    results = body["messages"][2]["content"]
    assert [c["id"] for c in calls] == [r["tool_use_id"] for r in results]
    assert [r.get("is_error", False) for r in results] == [False, True]


def test_anthropic_puts_the_callers_messages_into_its_own_order() -> None:
    context = msgspec.json.encode(
        [
            {"role": "system", "content": "first"},
            {"role": "assistant", "content": "welcome"},
            {"role": "user", "content": [{"type": "text", "text": "see"}, {
                "type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
            {"role": "developer", "content": "second"},
            {"role": "user", "content": "well?"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "x:1", "type": "function",
                 "function": {"name": "look", "arguments": '{"a":1}'}}]},
            {"role": "tool", "tool_call_id": "x:1", "content": "done"},
        ]
    ).decode()  # fmt: skip

    body = sent(
        "anthropic",
        ModelRequest(instructions="own", prefix=b"", messages=HISTORY[4:], context=context),
    )

    assert anthropic_violations(body) == []
    assert [b["text"] for b in body["system"]] == ["own", "first", "second"]
    roles = [m["role"] for m in body["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert [b["type"] for b in body["messages"][2]["content"]] == ["text", "image", "text"]
    assert [b["type"] for b in body["messages"][4]["content"]] == ["tool_result", "text", "text"]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_context_that_is_no_list_is_rejected(api: str) -> None:
    with pytest.raises(Rejected):
        sent(api, ModelRequest(instructions="", prefix=b"", messages=HISTORY[4:], context="{}"))


def test_the_anthropic_address_may_end_in_its_version_or_not() -> None:
    assert anthropic.url("https://a.example/") == "https://a.example/v1/messages"
    assert anthropic.url("https://a.example/v1") == "https://a.example/v1/messages"


def chunk(delta: object, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + msgspec.json.encode({"choices": [choice]}) + b"\n\n"


def taken(api: str, *pieces: bytes) -> AnswerIntake:
    intake = AnswerIntake(DIALECTS[api])
    for piece in pieces:
        intake.feed(piece)
    return intake


def piece(arguments: object = None, **fields: object) -> dict[str, object]:
    function = {"name": fields.pop("name", None), "arguments": arguments}
    return {"tool_calls": [{**fields, "function": function}]}


ONE = [AgentCall(id="a", name="look", arguments='{"at":1}')]
TWO = [*ONE, AgentCall(id="b", name="wait", arguments="{}")]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param(
            [
                piece("", index=0, id="a", name="look"),
                piece('{"at"', index=0),
                piece(":1}", index=0),
            ],
            ONE,
            id="fragments",
        ),
        pytest.param(
            [
                piece("", index=0, id="a", name="look"),
                piece("{", index=1, id="b", name="wait"),
                piece('{"at":1}', index=0),
                piece("}", index=1),
            ],
            TWO,
            id="interleaved",
        ),
        pytest.param(
            [piece('{"at":1}', id="a", name="look"), piece("{}", id="b", name="wait")],
            TWO,
            id="whole, no index",
        ),
        pytest.param(
            [
                piece('{"at":1}', index=0, id="a", name="look"),
                piece("{}", index=0, id="b", name="wait"),
            ],
            TWO,
            id="all under index 0",
        ),
        pytest.param(
            [piece('{"at"', id="a", name="look"), piece(":1}", id="a", name="look")],
            ONE,
            id="name and id repeated",
        ),
        pytest.param(
            [piece('{"at"', index=0, id="a", name="look"), piece(":1}", index=0, name="look")],
            ONE,
            id="name repeated",
        ),
        pytest.param([piece({"at": 1}, index=0, id="a", name="look")], ONE, id="an object"),
        pytest.param(
            [piece('{"at":1}', name="look"), piece(None, name="wait")],
            [
                AgentCall(id="call_0_0", name="look", arguments='{"at":1}'),
                AgentCall(id="call_0_1", name="wait", arguments="{}"),
            ],
            id="no index, no id",
        ),
        pytest.param(
            [piece("{oops", index=0, id="a", name="look")],
            [AgentCall(id="a", name="look", arguments="{oops")],
            id="arguments that are no JSON",
        ),
        pytest.param(
            [{"function_call": {"name": "look", "arguments": '{"at":1}'}}],
            [AgentCall(id="call_0_0", name="look", arguments='{"at":1}')],
            id="the old way",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("finish", ["tool_calls", "stop", "function_call"])
def test_calls_are_put_together(pieces: list[object], calls: list[AgentCall], finish: str) -> None:
    answer = taken("openai", *map(chunk, pieces), chunk({}, finish)).answer

    whole = list(answer.calls.whole(NOTHING))

    assert [
        msgspec.structs.replace(c, arguments=c.arguments.replace(" ", "")) for c in whole
    ] == calls
    assert answer.outcome() is StopReason.TOOL_CALLS


@pytest.mark.parametrize("is_encoded", [True, False])
def test_a_call_id_that_the_request_holds_already_is_replaced(is_encoded: bool) -> None:
    earlier = assistant(call("a"))
    request = ModelRequest(
        instructions="",
        prefix=openai.encode(earlier) if is_encoded else b"",
        messages=() if is_encoded else (earlier,),
    )
    answer = taken("openai", chunk(piece("{}", index=0, id="a", name="look"), "stop")).answer

    (whole,) = answer.calls.whole(request)

    assert whole.id not in ("", "a")


@pytest.mark.parametrize(
    ("said", "reason", "has_detail"),
    [
        ("stop", StopReason.STOP, False),
        ("length", StopReason.LENGTH, False),
        ("content_filter", StopReason.CONTENT_FILTER, False),
        ("tool_calls", StopReason.STOP, False),
        ("eos", StopReason.STOP, True),
        (None, None, False),
    ],
)
def test_each_finish_reason_of_openai_has_its_meaning(
    said: str | None, reason: StopReason | None, has_detail: bool
) -> None:
    answer = taken("openai", chunk({"content": "x"}, said), b"data: [DONE]\n\n").answer

    assert answer.outcome() is reason
    assert bool(answer.detail) is has_detail


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", StopReason.STOP),
        ("max_tokens", StopReason.LENGTH),
        ("refusal", StopReason.CONTENT_FILTER),
        ("pause_turn", StopReason.STOP),
    ],
)
def test_each_stop_reason_of_anthropic_has_its_meaning(said: str, reason: StopReason) -> None:
    event = {"type": "message_delta", "delta": {"stop_reason": said}}

    answer = taken("anthropic", b"data: " + msgspec.json.encode(event) + b"\n\n").answer

    assert answer.outcome() is reason


def test_the_end_of_a_message_without_a_reason_is_no_finish() -> None:
    said = {"type": "content_block_delta", "index": 0, "delta": {"text": "x"}}
    events = [said, {"type": "message_delta", "delta": {}}, {"type": "message_stop"}]
    pieces = [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events]

    answer = taken("anthropic", *pieces).answer

    assert answer.is_over
    assert answer.outcome() is None


def test_usage_counts_cached_tokens_as_input_on_both_wires() -> None:
    openai_usage = (
        b'{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}'
    )
    start = (
        b'{"input_tokens":3,"cache_read_input_tokens":4,'
        b'"cache_creation_input_tokens":2,"output_tokens":1}'
    )

    one = taken("openai", b'data: {"choices":[],"usage":' + openai_usage + b"}\n\n").answer
    two = taken(
        "anthropic",
        b'data: {"type":"message_start","message":{"usage":' + start + b"}}\n\n",
        b'data: {"type":"message_delta","delta":{},"usage":{"output_tokens":2}}\n\n',
    ).answer

    assert one.usage == Usage(input_tokens=9, output_tokens=2, cache_read_tokens=4, model_calls=1)
    assert two.usage == msgspec.structs.replace(one.usage, cache_write_tokens=2)


@pytest.mark.parametrize(
    "event",
    [
        b'{"error":{"message":"no memory"}}',
        b'{"error":"no memory"}',
        b'{"object":"error","message":"no memory"}',
        b'{"error":{"message":"no memory"},"choices":[{"delta":{},"finish_reason":"error"}]}',
    ],
)
def test_an_error_in_the_stream_is_no_finish(event: bytes) -> None:
    answer = taken("openai", b"data: " + event + b"\n\n").answer

    assert answer.error is not None
    assert answer.error.text == "no memory"
    assert answer.finish is None


def test_text_that_no_store_can_hold_is_mended() -> None:
    intake = taken(
        "openai",
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"b\xff\\u0000"}}]}\n\n',
    )

    assert intake.answer.drain() == "a\ufffdb\ufffd\ufffd"


def test_thoughts_are_not_text_but_show_that_the_model_works() -> None:
    answer = taken("openai", chunk({"reasoning_content": "hm"})).answer

    assert (answer.drain(), answer.has_begun) == ("", True)
    assert not taken("openai", chunk({"role": "assistant", "content": ""})).answer.has_begun


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "body",
    [b"<html>hello", b"data: {nope\n\n", b'{"foo": 1}', b"\x00\x01", b"hello\n", b"data: 7\n\n"],
)
def test_garbage_is_told_from_a_cut(api: str, body: bytes) -> None:
    def take() -> None:
        taken(api, body).close()

    with pytest.raises(Garbage):
        take()


@pytest.mark.parametrize("body", [b"", b"da", b"data: {", b": ping\n\n", b"event: x\n"])
def test_a_stream_that_only_began_is_cut_and_not_garbage(body: bytes) -> None:
    intake = taken("openai", body)

    intake.close()

    assert intake.answer.finish is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error":{"message":"m","type":"t","code":"c"}}', Complaint("m", "c")),
        (b'[{"error":{"message":"m","code":400,"status":"S"}}]', Complaint("m", "S", 400)),
        (b'{"detail":[{"msg":"field required"}]}', Complaint("field required")),
        (b"<html><title>502 Bad\nGateway</title><body>x</body>", Complaint("502 Bad Gateway")),
        (b"<p>Sorry,&nbsp;<b>closed</b></p>", Complaint("Sorry, closed")),
        (b"plain", Complaint("plain")),
        (b"", Complaint()),
        (b"x" * 1000, Complaint("x" * 299 + "…")),
    ],
)  # fmt: skip
def test_a_complaint_is_found_in_any_shape(body: bytes, said: Complaint) -> None:
    assert msgspec.structs.replace(complaint(body), whole="") == said


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_a_wait_is_given_in_seconds_or_as_a_date(value: str, seconds: float | None) -> None:
    headers = {"Retry-After": value}

    assert failures.retry_after_s(headers, now_ms=1_700_000_000_000) == seconds


def test_a_wait_in_milliseconds_counts_before_one_in_seconds() -> None:
    headers = {"Retry-After-Ms": "1500", "Retry-After": "2"}

    assert failures.retry_after_s(headers, now_ms=0) == 1.5


@pytest.mark.parametrize("now_ms", [0, 1_700_000_000_000, 1_900_000_000_000])
def test_a_date_to_wait_for_is_read_by_the_servers_own_clock(now_ms: int) -> None:
    headers = {
        "Date": "Tue, 14 Nov 2023 22:13:20 GMT",
        "Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT",
    }

    assert failures.retry_after_s(headers, now_ms=now_ms) == 30.0


def test_a_server_that_was_late_may_have_been_asked_and_is_not_asked_again() -> None:
    server = failures.ModelServerInfo(agent="main", model="m", url="http://model.example")

    assert not failures.no_token_in_time(server, 10).may_retry
    assert not failures.silent(server, 10).may_retry
    assert failures.no_connection_in_time(server, 10).may_retry, "nobody was asked"


def test_an_answer_that_asks_for_too_much_asks_for_nothing() -> None:
    # The last of its calls may be incomplete.
    answer = ModelAnswer(measure=Measure(AnswerRoom(bounds=Bounds(answer_calls=1))))
    for number in range(2):
        answer.add_call(index=number, call_id=f"{number}", name="look", arguments="{}")

    assert (answer.is_over, len(answer.calls)) == (True, 0)
