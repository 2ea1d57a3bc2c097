"""Strike the gateway at any port call while it works beside conversations.

Once everything is at rest, the promises about errands are judged: a result comes back once, a
summary changes nothing but what the model is told, and no session waits for memories for ever.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.delivery import PartState
from perdure.domain.errors import Corrupt
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import NoticePosted, TurnQueued, TurnSettled, TurnStarted
from perdure.domain.journal.records import SessionRecord
from perdure.domain.journal.session_events import (
    CommandTaken,
    Compacted,
    CompactionFailed,
    RoomSought,
    SessionClosed,
    SessionOpened,
    SessionResumed,
    TitleSet,
)
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.prompt import (
    ModelRequest,
    PromptMessage,
    Role,
    TextBlock,
    assert_valid,
    messages_of,
    tokens_of_messages,
    weave,
)
from perdure.domain.turn.stream import AgentEvent, AgentText, Stopped
from perdure.ports.turns.turns import Settlement
from perdure.ports.turns.wakes import Topic
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.crash import (
    Fuse,
    Nemesis,
)
from perdure.testkit.simulator.node import StorePorts
from perdure.testkit.simulator.stores import claim_one, only, reply_id
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import Act, Life, Setup, World, until

HERE = Address(adapter="scripted", account="bot", place="room")
HOLD_MS = 10_000
LONG = "of the sea, the wind and the long way home " * 9
BEFORE = [f"{number} {LONG}" for number in ("one", "two", "three", "four")]
NEVER_MIND = "/undo 4"


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Describes how the model behaves: what it says to each kind of errand (None: it breaks in the
    middle), for which purpose it waits until the gate opens, and how many tokens its window has, if
    it refuses longer requests."""

    answers: dict[str, str | None] = {}
    held: str | None = None
    window: int = 0


ANSWERS = {TurnKind.TITLE: "The sea", TurnKind.SUMMARY: "They spoke of the sea.", "": "Yes."}


def model(world: World, script: Script) -> ScriptedAgent:
    """Return an agent that answers by the scenario's script."""

    def rule(request: ModelRequest) -> Sequence[AgentEvent]:
        if script.window and tokens_in(request) > script.window:
            refused = StopReason.CONTEXT_EXCEEDED
            return [Stopped(reason=refused, detail="too long", window=script.window)]
        answer = {**ANSWERS, **script.answers}.get(request.purpose, "Done.")
        if answer is None:
            broken_off = Stopped(reason=StopReason.AGENT_ERROR, detail="the model broke")
            return [AgentText("Well"), broken_off]
        return [
            AgentText(answer[:4] or " "),
            AgentText(answer[4:]),
            Stopped(reason=StopReason.STOP),
        ]

    def holds(request: ModelRequest) -> bool:
        is_long = request.purpose or newest(request).startswith("long ")
        return bool(is_long) and request.purpose == script.held

    world.holds = holds
    return ScriptedAgent(rule)


def tokens_in(request: ModelRequest) -> int:
    """Return about how many tokens a request has."""
    return tokens_of_messages(request.messages) + sum(map(len, request.history)) // 4


def flaws(request: ModelRequest) -> list[str]:
    encoded = b"[" + b",".join(request.history) + b"]"
    roles = [each["role"] for each in msgspec.json.decode(encoded, type=list[dict[str, Any]])]
    roles += [message.role for message in request.messages]
    are_in_turn = all(one != other for one, other in pairwise(roles))
    if roles[0] != Role.USER or roles[-1] != Role.USER or not are_in_turn:
        return [f"a request for {request.purpose or newest(request)!r} is not valid: {roles}"]
    return []


def newest(request: ModelRequest) -> str:
    """Return what the person said last, as the model reads it."""
    asked = [message for message in request.messages if message.role is Role.USER]
    texts = [b.text for message in asked for b in message.blocks if isinstance(b, TextBlock)]
    return texts[-1] if texts else ""


async def converse(life: Life) -> None:
    """Have a conversation of some length, all of which the model was told."""
    for number, text in enumerate(BEFORE, 1):
        update = Update(
            address=HERE,
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


async def talk(life: Life) -> None:
    life.world.say(f"five {LONG}")
    await life.work()


async def talk_on(life: Life) -> None:
    await life.rest()
    life.world.say("and now?")
    await life.rest()


async def go_back(life: Life) -> None:
    """Go back to the session that was left, and talk on in it."""
    await life.rest()
    life.world.say("/resume")
    life.world.say("and now?")
    await life.rest()


async def dig(life: Life) -> None:
    life.world.say("/background dig")
    await life.work()


async def begin_anew(life: Life) -> None:
    life.world.say("/new")
    await life.receive()
    await life.work()


async def begin_anew_while_digging(life: Life) -> None:
    await life.hold("/background dig")
    await life.talk_beside("/new", "hello")
    await life.work()


async def begin_anew_before_it_is_said(life: Life) -> None:
    """Leave the session while the result waits behind a long answer."""
    await life.hold("long story")
    await life.talk_beside("/background dig")
    await life.talk_beside("/new")
    await life.work()


async def compact(life: Life) -> None:
    await life.hold("/compact")
    await life.talk_beside("meanwhile")
    await life.work()


async def compact_and_undo(life: Life) -> None:
    """Undo the turns that a summary stands for while it is written."""
    await life.hold("/compact")
    await life.talk_beside(NEVER_MIND)
    await life.work()


async def compact_and_stop(life: Life) -> None:
    await life.hold("/compact")
    await life.talk_beside("/stop")
    await life.work()


async def reset(life: Life) -> None:
    life.world.say("/reset")
    life.world.say("hello")
    await life.work()


async def reset_and_wait(life: Life) -> None:
    """Hold the memory errand for longer than the new session may wait for it."""
    await life.hold("/reset", "hello")
    await life.talk_beside()
    life.world.clock.advance(HOLD_MS / 1000)
    await life.talk_beside()
    life.world.clock.advance(1)
    await life.work()


QUIETLY = Setup(has_titles=True, strikes_deliveries=False)
REMEMBERING = replace(QUIETLY, has_memory=True)
Judge = Callable[[World, Sequence[SessionRecord]], list[str]]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a scenario. `promise` must hold whatever is struck; `proof` must hold when nothing
    is. Results and notices are delivered like every answer, so few scenarios are struck there
    too."""

    acts: tuple[Act, ...]
    promise: Judge
    proof: Callable[[Sequence[SessionRecord]], bool]
    script: Script = Script()
    is_begun: bool = True
    setup: Setup = QUIETLY
    last: Act = talk_on


def events_of(kind: type[Any], records: Sequence[SessionRecord]) -> list[Any]:
    return only(kind, [recorded for record in records for recorded in record.events])


def errands_of(errand: TurnKind, records: Sequence[SessionRecord]) -> list[SessionRecord]:
    return [record for record in records if opening(record).kind == errand]


def opening(record: SessionRecord) -> SessionOpened:
    event = record.events[0].event
    assert isinstance(event, SessionOpened)
    return event


def outcome_of(record: SessionRecord) -> str | None:
    """Return the outcome of the one turn of an errand's session."""
    (turn,) = record.turns
    return turn.outcome


def comes_back_once(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Report results of background work that were not said exactly once, in a session that people
    use."""
    results = {
        event.turn: event
        for event in events_of(TurnQueued, records)
        if event.kind == TurnKind.RESULT
    }
    said = [
        turn.id
        for record in records
        for turn in record.turns
        if turn.id in results and turn.outcome == Outcome.DONE and not opening(record).kind
    ]
    shown = [each.text for each in world.platform.shown if "In the background: dig" in each.text]
    given = sum(sent.text == "/background dig" for sent in world.platform.sent)
    if not len(said) == len(shown) == given:
        return [f"asked {given} times, brought {len(said)} times, shown {len(shown)} times"]
    return []


def entitles_once(world: World, records: Sequence[SessionRecord]) -> list[str]:
    titles = [events_of(TitleSet, [record]) for record in records]
    return ["a session got its title twice"] if any(len(each) > 1 for each in titles) else []


def heals_once(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Check that every turn was answered, and that room was made for each at most once."""
    events = [recorded.event for record in records for recorded in record.events]
    settled = [each for each in events if isinstance(each, TurnSettled)]
    sought = [each for each in events if isinstance(each, RoomSought)]
    made = [each.compaction for each in sought if each.compaction]
    compacted = [each for each in events if isinstance(each, Compacted)]
    found = [f"{each.turn}: {each.detail}" for each in settled if each.outcome is Outcome.FAILED]
    if len({each.turn for each in sought}) < len(sought):
        found.append("room was made twice for one turn")
    own = {each.message for each in compacted if each.errand in {turn.turn for turn in sought}}
    return found if own == set(made) else [*found, f"{made} was recorded, {own} was compacted"]


def compacts_once(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Report summaries that did not end exactly once, or of whose end the person who asked was not
    told."""
    errands = errands_of(TurnKind.SUMMARY, records)
    ended = [
        event.errand
        for event in [*events_of(Compacted, records), *events_of(CompactionFailed, records)]
    ]
    found = []
    if sorted(ended) != sorted(record.turns[0].id for record in errands):
        found.append(f"{len(errands)} summaries were ordered, {len(ended)} came to an end")
    asked = sum(opening(record).reason == "command" for record in errands)
    notices = [event.text for event in events_of(NoticePosted, records)]
    told = sum(text.startswith(("Compacted: ", "Not compacted: ")) for text in notices)
    if told != asked:
        found.append(f"{asked} summaries were asked for, {told} were told of")
    return found


def saves_before_it_goes_on(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Report new sessions whose first turn began before the memories were saved or the hold was
    over."""
    found = []
    saved = errands_of(TurnKind.MEMORY, records)
    for record in records:
        if opening(record).reason != "reset":
            continue
        over = [r.at for each in saved for r in each.events if isinstance(r.event, TurnSettled)]
        begun = [r.at for r in record.events if isinstance(r.event, TurnStarted)]
        may_begin = min([record.events[0].at + HOLD_MS, *over])
        if begun and begun[0] < may_begin:
            found.append(f"{record.session.id} began {may_begin - begun[0]} ms too early")
    failed = [each for each in saved if outcome_of(each) != Outcome.DONE]
    notices = [event.text for event in events_of(NoticePosted, records)]
    if sum("could not be saved" in text for text in notices) != len(failed):
        found.append(f"{len(failed)} times memories were not saved, and {notices} were told")
    resets = sum(sent.text == "/reset" for sent in world.platform.sent)
    if len(saved) != resets:
        found.append(f"{resets} resets saved memories {len(saved)} times")
    return found + _left_whole(records)


def _left_whole(records: Sequence[SessionRecord]) -> list[str]:
    """Report a session that was left by a reset and could not be gone back to."""
    closed = [event for event in events_of(SessionClosed, records) if event.reason == "reset"]
    resumed = events_of(SessionResumed, records)
    return [] if len(closed) <= len(resumed) else ["the session that was left is gone"]


def _is_brought(records: Sequence[SessionRecord]) -> bool:
    return any(event.kind == TurnKind.RESULT for event in events_of(TurnQueued, records))


def _is_brought_elsewhere(records: Sequence[SessionRecord]) -> bool:
    anew = [record for record in records if opening(record).reason == "new"]
    return _is_brought(anew)


def _has(kind: type[Any]) -> Callable[[Sequence[SessionRecord]], bool]:
    return lambda records: bool(events_of(kind, records))


def _fails_with(reason: str) -> Callable[[Sequence[SessionRecord]], bool]:
    def proof(records: Sequence[SessionRecord]) -> bool:
        return any(reason in event.reason for event in events_of(CompactionFailed, records))

    return proof


def _waits(records: Sequence[SessionRecord]) -> bool:
    """Tell whether the hold ended early, when the memories were saved."""
    (anew,) = [record for record in records if opening(record).reason == "reset"]
    begun = next(r.at for r in anew.events if isinstance(r.event, TurnStarted))
    return begun < anew.events[0].at + HOLD_MS


def _waits_no_longer(records: Sequence[SessionRecord]) -> bool:
    (saved,) = errands_of(TurnKind.MEMORY, records)
    (anew,) = [record for record in records if opening(record).reason == "reset"]
    begun = next(r.at for r in anew.events if isinstance(r.event, TurnStarted))
    over = next(r.at for r in saved.events if isinstance(r.event, TurnSettled))
    return begun < over


BACKGROUND = Script(held=TurnKind.BACKGROUND)
SUMMARY = Script(held=TurnKind.SUMMARY)
SCENARIOS = {
    "background": Scenario(
        acts=(dig, begin_anew),
        promise=comes_back_once,
        proof=_is_brought,
        is_begun=False,
        setup=replace(QUIETLY, strikes_deliveries=True),
    ),
    "background left": Scenario(
        acts=(begin_anew_while_digging,),
        promise=comes_back_once,
        proof=_is_brought_elsewhere,
        script=BACKGROUND,
    ),
    "background in line": Scenario(
        acts=(begin_anew_before_it_is_said,),
        promise=comes_back_once,
        proof=_is_brought_elsewhere,
        script=Script(held=""),
    ),
    "title": Scenario(acts=(talk,), promise=entitles_once, proof=_has(TitleSet), is_begun=False),
    "long": Scenario(
        acts=(talk,),
        promise=compacts_once,
        proof=_has(Compacted),
        setup=replace(QUIETLY, context_tokens=500),
    ),
    "too long": Scenario(
        acts=(talk,),
        promise=heals_once,
        proof=_has(Compacted),
        script=Script(window=400),
    ),
    "compact": Scenario(
        acts=(compact,), promise=compacts_once, proof=_has(Compacted), script=SUMMARY
    ),
    "compact to nothing": Scenario(
        acts=(compact,),
        promise=compacts_once,
        proof=_fails_with("empty"),
        script=Script(held=TurnKind.SUMMARY, answers={TurnKind.SUMMARY: ""}),
    ),
    "compact and break": Scenario(
        acts=(compact,),
        promise=compacts_once,
        proof=_fails_with("failed"),
        script=Script(held=TurnKind.SUMMARY, answers={TurnKind.SUMMARY: None}),
    ),
    "compact and undo": Scenario(
        acts=(compact_and_undo,),
        promise=compacts_once,
        proof=_fails_with("another way"),
        script=SUMMARY,
    ),
    "compact and stop": Scenario(
        acts=(compact_and_stop,),
        promise=compacts_once,
        proof=_fails_with("stopped"),
        script=SUMMARY,
    ),
    "reset": Scenario(
        acts=(reset,),
        promise=saves_before_it_goes_on,
        proof=_waits,
        setup=REMEMBERING,
        last=go_back,
    ),
    "reset and break": Scenario(
        acts=(reset,),
        promise=saves_before_it_goes_on,
        proof=_waits,
        script=Script(answers={TurnKind.MEMORY: None}),
        setup=replace(REMEMBERING, strikes_deliveries=True),
        last=go_back,
    ),
    "reset and hang": Scenario(
        acts=(reset_and_wait,),
        promise=saves_before_it_goes_on,
        proof=_waits_no_longer,
        script=Script(held=TurnKind.MEMORY),
        setup=REMEMBERING,
        last=go_back,
    ),
}


def run(simulator: Simulator, name: str, *, strikes_commits: bool = False) -> Run:
    """Return a run of one scenario."""
    scenario = SCENARIOS[name]
    scenario = replace(scenario, setup=replace(scenario.setup, strikes_commits=strikes_commits))

    async def run_scenario(fuse: Fuse) -> list[str]:
        world = await a_world(simulator, scenario)
        found: list[str] = []

        async def end(life: Life) -> None:
            await scenario.last(life)
            for record in await life.records():
                found.extend(await unreadable(life.store, record))

        records = await world.play(scenario.acts, fuse, last=end)
        found += [each for record in records for each in violations(record)]
        found += broken(world, scenario, records)
        if not fuse.has_struck and not scenario.proof(records):
            found.append("the scenario does not do what it is for")
        return found

    return run_scenario


async def a_world(simulator: Simulator, scenario: Scenario) -> World:
    begun = before if scenario.is_begun else None
    world = await simulator.world(setup=scenario.setup, before=begun)
    world.agent = model(world, scenario.script)
    return world


async def unreadable(store: StorePorts, record: SessionRecord) -> list[str]:
    """Report sessions whose next request strict providers would refuse, with the summaries and
    without."""
    if record.head is None or opening(record).kind:
        return []
    found = []
    for read in (store.conversations.window, store.conversations.chain):
        turns = await read(record.head, limit=1000)
        something = PromptMessage(role=Role.USER, blocks=(TextBlock("next"),))
        told = [message for events in turns for message in messages_of(events)]
        final, last = weave(None, [*told, something])
        try:
            assert_valid([*final, *([last] if last else [])], begins=True)
        except Corrupt as error:
            found.append(f"{record.session.id}: {error.message}")
    return found


def broken(world: World, scenario: Scenario, records: Sequence[SessionRecord]) -> list[str]:
    found = [flaw for request in world.agent.requests for flaw in flaws(request)]
    found += [*scenario.promise(world, records), *misheard(world, records)]
    for record in records:
        found += [f"{turn.id} is {turn.state}" for turn in record.turns if turn.outcome is None]
        found += [f"{p.id} is {p.state}" for p in record.parts if p.state != PartState.SENT]
    found += [f"never acknowledged: {each}" for each in world.platform.unacknowledged]
    found += [f"shown twice: {part}" for part in world.platform.repeated()]
    last, purpose = newest(world.agent.requests[-1]), world.agent.requests[-1].purpose
    if last not in ("and now?", "") and purpose != TurnKind.SUMMARY:
        found.append(f"the model was asked last: {last!r}")
    return found


def misheard(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Report messages that are not stored exactly once, commands that were not taken exactly once,
    and messages that the model did not read word for word as the newest."""
    words = [sent.text for sent in world.platform.sent]
    commands = sorted(text.split()[0][1:] for text in words if text.startswith("/"))
    spoken = sorted(text for text in words if not text.startswith("/"))
    queued = [event for event in events_of(TurnQueued, records) if event.kind == TurnKind.MESSAGE]
    heard = sorted(event.text for event in queued if event.text not in BEFORE)
    taken = sorted(event.command for event in events_of(CommandTaken, records))
    read = {newest(request) for request in world.agent.requests}
    found = [f"{text!r} was never read" for text in spoken if text not in read]
    if heard != spoken or commands != taken:
        found.append(f"{words} were said, {heard} were heard and {taken} taken")
    return found


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_death_breaks_an_errand(simulator: Simulator, name: str) -> None:
    await simulator.strike(run(simulator, name), every=4)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_commit_breaks_an_errand(simulator: Simulator, name: str) -> None:
    # The fuse is in the driver: the process dies before a commit, and after it.
    await simulator.strike(run(simulator, name, strikes_commits=True), every=6)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", [Nemesis.LOSE_REPLY, Nemesis.REFUSE])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_failure_breaks_an_errand(
    simulator: Simulator, name: str, nemesis: Nemesis
) -> None:
    await simulator.strike(run(simulator, name), nemesis, every=16)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_tenth_instant_breaks_an_errand_on_postgres(
    simulator_on_postgres: Simulator, name: str
) -> None:
    await simulator_on_postgres.strike(run(simulator_on_postgres, name), every=12)


async def breathe(life: Life) -> None:
    """Give the pumps time to reach what they wait for."""
    for _ in range(20):
        await life.store.turns.next_claim_ms()


def is_asked(world: World, text: str) -> bool:
    return any(newest(each) == text for each in world.agent.requests if not each.purpose)


async def held_at_memories(simulator: Simulator, beside: Act) -> None:
    """Hold the errand that saves memories, and do something beside it in the new session. The pumps
    run by themselves."""
    world = await a_world(simulator, SCENARIOS["reset and hang"])

    async def act(life: Life) -> None:
        await life.parts.gateway.begin(name="sim")
        try:
            world.gate.close()
            world.say("/reset")
            world.say("hello")
            await life.receive()
            await world.gate.reached.wait()
            await breathe(life)
            assert not is_asked(world, "hello")
            await beside(life)
        finally:
            world.gate.open()
            await life.parts.gateway.drain()

    await world.live(act)


async def test_a_new_session_begins_as_soon_as_memories_are_saved(simulator: Simulator) -> None:
    # Time stands still, so the session cannot have waited until its hold was over.
    async def save(life: Life) -> None:
        life.world.gate.open()
        await until(lambda: is_asked(life.world, "hello"))

    await held_at_memories(simulator, save)


async def test_a_new_session_waits_for_memories_no_longer_than_it_must(
    simulator: Simulator,
) -> None:
    async def wait(life: Life) -> None:
        life.world.clock.advance(HOLD_MS / 1000 - 0.2)
        life.parts.wakes.publish(Topic.TURNS)
        await breathe(life)
        assert not is_asked(life.world, "hello")
        life.world.clock.advance(0.2)
        await until(lambda: is_asked(life.world, "hello"))

    await held_at_memories(simulator, wait)
