"""Checks that a blocked event loop is reported, and that a stopped process is not mistaken for
one."""

import asyncio
import logging
import time
from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from perdure.app.life.standstill import Standstill
from perdure.app.logs import _terminal

Lines = list[MutableMapping[str, Any]]


async def until(lines: Lines, event: str) -> MutableMapping[str, Any]:
    async with asyncio.timeout(10):
        while True:
            for line in lines:
                if line["event"] == event:
                    return line
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("patience_s", [0.2])
async def test_where_it_stands_is_told_and_for_how_long(
    patience_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    noticed: list[bool] = []
    with capture_logs() as lines:
        watch = Standstill(lambda: noticed.append(True), patience_s=patience_s)
        try:
            time.sleep(1.6)  # noqa: ASYNC251 - that is the point
            on = await until(lines, "the event loop goes on")
        finally:
            watch.end()
    told = next(line for line in lines if line["event"] == "the event loop stands still")
    made = {"msg": dict(told), "name": "loop", "_logger": None, "_name": "error"}
    _terminal([]).handle(logging.makeLogRecord(made))
    shown = capsys.readouterr().err
    assert all(each in shown for each in ("stands still", "test_where_it_stands"))
    assert on["stood_s"] >= 0.2
    assert noticed == [True]


async def test_a_loop_that_goes_on_is_left_alone() -> None:
    noticed: list[bool] = []
    with capture_logs() as lines:
        watch = Standstill(lambda: noticed.append(True), patience_s=0.5)
        await asyncio.sleep(1.7)
        watch.end()
    assert (noticed, lines) == ([], [])
