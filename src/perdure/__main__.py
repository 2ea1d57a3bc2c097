"""`python -m perdure` is the `perdure` command."""


def main() -> None:
    """Import the command line only when it is run, so that importing this module stays free."""
    from perdure.cli.main import main as command  # noqa: PLC0415

    command()


if __name__ == "__main__":
    main()
