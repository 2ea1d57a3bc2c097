"""Checks that answers arrive whole, once, in order, and never faster than the platform allows."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock
from perdure.domain.address import Address
from perdure.domain.delivery import (
    HEARD,
    Capabilities,
    DeliveryStep,
    Display,
    Pace,
    PartState,
    Rate,
    Streaming,
)
from perdure.domain.errors import Ambiguous, NotFound, Permanent, Transient
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.records import PartView
from perdure.domain.kinds import UpdateKind
from perdure.domain.markdown.units import TextUnit
from perdure.domain.outcomes import Busy, StopReason
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock
from perdure.domain.turn.endings import (
    CUT,
    CUT_AT_ONCE,
    FILTERED,
    SILENT,
    SILENT_AT_LAST,
    STOPPED_MARK,
)
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.engine.delivery import showing
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.platform.adapter import Edit, Effect, Post, Preview, Receipt, Unsupported
from perdure.ports.turns.agent import Work
from perdure.ports.turns.wakes import Topic
from perdure.store.store import Store
from perdure.testkit.simulator.agent import AnswerRule, CountingTools, ScriptedAgent, said
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import Person, admitted
from perdure.testkit.simulator.system import SeededEntropy

NAME = "scripted"
QUICK = Pace(preview_s=0.02)
GROWING = Capabilities(
    takes_key=True, can_edit=True, can_delete=True, streaming=Streaming.EDIT, pace=QUICK
)


class SlowAgent(ScriptedAgent):
    """Says its answer in small pieces, with a pause after each."""

    def __init__(self, answer: Callable[[str], str], *, pause_s: float = 0.03) -> None:
        super().__init__()
        self._answer = answer
        self._pause_s = pause_s
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        text = self._answer(said(request))
        for start in range(0, len(text), 40):
            yield AgentText(text[start : start + 40])
            await asyncio.sleep(self._pause_s)
            await self.go_on.wait()
        yield Stopped(reason=StopReason.STOP)


class Gateway:
    """Runs a whole engine with one platform and one person."""

    def __init__(self, store: Store, parts: NodeParts, person: PrincipalId) -> None:
        self.store = store
        self.parts = parts
        self.person = person
        self._said = 0

    async def hears(self, text: str, *, place: str = "room", busy: Busy = Busy.QUEUE) -> Accepted:
        self._said += 1
        return await self.parts.door.accept(
            Update(
                address=Address(adapter=NAME, account="bot", place=place),
                external_id=f"m{self._said}",
                kind=UpdateKind.MESSAGE,
                principal=self.person,
                text=text,
                busy=busy,
                place_kind="private",
            )
        )

    async def parts_of(self, accepted: Accepted) -> list[PartView]:
        record = await self.store.diagnostics.record(accepted.session)
        return [part for part in record.parts if part.turn == accepted.turn]

    async def delivered(self, accepted: Accepted, *, seconds: float = 20) -> list[PartView]:
        """Wait until nothing is on its way any more. Returns the parts of this turn."""

        async def is_over() -> bool:
            record = await self.store.diagnostics.record(accepted.session)
            is_settled = all(turn.outcome for turn in record.turns)
            moving = (PartState.PENDING, PartState.ATTEMPTING)
            return is_settled and all(part.state not in moving for part in record.parts)

        await until(is_over, "everything to be delivered", seconds=seconds)
        return await self.parts_of(accepted)


async def until(condition: Callable[[], Awaitable[bool]], what: str, *, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited {seconds} s for {what}")


@asynccontextmanager
async def a_gateway(
    folder: Path, platform: ScriptedPlatform, agent: ScriptedAgent, display: Display | None = None
) -> AsyncIterator[Gateway]:
    clock, entropy = SystemClock(), SeededEntropy(time.monotonic_ns())
    driver = sqlite_on(folder / "perdure.db")
    store = Store(driver, clock=clock, entropy=entropy, media=folder)
    await store.open()
    try:
        async with Supervisor() as supervisor:
            dependencies = NodeDependencies(
                store=store,
                roster=Roster(
                    {"main": Backend(name="main", kind="s", agent=agent, tools=CountingTools([]))}
                ),
                clock=clock,
                entropy=entropy,
                limits=Limits(drain_timeout_s=5),
                adapters={NAME: platform},
                displays={NAME: display or Display()},
            )
            parts = compose_node(dependencies, supervisor.start, feed=Feed())
            await parts.gateway.begin(name="sim")
            person = await admitted(store, "person")
            try:
                yield Gateway(store, parts, person)
            finally:
                await parts.gateway.drain()
    finally:
        await store.close()


FAULTS: dict[str, Callable[[], Transient | Permanent | Ambiguous]] = {
    "4xx": lambda: Permanent("400: never"),
    "429": lambda: Transient("429", retry_after_s=0.05),
    "5xx": lambda: Transient("503", retry_after_s=0.05),
    "time-out before": lambda: Transient("refused", retry_after_s=0.05),
    "time-out after": lambda: Ambiguous("no answer"),
}
ANSWER = "\n\n".join(f"Paragraph {number}: {'word ' * 12}" for number in range(4))


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("takes_key", [True, False], ids=["key", "no key"])
async def test_a_fault_at_any_part_loses_and_repeats_nothing(
    tmp_path: Path, fault: str, part: int, takes_key: bool
) -> None:
    # Each part arrives once and in order, or its state says that it may not have.
    can = Capabilities(takes_key=takes_key, text_max=90)
    platform = ScriptedPlatform(capabilities=can)
    platform.failures = [*[None] * part, FAULTS[fault]()]
    agent = SlowAgent(lambda _: ANSWER, pause_s=0)
    async with a_gateway(tmp_path, platform, agent) as gateway:
        parts = await gateway.delivered(await gateway.hears("go"))

    assert len(parts) == 4
    assert platform.repeated() == []
    states = [each.state for each in parts]
    assert states[:part] + states[part + 1 :] == ["sent"] * 3
    is_lost = fault == "4xx" or (fault == "time-out after" and not takes_key)
    assert (states[part] != "sent") == is_lost
    shown = [each.text for each in platform.visible]
    assert shown == [each.text for each in parts if each.state != "failed"]


async def test_a_part_goes_as_soon_as_its_wait_is_over(tmp_path: Path) -> None:
    # The parts behind it are due much earlier and cannot pass it, so they must not delay the look.
    platform = ScriptedPlatform(capabilities=Capabilities(takes_key=True, text_max=90))
    platform.failures = [Transient("429", retry_after_s=0.1)] * 4
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER, pause_s=0)) as gateway:
        began = time.monotonic()
        await gateway.delivered(await gateway.hears("go"))
        needed_s = time.monotonic() - began

    assert len(platform.visible) == 4
    assert 0.4 <= needed_s < 1.5, "four waits, and no whole second for any of them"


async def test_what_waits_for_its_pace_has_certainly_not_arrived(tmp_path: Path) -> None:
    # If the part were taken while it waits, a death would leave it with an unknown fate.
    slow = Pace(place=Rate(1, 30), preview_s=0.02)
    platform = ScriptedPlatform(capabilities=Capabilities(text_max=90, pace=slow))
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER, pause_s=0)) as gateway:
        accepted = await gateway.hears("go")

        async def is_waiting() -> bool:
            due_ms = await gateway.store.outbox.next_due_ms()
            return due_ms is not None and due_ms > SystemClock().now_ms() + 10_000

        await until(is_waiting, "the second part to be given back until its time", seconds=5)
        parts = await gateway.parts_of(accepted)
        assert [part.state for part in parts] == ["sent", "pending", "pending", "pending"]
        assert [part.attempts for part in parts] == [1, 0, 0, 0]


async def test_words_that_nobody_planned_are_divided(tmp_path: Path) -> None:
    # A turn that is given up puts its text into the outbox without knowing what fits into a
    # message.
    platform = ScriptedPlatform(capabilities=Capabilities(takes_key=True, text_max=90))
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: "")) as gateway:
        eve = Person(gateway.store, gateway.person, adapter=NAME, place="elsewhere")
        await eve.is_answered("go", ANSWER, parts=(ANSWER,))
        gateway.parts.wakes.publish(Topic.OUTBOX)

        async def is_whole() -> bool:
            return len(platform.visible) == 4

        await until(is_whole, "four parts", seconds=5)

    assert [shown.text for shown in platform.visible] == PARAGRAPHS


TABLE = "\n".join(
    [
        "| n | what | how much |",
        "|---|---|---|",
        *(f"| {n} | row {n} | {n * n} |" for n in range(90)),
    ]
)
LONG = "\n\n".join(
    [
        "# A long answer",
        "word " * 500,
        TABLE,
        "```python\n" + "print('code')\n" * 200 + "```",
        "end",
    ]
)


async def test_a_long_answer_with_tables_arrives_whole(tmp_path: Path) -> None:
    assert len(LONG) > 7_000
    platform = ScriptedPlatform(
        capabilities=Capabilities(takes_key=True, text_max=4096, unit=TextUnit.UTF16)
    )
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: LONG * 2, pause_s=0)) as gateway:
        parts = await gateway.delivered(await gateway.hears("go"))

    assert {part.state for part in parts} == {"sent"}
    shown = [each.text for each in platform.visible]
    assert len(shown) >= 4
    assert all(platform.size(text) <= 4096 for text in shown)
    assert all(text.count("```") % 2 == 0 for text in shown)
    joined = " ".join(shown)
    for number in range(90):
        assert joined.count(f"| {number} | row {number} |") == 2
    assert joined.count("print('code')") == 400


async def test_an_answer_grows_in_one_bubble(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=GROWING)
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER)) as gateway:
        parts = await gateway.delivered(await gateway.hears("go"))

    assert [shown.text for shown in platform.visible] == [ANSWER]
    forms = [each.text for each in platform.edits]
    assert len(forms) > 2
    assert forms[-1] == ANSWER
    for earlier, later in pairwise(forms):
        assert later.startswith(earlier.rstrip())
    assert [part.step for part in parts] == [DeliveryStep.BUBBLE, DeliveryStep.EDIT]


class CountsPreviews(ScriptedPlatform):
    """Counts how often it was asked to show a growing answer."""

    previews = 0

    async def preview(self, preview: Preview) -> str:
        self.previews += 1
        return await super().preview(preview)


async def test_an_answer_goes_on_growing_after_the_platform_did_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fate of the lost edit does not matter, because the next edit shows the latest text.
    monkeypatch.setattr(showing, "FAILED_S", 0.01)
    platform = CountsPreviews(capabilities=GROWING)
    platform.failures = [None, Ambiguous("no answer")]
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER)) as gateway:
        await gateway.delivered(await gateway.hears("go"))

    assert platform.previews > 2
    assert [shown.text for shown in platform.visible] == [ANSWER]


async def test_an_answer_does_not_go_on_growing_where_it_was_refused_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showing, "FAILED_S", 0.01)
    platform = CountsPreviews(capabilities=GROWING)
    platform.failures = [None, Permanent("not here")]
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER)) as gateway:
        await gateway.delivered(await gateway.hears("go"))

    assert platform.previews == 2
    assert [shown.text for shown in platform.visible] == [ANSWER]


class SlowToShow(ScriptedPlatform):
    """Acknowledges its first preview only after the turn has ended."""

    async def preview(self, preview: Preview) -> str:
        await asyncio.sleep(0.3)
        return await super().preview(preview)


async def test_final_words_go_as_soon_as_their_bubble_is_there(tmp_path: Path) -> None:
    # They wait behind the bubble in their line, and nothing else would wake them.
    platform = SlowToShow(capabilities=GROWING)
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER, pause_s=0)) as gateway:
        await gateway.delivered(await gateway.hears("go"), seconds=5)

    assert [shown.text for shown in platform.visible] == [ANSWER]


async def test_an_answer_that_outgrows_its_bubble_goes_on_in_the_next(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=msgspec.structs.replace(GROWING, text_max=90))
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER)) as gateway:
        parts = await gateway.delivered(await gateway.hears("go"))

    said_last = [part.text for part in parts if part.message.endswith(".reply")]
    assert [shown.text for shown in platform.visible] == said_last
    assert len(said_last) == 4
    assert len(platform.shown) == 4
    assert all(platform.size(each.text) <= 90 for each in platform.edits)


async def test_open_marks_are_closed_while_it_grows(tmp_path: Path) -> None:
    text = (
        "Look:\n\n```python\n" + "print('a line of code')\n" * 20 + "```\n\nThat was **all of it**."
    )
    platform = ScriptedPlatform(capabilities=GROWING)
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: text)) as gateway:
        await gateway.delivered(await gateway.hears("go"))

    assert all(each.text.count("```") % 2 == 0 for each in platform.edits)
    assert all(each.text.count("**") % 2 == 0 for each in platform.edits)
    assert platform.visible[-1].text == text


async def test_what_a_person_has_deleted_is_said_anew(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=GROWING)
    agent = SlowAgent(lambda _: ANSWER)
    agent.go_on.clear()
    async with a_gateway(tmp_path, platform, agent) as gateway:
        accepted = await gateway.hears("go")

        async def is_growing() -> bool:
            return bool(platform.shown)

        await until(is_growing, "the bubble", seconds=5)
        platform.deleted.append(platform.shown[0].receipt)
        agent.go_on.set()
        await gateway.delivered(accepted)

    assert [shown.text for shown in platform.visible] == [ANSWER]


async def test_a_stopped_answer_shows_all_that_is_kept(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=GROWING)
    agent = SlowAgent(lambda _: ANSWER)
    async with a_gateway(tmp_path, platform, agent) as gateway:
        accepted = await gateway.hears("go")

        async def is_growing() -> bool:
            return len(platform.edits) > 1

        await until(is_growing, "the bubble", seconds=5)
        stopped = await gateway.hears("/stop")
        await gateway.delivered(accepted)

        async def is_whole() -> bool:
            record = await gateway.store.diagnostics.record(stopped.session)
            kept = [getattr(each.event, "text", "") for each in record.events]
            marked = [[*text.split(), STOPPED_MARK] for text in kept]
            return platform.visible[0].text.split() in marked

        await until(is_whole, "the bubble to show what is kept", seconds=5)
    assert platform.visible[-1].text == stopped.reply


def tool_then(*events: AgentEvent, text: str = "") -> AnswerRule:
    """Return a rule that says this text and calls a tool, and then answers with these events."""

    def rule(request: ModelRequest) -> Sequence[AgentEvent]:
        if any(isinstance(block, ResultBlock) for block in request.messages[-1].blocks):
            return events
        before = [AgentText(text)] if text else []
        call = AgentCall(id="c", name="look", arguments="{}")
        return [*before, call, Stopped(reason=StopReason.TOOL_CALLS)]

    return rule


DONE = Stopped(reason=StopReason.STOP)
LENGTH = Stopped(reason=StopReason.LENGTH)
FILTER = Stopped(reason=StopReason.CONTENT_FILTER)
NOT_WHOLE: dict[str, tuple[AnswerRule, str]] = {
    "silence": (lambda _: [DONE], SILENT),
    "silence after a tool": (tool_then(DONE), SILENT),
    "silence after words and a tool": (
        tool_then(DONE, text="One moment."),
        f"One moment.\n\n{SILENT_AT_LAST}",
    ),
    "an answer after a tool": (tool_then(AgentText("Blue."), DONE), "Blue."),
    "a cut answer": (lambda _: [AgentText("Half"), LENGTH], f"Half\n\n{CUT}"),
    "a cut thought": (lambda _: [LENGTH], CUT_AT_ONCE),
    "a filtered answer": (lambda _: [AgentText("Half"), FILTER], f"Half\n\n{FILTERED}"),
}


@pytest.mark.parametrize(("rule", "told"), NOT_WHOLE.values(), ids=NOT_WHOLE)
async def test_an_answer_that_is_not_whole_looks_so(
    tmp_path: Path, rule: AnswerRule, told: str
) -> None:
    platform = ScriptedPlatform(capabilities=GROWING)
    async with a_gateway(tmp_path, platform, ScriptedAgent(rule)) as gateway:
        await gateway.delivered(await gateway.hears("go"))

    assert [shown.text for shown in platform.visible] == [told]


async def test_a_cut_answer_from_the_background_looks_so_and_goes_on(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=GROWING)
    agent = ScriptedAgent(lambda _: [AgentText("Half"), LENGTH])
    async with a_gateway(tmp_path, platform, agent) as gateway:
        await gateway.hears("/background dig")

        async def is_told() -> bool:
            return any(CUT in shown.text for shown in platform.visible)

        await until(is_told, "the result with its mark", seconds=5)
        accepted = await gateway.hears("/continue")
        assert accepted.reply == "Going on."


APPENDING = Capabilities(
    takes_key=True, can_delete=True, streaming=Streaming.APPEND, ahead_min=40, pace=QUICK
)
PARAGRAPHS = [each.strip() for each in ANSWER.split("\n\n")]
# The last paragraph could still become something else, so it waits for the end of its line.
PIECES = [*PARAGRAPHS[:2], "\n\n".join(ANSWER.split("\n\n")[2:]).strip()]


@pytest.mark.parametrize("capabilities", [GROWING, APPENDING], ids=["edited", "appended"])
async def test_an_answer_that_the_model_cut_can_be_continued_by_a_button(
    tmp_path: Path, capabilities: Capabilities
) -> None:
    can = msgspec.structs.replace(capabilities, choices_max=3)
    platform = ScriptedPlatform(capabilities=can)
    answers: Iterator[Sequence[AgentEvent]] = iter(
        [[AgentText("Half"), LENGTH], [AgentText("the rest"), DONE]]
    )
    async with a_gateway(tmp_path, platform, ScriptedAgent(lambda _: next(answers))) as gateway:
        await gateway.delivered(await gateway.hears("tell"))

        assert [(CUT in shown.text, shown.choices) for shown in platform.visible] == [
            (True, ("/continue",))
        ]
        await gateway.delivered(await gateway.hears(platform.visible[-1].choices[0]))
        assert platform.visible[-1].text == "the rest"
        assert platform.visible[-1].choices == ()


async def test_where_nothing_can_be_changed_an_answer_comes_piece_by_piece(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=APPENDING)
    agent = SlowAgent(lambda _: ANSWER)
    async with a_gateway(tmp_path, platform, agent) as gateway:
        accepted = await gateway.hears("go")

        async def has_begun() -> bool:
            return bool(platform.visible)

        await until(has_begun, "the first paragraph", seconds=5)
        assert (await gateway.parts_of(accepted))[0].message.endswith(".ahead")
        parts = await gateway.delivered(accepted)

    assert [shown.text for shown in platform.visible] == PIECES
    assert platform.edits == platform.shown, "nothing was changed"
    assert {part.step for part in parts} == {DeliveryStep.POST}


async def test_a_block_that_is_too_long_goes_ahead_in_pieces(tmp_path: Path) -> None:
    code = "```python\n" + "print('a line of code')\n" * 12 + "```"
    text = "\n\n".join([code, *ANSWER.split("\n\n")])
    can = msgspec.structs.replace(APPENDING, text_max=120)
    platform = ScriptedPlatform(capabilities=can)
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: text)) as gateway:
        await gateway.delivered(await gateway.hears("go"))

    shown = [each.text for each in platform.visible]
    assert all(platform.size(each) <= 120 for each in shown)
    assert "".join(shown).count("a line of code") == 12
    assert all(each.count("```") % 2 == 0 for each in shown)
    assert shown[-4:] == PARAGRAPHS


@pytest.mark.parametrize("can_delete", [True, False])
async def test_a_stopped_answer_ends_where_it_was_stopped(tmp_path: Path, can_delete: bool) -> None:
    platform = ScriptedPlatform(
        capabilities=msgspec.structs.replace(APPENDING, can_delete=can_delete)
    )
    agent = SlowAgent(lambda _: ANSWER, pause_s=0.2)
    async with a_gateway(tmp_path, platform, agent) as gateway:
        accepted = await gateway.hears("go")

        async def has_begun() -> bool:
            return len(platform.visible) > 1

        await until(has_begun, "two paragraphs", seconds=5)
        stopped = await gateway.hears("/stop")
        await gateway.delivered(accepted)

        async def is_whole() -> bool:
            record = await gateway.store.diagnostics.record(stopped.session)
            kept = [getattr(each.event, "text", "") for each in record.events]
            shown = [each.text for each in platform.visible if each.text != stopped.reply]
            return " ".join(shown).split() in [[*text.split(), STOPPED_MARK] for text in kept]

        await until(is_whole, "what is kept to be shown", seconds=5)


async def test_only_what_a_turn_says_comes_piece_by_piece(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=APPENDING)
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER)) as gateway:
        helped = await gateway.hears("/help")
        await gateway.delivered(helped)

    assert [shown.text for shown in platform.visible] == [helped.reply]
    assert len(helped.reply) > 2 * APPENDING.ahead_min


class OldServer(ScriptedPlatform):
    """Refuses the way of streaming that its platform declares."""

    async def preview(self, preview: Preview) -> str:
        if preview.streaming is not Streaming.EDIT:
            raise Unsupported("unknown method")
        return await super().preview(preview)


@pytest.mark.parametrize("streaming", [Streaming.NATIVE, Streaming.DRAFT])
async def test_a_server_that_cannot_stream_so_gets_the_next_best(
    tmp_path: Path, streaming: Streaming
) -> None:
    platform = OldServer(capabilities=msgspec.structs.replace(GROWING, streaming=streaming))
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER)) as gateway:
        await gateway.delivered(await gateway.hears("go"))
        await gateway.delivered(await gateway.hears("again"))

    assert [shown.text for shown in platform.visible] == [ANSWER, ANSWER]
    assert len(platform.edits) > 4


class Drafts(ScriptedPlatform):
    """Shows drafts, which leave nothing behind."""

    def __init__(self) -> None:
        can = msgspec.structs.replace(GROWING, streaming=Streaming.DRAFT)
        super().__init__(capabilities=can)
        self.drafts: list[Preview] = []

    async def preview(self, preview: Preview) -> str:
        self.drafts.append(preview)
        return ""


async def test_a_draft_leaves_nothing_behind(tmp_path: Path) -> None:
    platform = Drafts()
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER)) as gateway:
        parts = await gateway.delivered(await gateway.hears("go"))

    assert len(platform.drafts) > 1
    assert len({draft.key for draft in platform.drafts}) == 1
    assert [part.step for part in parts] == [DeliveryStep.POST]
    assert [shown.text for shown in platform.visible] == [ANSWER]


class NativeStream(ScriptedPlatform):
    """Takes text as it grows, and refuses text that does not continue what it has."""

    def __init__(self) -> None:
        can = msgspec.structs.replace(GROWING, streaming=Streaming.NATIVE)
        super().__init__(capabilities=can)
        self.streams: dict[str, str] = {}
        self.ended: list[str] = []

    async def preview(self, preview: Preview) -> str:
        receipt = preview.receipt or (await super().preview(preview))
        assert self.streams.get(receipt, "") == preview.shown
        assert preview.text.startswith(preview.shown)
        self.streams[receipt] = preview.text
        return receipt

    async def perform(self, effect: Effect) -> Receipt:
        if isinstance(effect, Edit):
            assert effect.shown == self.streams[effect.receipt]
            self.ended.append(effect.receipt)
        return await super().perform(effect)


async def test_a_native_stream_only_grows_and_is_ended(tmp_path: Path) -> None:
    platform = NativeStream()
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER)) as gateway:
        await gateway.delivered(await gateway.hears("go"))

    assert [shown.text for shown in platform.visible] == [ANSWER]
    assert platform.ended == list(platform.streams)
    assert len(platform.ended) == 1


class StrictServer(ScriptedPlatform):
    """Enforces a limit for each place and for the account, stricter than what it publishes, and
    notes every request that comes during a wait it has named."""

    WINDOW_S, PLACE_MAX, ACCOUNT_MAX, WAIT_S = 0.2, 2, 12, 0.3

    def __init__(self) -> None:
        pace = Pace(account=Rate(20, 0.2), place=Rate(3, 0.2), preview_s=0.05)
        super().__init__(capabilities=msgspec.structs.replace(GROWING, pace=pace))
        self._requests: dict[str, deque[float]] = defaultdict(deque)
        self._closed_until: dict[str, float] = defaultdict(float)
        self.refused = 0
        self.too_soon: list[str] = []

    async def perform(self, effect: Effect) -> Receipt:
        self._admit(effect.address.place, self.PLACE_MAX)
        return await super().perform(effect)

    async def typing(self, address: Address) -> None:
        self._admit(address.place, self.PLACE_MAX)

    def _admit(self, place: str, limit: int) -> None:
        now = time.monotonic()
        if now < self._closed_until[place] - 0.005:
            self.too_soon.append(place)
        recent = self._requests[place]
        while recent and recent[0] < now - self.WINDOW_S:
            recent.popleft()
        if len(recent) >= limit:
            self.refused += 1
            self._closed_until[place] = now + self.WAIT_S
            raise Transient("429", retry_after_s=self.WAIT_S)
        recent.append(now)


async def test_the_servers_wait_is_always_honoured(tmp_path: Path) -> None:
    # Several chats grow at once; still nothing is sent during a wait, and every answer arrives.
    platform = StrictServer()
    agent = SlowAgent(lambda asked: f"{asked}: {ANSWER}", pause_s=0.02)
    places = [f"room {number}" for number in range(5)]
    async with a_gateway(tmp_path, platform, agent) as gateway:
        accepted = [await gateway.hears(f"go {place}", place=place) for place in places]
        for each in accepted:
            await gateway.delivered(each)

    assert platform.refused > 3, "the server never had to refuse anything"
    assert platform.too_soon == []
    shown = {each.place: each.text for each in platform.visible}
    assert shown == {place: f"go {place}: {ANSWER}" for place in places}


async def test_a_message_that_waits_is_marked_as_heard(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=Capabilities(takes_key=True, can_react=True))
    agent = SlowAgent(lambda _: ANSWER)
    agent.go_on.clear()
    async with a_gateway(tmp_path, platform, agent) as gateway:
        first = await gateway.hears("go")
        for busy in (Busy.QUEUE, Busy.STEER):
            await gateway.hears("and then?", busy=busy)

        async def is_marked() -> bool:
            return len(platform.marks) == 2

        await until(is_marked, "both marks", seconds=5)
        agent.go_on.set()
        await gateway.delivered(first)
    assert [(mark.external_id, mark.emoji) for mark in platform.marks] == [
        ("m2", HEARD),
        ("m3", HEARD),
    ]


class OneSlowPlace(ScriptedPlatform):
    """Answers in one place only when `go_on` is set."""

    def __init__(self) -> None:
        super().__init__(capabilities=Capabilities(takes_key=True))
        self.go_on = asyncio.Event()

    async def perform(self, effect: Effect) -> Receipt:
        if effect.address.place == "slow":
            await self.go_on.wait()
        return await super().perform(effect)


async def test_a_slow_place_holds_up_nobody_else(tmp_path: Path) -> None:
    platform = OneSlowPlace()
    async with a_gateway(tmp_path, platform, ScriptedAgent()) as gateway:
        slow = await gateway.hears("wait for me", place="slow")
        quick = await gateway.hears("quick", place="quick")
        await gateway.delivered(quick, seconds=5)
        assert [shown.place for shown in platform.visible] == ["quick"]
        platform.go_on.set()
        await gateway.delivered(slow)
    assert [shown.place for shown in platform.visible] == ["quick", "slow"]


async def test_people_are_told_how_it_ended(tmp_path: Path) -> None:
    def fails(_: ModelRequest) -> Sequence[AgentEvent]:
        return [Stopped(reason=StopReason.PROVIDER_ERROR, detail="10.0.0.7 is down")]

    platform = ScriptedPlatform()
    async with a_gateway(tmp_path, platform, ScriptedAgent(fails)) as gateway:
        await gateway.delivered(await gateway.hears("go"))
    (shown,) = platform.visible
    assert "the model's server failed" in shown.text
    assert "10.0.0.7" not in shown.text
    assert "/retry" in shown.text


async def test_a_footer_tells_who_answered(tmp_path: Path) -> None:
    platform = ScriptedPlatform()
    agent = SlowAgent(lambda _: "Yes.")
    async with a_gateway(tmp_path, platform, agent, Display(has_footer=True)) as gateway:
        accepted = await gateway.hears("go")
        await gateway.delivered(accepted)
    assert platform.visible[0].text.startswith("Yes.\n\n_main · ")


async def test_typing_is_shown_while_a_turn_runs(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=Capabilities(takes_key=True, typing_s=0.05))
    agent = SlowAgent(lambda _: ANSWER, pause_s=0.03)
    async with a_gateway(tmp_path, platform, agent) as gateway:
        await gateway.delivered(await gateway.hears("go"))
        typed = len(platform.typed)
        assert typed > 2
        await asyncio.sleep(0.2)
        assert len(platform.typed) == typed


async def test_nothing_that_was_to_be_edited_is_lost(tmp_path: Path) -> None:
    # The bubble cannot be edited any more, so its words are posted anew.
    class Amnesia(ScriptedPlatform):
        async def perform(self, effect: Effect) -> Receipt:
            if isinstance(effect, Edit):
                raise NotFound("no such message")
            assert isinstance(effect, Post)
            return await super().perform(effect)

    platform = Amnesia(capabilities=GROWING)
    async with a_gateway(tmp_path, platform, SlowAgent(lambda _: ANSWER)) as gateway:
        await gateway.delivered(await gateway.hears("go"))
    assert platform.visible[-1].text == ANSWER
