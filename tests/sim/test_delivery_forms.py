"""Checks that words which a platform refuses in one form go out in another."""

import pytest

from perdure.domain.delivery import Capabilities, Streaming
from perdure.domain.errors import Permanent
from perdure.ports.platform.adapter import (
    Edit,
    Effect,
    Post,
    Receipt,
    ThreadGone,
    Unrenderable,
    Upload,
)
from perdure.ports.system.clock import Clock
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import PLATFORM, Life, World

GROWING = Capabilities(
    can_edit=True, can_delete=True, streaming=Streaming.EDIT, upload_bytes_max=1_000
)


class FussyPlatform(ScriptedPlatform):
    """Refuses a thread or a rendering for as many calls as it is told to, and notes the forms in
    which words come. Without a thread, or in plain text, it takes everything."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(name=PLATFORM, capabilities=GROWING, clock=clock)
        self.threads_gone = 0
        self.refuses_marks = False
        self.refuses_files = False
        self.forms: list[str] = []

    async def perform(self, effect: Effect) -> Receipt:
        self.forms.append(_form(effect))
        if self.threads_gone and effect.address.thread and not isinstance(effect, Edit):
            self.threads_gone -= 1
            raise ThreadGone("message thread not found")
        if self.refuses_marks and isinstance(effect, Post | Edit) and not effect.is_plain:
            raise Unrenderable("can't parse entities")
        if self.refuses_files and isinstance(effect, Upload):
            raise Permanent("no such files here")
        return await super().perform(effect)


def _form(effect: Effect) -> str:
    where = "in the thread" if effect.address.thread else "in the place"
    is_plain = isinstance(effect, Post | Edit) and effect.is_plain
    return f"{'plain ' if is_plain else ''}{where}"


async def fussy(simulator: Simulator) -> tuple[World, FussyPlatform]:
    world = await simulator.world()
    world.platform = platform = FussyPlatform(world.clock)
    return world, platform


async def talk(life: Life) -> None:
    life.world.say("hello", thread="topic")
    await life.rest()


async def states(world: World) -> list[str]:
    records = await world.play([talk])
    return [part.state for record in records for part in record.parts]


async def test_an_answer_whose_thread_is_gone_is_shown_in_the_place(simulator: Simulator) -> None:
    world, platform = await fussy(simulator)
    platform.threads_gone = 100

    assert await states(world) == ["sent"]

    assert platform.forms == ["in the thread", "in the thread", "in the place"]
    assert [shown.text.strip() for shown in platform.visible] == ["echo: hello"]


async def test_a_thread_that_is_not_there_yet_is_tried_once_more(simulator: Simulator) -> None:
    world, platform = await fussy(simulator)
    platform.threads_gone = 1

    assert await states(world) == ["sent"]

    assert platform.forms == ["in the thread", "in the thread"]


async def test_a_refused_rendering_is_shown_as_plain_text(simulator: Simulator) -> None:
    world, platform = await fussy(simulator)
    platform.refuses_marks = True

    assert await states(world) == ["sent"]

    assert platform.forms[-1] == "plain in the thread"
    assert [shown.text.strip() for shown in platform.visible] == ["echo: hello"]


async def test_thread_and_rendering_may_both_be_refused(simulator: Simulator) -> None:
    world, platform = await fussy(simulator)
    platform.threads_gone, platform.refuses_marks = 100, True

    assert await states(world) == ["sent"]

    assert platform.forms[-1] == "plain in the place"


@pytest.mark.parametrize("grows", [True, False])
async def test_an_answer_that_grew_is_shown_all_the_same(simulator: Simulator, grows: bool) -> None:
    world, platform = await fussy(simulator)
    platform.refuses_marks = grows
    platform.threads_gone = 0 if grows else 100

    async def grow(life: Life) -> None:
        world.gate.close()
        world.say("long story", thread="topic")
        await life.receive()
        await life.parts.turns.step()
        await world.gate.reached.wait()
        world.gate.open()
        await life.rest()

    await world.play([grow])

    assert [shown.text.strip() for shown in platform.visible] == ["echo: long story"]


async def test_a_file_that_is_refused_is_named_to_its_person(simulator: Simulator) -> None:
    world, platform = await fussy(simulator)
    platform.refuses_files = True

    async def give(life: Life) -> None:
        world.say("file notes.txt")
        await life.rest()

    await world.play([give])

    assert any("notes.txt" in shown.text for shown in platform.visible)
