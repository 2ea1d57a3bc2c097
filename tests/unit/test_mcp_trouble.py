"""Checks when a tool server that has failed is tried again."""

from perdure.testkit.simulator.system import SeededEntropy
from perdure.tools.mcp.servers.trouble import ServerTrouble


def trouble() -> ServerTrouble:
    return ServerTrouble(SeededEntropy(1), rest_s=1.0, rest_max_s=300.0)


def test_after_the_first_failure_it_is_tried_at_once() -> None:
    server = trouble()
    server.fail("it ended", now_s=100.0)
    assert server.left_s(100.0) == 0
    assert server.words(100.0) == "it ended; it is tried again as soon as it is needed"


def test_the_pause_doubles_up_to_a_bound_and_differs_each_time() -> None:
    server = trouble()
    pauses = []
    for _ in range(2_000):
        server.fail("it ended", now_s=0.0)
        pauses.append(server.left_s(0.0))
    for number, pause in enumerate(pauses[1:9]):
        assert 0.75 <= pause / 2**number <= 1.25
    assert 225 <= min(pauses[20:]) < max(pauses[20:]) <= 375


def test_success_ends_the_trouble() -> None:
    server = trouble()
    for _ in range(9):
        server.fail("it ended", now_s=0.0)
    assert server.left_s(0.0) > 90
    server.end()
    assert (server.left_s(0.0), server.words(0.0), server.failures) == (0, "", 0)
    server.fail("it ended again", now_s=0.0)
    assert server.left_s(0.0) == 0


def test_a_pause_passes() -> None:
    server = trouble()
    for _ in range(5):
        server.fail("it ended", now_s=0.0)
    assert server.words(0.0).startswith("it ended; it is tried again in ")
    assert server.left_s(60.0) == 0
