"""Implements `perdure verify`: checks everything that is stored.

This process reads the database itself, even beside a running node, which is neither asked nor held
up. So Ctrl-C ends all of it. Only the note that sessions were found sound goes through the node,
because only the node writes.
"""

import sys
from typing import Final, TextIO

from perdure.app.operate.offline import watched_store
from perdure.app.operate.verify import VerifyVerdict, verify_store
from perdure.app.wiring.system import SystemClock
from perdure.cli.exits import FAILED, complain
from perdure.cli.printing import clean, lasting, print_json
from perdure.cli.target import CommandTarget, answering
from perdure.domain.errors import PerdureError
from perdure.ports.records.audit import SessionMark
from perdure.ports.system.clock import Clock
from perdure.web import wire
from perdure.web.ops import records

# How many sessions are noted with one request.
NOTES_AT_ONCE: Final = 2_000
TELL_EVERY_S: Final = 0.2
# Where the output is no terminal, one line is printed after this time.
LONG_S: Final = 10.0
CLEAR_LINE: Final = "\r\x1b[K"


async def verify(target: CommandTarget, *, only_new: bool) -> int | None:
    """Check the store and print what was found. Returns the code of a failure if a rule is
    broken."""
    progress = CheckProgress(SystemClock(), sys.stderr, is_silent=target.is_json)
    try:
        async with watched_store(target.home, target.environ) as store:
            verdict = await verify_store(
                store.audit, store.diagnostics, only_new=only_new, tell=progress.tell
            )
    finally:
        progress.end()
    _print(target, verdict, only_new=only_new)
    await _note(target, verdict.sound)
    return FAILED if verdict.report.violations else None


def _print(target: CommandTarget, verdict: VerifyVerdict, *, only_new: bool) -> None:
    report = verdict.report
    if target.is_json:
        print_json(report)
        return
    for each in report.violations:
        print(clean(each))
    told = f"{len(report.violations)} broken rules" if report.violations else "all sound"
    print(f"{report.sessions} {'new ' if only_new else ''}sessions: {told}")


async def _note(target: CommandTarget, sound: list[SessionMark]) -> None:
    """Note which sessions are sound. If that fails, the next `verify --new` only checks them
    again."""
    if not sound:
        return
    try:
        async with answering(target) as answers:
            for first in range(0, len(sound), NOTES_AT_ONCE):
                some = wire.SoundIn(sound=sound[first : first + NOTES_AT_ONCE])
                await answers.ask(records.note_sound, body=some)
    except PerdureError as error:
        complain(f"the result could not be noted for `verify --new`: {error.message}")


class CheckProgress:
    """Shows how far the check is: on a terminal all the time, elsewhere once, if it takes long."""

    def __init__(self, clock: Clock, stream: TextIO, *, is_silent: bool) -> None:
        self._clock = clock
        self._stream = stream
        self._is_silent = is_silent
        self._is_live = stream.isatty()
        self._begun_s = self._told_s = 0.0
        self._has_told = False

    def tell(self, done: int, total: int) -> None:
        """Show how far the check is. The first call, with nothing done, starts the clock: opening a
        store may take minutes, and says nothing about how long the check will take."""
        now_s = self._clock.monotonic_s()
        if not done:
            self._begun_s = self._told_s = now_s
            return
        wait_s = TELL_EVERY_S if self._is_live else LONG_S
        is_over = done >= total
        if self._is_silent or (now_s - self._told_s < wait_s and not (is_over and self._is_live)):
            return
        if not self._is_live and self._has_told:
            return
        self._told_s, self._has_told = now_s, True
        left_s = (now_s - self._begun_s) / max(done, 1) * (total - done)
        rest = "checking the file" if is_over else f"about {lasting(max(left_s, 1.0))} left"
        line = f"{done:,} of {total:,} sessions, {rest}"
        if self._is_live:
            print(f"{CLEAR_LINE}{line}", end="", file=self._stream, flush=True)
        else:
            print(line, file=self._stream, flush=True)

    def end(self) -> None:
        """Clear the line on the terminal."""
        if self._is_live and self._has_told:
            print(CLEAR_LINE, end="", file=self._stream, flush=True)
