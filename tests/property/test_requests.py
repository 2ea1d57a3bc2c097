"""Checks that every strict provider takes the next request, whatever happened to a conversation.

A random sequence of messages, steers, stops, newer messages, commands, errands, kills at any
moment, resumptions, tool calls with sane and odd arguments, and cut and silent streams goes through
the real engine and the real store. Each request that the agent gets is translated for three wires
and judged by rules that only judge: nothing repairs the request on the way.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, assert_never

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.databases import sqlite_on

from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.tool_text import arguments_object, tool_name
from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.errors import Conflict, Rejected
from perdure.domain.ids import MessageId, PrincipalId, TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import Attachment, Recorded, ToolCall, TurnQueued
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Busy, CallEnding, Repeat, StopReason
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
    ThoughtBlock,
)
from perdure.domain.tools.asking import ALLOW, DENY
from perdure.domain.tools.callers import CallerResult, left_open
from perdure.domain.tools.traits import CallTraits, Permission
from perdure.domain.turn.errands import instruction
from perdure.domain.turn.recovery import Policy, Resume
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.records.history import Page
from perdure.ports.turns.agent import Work
from perdure.ports.turns.questions import QuestionReply
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.store.store import Store
from perdure.testkit.models.wire_rules import (
    anthropic_violations,
    gemini_violations,
    openai_violations,
)
from perdure.testkit.simulator.agent import CountingTools
from perdure.testkit.simulator.stores import admitted
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

SETTINGS = ChatSettings(base_url="http://127.0.0.1:1/v1", model="strict")
HANGS = "hang"
ASKED = "pay"
# The tools that a program brings. It has one of the same name as the agent.
BROUGHT = msgspec.json.encode(
    [{"type": "function", "function": {"name": name}} for name in ("fetch", "look")]
).decode()


class Answer(msgspec.Struct, frozen=True):
    """Describes one model call: a text, then a wait for its release, then calls or an end."""

    text: str = ""
    hangs: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    reason: StopReason = StopReason.STOP


class Say(msgspec.Struct, frozen=True):
    """Sends a message."""

    text: str
    busy: Busy
    has_picture: bool = False


class Call(msgspec.Struct, frozen=True):
    """Sends a message as a program does that brings tools, with results of so many of the calls
    that were left to it last."""

    text: str
    busy: Busy
    results: int = 0


class Stop(msgspec.Struct, frozen=True):
    """Stops the turn at work, or the first one that waits."""


class Release(msgspec.Struct, frozen=True):
    """Releases everything that hangs."""


class Reply(msgspec.Struct, frozen=True):
    """Answers everything that is asked about tool calls."""

    answer: str


class Kill(msgspec.Struct, frozen=True):
    """Kills the process after this many rounds of the loop, wherever its tasks are by then."""

    rounds: int


Deed = Say | Call | Stop | Release | Reply | Kill

TEXTS = st.sampled_from(["hello", "größe 🙂", "a\n\nb", " spaced "])
CALLS = st.sampled_from(
    [
        ("look", "{}"),
        ("look", '{"at": "größe"}'),
        (HANGS, "{}"),
        (ASKED, "{}"),
        (ASKED, '{"amount": 5}'),
        ("fetch", "{}"),
        ("fetch", '{"at": "größe"}'),
        ("no such name!", '{"a": 1}'),
        ("look", "not json"),
        ("", "[1]"),
    ]
)
ANSWERS = st.builds(
    Answer,
    text=st.sampled_from(["", "  \n", "So be it.", "Größe 🙂 "]),
    hangs=st.booleans(),
    reason=st.sampled_from([StopReason.STOP, StopReason.LENGTH, StopReason.PROVIDER_CUT]),
) | st.builds(
    Answer,
    text=st.sampled_from(["", "Let me see. "]),
    hangs=st.booleans(),
    calls=st.lists(CALLS, min_size=1, max_size=3).map(tuple),
    reason=st.just(StopReason.TOOL_CALLS),
)
COMMANDS = st.sampled_from(
    ["/branch", "/undo", "/redo", "/retry", "/resume", "/reset", "/compact", "/background dig"]
)
DEEDS: st.SearchStrategy[Deed] = st.one_of(
    st.builds(Say, text=COMMANDS, busy=st.just(Busy.QUEUE)),
    st.builds(Say, text=TEXTS, busy=st.sampled_from(Busy), has_picture=st.booleans()),
    st.builds(Say, text=TEXTS, busy=st.sampled_from(Busy)),
    st.builds(
        Call,
        text=TEXTS | st.just(""),
        busy=st.sampled_from(Busy),
        results=st.integers(0, 3),
    ),
    st.builds(Stop),
    st.builds(Release),
    st.builds(Reply, answer=st.sampled_from([ALLOW, DENY])),
    st.builds(Kill, rounds=st.integers(0, 30)),
)
# What a program does that runs its own tools, while others speak beside it.
LOOPS: st.SearchStrategy[Deed] = st.one_of(
    st.builds(Call, text=TEXTS, busy=st.sampled_from(Busy), results=st.integers(0, 3)),
    st.builds(Call, text=st.just(""), busy=st.sampled_from(Busy), results=st.integers(1, 3)),
    st.builds(Say, text=COMMANDS, busy=st.just(Busy.QUEUE)),
    st.builds(Say, text=TEXTS, busy=st.sampled_from(Busy)),
    st.builds(Release),
    st.builds(Kill, rounds=st.integers(0, 30)),
)
FETCHES = st.builds(
    Answer,
    text=st.sampled_from(["", "Let me see. "]),
    hangs=st.booleans(),
    calls=st.lists(st.sampled_from(["fetch", "look", "touch"]), min_size=1, max_size=3).map(
        lambda names: tuple((name, "{}") for name in names)
    ),
    reason=st.just(StopReason.TOOL_CALLS),
)
POLICIES = st.builds(
    Policy,
    resume=st.sampled_from([Resume.CONTINUE, Resume.WAIT]),
    freshness_ms=st.just(0),
    attempts_max=st.sampled_from([3, 100]),
)


class Gate:
    """Makes answers and tools wait until it is released. `waiting` holds the turns for which they
    wait."""

    def __init__(self) -> None:
        self.waiting: list[TurnId] = []
        self._open = asyncio.Event()

    async def wait(self, turn: TurnId) -> None:
        self.waiting.append(turn)
        try:
            await self._open.wait()
        finally:
            self.waiting.remove(turn)

    def release(self) -> None:
        self._open.set()
        self._open = asyncio.Event()


class NeutralAgent:
    """Gives the drawn answers and keeps each request whole, in no provider's format: an encoded
    message is its number."""

    def __init__(self, gate: Gate, answers: Iterator[Answer]) -> None:
        self.requests: list[tuple[PromptMessage, ...]] = []
        self.errands: list[tuple[PromptMessage, ...]] = []
        self._gate = gate
        self._answers = answers
        self._encoded: list[PromptMessage] = []

    def encode(self, message: PromptMessage) -> bytes:
        self._encoded.append(message)
        return str(len(self._encoded) - 1).encode()

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        numbers = b",".join(request.history).decode().split(",") if request.history else []
        before = [self._encoded[int(number)] for number in numbers]
        self.requests.append((*before, *request.messages))
        if request.purpose:
            self.errands.append(self.requests[-1])
        answer = next(self._answers)
        if answer.text:
            yield AgentText(answer.text)
        if answer.hangs:
            await self._gate.wait(work.turn)
        for name, arguments in answer.calls:
            yield AgentCall(id="the same each time", name=name, arguments=arguments)
        yield Stopped(reason=answer.reason)

    def let_go(self, turn: TurnId) -> None:
        return

    async def lost(self, turn: TurnId) -> bool:
        return False

    async def close(self) -> None:
        return


class HangingTools(CountingTools):
    """Serves tools, of which some wait until the gate is released. Somebody is asked about some."""

    def __init__(self, gate: Gate) -> None:
        super().__init__([])
        self._gate = gate

    def schemas(self) -> str:
        return ""

    def traits(self, name: str, arguments: str) -> CallTraits:
        repeat = Repeat.PURE if name == "look" else Repeat.ONCE
        permission = Permission.ACT if name == ASKED else Permission.OWN
        return CallTraits(names=(name,), repeat=repeat, permission=permission)

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        if call.name == HANGS:
            await self._gate.wait(caller.turn)
        return ToolResult(ending=CallEnding.RETURNED if call.name else CallEnding.FAILED, text="")


class World:
    """Runs one conversation through as many processes as it takes."""

    def __init__(self, folder: Path, policy: Policy, answers: Sequence[Answer]) -> None:
        self.gate = Gate()
        self.agent = NeutralAgent(self.gate, _then_plain(answers))
        self._folder = folder
        self._policy = policy
        self._clock = VirtualClock(is_eager=True)
        self._entropy = SeededEntropy()
        self._numbers = count()
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Start a process, and let it pick up what the one before left."""
        path = self._folder / "perdure.db"
        self.store = Store(
            sqlite_on(path),
            clock=self._clock,
            entropy=self._entropy,
            media=self._folder / "media",
        )
        await self.store.open()
        self.person = await admitted(self.store, "ada")
        self.parts = self._put_together()
        await self.store.nodes.join(name="test")
        while await self.parts.reaper.step():
            pass

    def _put_together(self) -> NodeParts:
        backend = Backend(
            name="main",
            kind="neutral",
            agent=self.agent,
            tools=HangingTools(self.gate),
            has_memory=True,
        )
        dependencies = NodeDependencies(
            store=self.store,
            roster=Roster({"main": backend}),
            clock=self._clock,
            entropy=self._entropy,
            limits=Limits(recovery=self._policy, has_titles=True),
        )
        return compose_node(dependencies, self._start, feed=Feed())

    def _start(self, work: Coroutine[object, object, None], *, name: str) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        return task

    async def do(self, deed: Deed) -> None:
        match deed:
            case Say():
                await self._say(deed)
            case Call():
                await self._call(deed)
            case Stop():
                await self._stop()
            case Release():
                self.gate.release()
            case Reply(answer=answer):
                await self._answer(answer)
            case Kill(rounds=rounds):
                await self.parts.turns.step()
                for _ in range(rounds):
                    await asyncio.sleep(0)
                await self.kill()
                await self.begin()
        if not isinstance(deed, Kill):
            await self.come_to_a_halt()

    async def _say(self, deed: Say) -> None:
        picture = (Attachment(url="https://example.org/picture.png"),)
        attachments = picture if deed.has_picture else ()
        await self._accept(deed.text, busy=deed.busy, attachments=attachments)

    async def _call(self, deed: Call) -> None:
        left = (await self._left_open())[: deed.results]
        results = tuple(CallerResult(call=call.id, text=f"at {call.name}") for call in left)
        if not results and not deed.text.strip():
            return
        with suppress(Rejected):  # the calls were answered, or are on another chain
            await self._accept(
                deed.text, busy=deed.busy, kind=UpdateKind.CALL, tools=BROUGHT, results=results
            )

    async def _accept(
        self, text: str, *, busy: Busy, kind: UpdateKind = UpdateKind.MESSAGE, **more: Any
    ) -> None:
        update = Update(
            address=Address(adapter="http", account=self.person, place="room"),
            external_id=f"m{next(self._numbers)}",
            kind=kind,
            principal=PrincipalId(self.person),
            text=text,
            busy=busy,
            **more,
        )
        await self.parts.door.accept(update)

    async def _left_open(self) -> list[ToolCall]:
        """Return the calls that any turn has left to its caller, the newest first."""
        turns: dict[TurnId | None, list[Recorded]] = {}
        for session in await self._sessions():
            for recorded in (await self.store.diagnostics.record(session)).events:
                turns.setdefault(recorded.turn, []).append(recorded)
        left = [call for turn in turns.values() for call in left_open(turn)]
        return sorted(left, key=lambda call: call.id, reverse=True)

    async def _stop(self) -> None:
        for session in await self._sessions():
            record = await self.store.diagnostics.record(session)
            unsettled = [turn for turn in record.turns if turn.state != "settled"]
            if unsettled:
                await self._stop_turn(unsettled[0].id)

    async def _stop_turn(self, turn: TurnId) -> None:
        with suppress(Conflict):  # the turn ended first
            await self.parts.door.stop(turn, by=None)

    async def come_to_a_halt(self) -> None:
        """Run until every turn that could be begun has ended, or hangs."""
        async with asyncio.timeout(10):
            while True:
                fetched = await self.parts.fetching.step()
                claimed = await self.parts.turns.step()
                while self._is_busy:
                    await asyncio.sleep(0.0002)
                if not claimed and not fetched:
                    return

    @property
    def _is_busy(self) -> bool:
        """Tell whether a turn runs that does not hang. A tool may hang longer than its turn."""
        running = self.parts.turns._running
        return bool(running.keys() - set(self.gate.waiting))

    async def come_to_rest(self) -> None:
        async with asyncio.timeout(10):
            await self.come_to_a_halt()
            while self.parts.turns.running or await self._answer(ALLOW):
                self.gate.release()
                await asyncio.sleep(0)
                await self.come_to_a_halt()

    async def _answer(self, answer: str) -> bool:
        """Answer everything that is asked. Returns False if nothing is."""
        asked = await self.store.questions.page(Page(limit=100), principal=None)
        for question in asked:
            reply = QuestionReply(question=question.id, answer=answer, by=self.person)
            await self.store.questions.answer(reply)
        return bool(asked)

    async def kill(self) -> None:
        """Kill the process: every task is cancelled before it can write anything more."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.store.close()
        failed = [each for each in ended if isinstance(each, Exception)]
        assert failed == []

    async def _sessions(self) -> list[Any]:
        page = Page(limit=1000, with_unlisted=True)
        views = await self.store.archive.sessions(principal=None, page=page)
        return [view.id for view in views]

    async def faults(self) -> list[str]:
        """Return what is wrong with the stored sessions, and the turns that failed by an error of
        the gateway."""
        found: list[str] = []
        for session in await self._sessions():
            record = await self.store.diagnostics.record(session)
            found += violations(record)
            found += [
                f"{turn.id}: {turn.detail}"
                for turn in record.turns
                if turn.reason == StopReason.AGENT_ERROR
            ]
        return found


def _then_plain(answers: Sequence[Answer]) -> Iterator[Answer]:
    yield from answers
    while True:
        yield Answer(text="Very well.")


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a migrated database without a row. Each example takes a copy."""
    folder = tmp_path_factory.mktemp("empty")

    async def make() -> None:
        store = Store(
            sqlite_on(folder / "perdure.db"),
            clock=VirtualClock(),
            entropy=SeededEntropy(),
            media=folder / "media",
        )
        await store.open()
        await store.close()

    asyncio.run(make())
    return folder / "perdure.db"


async def live(
    folder: Path, policy: Policy, answers: Sequence[Answer], deeds: Sequence[Deed]
) -> tuple[NeutralAgent, list[str]]:
    """Play all deeds and a last message. Returns the agent with the requests it got, and the
    faults."""
    world = World(folder, policy, answers)
    await world.begin()
    try:
        for deed in deeds:
            await world.do(deed)
        await world.do(Say("and now?", Busy.QUEUE))
        await world.come_to_rest()
        return world.agent, await world.faults()
    finally:
        await world.kill()


def chat_body(api: str, messages: Sequence[PromptMessage]) -> object:
    """Return a request's body by the real wire, as if half of the messages had been encoded long
    ago."""
    dialect = DIALECTS[api]
    kept = len(messages) // 2
    request = ModelRequest(
        instructions="Be brief.",
        prefix=b",".join(dialect.encode(message) for message in messages[:kept]),
        messages=tuple(messages[kept:]),
    )
    return msgspec.json.decode(b"".join(dialect.body(request, SETTINGS)))


def gemini_body(messages: Sequence[PromptMessage]) -> dict[str, Any]:
    """Return a Gemini request with one content for each message. What follows tool results stands
    in a content of its own."""
    names: dict[str, str] = {}
    contents: list[dict[str, Any]] = []
    for message in messages:
        role = "user" if message.role is Role.USER else "model"
        parts = [_gemini_part(block, names) for block in message.blocks]
        answers = [part for part in parts if "functionResponse" in part]
        rest = [part for part in parts if "functionResponse" not in part]
        contents += [{"role": role, "parts": each} for each in (answers, rest) if each]
    return {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": contents}


def _gemini_part(block: PromptBlock, names: dict[str, str]) -> dict[str, Any]:
    match block:
        case TextBlock(text) | Note(text):
            return {"text": text}
        case ThoughtBlock(body=body):
            return {"text": body, "thought": True}
        case CallBlock(id=call, name=name, arguments=arguments):
            names[call] = tool_name(name)
            args = msgspec.json.decode(arguments_object(arguments))
            return {"functionCall": {"id": call, "name": names[call], "args": args}}
        case ResultBlock(call=call, text=text):
            return {"functionResponse": {"id": call, "name": names[call], "response": {"is": text}}}
        case MediaBlock(attachment=attachment):
            return {"fileData": {"mimeType": "image/png", "fileUri": attachment.url}}
    assert_never(block)


def complaints(messages: Sequence[PromptMessage]) -> list[str]:
    return [
        *openai_violations(chat_body("openai", messages)),
        *anthropic_violations(chat_body("anthropic", messages)),
        *gemini_violations(gemini_body(messages)),
    ]


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    policy=POLICIES,
    answers=st.lists(ANSWERS, max_size=8),
    deeds=st.lists(DEEDS, min_size=1, max_size=10),
)
def test_every_request_is_one_that_strict_providers_take(
    empty_database: Path, policy: Policy, answers: list[Answer], deeds: list[Deed]
) -> None:
    agent = play(empty_database, policy, answers, deeds)
    for messages in agent.errands:
        assert recovery_notes(messages) == [], "an errand was told of an interruption"


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    policy=POLICIES,
    answers=st.lists(FETCHES | ANSWERS, max_size=8),
    deeds=st.lists(LOOPS, min_size=2, max_size=10),
)
def test_calls_of_a_programs_own_tools_leave_no_request_invalid(
    empty_database: Path, policy: Policy, answers: list[Answer], deeds: list[Deed]
) -> None:
    asks = Call("go", Busy.QUEUE)
    first = Answer(calls=(("fetch", "{}"), ("touch", "{}")), reason=StopReason.TOOL_CALLS)
    play(empty_database, policy, [first, *answers], [asks, *deeds])


def play(
    database: Path, policy: Policy, answers: Sequence[Answer], deeds: Sequence[Deed]
) -> NeutralAgent:
    """Play the deeds, and check every request and what is stored in the end."""
    with tempfile.TemporaryDirectory(prefix="perdure-requests-") as name:
        folder = Path(name)
        shutil.copy(database, folder / "perdure.db")
        agent, faults = asyncio.run(live(folder, policy, answers, deeds))
    assert agent.requests, "the last message at least was asked"
    assert faults == []
    for messages in agent.requests:
        assert complaints(messages) == [], messages
    return agent


def recovery_notes(messages: Sequence[PromptMessage]) -> list[Note]:
    """Return every note except an errand's order."""
    queued = [
        TurnQueued(turn=TurnId("t"), message=MessageId("m"), text="", kind=errand)
        for errand in TurnKind
    ]
    orders = [instruction(each) for each in queued]
    blocks = [block for message in messages for block in message.blocks]
    return [block for block in blocks if isinstance(block, Note) and block not in orders]


USER: dict[str, Any] = {"role": "user", "parts": [{"text": "hello"}]}
CALLED: dict[str, Any] = {
    "role": "model",
    "parts": [{"functionCall": {"id": "1", "name": "look", "args": {}}}],
}
ANSWERED: dict[str, Any] = {
    "role": "user",
    "parts": [{"functionResponse": {"id": "1", "name": "look", "response": {}}}],
}


@pytest.mark.parametrize(
    ("contents", "complaint"),
    [
        ([], "non-empty array"),
        ([USER, USER], "contents alternate"),
        ([CALLED, ANSWERED], "the first is user's"),
        ([USER, CALLED], "the last content must have the role user"),
        ([USER, CALLED, USER], "are answered by []"),
        ([USER, ANSWERED], "function calls [] are answered by"),
        ([USER, CALLED, {"role": "user", "parts": ANSWERED["parts"] * 2}], "are answered by"),
        ([USER, CALLED, {"role": "user", "parts": [*ANSWERED["parts"], *USER["parts"]]}], "else"),
        ([{"role": "assistant", "parts": [{"text": "x"}]}], ".role"),
        ([{"role": "user", "parts": []}], ".parts: expected"),
        ([{"role": "user", "parts": [{"text": ""}]}], "non-empty string"),
        ([{"role": "user", "parts": [{"text": "a", "fileData": {}}]}], "exactly one"),
        ([{"role": "user", "parts": CALLED["parts"]}], "exactly one"),
        ([{"role": "user", "parts": [{"text": "a"}], "name": "x"}], "extra keys"),
    ],
)
def test_the_rules_of_gemini_can_be_broken(contents: list[object], complaint: str) -> None:
    assert gemini_violations({"contents": [USER, CALLED, ANSWERED, USER]}) == []
    assert any(complaint in each for each in gemini_violations({"contents": contents}))
