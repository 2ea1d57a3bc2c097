"""Runs the `perdure` command as `python -m perdure`."""


def main() -> None:
    """Run the command line. It is imported here, so that importing this module costs nothing."""
    from perdure.cli.main import main as command  # noqa: PLC0415

    command()


if __name__ == "__main__":
    main()
