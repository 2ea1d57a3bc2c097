"""Checks that a model's request can be shown later: it is made again from what is stored, and is
the same byte for byte, whatever has happened to the conversation since."""

from collections.abc import Sequence
from typing import Final

import pytest

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import TurnQueued
from perdure.domain.journal.records import SessionRecord
from perdure.domain.journal.session_events import Compacted
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.prompt import ModelRequest, TextBlock
from perdure.domain.turn.rebuilding import history_in, own_in, rebuilt, spoken_in
from perdure.domain.turn.stream import AgentEvent, AgentText, Stopped
from perdure.testkit.simulator.agent import ScriptedAgent, echo
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import Act, Life, Setup, World, rest

BEFORE: Final = [f"{number} of the wind and the long way home " * 40 for number in range(4)]
AFTER: Final = ["tool compass", "and then?"]
WAYS: Final[dict[str, Sequence[str]]] = {
    "talk": [],
    "compact": ["/compact", "how far?"],
    "compact and tell in full": ["/compact", "how far?", "/compact off", "and the harbour?"],
    "compact twice": ["/compact", *(f"{n} more miles" for n in range(15)), "/compact", "land?"],
    "retry": ["/retry"],
    "undo": ["/undo", "how far?"],
    "branch": ["/branch", "how far?", "/compact", "which way?"],
    "prompt": ["/sea__tide Brest", "/compact", "/sea__tide Dover", "/retry"],
    "background": ["/background look for land"],
    "remember": ["/memory add likes tea", "how far?", "/memory add likes rum", "which way?"],
}


def answer(request: ModelRequest) -> Sequence[AgentEvent]:
    """Repeat what was said, and give a short summary where one is asked for."""
    if request.purpose == "summary":
        return [AgentText("They spoke of the wind."), Stopped(reason=StopReason.STOP)]
    return echo(request)


def as_sent(request: ModelRequest) -> tuple[object, ...]:
    """Return all of a request that is sent. The bound on the answer's length is not sent."""
    return (
        request.instructions, request.context, request.tools, request.options, request.purpose,
        b",".join(request.history), request.messages,
    )  # fmt: skip


def texts_in(request: ModelRequest) -> list[str]:
    return [b.text for m in request.messages for b in m.blocks if isinstance(b, TextBlock)]


async def again(life: Life, turn: TurnId) -> ModelRequest:
    asked = await life.store.diagnostics.asked(turn)
    assert not spoken_in(asked).missing
    encode = life.world.agent.encode
    return rebuilt(asked, history_in(asked), own_in(asked), encode=encode)


def asked_turns(records: Sequence[SessionRecord]) -> list[TurnQueued]:
    """Return the turns for which a model was asked."""
    queued = [r.event for each in records for r in each.events if isinstance(r.event, TurnQueued)]
    return [each for each in queued if not each.answer]


async def compare_all(life: Life) -> None:
    """Check that each request that can be made again equals the last one the model got for that
    turn."""
    await life.rest()
    sent = life.world.agent.requests
    turns = asked_turns(await life.records())
    said = [queued.text for queued in turns]
    for queued in turns:
        made = await again(life, queued.turn)
        of_it = [
            request
            for request in sent
            if request.purpose == made.purpose
            and (not queued.text or queued.text in texts_in(request))
        ]
        assert as_sent(made) in [as_sent(each) for each in of_it], queued.text
        if said.count(queued.text) == 1:
            assert as_sent(made) == as_sent(of_it[-1]), queued.text
    assert len(turns) > len(BEFORE)


def saying(*texts: str) -> Act:
    async def say(life: Life) -> None:
        for text in texts:
            life.world.say(text)
            await life.rest()

    return say


async def cut_in_words(life: Life) -> None:
    await life.hold("long story")
    life.kill()


async def cut_in_a_tool(life: Life) -> None:
    await life.hold("tool sextant")
    life.kill()


async def world_of(simulator: Simulator) -> World:
    world = await simulator.world(setup=Setup(has_memory=True))
    world.agent = ScriptedAgent(answer)
    return world


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_asked_can_be_made_again(simulator: Simulator, way: str) -> None:
    world = await world_of(simulator)
    for act in (saying(*BEFORE), cut_in_words, rest, cut_in_a_tool, rest):
        await world.live(act)
    await world.tell(saying(*WAYS[way], *AFTER))

    records = await world.tell(compare_all)

    is_compacted = any(isinstance(r.event, Compacted) for each in records for r in each.events)
    assert is_compacted == ("/compact" in WAYS[way])


@pytest.mark.parametrize("way", ["compact", "retry", "branch"])
async def test_what_was_asked_can_be_made_again_on_postgres(
    simulator_on_postgres: Simulator, way: str
) -> None:
    await test_what_was_asked_can_be_made_again(simulator_on_postgres, way)


async def stop_in_words(life: Life) -> None:
    await life.hold("long tale")
    await life.stop(f"u{len(life.world.platform.sent)}")
    life.world.gate.open()
    await life.rest()


async def stop_in_a_tool(life: Life) -> None:
    await life.hold("tool lead")
    await life.stop(f"u{len(life.world.platform.sent)}")
    life.world.gate.open()
    await life.rest()


@pytest.mark.parametrize("stop", [stop_in_words, stop_in_a_tool])
async def test_the_request_of_a_stopped_turn_can_be_made_again(
    simulator: Simulator, stop: Act
) -> None:
    world = await world_of(simulator)
    await world.live(saying(*BEFORE))
    await world.tell(stop)

    await world.tell(compare_all)


async def test_words_that_were_changed_later_are_told_as_they_were(simulator: Simulator) -> None:
    world = await world_of(simulator)

    async def change(life: Life) -> None:
        life.world.edit("u2", "of the calm")
        await life.rest()
        await saying("how far?")(life)
        life.world.edit("u1", "of the storm")
        await life.rest()
        await saying(*AFTER)(life)

    await world.live(saying(*BEFORE))
    await world.tell(change)

    await world.tell(compare_all)

    history = b"".join(world.agent.requests[-1].history)
    assert b"of the storm" in history
    assert b"of the calm" in history
