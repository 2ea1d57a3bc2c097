"""Checks how much one cause may write into the log."""

import logging
from typing import Any, cast

from perdure.app.repetition import CAUSES_MAX, LINES_MAX, PERIOD_S, SUMMARY, Repetition


def line(event: str, *, level: int = logging.ERROR, **fields: object) -> logging.LogRecord:
    """Make a line of the gateway's own: structlog makes the event of a record a mapping."""
    said = {"event": event, "level": "error", "timestamp": object(), **fields}
    return logging.makeLogRecord({"name": "web", "levelno": level, "msg": said})


def written(repetition: Repetition, *records: logging.LogRecord, at_s: float = 0.0) -> list[Any]:
    found = [each for record in records for each in repetition.passed(record, now_s=at_s)]
    said = [cast("dict[str, Any]", each.msg) for each in found]
    return [each.get("count", each["event"]) for each in said]


def summed(repetition: Repetition) -> list[dict[str, object]]:
    return [dict(cast("dict[str, object]", each.msg)) for each in repetition.rest()]


def test_the_same_line_is_written_once_a_minute_and_counted() -> None:
    repetition = Repetition()
    same = [line("request failed", path="/hooks/slack/") for _ in range(1000)]

    assert written(repetition, *same) == ["request failed"]
    assert written(repetition, line("other"), at_s=PERIOD_S - 1) == ["other"]
    assert written(repetition, *same, at_s=PERIOD_S) == [999, "request failed"]
    (total,) = summed(repetition)
    assert (total["event"], total["line"]) == (SUMMARY, "request failed")
    assert total["count"] == 999
    assert not summed(repetition)


def test_lines_of_one_cause_that_differ_are_bounded_too() -> None:
    repetition = Repetition()
    different = [line("request failed", path=f"/{n}") for n in range(3 * LINES_MAX)]

    assert len(written(repetition, *different)) == LINES_MAX
    assert [total["count"] for total in summed(repetition)] == [2 * LINES_MAX]


def test_what_is_no_warning_is_always_written() -> None:
    news = [line("turn recovered", level=logging.INFO) for _ in range(100)]

    assert len(written(Repetition(), *news)) == 100


def test_lines_of_libraries_are_told_apart_by_their_words() -> None:
    repetition = Repetition()
    error = {"name": "aiohttp.server", "levelno": logging.ERROR, "msg": "from %s", "args": ("::1",)}
    lines = [logging.makeLogRecord(error) for _ in range(3)]
    assert len([each for one in lines for each in repetition.passed(one, now_s=0)]) == 1

    (sum_of_all,) = repetition.rest()
    assert sum_of_all.getMessage() == f"{SUMMARY}: 2 of 'from %s'"


def test_causes_are_bounded_too() -> None:
    repetition = Repetition()
    for n in range(2 * CAUSES_MAX):
        written(repetition, *[line(f"line {n}")] * 2)

    assert len(list(repetition.rest())) <= CAUSES_MAX + 1
