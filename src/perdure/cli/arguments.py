"""Checks the command's arguments. The parser prints why one does not fit."""

import argparse
import sys
from typing import Final

from perdure.domain.tools.durations import duration_ms

PORT_MAX: Final = 65_535
PAGE_MAX: Final = 1000
WAIT_MAX: Final = 3600


def nonempty(text: str) -> str:
    """Accept any text that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


def port(text: str) -> int:
    """Accept the number of a port. 0 lets the system choose one."""
    return _number(text, low=0, high=PORT_MAX)


def page_limit(text: str) -> int:
    """Accept how many rows one page has."""
    return _number(text, low=1, high=PAGE_MAX)


def amount(text: str) -> int:
    """Accept any whole number from 0 on."""
    return _number(text, low=0, high=sys.maxsize)


def seconds(text: str) -> int:
    """Accept how long to wait, in whole seconds, up to an hour."""
    return _number(text, low=1, high=WAIT_MAX)


def duration(text: str) -> int:
    """Accept a time such as 30m, and return it in milliseconds."""
    length_ms = duration_ms(text)
    if not length_ms:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30m, 2h or 1d")
    return length_ms


def _number(text: str, *, low: int, high: int) -> int:
    """Return a number in the range. Raises `ArgumentTypeError` if it is none."""
    number = int(text) if text.isascii() and text.isdigit() else low - 1
    if not low <= number <= high:
        upper = f" to {high}" if high < sys.maxsize else " on"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low}{upper}")
    return number
