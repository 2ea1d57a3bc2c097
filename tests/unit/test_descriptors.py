"""Checks how a process divides the file descriptors that it may have."""

import pytest

from perdure.app.life.descriptors import DescriptorShares


@pytest.mark.parametrize("descriptors", [64, 256, 1024, 4096, 20_000, 1_000_000])
def test_everybody_gets_a_share_and_nobody_more_than_there_is(descriptors: int) -> None:
    shares = DescriptorShares.of(descriptors)
    carried = shares.connections
    used = shares.turns + carried.newcomers + carried.signed_in + carried.operators

    assert min(shares.turns, carried.newcomers, carried.signed_in) >= 1
    # Some descriptors are left for the store, the log and the platforms.
    assert used <= descriptors - descriptors // 20 or used <= descriptors - 192
    # A person whose turn runs can also read its answer.
    assert carried.signed_in >= shares.turns


def test_with_the_limit_of_this_bench_nine_thousand_streams_are_carried() -> None:
    shares = DescriptorShares.of(20_000)

    assert shares.turns >= 9_000
    assert shares.connections.signed_in >= 9_000
