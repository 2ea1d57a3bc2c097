"""The `perdure` command: verbs, options and help.

Everything beyond parsing is imported inside the verb that needs it, so that help and a typing
mistake answer at once.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from perdure import __version__

app = typer.Typer(
    name="perdure",
    help="Keep conversations between people and AI agents whole.",
    epilog="Begin with: perdure serve",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Globals:
    home: Path | None = None
    is_json: bool = False


def main() -> None:
    app(args=hoisted(sys.argv[1:]), prog_name="perdure")


def hoisted(arguments: list[str]) -> list[str]:
    """Global options are taken anywhere: `perdure status --json` is what people type."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == "--home":
            front += [word, *[value for value in [next(words, None)] if value is not None]]
        elif word == "--json" or word.startswith("--home="):
            front.append(word)
        else:
            rest.append(word)
    return front + rest


@app.callback(invoke_without_command=True)
def perdure(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Perdure's folder; else PERDURE_HOME, else ~/.perdure."),
    ] = None,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of text.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    Globals.home, Globals.is_json = home, is_json
    if version:
        print(f"perdure {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(epilog="Example: perdure serve --port 0")
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every detail.")] = False,
) -> None:
    """Run a gateway node until Ctrl-C or SIGTERM."""
    from perdure.cli.exits import conduct
    from perdure.cli.serving import serve as run

    conduct(lambda: run(Globals.home, host=host, port=port, verbose=verbose))
