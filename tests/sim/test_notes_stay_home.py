"""Checks that the model is told of an interruption once, where it belongs, and that the note is
stored nowhere.

An answer is cut at every instant, with tools and without. Then people go on in every way they have:
they write, branch, go back, ask again, begin anew, or order work in the background. The fuse stays
active meanwhile, so errands and later answers are cut too. The model judges requests like a strict
provider. It obeys what it reads last, and its errands quote every note that they are told, so that
a note which reaches an errand is found in the store.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import pytest

from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.manifest import ChatSettings
from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.ids import MessageId, TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import (
    AssistantSaid,
    AttemptInterrupted,
    InterruptionAcknowledged,
    NoticePosted,
    Recorded,
    TurnQueued,
    TurnStarted,
)
from perdure.domain.journal.records import SessionRecord
from perdure.domain.journal.session_events import Compacted, SessionOpened, TitleSet
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.prompt import (
    ModelRequest,
    Note,
    PromptBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
)
from perdure.domain.turn.errands import instruction
from perdure.domain.turn.recovery import Policy, Resume, told_by
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.ports.turns.agent import Work
from perdure.ports.turns.turns import Settlement
from perdure.testkit.models.wire_rules import anthropic_violations, openai_violations
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.crash import Fuse
from perdure.testkit.simulator.stores import claim_one, reply_id
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import PLATFORM, Act, Life, Setup, World, patiently, until

SETTINGS = ChatSettings(base_url="http://127.0.0.1:1/v1", model="strict")
BEFORE = [f"{number} of the sea, the wind and the long way home" for number in range(3)]
SUMMARY, TITLE, DUG = "They spoke of the sea.", "The sea and the wind", "Seven stones lie there."
ANSWERS: Final = {
    TurnKind.SUMMARY: SUMMARY,
    TurnKind.TITLE: TITLE,
    TurnKind.BACKGROUND: DUG,
    TurnKind.MEMORY: "done",
}
# The tool that each kind of errand calls.
TOOLS: Final = {TurnKind.BACKGROUND: "dig", TurnKind.MEMORY: "remember"}


def order_of(errand: TurnKind) -> Note | None:
    queued = TurnQueued(turn=TurnId("t"), message=MessageId("m"), text="", kind=errand)
    return instruction(queued)


ORDERS: Final = [order for errand in TurnKind if (order := order_of(errand))]


def recovery_notes(blocks: Sequence[PromptBlock]) -> list[Note]:
    return [block for block in blocks if isinstance(block, Note) and block not in ORDERS]


class Reader(ScriptedAgent):
    """Plays a model, and can rebuild each request: the encoding of a message is its number."""

    def __init__(self, world: World, cut: str) -> None:
        super().__init__(self._answer)
        self._world = world
        self._cut = cut
        self._encoded: list[PromptMessage] = []
        self.is_cutting = False

    def encode(self, message: PromptMessage) -> bytes:
        self._encoded.append(message)
        return str(len(self._encoded) - 1).encode()

    def whole(self, request: ModelRequest) -> list[PromptMessage]:
        numbers = b",".join(request.history).decode().split(",") if request.history else []
        return [*(self._encoded[int(number)] for number in numbers), *request.messages]

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        """Wait until the first words are durable before the next come, so that a death can leave
        them. Those of a summary never are."""
        is_first = request.purpose != TurnKind.SUMMARY
        async for event in super().run(request, work):
            shown = sum(map(len, self._world.shown.values()))
            yield event
            if is_first and isinstance(event, AgentText):
                await until(partial(self._has_shown_more, shown))
            is_first = False

    def _has_shown_more(self, than: int) -> bool:
        return sum(map(len, self._world.shown.values())) > than

    def _answer(self, request: ModelRequest) -> Sequence[AgentEvent]:
        has_result = bool(own_results(request))
        is_here = has_result == (self._cut == "after a tool")
        if self.is_cutting and not request.purpose and is_here:
            self._world.gate.close()
        wants = tool_of(request)
        if wants and not has_result:
            call = AgentCall(id="given-by-provider", name=wants, arguments="{}")
            return [AgentText("Let me see. "), call, Stopped(reason=StopReason.TOOL_CALLS)]
        answer = self._words(request)
        half = len(answer) // 2
        return [AgentText(answer[:half]), AgentText(answer[half:]), Stopped(reason=StopReason.STOP)]

    def _words(self, request: ModelRequest) -> str:
        if not request.purpose:
            return f"Yes: {newest(request)}."
        told = recovery_notes([b for m in self.whole(request) for b in m.blocks])
        return " ".join([ANSWERS[TurnKind(request.purpose)], *(note.text for note in told)])


def newest(request: ModelRequest) -> str:
    """Return what the person said last, as the model reads it."""
    texts = [b.text for m in request.messages if m.role is Role.USER for b in m.blocks
             if isinstance(b, TextBlock)]  # fmt: skip
    return texts[-1] if texts else ""


def own_results(request: ModelRequest) -> list[PromptBlock]:
    """Return the tool results behind what the model was last asked. There are none if an order is
    the last thing that the model reads."""
    blocks = [block for message in request.messages for block in message.blocks]
    asked = [
        at
        for at, block in enumerate(blocks)
        if block in ORDERS or (isinstance(block, TextBlock) and block.text == newest(request))
    ]
    return [block for block in blocks[max(asked, default=0) :] if isinstance(block, ResultBlock)]


def tool_of(request: ModelRequest) -> str:
    if request.purpose:
        return TOOLS.get(TurnKind(request.purpose), "")
    words = newest(request).split()
    return words[1] if words[:1] == ["tool"] else ""


async def converse(life: Life) -> None:
    """Have a conversation that the model was told in full."""
    for number, text in enumerate(BEFORE, 1):
        update = Update(
            address=Address(adapter=PLATFORM, account="bot", place="room"),
            external_id=f"before-{number}",
            kind=UpdateKind.MESSAGE,
            principal=life.person,
            text=text,
        )
        await life.store.inbox.accept(update, queue_max=9)
        lease = (await claim_one(life.store)).lease
        settlement = Settlement(
            outcome=Outcome.DONE,
            reason="stop",
            message=reply_id(lease),
            text="Yes.",
            context_tokens=120 * number,
        )
        await life.store.turns.settle(lease, settlement)
    await life.store.nodes.leave()


async def before(world: World) -> None:
    await world.live(converse)


async def cut(life: Life, *, text: str) -> None:
    """Kill the gateway in the middle of an answer, if it has not died before."""
    agent = life.world.agent
    assert isinstance(agent, Reader)
    agent.is_cutting = True
    try:
        life.world.say(text)
        await life.receive()
        await patiently(life.parts.turns.step)
        await until(lambda: life.world.gate.reached.is_set() or not life.parts.turns.running)
        await until(lambda: bool(life.world.shown) or not life.parts.turns.running)
    finally:
        agent.is_cutting = False
    life.kill()


async def go_on(life: Life, *, said: Sequence[str]) -> None:
    """Say one thing after the other."""
    for text in said:
        life.world.say(text)
        await life.rest()


async def look_around(life: Life) -> None:
    """Finish what is left, then say two more things: in the session before, if there is one, and
    after that."""
    await life.rest()
    for text in ("and now?", "/resume", "tool there", "at last"):
        life.world.say(text)
        await life.rest()


CUTS: Final = {"in words": "work", "in a tool": "tool look", "after a tool": "tool look"}
WAYS: Final[dict[str, Sequence[str]]] = {
    "a message": ["tool else"],
    "branch": ["/branch", "tool else"],
    "tell and branch": ["what else?", "/branch", "tool else"],
    "undo": ["/undo", "tool else"],
    "tell and undo": ["tool else", "/undo", "what then?"],
    "tell and retry": ["tool else", "/retry"],
    "retry": ["/retry"],
    "background": ["/stop", "/background dig it up", "tool else"],
    "reset": ["/reset", "tool else"],
    "compact": ["tool else", "one more", "/compact the sea", "go on"],
}
# In these ways the fuse strikes errands too. Errands have few instants, so more of them are struck.
ERRANDS: Final = ("background", "reset", "compact")


def events_of(records: Sequence[SessionRecord]) -> list[Recorded]:
    return [recorded for record in records for recorded in record.events]


def opening(record: SessionRecord) -> SessionOpened:
    event = record.events[0].event
    assert isinstance(event, SessionOpened)
    return event


def refused(agent: Reader) -> list[str]:
    """Return what strict providers would object to in any of the requests."""
    found: list[str] = []
    for request in agent.requests:
        messages = agent.whole(request)
        kept = len(messages) // 2
        for api, judge in (("openai", openai_violations), ("anthropic", anthropic_violations)):
            dialect = DIALECTS[api]
            prefix = b",".join(dialect.encode(message) for message in messages[:kept])
            body = dialect.body(
                ModelRequest(instructions="", prefix=prefix, messages=tuple(messages[kept:])),
                SETTINGS,
            )
            found += judge(msgspec.json.decode(b"".join(body)))
    return found


def told_in_errands(agent: Reader) -> list[str]:
    """Report errands that were told anything besides their order, such as a note."""
    found = []
    for request in agent.requests:
        if request.purpose:
            blocks = [block for message in agent.whole(request) for block in message.blocks]
            notes = [block for block in blocks if isinstance(block, Note)]
            if notes != [each for each in [order_of(TurnKind(request.purpose))] if each]:
                found.append(f"a {request.purpose} errand was told {notes}")
    return found


def told_not_once(records: Sequence[SessionRecord]) -> list[str]:
    """Report interruptions of an answer that were not told exactly once, if they are on a chain
    that went on. Others may be told at most once."""
    told = Counter(
        told_by(r) for r in events_of(records) if isinstance(r.event, InterruptionAcknowledged)
    )
    found = [f"{key} was told {times} times" for key, times in told.items() if times > 1]
    parents = {turn.id: turn.parent for record in records for turn in record.turns}
    kinds = {r.turn: r.event.kind for r in events_of(records) if isinstance(r.event, TurnQueued)}
    cuts = {r.key: r.turn for r in events_of(records) if isinstance(r.event, AttemptInterrupted)}
    found += [
        f"{key} was no answer's" for key in told if kinds.get(cuts.get(key)) != TurnKind.MESSAGE
    ]
    followed: set[TurnId] = set()
    for head in [record.head for record in records if not opening(record).kind]:
        turn = head
        while turn is not None and turn not in followed:
            followed.add(turn)
            turn = parents.get(turn)
    asked = [
        key for key, turn in cuts.items() if turn in followed and kinds[turn] == TurnKind.MESSAGE
    ]
    return found + [f"{key} was never told" for key in asked if not told[key]]


def told_elsewhere(agent: Reader, records: Sequence[SessionRecord]) -> list[str]:
    """Report answers whose last attempt told of an interruption and whose requests carry no note,
    or the reverse."""
    found = []
    asked: dict[str, list[TurnId]] = {}
    for record in records:
        for each in record.events:
            if isinstance(each.event, TurnQueued) and each.event.kind == TurnKind.MESSAGE:
                asked.setdefault(each.event.text, []).append(each.event.turn)
    done = {t.id: r for r in records for t in r.turns if t.outcome == Outcome.DONE}
    for text, turns in asked.items():
        requests = [each for each in agent.requests if newest(each) == text and not each.purpose]
        turn = turns[-1]
        if turn not in done or not requests:
            continue
        own = [each for each in done[turn].events if each.turn == turn]
        begun = max(at for at, each in enumerate(own) if isinstance(each.event, TurnStarted))
        last = [each.event for each in own[begun:]]
        calls = sum(1 for event in last if isinstance(event, AssistantSaid) and event.calls)
        has_told = any(isinstance(event, InterruptionAcknowledged) for event in last)
        is_cut = any(isinstance(each.event, AttemptInterrupted) for each in own)
        for request in requests[-calls - 1 :]:
            blocks = [b for m in agent.whole(request) for b in m.blocks]
            notes = recovery_notes(blocks)
            if len(notes) != int(has_told):
                found.append(f"{text!r} told {notes}, by the journal {has_told}")
            elif notes and not is_cut and blocks[blocks.index(notes[0]) + 1] != TextBlock(text):
                found.append(f"the note does not stand ahead of {text!r}")
    return found


def brought_wrongly(records: Sequence[SessionRecord]) -> list[str]:
    """Report errands that did not bring back what the model said, from its beginning."""
    found = []
    for each in events_of(records):
        match each.event:
            case TitleSet(title=title) if title not in (TITLE, f"{TITLE} (branch)"):
                found.append(f"the title is {title!r}")
            case Compacted(summary=summary) if summary != SUMMARY:
                found.append(f"the summary is {summary!r}")
            case TurnQueued(kind=kind, answer=answer) if kind == TurnKind.RESULT:
                said = f"In the background: dig it up\n\nLet me see. \n\n{DUG}"
                if answer != said:
                    found.append(f"the background brought {answer!r}")
            case NoticePosted(text=text) if "could not be saved" in text:
                found.append(text)
            case _:
                pass
    return found


def stored(folder: Path, notes: set[str]) -> list[str]:
    """Return the sentences of these notes that are in any byte of what was stored."""
    everything = b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"at last" in everything, "the search would find nothing at all"
    sentences = {each for note in notes for each in note.strip("[]").split(". ")}
    return [f"stored: {each}" for each in sentences if each.rstrip(".").encode() in everything]


def broken(world: World, records: Sequence[SessionRecord], folder: Path) -> list[str]:
    agent = world.agent
    assert isinstance(agent, Reader)
    found = [each for record in records for each in violations(record)]
    found += refused(agent)
    found += told_in_errands(agent)
    found += told_not_once(records)
    found += told_elsewhere(agent, records)
    found += brought_wrongly(records)
    found += [
        f"{turn.id} ended as {turn.outcome}: {turn.detail}"
        for turn in chain.from_iterable(record.turns for record in records)
        if turn.outcome in (None, Outcome.FAILED, Outcome.SUSPENDED)
    ]
    blocks = [b for r in agent.requests for m in agent.whole(r) for b in m.blocks]
    return found + stored(folder, {b.text for b in blocks if isinstance(b, Note)})


def run(simulator: Simulator, folder: Path, name: str, where: str, resume: Resume) -> Run:
    async def play(*fuses: Fuse) -> list[str]:
        policy = Policy(resume=resume, freshness_ms=0, attempts_max=9)
        setup = Setup(recovery=policy, has_titles=True, has_memory=True, strikes_deliveries=False)
        # Elsewhere the cut answer is the first one, so that a branch has events with its numbers.
        world = await simulator.world(setup=setup, before=before if name == "compact" else None)
        world.agent = Reader(world, where)
        world.holds = lambda request: not request.purpose and where != "in a tool"
        acts: list[Act] = [partial(cut, text=CUTS[where]), partial(go_on, said=WAYS[name])]
        records = await world.play(acts, *fuses, last=look_around)
        return broken(world, records, folder)

    return play


@pytest.mark.timeout(100)
@pytest.mark.parametrize("resume", [Resume.WAIT, Resume.CONTINUE])
@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("name", WAYS)
async def test_a_note_is_told_once_where_it_belongs(
    simulator: Simulator, tmp_path: Path, name: str, where: str, resume: Resume
) -> None:
    every = 16 if name in ERRANDS else 50
    await simulator.strike(run(simulator, tmp_path, name, where, resume), every=every)
