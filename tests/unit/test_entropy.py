"""The system's randomness in blocks: nothing is handed out twice, whoever asks."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from perdure.app.wiring.system import SystemEntropy

# Divides no block, so that every thread meets the end of one again and again.
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
