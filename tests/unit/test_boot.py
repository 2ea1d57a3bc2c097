"""Checks what a file with instructions for the start says."""

from pathlib import Path

import pytest

from perdure.app.schedule.making import boot_in
from perdure.domain.schedule.boot import BOOT_BYTES_MAX, BOOT_FILE, boot_file
from perdure.domain.schedule.jobs import PROMPT_MAX


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n  \n",
        "# Start\n## Later",
        "<!-- look at\nthe mail -->",
        "# Start\n<!-- nothing yet --> <!-- nor this -->",
        "<!-- never closed\nlook at the mail",
    ],
)
def test_headings_and_comments_are_no_instructions(text: str) -> None:
    assert boot_file(text.encode()) == boot_file(b"")


@pytest.mark.parametrize(
    "text", ["Look at the mail.", "# Start\nLook!", "<!-- a --> look <!-- b -->", "- [ ] mail"]
)
def test_instructions_are_read_as_they_are(text: str) -> None:
    found = boot_file(b"\xef\xbb\xbf" + text.encode() + b"\r\n")
    assert (found.text, found.problem) == (text, "")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"x" * (PROMPT_MAX + 1), "shorten it"),
        (b" " * (BOOT_BYTES_MAX + 1), "shorten it"),
        (b"caf\xe9", "save it as UTF-8"),
        (b"look\0", "remove it"),
    ],
    ids=["characters", "bytes", "no UTF-8", "NUL"],
)
def test_what_cannot_be_used_says_what_to_do(content: bytes, problem: str) -> None:
    found = boot_file(content)
    assert found.text == ""
    assert problem in found.problem


def test_the_longest_instructions_are_taken() -> None:
    assert boot_file(b"x" * PROMPT_MAX).text == "x" * PROMPT_MAX


def test_a_home_without_the_file_has_no_instructions(tmp_path: Path) -> None:
    assert boot_in(tmp_path) == boot_file(b"")


def test_what_is_not_a_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / BOOT_FILE).mkdir()
    assert "is not a file" in boot_in(tmp_path).problem


def test_a_loop_of_links_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / BOOT_FILE).symlink_to(tmp_path / BOOT_FILE)
    assert "cannot be read" in boot_in(tmp_path).problem
