"""Checks how the progress of `perdure verify` is shown at a terminal and in a pipe."""

import io

from perdure.cli.verbs.verifying import CLEAR_LINE, CheckProgress
from perdure.testkit.simulator.system import VirtualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(stream: io.StringIO, *, is_silent: bool = False, every_s: float = 10) -> list[str]:
    """Return what a check of four thousand sessions prints, if a thousand take `every_s` seconds.
    The store took an hour to open."""
    clock = VirtualClock()
    progress = CheckProgress(clock, stream, is_silent=is_silent)
    clock.advance(3_600)
    progress.tell(0, 4_000)
    for done in (1_000, 2_000, 3_000, 4_000):
        clock.advance(every_s)
        progress.tell(done, 4_000)
    progress.end()
    return [each for each in stream.getvalue().replace(CLEAR_LINE, "\n").split("\n") if each]


def test_a_terminal_shows_how_many_are_done_and_how_long_it_takes() -> None:
    terminal = Terminal()

    assert told(terminal) == [
        "1,000 of 4,000 sessions, about 30.0 s left",
        "2,000 of 4,000 sessions, about 20.0 s left",
        "3,000 of 4,000 sessions, about 10.0 s left",
        "4,000 of 4,000 sessions, checking the file",
    ]
    assert terminal.getvalue().endswith(CLEAR_LINE), "the result stands alone"


def test_a_pipe_is_told_once_and_only_of_a_long_wait() -> None:
    assert told(io.StringIO()) == ["1,000 of 4,000 sessions, about 30.0 s left"]
    assert told(io.StringIO(), every_s=1) == []


def test_machines_are_told_nothing() -> None:
    assert told(Terminal(), is_silent=True) == []
