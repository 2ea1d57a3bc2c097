"""Checks that the system's randomness, which is read in blocks, is never handed out twice."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from perdure.app.wiring.system import SystemEntropy

# Does not divide the size of a block, so that every thread often meets the end of one.
SIZE = 10


def test_a_piece_is_as_long_as_was_asked_for() -> None:
    entropy = SystemEntropy()
    sizes = [0, 1, SIZE, 4095, 4096, 4097, 100_000, SIZE]
    assert [len(entropy.random_bytes(size)) for size in sizes] == sizes


def test_threads_that_draw_at_once_get_different_pieces() -> None:
    entropy = SystemEntropy()
    with ThreadPoolExecutor(8) as threads:
        drawn = Counter(
            piece
            for pieces in threads.map(
                lambda _: [entropy.random_bytes(SIZE) for _ in range(5_000)], range(8)
            )
            for piece in pieces
        )
    assert len(drawn) == 40_000
