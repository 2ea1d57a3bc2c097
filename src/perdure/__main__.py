"""`python -m perdure` is the `perdure` command."""

import sys


def main() -> int | None:
    """Import the command line only when it is run, so that importing this module stays free."""
    from perdure.cli.main import main as command  # noqa: PLC0415

    return command()


if __name__ == "__main__":
    sys.exit(main())
