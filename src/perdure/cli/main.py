"""Defines the `perdure` command: its verbs, options and help.

Everything beyond parsing is imported inside the verb that needs it, so that help and a mistyped
command answer at once. The standard library parses, because with `serve` the same process becomes
the node, and keeps what is loaded here for months.
"""
# ruff: noqa: PLC0415

import argparse
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from perdure import __version__
from perdure.cli.arguments import amount, given, page_limit, port
from perdure.cli.streams import is_unicode, lose_output, prepare_streams

if TYPE_CHECKING:
    from perdure.cli.target import CommandTarget

Arguments: TypeAlias = argparse.Namespace
HEADING: Final = "Commands"
ANY_VERB: Final = "VERB"


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
    parser = command()
    if odd := [word for word in words if not is_unicode(word)]:
        parser.error(f"this is not valid Unicode: {odd[0]!a}")
    arguments = parser.parse_args(hoisted(words))
    if arguments.run is None:
        parser.print_help()
        return
    arguments.run(arguments)


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


class Parser(argparse.ArgumentParser):
    """Formats the list of verbs without the placeholder line that argparse adds."""

    def format_help(self) -> str:
        head, heading, verbs = super().format_help().partition(f"{HEADING}:\n  {ANY_VERB}\n")
        if not heading:
            return head
        return f"{head}{HEADING}:\n" + re.sub(r"^  (?=  )", "", verbs, flags=re.MULTILINE)


class Verbs:
    """Adds the verbs of one level of the command, in the order of the help."""

    def __init__(self, parser: argparse.ArgumentParser, *, is_required: bool) -> None:
        self._parsers = parser.add_subparsers(title=HEADING, metavar=ANY_VERB, required=is_required)

    def add(
        self,
        name: str,
        text: str,
        run: Callable[[Arguments], NoReturn] | None,
        *,
        example: str = "",
    ) -> argparse.ArgumentParser:
        """Add a verb that calls `run`. Without `run` it has verbs of its own."""
        parser = self._parsers.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"Example: {example}" if example else None,
            allow_abbrev=False,
        )
        if run is not None:
            parser.set_defaults(run=run)
        return parser


def command() -> Parser:
    """Return the parser of the whole command."""
    parser = Parser(
        prog="perdure",
        description="Keep conversations between people and AI agents whole.",
        epilog="Begin with: perdure serve",
        allow_abbrev=False,
    )
    parser.set_defaults(run=None)
    parser.add_argument(
        "--home", type=Path, metavar="DIR", help="where everything is kept (PERDURE_HOME)"
    )
    parser.add_argument("--json", action="store_true", help="print for machines")
    parser.add_argument("--version", action="version", version=f"perdure {__version__}")
    verbs = Verbs(parser, is_required=False)
    _add_node(verbs)
    _add_reading(verbs)
    _add_sessions(verbs)
    _add_places(verbs)
    _add_parked(verbs)
    _add_pair(verbs)
    _add_token(verbs)
    return parser


def _add_node(verbs: Verbs) -> None:
    text = "Run a gateway node until Ctrl-C or SIGTERM."
    serve = verbs.add("serve", text, _serve, example="perdure serve --port 0")
    serve.add_argument("--host", help="listen on this address")
    serve.add_argument("--port", type=port, help="listen on this port; 0 picks one")
    serve.add_argument(
        "--replace", action="store_true", help="let the running node drain, then take its place"
    )
    serve.add_argument(
        "--show-token", action="store_true", help="print the signed-in address to any output"
    )
    serve.add_argument("--verbose", "-v", action="store_true", help="log every detail")
    text = "Talk in the terminal, or send stdin and print the answer."
    chat = verbs.add("chat", text, _chat, example="perdure chat work")
    chat.add_argument(
        "name", nargs="?", type=given, default="main", metavar="NAME", help="the conversation"
    )
    verbs.add("status", "Show what runs and what waits.", _status)
    verbs.add("stop", "Let the node finish its turns, and wait until it is gone.", _stop)
    drain = verbs.add("drain", "The same as stop.", _drain)
    drain.add_argument("--no-wait", action="store_true", help="ask for it, and do not wait")
    verbs.add("restart", "Let the node finish its turns, and start it anew.", _restart)
    turns = Verbs(verbs.add("turns", "Stop a turn.", None), is_required=True)
    text = "Stop a turn that runs or waits; what it has said is kept."
    stop = turns.add("stop", text, _stop_turn, example="perdure turns stop trn_01k…")
    stop.add_argument("id", type=given, metavar="ID", help="the turn, wherever it is")


def _add_reading(verbs: Verbs) -> None:
    text = "Print the log of this home's node."
    logs = verbs.add("logs", text, _logs, example="perdure logs -f --level warning")
    logs.add_argument("--follow", "-f", action="store_true", help="wait for more")
    logs.add_argument("--lines", "-n", type=amount, default=50, help="begin with so many")
    logs.add_argument("--level", default="debug", help="leave out what matters less")
    text = "Show the whole chain behind a message, turn or part."
    explain = verbs.add("explain", text, _explain, example="perdure explain msg_01k…")
    explain.add_argument("id", type=given, metavar="ID", help="a message, turn, part or update")
    explain.add_argument(
        "--request", action="store_true", help="print what the model was asked last, as JSON"
    )
    verify = verbs.add("verify", "Check the database and every session against the rules.", _verify)
    verify.add_argument(
        "--new", action="store_true", help="only sessions that changed since they were found sound"
    )


def _add_sessions(verbs: Verbs) -> None:
    sessions = Verbs(verbs.add("sessions", "Read what was said.", None), is_required=True)
    listing = sessions.add(
        "list", "List sessions, the latest first, closed ones too.", _list_sessions
    )
    _add_limit(listing, default=50)
    listing.add_argument("--after", help="go on from an earlier page")
    text = "Print a session's transcript."
    show = sessions.add("show", text, _show_session, example="perdure sessions show main")
    show.add_argument("which", type=given, metavar="ID", help="a session, or a conversation")
    show.add_argument("--journal", action="store_true", help="the raw journal, as JSON")
    text = "Find messages by their words."
    search = sessions.add(
        "search", text, _search_sessions, example="perdure sessions search garden party"
    )
    search.add_argument("words", nargs="+", metavar="WORDS", help="all must be there")
    _add_limit(search, default=20)
    search.add_argument("--after", help="go on from an earlier page")


def _add_places(verbs: Verbs) -> None:
    text = "Say something in a place, such as telegram:123."
    send = verbs.add("send", text, _send, example="perdure send home The backup is done.")
    send.add_argument(
        "to", type=given, metavar="TO", help="an address, home, or a conversation over HTTP"
    )
    send.add_argument("text", nargs="+", metavar="TEXT", help="what to say")
    send.add_argument("--id", help="yours; the same one again sends nothing twice")
    places = verbs.add("places", "List the places that are known.", _list_places)
    _add_limit(places, default=50)
    places.add_argument("--after", help="go on from an earlier page")


def _add_parked(verbs: Verbs) -> None:
    parked = Verbs(
        verbs.add("parked", "See to what could not be delivered.", None), is_required=True
    )
    listing = parked.add(
        "list", "List what could not be delivered, the latest first.", _list_parked
    )
    _add_limit(listing, default=50)
    listing.add_argument("--after", help="go on from an earlier page")
    for name, text, run in (
        ("show", "Print one of them whole.", _show_parked),
        ("replay", "Send it after all.", _replay_parked),
        ("drop", "Take it off the list.", _drop_parked),
    ):
        parser = parked.add(name, text, run)
        parser.add_argument("id", type=given, metavar="ID", help="as in the list")
        if name == "replay":
            parser.add_argument("--yes", action="store_true", help="though it may show twice")


def _add_pair(verbs: Verbs) -> None:
    pairs = Verbs(verbs.add("pair", "Say who may speak.", None), is_required=True)
    pairs.add("list", "List who asked to be let in, and who was.", _list_pairings)
    text = "Let in who got this code from the bot."
    approve = pairs.add("approve", text, _approve_pairing, example="perdure pair approve K7WQ2MZR")
    approve.add_argument("code", type=given, metavar="CODE", help="as the person got it")
    revoke = pairs.add("revoke", "Revoke a person's access and end their work.", _revoke_pairing)
    revoke.add_argument("id", type=given, metavar="ID", help="as in the list")


def _add_token(verbs: Verbs) -> None:
    tokens = Verbs(verbs.add("token", "Let others in.", None), is_required=True)
    tokens.add("list", "List who holds tokens.", _list_tokens)
    tokens.add("link", "Print the address that opens the web chat signed in.", _link_token)
    text = "Make a token and print it, this once."
    add = tokens.add("add", text, _add_named_token, example="perdure token add phone")
    add.add_argument("name", type=given, metavar="NAME", help="who or what it is for")
    text = "Revoke a token and end the work of whoever has no other."
    revoke = tokens.add("revoke", text, _revoke_token, example="perdure token revoke phone")
    revoke.add_argument("which", type=given, metavar="ID_OR_NAME", help="as in the list")


def _add_limit(parser: argparse.ArgumentParser, *, default: int) -> None:
    parser.add_argument(
        "--limit", "-n", type=page_limit, default=default, help=f"at most so many ({default})"
    )


def _ask(
    arguments: Arguments, verb: "Callable[[CommandTarget], Awaitable[int | None]]"
) -> NoReturn:
    """Run a verb that asks the node or the store, and leave the process with its exit code."""
    from perdure.cli.target import ask

    ask(arguments.home, is_json=arguments.json, verb=verb)


def _serve(arguments: Arguments) -> NoReturn:
    from perdure.app.light_imports import import_structlog

    import_structlog()
    from perdure.cli.exits import conduct
    from perdure.cli.verbs.serving import serve

    conduct(
        partial(
            serve,
            arguments.home,
            host=arguments.host,
            port=arguments.port,
            is_replacing=arguments.replace,
            is_verbose=arguments.verbose,
            has_token_shown=arguments.show_token,
        )
    )


def _chat(arguments: Arguments) -> NoReturn:
    from perdure.cli.exits import conduct
    from perdure.cli.verbs.chat import chat

    conduct(partial(chat, arguments.home, name=arguments.name, is_json=arguments.json))


def _status(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, control.status)


def _stop(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, control.stop)


def _drain(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, control.drain if arguments.no_wait else control.stop)


def _restart(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, control.restart)


def _stop_turn(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, partial(control.stop_turn, turn=arguments.id))


def _verify(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs.verifying import verify

    _ask(arguments, partial(verify, only_new=arguments.new))


def _logs(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs.logs import logs

    lines, level = arguments.lines, arguments.level
    _ask(arguments, partial(logs, lines=lines, level=level, follow=arguments.follow))


def _explain(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs.explaining import explain

    _ask(arguments, partial(explain, any_id=arguments.id, with_request=arguments.request))


def _list_sessions(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    limit, after = arguments.limit, arguments.after
    _ask(arguments, partial(records.list_sessions, limit=limit, after=after))


def _show_session(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    _ask(arguments, partial(records.show, which=arguments.which, is_raw=arguments.journal))


def _search_sessions(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    words, limit, after = arguments.words, arguments.limit, arguments.after
    _ask(arguments, partial(records.search, words=words, limit=limit, after=after))


def _send(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import places

    text, own_id = " ".join(arguments.text), arguments.id
    _ask(arguments, partial(places.send, to=arguments.to, text=text, own_id=own_id))


def _list_places(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import places

    limit, after = arguments.limit, arguments.after
    _ask(arguments, partial(places.list_places, limit=limit, after=after))


def _list_parked(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import parked

    limit, after = arguments.limit, arguments.after
    _ask(arguments, partial(parked.list_parked, limit=limit, after=after))


def _show_parked(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import parked

    _ask(arguments, partial(parked.show, part=arguments.id))


def _replay_parked(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import parked

    _ask(arguments, partial(parked.replay, part=arguments.id, force=arguments.yes))


def _drop_parked(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import parked

    _ask(arguments, partial(parked.drop, part=arguments.id))


def _list_pairings(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import pairings

    _ask(arguments, pairings.list_pairings)


def _approve_pairing(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import pairings

    _ask(arguments, partial(pairings.approve, code=arguments.code))


def _revoke_pairing(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import pairings

    _ask(arguments, partial(pairings.revoke, pairing=arguments.id))


def _list_tokens(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    _ask(arguments, records.list_tokens)


def _link_token(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    _ask(arguments, records.link_token)


def _add_named_token(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    _ask(arguments, partial(records.add_token, name=arguments.name))


def _revoke_token(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    _ask(arguments, partial(records.revoke_token, which=arguments.which))
