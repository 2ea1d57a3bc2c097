"""Runs the `perdure` command. `parser.py` defines its verbs, and `runs.py` starts each of them."""

import sys

from perdure.cli.parser import command
from perdure.cli.runs import Arguments
from perdure.cli.streams import is_unicode, lose_output, prepare_streams


def main() -> None:
    """Run the command line with the arguments of the process."""
    prepare_streams()
    try:
        _run(sys.argv[1:])
    finally:
        # Python flushes at the end of the process, and would print a traceback if nobody reads any
        # more.
        lose_output()


def _run(words: list[str]) -> None:
    arguments = _parsed(words)
    if arguments.run is not None:
        arguments.run(arguments)


def _parsed(words: list[str]) -> Arguments:
    """Return the arguments. Without a verb, print the help. The parser of all verbs is let go of
    before one of them runs, because a node runs for months."""
    parser = command()
    if odd := [word for word in words if not is_unicode(word)]:
        parser.error(f"this is not valid Unicode: {odd[0]!a}")
    arguments = parser.parse_args(hoisted(words))
    if arguments.run is None:
        parser.print_help()
    return arguments


def hoisted(arguments: list[str]) -> list[str]:
    """Move the global options to the front. People type them anywhere, as in `perdure status
    --json`."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == "--home":
            front += [word, *([value] if (value := next(words, None)) is not None else [])]
        elif word == "--json" or word.startswith("--home="):
            front.append(word)
        else:
            rest.append(word)
    return front + rest
