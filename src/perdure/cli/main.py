"""The `perdure` command: verbs, options and help.

Everything beyond parsing is imported inside the verb that needs it, so that help and a typing
mistake answer at once.
"""
# ruff: noqa: PLC0415

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from perdure import __version__

if TYPE_CHECKING:
    from perdure.cli.asking import Place

_LOOK = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    help="Keep conversations between people and AI agents whole.",
    epilog="Begin with: perdure serve",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_LOOK,
)
sessions = typer.Typer(help="Read what was said.", no_args_is_help=True, rich_markup_mode=None)
token = typer.Typer(help="Let others in.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(sessions, name="sessions")
app.add_typer(token, name="token")

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most this many.")]


class Choices(NamedTuple):
    """The global options."""

    home: Path | None
    is_json: bool


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
            front += [word, *([value] if (value := next(words, None)) is not None else [])]
        elif word == "--json" or word.startswith("--home="):
            front.append(word)
        else:
            rest.append(word)
    return front + rest


def _ask(context: typer.Context, verb: "Callable[[Place], Awaitable[int | None]]") -> NoReturn:
    from perdure.cli.asking import ask

    choices: Choices = context.obj
    ask(choices.home, is_json=choices.is_json, verb=verb)


@app.callback(invoke_without_command=True)
def perdure(
    context: typer.Context,
    *,
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Perdure's folder; else PERDURE_HOME, else ~/.perdure."),
    ] = None,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of text for people.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    context.obj = Choices(home, is_json)
    if version:
        print(f"perdure {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(epilog="Example: perdure serve --port 0")
def serve(
    context: typer.Context,
    *,
    host: Annotated[str | None, typer.Option(help="Listen on this address.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Listen on this port; 0 picks one.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every detail.")] = False,
) -> None:
    """Run a gateway node until Ctrl-C or SIGTERM."""
    from perdure.cli.exits import conduct
    from perdure.cli.serving import serve as run

    home = context.obj.home
    conduct(lambda: run(home, host=host, port=port, verbose=verbose))


@app.command(epilog='Examples: perdure chat work; echo "hello" | perdure chat')
def chat(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="The conversation.")] = "main",
) -> None:
    """Talk in the terminal, or send stdin and print the answer."""
    from perdure.cli.chat import chat as run
    from perdure.cli.exits import conduct

    choices: Choices = context.obj
    conduct(lambda: run(choices.home, name=name, is_json=choices.is_json))


@app.command()
def status(context: typer.Context) -> None:
    """Show what runs and what waits."""
    from perdure.cli import control

    _ask(context, control.status)


@app.command()
def stop(context: typer.Context) -> None:
    """Let the node finish its turns, and wait until it is gone."""
    from perdure.cli import control

    _ask(context, control.stop)


@app.command()
def drain(context: typer.Context) -> None:
    """The same as stop."""
    from perdure.cli import control

    _ask(context, control.stop)


@app.command(epilog="Example: perdure logs -f --level warning")
def logs(
    context: typer.Context,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Begin with so many.")] = 50,
    level: Annotated[str, typer.Option(help="Leave out what matters less.")] = "debug",
) -> None:
    """Print the log of this home's node."""
    from perdure.cli import logs as reading

    _ask(context, partial(reading.logs, lines=lines, level=level, follow=follow))


@app.command(epilog="Example: perdure explain msg_01k…")
def explain(
    context: typer.Context,
    any_id: Annotated[str, typer.Argument(metavar="ID", help="A message, turn, part or update.")],
) -> None:
    """Show the whole chain behind a message, turn or part."""
    from perdure.cli import explaining

    _ask(context, partial(explaining.explain, any_id=any_id))


@app.command()
def verify(context: typer.Context) -> None:
    """Check the database and every session against the rules."""
    from perdure.cli import control

    _ask(context, control.verify)


@sessions.command("list")
def list_sessions(
    context: typer.Context,
    limit: Limit = 50,
    after: Annotated[str | None, typer.Option(help="Go on from an earlier page.")] = None,
) -> None:
    """List sessions, the latest first, closed ones too."""
    from perdure.cli import records

    _ask(context, partial(records.list_sessions, limit=limit, after=after))


@sessions.command("show", epilog="Example: perdure sessions show main")
def show_session(
    context: typer.Context,
    which: Annotated[str, typer.Argument(metavar="ID", help="A session, or a conversation.")],
    *,
    journal: Annotated[bool, typer.Option("--journal", help="The raw journal, as JSON.")] = False,
) -> None:
    """Print a session's transcript."""
    from perdure.cli import records

    _ask(context, partial(records.show, which=which, is_raw=journal))


@sessions.command("search", epilog="Example: perdure sessions search garden party")
def search_sessions(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="All must be there.")],
    limit: Limit = 20,
) -> None:
    """Find messages by their words."""
    from perdure.cli import records

    _ask(context, partial(records.search, words=words, limit=limit))


@token.command("list")
def list_tokens(context: typer.Context) -> None:
    """List who holds tokens."""
    from perdure.cli import records

    _ask(context, records.list_tokens)


@token.command("add", epilog="Example: perdure token add phone")
def add_token(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what it is for.")],
) -> None:
    """Make a token and print it, this once."""
    from perdure.cli import records

    _ask(context, partial(records.add_token, name=name))


@token.command("revoke")
def revoke_token(
    context: typer.Context,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As in the list.")],
) -> None:
    """Make a token useless."""
    from perdure.cli import records

    _ask(context, partial(records.revoke_token, token_id=token_id))
