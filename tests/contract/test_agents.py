"""Checks the Agent port's docstring against every agent."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
import pytest

from perdure.agents.chat.agent import ChatAgent
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.demo.agent import DemoAgent
from perdure.agents.demo.questions import long_answer
from perdure.domain.journal.events import Attachment
from perdure.domain.outcomes import StopReason
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
    Window,
    assemble,
    extend,
)
from perdure.domain.turn.stream import (
    AgentCall,
    AgentEvent,
    AgentSpent,
    AgentText,
    Stopped,
    Thinking,
)
from perdure.ports.turns.agent import Agent
from perdure.testkit.models.model_script import (
    Reply,
    ScriptedRequest,
    call_tools,
    cut_without_finish,
    error_in_stream,
    say,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.simulator.agent import LooseWork

ARGUMENTS = '{"at": "the sea"}'


class QuickClock:
    """Tells the real time, but sleeps without waiting."""

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_s(self) -> float:
        return time.monotonic()

    def paused_s(self) -> float:
        return 0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


THOUGHTFUL = {
    "aloud": ["\n<th", "ink>secret", " plan</thi", "nk>", "\n\nBl", "ue."],
    "only": ["<think>", "secret plan"],
    "between": [
        *("Hello <th", "ink>secret", " plan", "</think>there.\n\n", "<think>", "more"),
        *("</think>\n\n`<think>` ", "opens a <think> thought."),
    ],
}


def scripted(request: ScriptedRequest) -> Reply:
    """Answer the same questions as the demo agent does, as a model would."""
    last = request.messages[-1]
    is_answered = last["role"] == "tool" or "tool_result" in str(last["content"])
    match request.last_user_text.splitlines()[0].split():
        case ["demo", "fail"]:
            return error_in_stream(0)
        case ["demo", "cut"]:
            return cut_without_finish(say(long_answer(5)))
        case ["demo", "tool", name, *_] if not is_answered:
            return call_tools([(f"id_{request.number}", name, ARGUMENTS)], fragments=3)
        case ["demo", "tool", *_]:
            return say('The tool answered: "blue".')
        case ["think", way]:
            return say(chunks=THOUGHTFUL[way])
        case ["think", "and", "call"]:
            calls = [(f"id_{request.number}", "look", ARGUMENTS)]
            return call_tools(calls, text="<think>secret plan</think>")
        case ["demo", "slow"]:
            return say(long_answer(10_000), delay_ms=5)
        case ["demo", words, *_]:
            return say(long_answer(int(words.removeprefix("words="))))
        case _:
            return say(f"You said: {request.last_user_text}")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(scripted) as server:
        yield server
        assert server.violations == []


@pytest.fixture(params=["demo", "openai", "anthropic"])
async def agent(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Agent]:
    clock = QuickClock()
    agent: Agent
    match request.param:
        case "demo":
            agent = DemoAgent(clock=clock)
        case api:
            settings = ChatSettings(api=api, base_url=server.openai_url, model="scripted")
            agent = ChatAgent(settings, session=None, clock=clock)
    yield agent
    await agent.close()


def user(*blocks: PromptBlock) -> PromptMessage:
    return PromptMessage(role=Role.USER, blocks=blocks)


def assistant(*blocks: PromptBlock) -> PromptMessage:
    return PromptMessage(role=Role.ASSISTANT, blocks=blocks)


def asking(text: str) -> ModelRequest:
    return assemble(Window(), [user(TextBlock(text))], instructions="Be brief.")


async def events_of(agent: Agent, request: ModelRequest) -> list[AgentEvent]:
    async with asyncio.timeout(10), aclosing(agent.run(request, LooseWork())) as stream:
        return [event async for event in stream]


def text_of(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, AgentText))


def stop_of(events: list[AgentEvent]) -> Stopped:
    """Return the only `Stopped`, which must be the last event."""
    stops = [event for event in events if isinstance(event, Stopped)]
    assert len(stops) == 1
    assert events[-1] is stops[0]
    return stops[0]


async def test_an_answer_streams_and_stops_once(agent: Agent) -> None:
    events = await events_of(agent, asking("demo words=40"))

    assert text_of(events) == long_answer(40)
    assert stop_of(events) == Stopped(reason=StopReason.STOP)


async def test_an_answer_repeats_what_it_was_told(agent: Agent) -> None:
    events = await events_of(agent, asking("a  canary 🐤\nand more"))

    assert "a  canary 🐤\nand more" in text_of(events)
    assert stop_of(events).reason is StopReason.STOP


@pytest.fixture(params=["openai", "anthropic"])
async def wired(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Agent]:
    settings = ChatSettings(api=request.param, base_url=server.openai_url, model="scripted")
    agent = ChatAgent(settings, session=None, clock=QuickClock())
    yield agent
    await agent.close()


async def test_thoughts_in_the_text_are_thinking_and_no_text(wired: Agent) -> None:
    events = await events_of(wired, asking("think aloud"))

    assert text_of(events) == "Blue."
    assert stop_of(events) == Stopped(reason=StopReason.STOP)

    events = await events_of(wired, asking("think only"))

    assert text_of(events) == ""
    assert Thinking() in events
    assert stop_of(events) == Stopped(reason=StopReason.STOP)

    events = await events_of(wired, asking("think between"))

    assert text_of(events) == "Hello there.\n\n`<think>` opens a <think> thought."
    assert stop_of(events) == Stopped(reason=StopReason.STOP)

    events = await events_of(wired, asking("think and call"))

    assert text_of(events) == ""
    assert [event.name for event in events if isinstance(event, AgentCall)] == ["look"]


async def test_a_model_is_reached_directly_whatever_proxies_the_machine_has(
    wired: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    # docs/operations.md promises this.
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert stop_of(await events_of(wired, asking("hello"))).reason is StopReason.STOP


async def test_what_was_spent_is_said_once(agent: Agent) -> None:
    events = await events_of(agent, asking("demo words=40"))

    (spent,) = [event.usage for event in events if isinstance(event, AgentSpent)]
    assert spent.model_calls == 1
    assert spent.output_tokens == 40
    assert spent.input_tokens > 0


async def test_a_failure_is_the_last_event(agent: Agent) -> None:
    events = await events_of(agent, asking("demo fail"))

    assert text_of(events) == ""
    assert stop_of(events).reason is StopReason.PROVIDER_ERROR
    assert stop_of(events).detail


async def test_a_cut_stream_is_no_finish(agent: Agent) -> None:
    events = await events_of(agent, asking("demo cut"))

    assert text_of(events) == long_answer(5)
    assert stop_of(events).reason is StopReason.PROVIDER_CUT
    assert stop_of(events).detail


async def test_a_call_is_whole_and_its_result_is_used(agent: Agent) -> None:
    question = user(TextBlock(f"demo tool look {ARGUMENTS}"))
    events = await events_of(agent, assemble(Window(), [question]))

    (call,) = [event for event in events if isinstance(event, AgentCall)]
    assert (call.name, call.arguments) == ("look", ARGUMENTS)
    assert stop_of(events).reason is StopReason.TOOL_CALLS

    said = assistant(CallBlock(id=call.id, name=call.name, arguments=call.arguments))
    results = user(ResultBlock(call=call.id, text="blue", is_error=False))
    events = await events_of(agent, assemble(Window(), [question, said, results]))

    assert '"blue"' in text_of(events)
    assert stop_of(events).reason is StopReason.STOP


async def test_call_ids_stay_unique_as_the_history_grows(agent: Agent) -> None:
    window, ids = Window(), list[str]()
    for _ in range(4):
        question = user(TextBlock(f"demo tool look {ARGUMENTS}"))
        events = await events_of(agent, assemble(window, [question]))
        (call,) = [event for event in events if isinstance(event, AgentCall)]
        ids.append(call.id)
        said = assistant(CallBlock(id=call.id, name=call.name, arguments=call.arguments))
        results = user(ResultBlock(call=call.id, text="blue", is_error=False))
        turn = [question, said, results, assistant(TextBlock("It is blue."))]
        window = extend(window, turn, encode=agent.encode)

    assert len(set(ids)) == 4


async def test_an_encoded_history_is_taken_back(agent: Agent) -> None:
    turn = [user(TextBlock("hello")), assistant(TextBlock("Hello."))]
    window = extend(Window(), turn * 3, encode=agent.encode)

    events = await events_of(agent, assemble(window, [user(TextBlock("demo words=3"))]))

    assert text_of(events) == long_answer(3)
    assert stop_of(events).reason is StopReason.STOP


@pytest.mark.parametrize(
    "message",
    [
        user(TextBlock('quote " and 🐤')),
        user(ResultBlock(call="c", text="r", is_error=True), TextBlock("t"), Note("n")),
        user(MediaBlock(attachment=Attachment(mime="image/png", name="p"), data=b"\x89PNG")),
        assistant(TextBlock("a"), CallBlock(id="c", name="look", arguments=ARGUMENTS)),
    ],
)
async def test_encode_is_pure_and_gives_json_joined_by_commas(
    agent: Agent, message: PromptMessage
) -> None:
    encoded = agent.encode(message)

    assert agent.encode(message) == encoded
    assert msgspec.json.decode(b"[" + encoded + b"]")


async def test_a_note_is_carried_and_is_not_the_question(agent: Agent) -> None:
    question = user(TextBlock("demo words=6"), Note("[you were interrupted by a restart]"))

    events = await events_of(agent, assemble(Window(), [question]))

    assert text_of(events) == long_answer(6)


async def test_closing_the_stream_ends_the_call(agent: Agent, server: ModelServer) -> None:
    stream = agent.run(asking("demo slow"), LooseWork())
    async with asyncio.timeout(10):
        first = await anext(stream)
        await stream.aclose()
        await server.wait_until_idle()

    assert isinstance(first, AgentText)


async def test_cancelling_the_reader_ends_the_call(agent: Agent, server: ModelServer) -> None:
    started = asyncio.Event()

    async def read() -> None:
        async with aclosing(agent.run(asking("demo slow"), LooseWork())) as stream:
            async for _ in stream:
                started.set()
                await asyncio.sleep(0.001)

    async with asyncio.timeout(10):
        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        await server.wait_until_idle()


async def test_one_agent_serves_many_turns_at_once(agent: Agent) -> None:
    async with asyncio.timeout(20):
        many = await asyncio.gather(
            *(events_of(agent, asking(f"demo words={number}")) for number in range(1, 101))
        )

    assert [text_of(events) for events in many] == [long_answer(n) for n in range(1, 101)]


async def test_closing_twice_is_closing_once(agent: Agent) -> None:
    await agent.close()
    await agent.close()


async def demo_text(*messages: PromptMessage) -> str:
    return text_of(await events_of(DemoAgent(clock=QuickClock()), assemble(Window(), messages)))


@pytest.mark.parametrize("said", [1, 7, 10])
async def test_the_demo_goes_on_where_it_was_interrupted(said: int) -> None:
    rest = await demo_text(
        user(TextBlock("demo words=10 delay_ms=5")),
        assistant(TextBlock(long_answer(said) + " ")),
        user(Note("[you were interrupted]")),
    )

    assert [*long_answer(said).split(), *rest.split()] == long_answer(10).split()


async def test_the_demo_waits_between_words_as_asked() -> None:
    waits: list[float] = []

    class Recording(QuickClock):
        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)

    await events_of(DemoAgent(clock=Recording()), asking("demo words=4 delay_ms=250"))

    assert waits == [0.25, 0.25, 0.25]


async def test_the_demo_answers_the_newest_text() -> None:
    text = await demo_text(
        user(TextBlock("demo words=10")),
        assistant(TextBlock("river stone")),
        user(TextBlock("demo words=wrong")),
    )

    assert text.startswith('You said: "demo words=wrong".')


async def test_the_demo_names_files() -> None:
    text = await demo_text(user(MediaBlock(attachment=Attachment(name="cat.png"))))

    assert "cat.png" in text
