"""What becomes of an interrupted turn, case by case."""

import pytest

from perdure.domain.recovery import PERSONAL, Fate, Policy, Resume, fate

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("resume", "age_ms", "alone", "followed"),
    [
        (Resume.CONTINUE, 0, Fate.GOES_ON, Fate.GOES_ON),
        (Resume.CONTINUE, HOUR_MS, Fate.GOES_ON, Fate.GOES_ON),
        (Resume.CONTINUE, HOUR_MS + 1, Fate.WAITS, Fate.MAKES_WAY),
        (Resume.ASK, 0, Fate.ASKS, Fate.MAKES_WAY),
        (Resume.ASK, HOUR_MS + 1, Fate.WAITS, Fate.MAKES_WAY),
        (Resume.WAIT, 0, Fate.WAITS, Fate.MAKES_WAY),
        (Resume.WAIT, HOUR_MS + 1, Fate.WAITS, Fate.MAKES_WAY),
    ],
)
def test_what_has_been_said_since_is_the_next_message(
    resume: Resume, age_ms: int, alone: Fate, followed: Fate
) -> None:
    policy = Policy(resume=resume, freshness_ms=HOUR_MS)

    assert fate(policy, kind=PERSONAL, age_ms=age_ms, is_followed=False) is alone
    assert fate(policy, kind=PERSONAL, age_ms=age_ms, is_followed=True) is followed


@pytest.mark.parametrize("resume", list(Resume))
@pytest.mark.parametrize("is_followed", [False, True])
def test_what_nobody_watches_over_always_goes_on(resume: Resume, is_followed: bool) -> None:
    policy = Policy(resume=resume, freshness_ms=1)

    assert fate(policy, kind="call", age_ms=2, is_followed=is_followed) is Fate.GOES_ON


def test_without_a_limit_nothing_is_too_old() -> None:
    policy = Policy(freshness_ms=0)

    assert fate(policy, kind=PERSONAL, age_ms=10**12, is_followed=True) is Fate.GOES_ON
