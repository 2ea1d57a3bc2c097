"""Declares the arguments of `perdure jobs add`."""

import argparse
from typing import Final

from perdure.cli.arguments import nonempty

_TEXTS: Final = {
    "--name": "what to call it",
    "--timezone": "the zone in which times are read, such as Europe/Berlin",
    "--agent": "who does it, instead of the conversation's agent",
    "--ends-at": "the last time at which it may run, in ISO 8601",
    "--quiet": "hours in which it does not run, such as 22:00-07:00",
}
_NUMBERS: Final = {
    "--catch-up-s": "how old a missed run may be to be made up for (3600)",
    "--jitter-s": "run it up to so many seconds later",
    "--failures-max": "pause it after so many failed runs in a row (5); 0 means never",
    "--tokens-daily": "what its runs may use in a day",
}
_CHOICES: Final = {
    "--kind": ("prompt", "reminder", "heartbeat"),
    "--overlap": ("skip", "queue", "replace"),
    "--missed": ("skip", "latest", "all"),
    "--session": ("own", "conversation"),
}


def add_job_arguments(add: argparse.ArgumentParser) -> None:
    """Add the arguments that order a job."""
    add.add_argument("conversation", type=nonempty, metavar="IN", help="where its results go")
    add.add_argument("prompt", nargs="?", default="", metavar="PROMPT", help="what is to be asked")
    timing = add.add_mutually_exclusive_group(required=True)
    timing.add_argument("--when", metavar="WORDS", help="a time in words: 'every weekday at 9'")
    timing.add_argument("--cron", metavar="EXPRESSION", help="a cron expression: '0 9 * * 1-5'")
    timing.add_argument("--every-s", type=float, metavar="SECONDS", help="an interval")
    timing.add_argument("--at", metavar="TIME", help="one time, in ISO 8601")
    for name, text in _TEXTS.items():
        add.add_argument(name, type=nonempty, help=text)
    for name, text in _NUMBERS.items():
        add.add_argument(name, type=int, metavar="N", help=text)
    for name, choices in _CHOICES.items():
        add.add_argument(name, choices=choices, help=f"one of {', '.join(choices)}")
    add.add_argument(
        "--may-schedule", action="store_true", default=None, help="its runs may order jobs"
    )
