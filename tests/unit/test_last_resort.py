"""Checks the thread that ends the process in time."""

import threading
import time

import pytest

from perdure.app.life.last_resort import LastResort

SOON_S, LATE_S = 0.05, 60.0
DEADLINE_S = 10.0


@pytest.mark.parametrize(
    "times", [(SOON_S,), (LATE_S, SOON_S), (SOON_S, LATE_S)], ids=["one", "sooner", "later"]
)
def test_the_soonest_of_all_times_is_kept(times: tuple[float, ...]) -> None:
    ended = threading.Event()
    resort = LastResort(heard=lambda _: None, end=ended.set)
    began_s = time.monotonic()

    for each in times:
        resort.end_within(each)

    assert ended.wait(DEADLINE_S)
    assert time.monotonic() - began_s >= SOON_S


def test_without_a_time_nothing_ends() -> None:
    ended, heard = threading.Event(), threading.Event()
    resort = LastResort(heard=lambda _: heard.set(), end=ended.set)

    resort._pass_on(15, None)

    assert heard.wait(DEADLINE_S)
    assert not ended.is_set()
