"""Checks that the log of a tool server keeps the end of what was said, as plain lines."""

from perdure.tools.mcp.server_log import LOG_BYTES_MAX, ServerLog


def test_a_log_keeps_the_end_of_a_flood() -> None:
    log = ServerLog()
    for number in range(10_000):
        log.hear(b"%d " % number * 10 + b"\n")
    log.hear(b"x" * LOG_BYTES_MAX * 3)
    log.hear(b"\nthe end\n")
    assert len(log.text) == LOG_BYTES_MAX
    assert log.text.endswith("xx\nthe end\n")
    assert log.heard_bytes > LOG_BYTES_MAX * 3


def test_a_note_is_one_line_that_can_be_shown_anywhere() -> None:
    log = ServerLog()
    log.note("left\x1b[31m out\n:\u202e " + "y" * 9_000)
    assert log.text.startswith("left [31m out : y")
    assert log.text.count("\n") == 1
    assert len(log.text) < 3_000


def test_the_last_line_is_the_last_that_says_anything() -> None:
    log = ServerLog()
    assert log.last_line == ""
    log.hear(b"first\nTOKEN is \xff missing\n \n\n")
    assert log.last_line == "TOKEN is \ufffd missing"
