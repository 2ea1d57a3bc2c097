"""Checks what the chat agent makes of a model's reasoning on both wires, without a network."""

from typing import Any

import msgspec
import pytest

from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.intake import AnswerIntake
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.reasoning.efforts import with_own_thoughts
from perdure.domain.ids import CallId, MessageId, SessionId, TurnId
from perdure.domain.journal.events import AssistantSaid, Recorded, ToolCall
from perdure.domain.journal.model.options import Options
from perdure.domain.journal.model.thoughts import Thought, Thoughts
from perdure.domain.prompt.bounds import AnswerRoom, Bounds
from perdure.domain.prompt.prefix import Basis, Prefix, break_between, written_basis
from perdure.domain.prompt.prompt import (
    CallBlock,
    ModelRequest,
    PromptBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    ThoughtBlock,
    messages_of,
)
from perdure.engine.turns.step import room_left
from perdure.testkit.models.wire_rules import anthropic_violations, openai_violations

RULES = {"openai": openai_violations, "anthropic": anthropic_violations}
TOOLS = '[{"type":"function","function":{"name":"look"}}]'
SIGNED = '{"type":"thinking","thinking":" hm\\n","signature":"s+/="}'


def settings(api: str, **more: Any) -> ChatSettings:
    return ChatSettings(api=api, base_url="http://u:p@127.0.0.1:1/v1", model="m", **more)  # type: ignore[arg-type]


def taken(api: str, *pieces: bytes, room: AnswerRoom | None = None) -> AnswerIntake:
    intake = AnswerIntake(DIALECTS[api], room or AnswerRoom())
    for piece in pieces:
        intake.feed(piece)
    intake.close()
    return intake


def event(**fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def delta(**fields: object) -> bytes:
    return event(choices=[{"index": 0, "delta": fields}])


def bodies(intake: AnswerIntake) -> list[tuple[str, object]]:
    found = intake.answer.reasoning.whole("me")
    return [(each.kind, msgspec.json.decode(each.body)) for each in found.pieces] if found else []


def sent(api: str, request: ModelRequest, with_: ChatSettings) -> dict[str, Any]:
    own = tuple(with_own_thoughts(each, with_) for each in request.messages)
    pieces = DIALECTS[api].body(msgspec.structs.replace(request, messages=own), with_)
    body: dict[str, Any] = msgspec.json.decode(b"".join(pieces))
    assert RULES[api](body) == []
    return body


def loop(*thoughts: PromptBlock, text: str = "") -> tuple[PromptMessage, ...]:
    """Return a turn whose last call has just returned."""
    words = [TextBlock(text)] if text else []
    call = CallBlock(id="c1", name="look", arguments="{}")
    return (
        PromptMessage(role=Role.USER, blocks=(TextBlock("go"),)),
        PromptMessage(role=Role.ASSISTANT, blocks=(*thoughts, *words, call)),
        PromptMessage(role=Role.USER, blocks=(ResultBlock(call="c1", text="ok", is_error=False),)),
    )


def thought(api: str, kind: str, body: str) -> ThoughtBlock:
    return ThoughtBlock(thinker=settings(api).thinker, kind=kind, body=body)


def request(messages: tuple[PromptMessage, ...], **more: Any) -> ModelRequest:
    return ModelRequest(instructions="", prefix=b"", messages=messages, tools=TOOLS, **more)


def test_openai_thoughts_are_kept_under_the_name_of_the_server() -> None:
    calls = [{"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}]
    intake = taken(
        "openai",
        delta(role="assistant", content="", reasoning_content=None),
        delta(reasoning_content="I "),
        delta(reasoning_content="look\n", reasoning="I "),
        delta(reasoning="look"),
        delta(tool_calls=calls),
        event(choices=[{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]),
    )
    assert bodies(intake) == [("reasoning_content", "I look\n"), ("reasoning", "I look")]
    assert intake.answer.drain() == ""


def test_details_are_put_together_as_they_were_divided() -> None:
    def detail(**fields: object) -> bytes:
        return delta(reasoning_details=[fields])

    intake = taken(
        "openai",
        detail(type="reasoning.text", text="I ", index=0, signature=None, format="f"),
        detail(type="reasoning.text", text="look", index=0),
        detail(type="reasoning.text", signature="s", index=0),
        detail(type="reasoning.encrypted", data="x", index=1, id="a"),
        detail(type="reasoning.encrypted", data="y", id="b"),
        detail(type="reasoning.encrypted", data="z", id="c"),
        detail(type="reasoning.text", text="once "),
        detail(type="reasoning.text", text="more"),
    )
    assert bodies(intake) == [
        (
            "reasoning_details",
            [
                {
                    "type": "reasoning.text", "text": "I look", "index": 0, "signature": "s",
                    "format": "f",
                },
                {"type": "reasoning.encrypted", "data": "x", "index": 1, "id": "a"},
                {"type": "reasoning.encrypted", "data": "y", "id": "b"},
                {"type": "reasoning.encrypted", "data": "z", "id": "c"},
                {"type": "reasoning.text", "text": "once more"},
            ],
        )
    ]  # fmt: skip


def test_thoughts_beside_text_in_a_whole_answer_are_kept_too() -> None:
    message = {"role": "assistant", "content": "Well.", "reasoning_content": "hm"}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    intake = taken("openai", msgspec.json.encode(whole))
    assert (bodies(intake), intake.answer.drain()) == ([("reasoning_content", "hm")], "Well.")


def test_anthropic_blocks_keep_their_order_their_signature_and_their_place() -> None:
    def begin(index: int, **block: object) -> bytes:
        return event(type="content_block_start", index=index, content_block=block)

    def grow(index: int, **piece: object) -> bytes:
        return event(type="content_block_delta", index=index, delta=piece)

    intake = taken(
        "anthropic",
        begin(0, type="thinking", thinking="", signature=""),
        grow(0, type="thinking_delta", thinking=" h"),
        grow(0, type="thinking_delta", thinking="m\n"),
        grow(0, type="signature_delta", signature="s+/="),
        begin(1, type="redacted_thinking", data="x=="),
        begin(2, type="text", text=""),
        grow(2, type="text_delta", text="Well. "),
        begin(3, type="thinking", thinking="", signature=""),
        grow(3, type="signature_delta", signature="t"),
        begin(4, type="tool_use", id="c", name="look", input={}),
        begin(5, type="thinking", thinking="later", signature="u"),
        begin(6, type="tool_use", id="d", name="look", input={}),
        event(type="message_delta", delta={"stop_reason": "tool_use"}),
    )
    found = intake.answer.reasoning.whole("me")
    assert found is not None
    assert [each.body for each in found.pieces[:2]] == [
        SIGNED,
        '{"type":"redacted_thinking","data":"x=="}',
    ]
    places = [(each.text_at, each.call_at) for each in found.pieces]
    assert places == [(0, 0), (0, 0), (6, 0), (6, 1)]
    assert intake.answer.drain() == "Well. "

    said = said_with(found, text="Well. ", calls=2)
    kinds = [
        block.kind if isinstance(block, ThoughtBlock) else type(block).__name__
        for block in messages_of([said], with_thoughts=True)[0].blocks
    ]
    thinking = "thinking"
    assert kinds == [
        *(thinking, "redacted_thinking", "TextBlock", thinking, "CallBlock"),
        *(thinking, "CallBlock"),
    ]


def said_with(thoughts: Thoughts, *, text: str = "", calls: int = 1) -> Recorded:
    made = [ToolCall(id=CallId(f"c{n}"), name="look", arguments="{}") for n in range(calls)]
    said = AssistantSaid(
        turn=TurnId("t"), attempt=1, message=MessageId("m"), text=text, calls=tuple(made),
        thoughts=thoughts,
    )  # fmt: skip
    return Recorded(session=SessionId("s"), seq=1, at=0, event=said)


THOUGHTS = Thoughts(thinker="me", pieces=(Thought(kind="thinking", body=SIGNED),))


def test_a_turn_that_is_over_is_told_without_thoughts() -> None:
    (message,) = messages_of([said_with(THOUGHTS, text="Well.")])
    assert not any(isinstance(block, ThoughtBlock) for block in message.blocks)


def test_thoughts_count_as_a_part_of_the_answer() -> None:
    room = AnswerRoom(bounds=Bounds(answer_bytes=10))
    fits = taken("openai", delta(reasoning_content="12345"), delta(content="12345"), room=room)
    assert (fits.answer.drain(), fits.answer.measure.excess) == ("12345", "")

    exceeds = taken("openai", delta(reasoning_content="12345"), delta(content="123456"), room=room)
    exceeds.answer.drain()
    assert "answer_bytes" in exceeds.answer.measure.excess
    assert bodies(exceeds) == []

    endless = taken("openai", delta(reasoning_content="12345") * 100, room=room)
    assert endless.answer.is_over
    assert endless.answer.measure.bytes == 15

    left = room_left(Bounds(turn_bytes=1_000), [said_with(THOUGHTS)])
    assert left.said_bytes == len(SIGNED) + len("look{}")


@pytest.mark.parametrize("kind", ["reasoning_content", "reasoning"])
def test_openai_gets_its_thoughts_back_in_the_same_field(kind: str) -> None:
    body = sent("openai", request(loop(thought("openai", kind, '"hm"'))), settings("openai"))
    (message,) = [each for each in body["messages"] if each["role"] == "assistant"]
    assert message[kind] == "hm"
    assert len(message["tool_calls"]) == 1


def test_what_came_beside_a_call_goes_back_beside_it() -> None:
    signed = {"google": {"thought_signature": "s+/="}}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    second = {**call, "id": "c2"}
    intake = taken(
        "openai",
        delta(content="Well. "),
        delta(tool_calls=[{**call, "index": 0}, {**second, "index": 1, "extra_content": signed}]),
        event(choices=[{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]),
    )
    found = intake.answer.reasoning.whole(settings("openai").thinker)
    assert found is not None
    messages = messages_of([said_with(found, text="Well. ", calls=2)], with_thoughts=True)
    told = msgspec.json.decode(DIALECTS["openai"].encode(messages[0]))
    assert [each.get("extra_content") for each in told["tool_calls"]] == [None, signed]
    assert (told["content"], "extra_content" in told) == ("Well. ", False)


def test_anthropic_gets_its_thoughts_back_unchanged_and_first() -> None:
    asked = request(loop(thought("anthropic", "thinking", SIGNED), text="Well."))
    body = sent("anthropic", asked, settings("anthropic", reasoning="low"))
    first, text, call = body["messages"][1]["content"]
    assert (first, text["type"], call["type"]) == (msgspec.json.decode(SIGNED), "text", "tool_use")
    assert SIGNED.encode() in DIALECTS["anthropic"].encode(asked.messages[1])


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize("changed", [{"model": "n"}, {"base_url": "http://127.0.0.1:2/v1"}])
def test_a_model_gets_no_thoughts_of_another(api: str, changed: dict[str, str]) -> None:
    block = thought(api, "thinking" if api == "anthropic" else "reasoning", SIGNED)
    other = msgspec.structs.replace(settings(api, reasoning="high"), **changed)
    assert "hm" not in msgspec.json.encode(sent(api, request(loop(block)), other)).decode()
    wire = "openai" if api == "anthropic" else "anthropic"
    assert (
        "hm" not in msgspec.json.encode(sent(wire, request(loop(block)), settings(wire))).decode()
    )


def test_the_name_of_a_thinker_holds_no_password() -> None:
    assert settings("openai").thinker == "openai 127.0.0.1:1 m"


@pytest.mark.parametrize(
    ("word", "asked", "effort", "budget"),
    [
        ("", "", None, None),
        ("low", "", "low", 2_048),
        ("medium", "", "medium", 8_192),
        ("high", "", "high", 16_384),
        ("off", "", "none", 0),
        ("high", "low", "low", 2_048),
        ("high", "none", "none", 0),
        ("", "xhigh", "xhigh", 16_384),
    ],
)
def test_each_wire_is_asked_to_reason_in_its_own_words(
    word: str, asked: str, effort: str | None, budget: int | None
) -> None:
    messages = loop()[:1]
    asking = request(messages, options=Options(reasoning_effort=asked))
    openai = sent("openai", asking, settings("openai", reasoning=word, temperature=0.3))
    assert (openai.get("reasoning_effort"), openai["temperature"]) == (effort, 0.3)

    anthropic = sent("anthropic", asking, settings("anthropic", reasoning=word, temperature=0.3))
    thinking = anthropic.get("thinking", {})
    assert thinking.get("budget_tokens", 0 if effort else None) == budget
    # This wire takes no temperature while the model reasons, and the budget is part of the answer.
    assert ("temperature" in anthropic) == (not budget)
    assert anthropic["max_tokens"] == 8_192 + (budget or 0)


def test_a_limit_on_the_answer_limits_the_reasoning() -> None:
    asking = request(loop()[:1], options=Options(reasoning_effort="high", max_tokens=4_000))
    body = sent("anthropic", asking, settings("anthropic"))
    assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (4_000, 3_000)

    asking = request(loop()[:1], options=Options(reasoning_effort="high", max_tokens=1_000))
    body = sent("anthropic", asking, settings("anthropic", temperature=0.5))
    assert (body["thinking"], body["temperature"]) == ({"type": "disabled"}, 0.5)


def test_a_model_that_must_call_a_tool_does_not_reason_first() -> None:
    options = Options(reasoning_effort="high", tool_choice='"required"', top_p=0.5)
    body = sent("anthropic", request(loop()[:1], options=options), settings("anthropic"))
    assert (body["thinking"], body["top_p"]) == ({"type": "disabled"}, 0.5)
    options = Options(reasoning_effort="high", top_p=0.5)
    body = sent("anthropic", request(loop()[:1], options=options), settings("anthropic"))
    assert (body["thinking"]["type"], "top_p" in body) == ("enabled", False)


def test_reasoning_neither_begins_nor_ends_within_a_run_of_calls() -> None:
    without = sent("anthropic", request(loop()), settings("anthropic", reasoning="high"))
    assert without["thinking"] == {"type": "disabled"}
    block = thought("anthropic", "thinking", SIGNED)
    begun = sent("anthropic", request(loop(block)), settings("anthropic", reasoning="off"))
    assert begun["thinking"]["type"] == "enabled"
    # Only the results of the run may be new, behind calls of an earlier turn.
    encoded = b",".join(DIALECTS["anthropic"].encode(each) for each in loop()[:-1])
    later = msgspec.structs.replace(request(loop()[-1:]), prefix=encoded)
    continued = sent("anthropic", later, settings("anthropic", reasoning="high"))
    assert continued["thinking"] == {"type": "disabled"}
    # A run that a person's message has ended binds nobody.
    over = (*loop(), *[PromptMessage(role=Role.ASSISTANT, blocks=(TextBlock("so"),)), loop()[0]])
    again = sent("anthropic", request(over), settings("anthropic", reasoning="high"))
    assert again["thinking"]["type"] == "enabled"


def test_the_maker_of_the_wire_takes_no_temperature_while_its_model_reasons() -> None:
    maker = ChatSettings(
        base_url="https://api.openai.com/v1", model="m", temperature=0.3, reasoning="low"
    )
    assert "temperature" not in sent("openai", request(loop()[:1]), maker)
    calm = msgspec.structs.replace(maker, reasoning="off")
    assert sent("openai", request(loop()[:1]), calm)["temperature"] == 0.3


def test_left_out_thoughts_are_named_as_a_break_of_the_prefix() -> None:
    now = Prefix(agent="main")
    assert break_between(written_basis(Basis(agent="main", has_thoughts=True)), now) == "thoughts"
    assert break_between(written_basis(Basis(agent="main")), now) == ""
