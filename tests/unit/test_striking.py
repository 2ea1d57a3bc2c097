"""Checks at which points the crash simulator strikes."""

from itertools import takewhile

from perdure.testkit.simulator.striking import EVERYWHERE, THINNED, StrikePoints

LAST = 100


def sample(seed: int, strike: str = "", *, test: str = "a", every: int = 7) -> set[int]:
    points = StrikePoints(test=test, seed=seed, strike=strike).points(every)
    return set(takewhile(lambda point: point < LAST, points))


def test_as_many_runs_as_the_sample_is_thin_strike_everywhere() -> None:
    samples = [sample(seed) for seed in range(17, 17 + 7 * THINNED)]
    assert set().union(*samples) == set(range(LAST))
    assert sum(map(len, samples)) == LAST, "none is struck twice"


def test_chaos_strikes_everywhere_at_once() -> None:
    assert sample(3, EVERYWHERE) == set(range(LAST))


def test_tests_of_one_run_begin_at_different_points() -> None:
    begun = {min(sample(3, test=f"test {number}")) for number in range(1000)}
    assert begun == set(range(7 * THINNED))


def test_one_point_or_two_can_be_struck_alone() -> None:
    assert sample(3, "17") == {17}
    assert list(StrikePoints(test="a", seed=3, strike="17,4").pairs(9)) == [(17, 4)]
