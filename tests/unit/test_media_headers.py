"""Checks the headers that a file is sent with: its type if that is harmless, and its name in both
forms."""

import pytest
from aiohttp import content_disposition_filename, parse_content_disposition

from perdure.web.api.media import UNKNOWN, disposition, shown_type


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("image/png", "image/png"),
        ("IMAGE/AVIF", "image/avif"),
        ("audio/ogg; codecs=opus", "audio/ogg"),
        ("video/mp4", "video/mp4"),
        ("text/plain; charset=utf-8", "text/plain"),
        ("application/pdf", "application/pdf"),
        ("image/svg+xml", UNKNOWN),
        ("IMAGE/SVG+XML", UNKNOWN),
        ("audio/strange+xml", UNKNOWN),
        ("text/html", UNKNOWN),
        ("text/plainer", UNKNOWN),
        ("application/xhtml+xml", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_only_types_that_run_nowhere_are_told(stored: str, shown: str) -> None:
    assert shown_type(stored) == shown


@pytest.mark.parametrize(
    "name", ["a b.png", 'say "hi".txt', "Grüße 1.txt", "100%\\.txt", "a;b=c'd"]
)
def test_a_name_comes_back_as_it_was(name: str) -> None:
    header = disposition("attachment", name)
    kind, parameters = parse_content_disposition(header)
    assert kind == "attachment"
    assert header.isascii()
    assert content_disposition_filename(parameters) == name
    assert "filename" in parameters, "for those who read only the plain form"


def test_without_a_name_none_is_told() -> None:
    assert disposition("inline", "") == "inline"
