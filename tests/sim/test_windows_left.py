"""Checks that the prompt cache keeps nothing of a turn that no later turn can follow."""

from perdure.domain.address import HTTP, Address
from perdure.domain.inbound.updates import Update
from perdure.domain.kinds import UpdateKind
from perdure.engine.models.windows import Windows
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import Life, Setup


def windows_of(life: Life) -> Windows:
    windows: Windows = life.parts.turns._services.prompts._windows  # type: ignore[attr-defined]
    return windows


def update_of(life: Life, number: int, *, name: str = "") -> Update:
    """Return the update of a call to `/v1`. Without a name no later call can continue it."""
    return Update(
        address=Address(adapter=HTTP, account=life.person, place=name or f"call-{number}"),
        external_id=f"call {number}",
        kind=UpdateKind.CALL,
        principal=life.person,
        text="hello",
        is_listed=bool(name),
    )


async def test_calls_without_a_conversation_leave_nothing_behind(simulator: Simulator) -> None:
    async def act(life: Life) -> None:
        for number in range(5):
            await life.accept(update_of(life, number))
        for number in range(5, 8):
            # As in a gateway without a free slot: the pump claims these later.
            await life.store.inbox.accept(update_of(life, number), queue_max=10)
        await life.work()
        assert len(life.world.agent.requests) == 8
        assert len(windows_of(life)) == 0

        await life.accept(update_of(life, 8, name="main"))
        await life.work()
        await life.accept(update_of(life, 9, name="main"))
        await life.work()
        assert len(windows_of(life)) == 1, "this one goes on"

    world = await simulator.world()
    await world.play([act])


async def test_errands_leave_nothing_behind(simulator: Simulator) -> None:
    async def act(life: Life) -> None:
        for text in ("one", "two"):
            life.world.say(text)
            await life.work()
        assert len(windows_of(life)) == 1
        life.world.clock.advance(3600)
        windows_of(life).drop_idle()
        life.world.say("/background look")
        await life.work()
        purposes = [request.purpose for request in life.world.agent.requests]
        assert "background" in purposes
        assert len(windows_of(life)) == 0, "what the errand has read is gone"
        assert life.parts.turns._services.prompts._passing == {}  # type: ignore[attr-defined]

    world = await simulator.world(setup=Setup(has_titles=True))
    await world.play([act])
