"""Checks what becomes of a part of unknown fate on a platform that can be asked about it."""

from typing import Final, cast

import pytest

from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities, DeliveryStep, Display, PartState
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import MessageId, PartId
from perdure.engine.delivery.attempts import AttemptRecords
from perdure.engine.delivery.reconciling import (
    BROKEN_TRIES_MAX,
    BUBBLE_S,
    LATE_S,
    REPEATABLE,
    TWIN_S,
    Reconciler,
)
from perdure.engine.delivery.surfaces import Surface, Surfaces
from perdure.engine.foundation.wakes import Bus
from perdure.ports.delivery.outbox import Outbox, Part, Rivals
from perdure.ports.platform.adapter import Receipt, Sought
from perdure.ports.records.media import MediaLibrary
from perdure.testkit.contract.pacing import RememberedPacing
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.system import VirtualClock

HOME: Final = Address(adapter="scripted", account="bot", place="home")
DAY_S: Final = 86_400


class Searched(ScriptedPlatform):
    """Remembers what it was asked about. It knows no keys."""

    def __init__(self, *, clock: VirtualClock) -> None:
        super().__init__(capabilities=Capabilities(can_find=True), clock=clock)
        self.sought: list[Sought] = []

    async def find(self, sought: Sought) -> Receipt | None:
        self.sought.append(sought)
        return await super().find(sought)


class Rows:
    """Stands for the outbox: knows which other parts are in the same place."""

    def __init__(self) -> None:
        self.known = Rivals(receipts=frozenset(), has_twin=False)

    async def rivals(self, part: Part) -> Rivals:
        return self.known


class Tries(AttemptRecords):
    """Keeps the last decision about a part: its new state, or for how long it stays in doubt."""

    def __init__(self) -> None:
        self.decided: PartState | float | None = None

    async def record(
        self,
        part: Part,
        state: PartState,
        *,
        receipt: str = "",
        error: str = "",
        due_in_s: float = 0,
        moved_to: str = "",
    ) -> None:
        self.decided = state

    async def doubt(self, part: Part, *, error: str, due_in_s: float) -> None:
        self.decided = due_in_s


class Scene:
    """Holds a reconciler, the platform that it asks, and what it decides."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.platform = Searched(clock=self.clock)
        self.rows, self.tries = Rows(), Tries()
        pacing = RememberedPacing(self.clock)
        self.surface = Surface(self.platform, Display(), pacing, clock=self.clock)
        self.reconciler = Reconciler(
            cast("Outbox", self.rows),
            Surfaces({"scripted": self.platform}, pacing, clock=self.clock),
            self.tries,
            media=cast("MediaLibrary", None),
            clock=self.clock,
            expire_s=DAY_S,
            bus=Bus(),
            is_shared=False,
        )

    def part(
        self, *, age_s: float = 0, step: DeliveryStep = DeliveryStep.POST, attempts: int = 1
    ) -> Part:
        at = self.clock.now_ms() - int(age_s * 1000)
        return Part(
            id=PartId("prt_1"),
            message=MessageId("msg_1"),
            index=0,
            turn=None,
            address=HOME,
            text="hello",
            attempts=attempts,
            changed_at=at,
            created_at=at,
            step=step,
        )

    async def lose(self, part: Part) -> PartState | float | None:
        """Lose the answer to a part, and return what is decided about it."""
        await self.reconciler.lost(self.surface, part, Ambiguous("no answer"))
        return self.tries.decided


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    ("age_s", "decided"), [(0, LATE_S), (LATE_S - 1, 1.0), (LATE_S, PartState.PENDING)]
)
async def test_a_part_that_may_still_be_on_its_way_is_not_sent_again(
    scene: Scene, age_s: float, decided: PartState | float
) -> None:
    # A call that hung may take effect late, and the part would then show twice.
    assert await scene.lose(scene.part(age_s=age_s)) == pytest.approx(decided)


async def test_nothing_is_looked_for_while_the_same_words_are_being_sent(scene: Scene) -> None:
    # What is found then may be the other one.
    scene.rows.known = Rivals(receipts=frozenset(), has_twin=True)

    assert await scene.lose(scene.part(age_s=LATE_S)) == TWIN_S
    assert scene.platform.sought == []


async def test_nothing_is_looked_for_while_the_platform_wants_a_pause(scene: Scene) -> None:
    scene.surface.pacer.hold(HOME.place, 20)

    assert await scene.lose(scene.part(age_s=LATE_S)) == pytest.approx(20)
    assert scene.platform.sought == []


async def test_what_belongs_to_other_parts_is_told_to_the_platform(scene: Scene) -> None:
    scene.rows.known = Rivals(receipts=frozenset({"shown-other"}), has_twin=False)

    await scene.lose(scene.part(age_s=LATE_S))

    assert [each.owned for each in scene.platform.sought] == [frozenset({"shown-other"})]


@pytest.mark.parametrize(
    ("step", "patience_s"), [(DeliveryStep.BUBBLE, BUBBLE_S), (DeliveryStep.POST, DAY_S)]
)
async def test_a_platform_that_cannot_tell_is_asked_for_so_long(
    scene: Scene, step: DeliveryStep, patience_s: float
) -> None:
    # Final words wait behind a bubble, so it is given up long before they are.
    away = Transient("away", retry_after_s=3)
    for age_s, decided in ((patience_s, 3.0), (patience_s + 1, PartState.UNKNOWN)):
        scene.platform.lookups.append(away)
        scene.clock.advance(3)
        assert await scene.lose(scene.part(age_s=age_s, step=step)) == decided


@pytest.mark.parametrize("step", list(DeliveryStep))
async def test_an_adapter_that_breaks_is_tried_again_only_where_nothing_shows_twice(
    scene: Scene, step: DeliveryStep
) -> None:
    most = BROKEN_TRIES_MAX if step in REPEATABLE else 1
    for attempts, decided in ((most - 1, PartState.PENDING), (most, PartState.UNKNOWN)):
        if attempts:
            part = scene.part(step=step, attempts=attempts)
            await scene.reconciler.unforeseen(part, KeyError("a bug"))
            assert scene.tries.decided is decided
