"""Checks which lines the log takes, and what happens when its file cannot be written."""

import logging
from pathlib import Path
from queue import SimpleQueue

import pytest

from perdure.app.logs import _file, _Passing, _terminal


def test_what_cannot_be_written_is_let_go_and_the_file_is_opened_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # If the handler kept the unwritten lines, it would write them again when the process ends, and
    # fail again.
    path = tmp_path / "perdure.log"
    path.symlink_to("/dev/full")
    handler = _file(path, [])

    for line in ("one", "two"):
        handler.handle(logging.makeLogRecord({"msg": line}))
    path.unlink()
    handler.handle(logging.makeLogRecord({"msg": "three"}))
    handler.close()

    assert "three" in path.read_text()
    assert "one" not in path.read_text()
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_details_are_our_own_and_not_those_of_libraries() -> None:
    # The gateway's own lines come from structlog, which makes the event of a record a mapping.
    lines: SimpleQueue[logging.LogRecord] = SimpleQueue()
    passing = _Passing(lines)
    for message, level in (
        ({"event": "turn begun"}, logging.DEBUG),
        ("entering code", logging.DEBUG),
        ("cannot go on", logging.WARNING),
    ):
        passing.handle(logging.makeLogRecord({"msg": message, "levelno": level}))

    assert [lines.get_nowait().msg for _ in range(2)] == [{"event": "turn begun"}, "cannot go on"]
    assert lines.empty()


def test_a_line_that_has_no_format_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    # The format of a terminal takes a stack as one text only.
    said = {"event": "where is it?", "stack": ["here"]}
    made = {"msg": said, "name": "loop", "_logger": None, "_name": "error"}
    _terminal([]).handle(logging.makeLogRecord(made))

    assert "where is it?" in capsys.readouterr().err
