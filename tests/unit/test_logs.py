"""The log file, where it cannot be written."""

import logging
from pathlib import Path

import pytest

from perdure.app.logs import _file


def test_what_cannot_be_written_is_let_go_and_the_file_is_opened_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A buffer that is kept would be written, and fail, once more when the process ends."""
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
