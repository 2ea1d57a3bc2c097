"""Checks how often growing text is made durable."""

from itertools import pairwise

import pytest

from perdure.domain.cadence import CADENCE_MAX_S, CADENCE_S, gathering_s, pause_s


def flushes(lasts_s: float, *, began_s: float = 0.0) -> list[float]:
    """Return when a message is flushed whose text never stops coming."""
    moments = [began_s]
    while moments[-1] < began_s + lasts_s:
        now_s = moments[-1]
        moments.append(now_s + pause_s(now_s, grown_s=now_s - began_s))
    return moments


@pytest.mark.parametrize("began_s", [0.0, 0.011, 1234.567])
def test_pauses_are_never_shorter_than_the_cadence_and_bounded(began_s: float) -> None:
    moments = flushes(20, began_s=began_s)
    pauses = [after - before for before, after in pairwise(moments)]

    assert min(pauses) >= CADENCE_S - 1e-9
    assert max(pauses) < CADENCE_MAX_S + CADENCE_S + 1e-9


def test_the_first_words_come_quickly_and_long_answers_cost_little() -> None:
    assert len(flushes(0.15)) >= 4
    assert len(flushes(1)) <= 12
    assert len(flushes(10)) <= 50


def test_messages_that_have_grown_for_a_while_are_flushed_at_the_same_instants() -> None:
    grown = [
        {round(moment, 6) for moment in flushes(5, began_s=began_s) if 2 < moment < 4}
        for began_s in (0.0, 0.123, 0.777)
    ]

    assert grown[0] == grown[1] == grown[2]
    assert len(grown[0]) == 8


@pytest.mark.parametrize("began_s", [0.0, 0.011, 1234.567])
def test_text_is_gathered_until_just_before_it_is_flushed(began_s: float) -> None:
    later = [moment for moment in flushes(5, began_s=began_s) if moment > began_s + 1]
    for before, after in pairwise(later):
        # The reader returns a moment after the flush has begun.
        read_s = before + 0.002 + gathering_s(before + 0.002, grown_s=before - began_s)

        assert after - 0.02 < read_s < after


def test_the_first_words_are_read_as_they_come() -> None:
    assert gathering_s(1234.567, grown_s=0.1) == 0
