"""Prints tables and wrapped text. Apart from `printing.py`, so that short answers do not load
rich."""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.cli.printing import short_line

# The width where the output is no terminal: wide enough that nothing is cut or wrapped.
PIPE_WIDTH: Final = 100_000


def console() -> Console:
    """Return a console that prints text as it is, without markup or emoji."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns. Ids are never shortened."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold" if name == "ID" else "ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(short_line(cell)) for cell in row))
    console().print(table)
