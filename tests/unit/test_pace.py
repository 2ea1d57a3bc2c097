"""Checks the pace of one account, by a clock that the test controls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.address import Address
from perdure.domain.delivery import Display, Pace, Rate
from perdure.domain.errors import Transient
from perdure.engine.delivery.pace import Pacer, Rank
from perdure.engine.delivery.surfaces import Surface
from perdure.ports.platform.adapter import ACCOUNT_WAIT
from perdure.testkit.contract.pacing import RememberedPacing
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.system import VirtualClock

PACE = Pace(account=Rate(5, 1), place=Rate(2, 1))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@given(
    waits=st.lists(st.floats(0, 0.6), min_size=20, max_size=60),
    places=st.lists(st.sampled_from("abc"), min_size=60, max_size=60),
)
def test_no_window_holds_more_than_it_may(waits: list[float], places: list[str]) -> None:
    clock = VirtualClock()
    pacer = Pacer(clock)
    sent: list[tuple[float, str]] = []
    for wait_s, place in zip(waits, places, strict=False):
        if not pacer.wait_s(place, PACE, Rank.FINAL):
            sent.append((clock.monotonic_s(), place))
        clock.advance(wait_s)
    for moment, place in sent:
        window = [each for each in sent if moment - 1 < each[0] <= moment]
        assert len(window) <= PACE.account.count
        assert sum(each[1] == place for each in window) <= PACE.place.count


def test_after_the_wait_it_named_a_request_may_go(clock: VirtualClock) -> None:
    pacer = Pacer(clock)
    assert not pacer.wait_s("a", PACE, Rank.FINAL)
    assert not pacer.wait_s("a", PACE, Rank.FINAL)
    wait_s = pacer.wait_s("a", PACE, Rank.FINAL)
    assert wait_s == pytest.approx(1)
    clock.advance(wait_s)
    assert not pacer.wait_s("a", PACE, Rank.FINAL)


def test_the_servers_wait_is_for_its_place_or_for_all(clock: VirtualClock) -> None:
    pacer = Pacer(clock)
    pacer.hold("a", 30)
    assert pacer.wait_s("a", PACE, Rank.FINAL) == pytest.approx(30)
    assert not pacer.wait_s("b", PACE, Rank.FINAL)
    pacer.hold(None, 10)
    assert pacer.wait_s("b", PACE, Rank.FINAL) == pytest.approx(10)
    clock.advance(10)
    assert not pacer.wait_s("b", PACE, Rank.FINAL)
    assert pacer.wait_s("a", PACE, Rank.FINAL) == pytest.approx(20)


@pytest.mark.parametrize("place", ["a", None], ids=["place", "account"])
def test_a_shorter_wait_does_not_end_a_longer_one(clock: VirtualClock, place: str | None) -> None:
    pacer = Pacer(clock)
    pacer.hold(place, 30)
    pacer.hold(place, 2)
    clock.advance(5)
    assert pacer.wait_s("a", PACE, Rank.FINAL) == pytest.approx(25)
    pacer.hold(place, 60)
    assert pacer.wait_s("a", PACE, Rank.FINAL) == pytest.approx(60)


@pytest.mark.parametrize("rank", Rank)
async def test_an_account_wide_wait_holds_every_place(clock: VirtualClock, rank: Rank) -> None:
    # This includes places that nobody has written to yet, and every kind of request.
    surface = Surface(ScriptedPlatform(), Display(), RememberedPacing(clock), clock=clock)
    here = Address(adapter="scripted", account="bot", place="here")

    await surface.heed(
        Transient("too many requests", retry_after_s=30, code=ACCOUNT_WAIT), here.place
    )

    for place in ("here", "elsewhere"):
        assert surface.pacer.wait_s(place, PACE, rank) == pytest.approx(30)


async def test_the_wait_of_a_place_holds_no_other(clock: VirtualClock) -> None:
    surface = Surface(ScriptedPlatform(), Display(), RememberedPacing(clock), clock=clock)
    here = Address(adapter="scripted", account="bot", place="here")

    await surface.heed(Transient("too many requests", retry_after_s=30), here.place)

    assert surface.pacer.wait_s("here", PACE, Rank.FINAL) == pytest.approx(30)
    assert not surface.pacer.wait_s("elsewhere", PACE, Rank.FINAL)


def test_previews_leave_room_for_the_finals_that_wait(clock: VirtualClock) -> None:
    pacer = Pacer(clock)
    assert not pacer.wait_s("a", PACE, Rank.PREVIEW)
    clock.advance(0.5)
    assert not pacer.wait_s("a", PACE, Rank.FINAL)
    wait_s = pacer.final_wait_s("a", PACE, "final")
    assert wait_s == pytest.approx(0.5)
    clock.advance(wait_s)
    assert pacer.wait_s("a", PACE, Rank.PREVIEW), "the last place is the final's"
    assert not pacer.final_wait_s("a", PACE, "final")


def test_signals_leave_room_for_previews(clock: VirtualClock) -> None:
    # Marks and typing in many places take half of the account's limit at most. Otherwise the
    # previews of all other places would have to wait for them.
    pace = Pace(account=Rate(8, 1), place=Rate(2, 1))
    pacer = Pacer(clock)
    signals = [pacer.wait_s(f"place {n}", pace, Rank.SIGNAL) for n in range(8)]
    assert signals.count(0.0) == 4
    previews = [pacer.wait_s(f"other {n}", pace, Rank.PREVIEW) for n in range(8)]
    assert previews.count(0.0) == 2
    finals = [pacer.wait_s(f"third {n}", pace, Rank.FINAL) for n in range(8)]
    assert finals.count(0.0) == 2


def test_signs_of_life_take_no_room_of_messages_in_a_place(clock: VirtualClock) -> None:
    pacer = Pacer(clock)
    for _ in range(PACE.place.count):
        assert not pacer.wait_s("a", PACE, Rank.SIGNAL)
    for _ in range(PACE.place.count):
        assert not pacer.wait_s("a", PACE, Rank.FINAL)
    assert pacer.wait_s("a", PACE, Rank.FINAL)


def test_a_final_that_never_comes_is_waited_for_no_longer(clock: VirtualClock) -> None:
    # Such a final was withdrawn, or another node has sent it.
    pacer = Pacer(clock)
    for _ in range(2):
        assert not pacer.wait_s("a", PACE, Rank.FINAL)
    wait_s = pacer.final_wait_s("a", PACE, "final")
    clock.advance(wait_s + 3)
    for _ in range(2):
        assert not pacer.wait_s("a", PACE, Rank.PREVIEW)
        clock.advance(0.6)


def test_places_are_forgotten_in_the_end(clock: VirtualClock) -> None:
    pacer = Pacer(clock)
    for number in range(20_000):
        pacer.wait_s(f"place {number}", PACE, Rank.SIGNAL)
    assert len(pacer._places) <= 10_000
