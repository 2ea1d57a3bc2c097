"""Defines the verbs of the `perdure` command, their options and help.

The standard library parses, because with `serve` the same process becomes the node, and keeps what
is loaded here for months.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from perdure import __version__
from perdure.cli import runs
from perdure.cli.arguments import amount, duration, nonempty, page_limit, port, seconds
from perdure.cli.jobs.arguments import add_job_arguments
from perdure.cli.runs import Arguments

HEADING: Final = "Commands"
ANY_VERB: Final = "VERB"


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
        "--home",
        type=Path,
        metavar="DIR",
        help="the folder that holds everything (default: PERDURE_HOME, else ~/.perdure)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--version", action="version", version=f"perdure {__version__}")
    verbs = Verbs(parser, is_required=False)
    _add_node(verbs)
    _add_reading(verbs)
    _add_sessions(verbs)
    _add_places(verbs)
    _add_parked(verbs)
    _add_approvals(verbs)
    _add_jobs(verbs)
    _add_agents(verbs)
    _add_servers(verbs)
    _add_pair(verbs)
    _add_token(verbs)
    return parser


def _add_node(verbs: Verbs) -> None:
    text = "Run a gateway node until Ctrl-C or SIGTERM."
    serve = verbs.add("serve", text, runs.serve, example="perdure serve --port 0")
    serve.add_argument("--host", help="listen on this address")
    serve.add_argument("--port", type=port, help="listen on this port; 0 picks a free one")
    serve.add_argument(
        "--replace",
        action="store_true",
        help="let the running node finish its turns and stop, then take its place",
    )
    serve.add_argument(
        "--show-token",
        action="store_true",
        help="print the signed-in address even if the output is not a terminal",
    )
    serve.add_argument(
        "--verbose", "-v", action="store_true", help="write debug lines to the log too"
    )
    text = "Chat in the terminal, or send stdin and print the answer."
    chat = verbs.add("chat", text, runs.chat, example="perdure chat work")
    chat.add_argument(
        "name",
        nargs="?",
        type=nonempty,
        default="main",
        metavar="NAME",
        help="the name of the conversation",
    )
    text = "Let an editor talk in conversations, over the Agent Client Protocol."
    editor = verbs.add("acp", text, runs.serve_editor, example="perdure acp work")
    editor.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help="the conversation that new sessions continue (each has one of its own)",
    )
    verbs.add("status", "Show running turns, queues and the health of platforms.", runs.status)
    verbs.add(
        "stop",
        "Stop the node: let it finish its turns, and wait until it has exited.",
        runs.stop,
    )
    drain = verbs.add("drain", "Stop the node, like `perdure stop`.", runs.drain)
    drain.add_argument(
        "--no-wait",
        action="store_true",
        help="return at once, without waiting for the node to exit",
    )
    verbs.add("restart", "Let the node finish its turns, then start it again.", runs.restart)
    settings = Verbs(verbs.add("config", "Look at the configuration.", None), is_required=True)
    text = "Check the configuration as a start does, and change nothing."
    settings.add("check", text, runs.check_config)
    turns = Verbs(verbs.add("turns", "Control turns.", None), is_required=True)
    text = "Stop a running or waiting turn. The text it has written so far is kept."
    stop = turns.add("stop", text, runs.stop_turn, example="perdure turns stop trn_01k…")
    stop.add_argument("id", type=nonempty, metavar="ID", help="the id of the turn")


def _add_reading(verbs: Verbs) -> None:
    text = "Print the log of the node."
    logs = verbs.add("logs", text, runs.logs, example="perdure logs -f --level warning")
    logs.add_argument(
        "--follow", "-f", action="store_true", help="go on printing as lines are written"
    )
    logs.add_argument(
        "--lines",
        "-n",
        type=amount,
        default=50,
        help="print this many of the newest lines first (50)",
    )
    logs.add_argument(
        "--level",
        default="debug",
        help="leave out lines below this level: debug, info, warning or error",
    )
    text = "Show everything stored about a message: its turn, attempts, tool calls and parts."
    explain = verbs.add("explain", text, runs.explain, example="perdure explain msg_01k…")
    explain.add_argument(
        "id", type=nonempty, metavar="ID", help="the id of a message, turn, part or update"
    )
    explain.add_argument(
        "--request", action="store_true", help="print the last request that the model got, as JSON"
    )
    verify = verbs.add(
        "verify", "Check the database, and every session in it, for damage.", runs.verify
    )
    verify.add_argument(
        "--new",
        action="store_true",
        help="check only sessions that have changed since the last check",
    )


def _add_sessions(verbs: Verbs) -> None:
    sessions = Verbs(
        verbs.add("sessions", "List, read and search sessions.", None), is_required=True
    )
    listing = sessions.add(
        "list", "List sessions, closed ones too, newest first.", runs.list_sessions
    )
    _add_limit(listing, default=50)
    listing.add_argument(
        "--after", help="show the page after this cursor, which the page before it has printed"
    )
    text = "Print a session's transcript."
    show = sessions.add("show", text, runs.show_session, example="perdure sessions show main")
    show.add_argument(
        "which",
        type=nonempty,
        metavar="ID",
        help="the id of a session, or the name of a conversation",
    )
    show.add_argument("--journal", action="store_true", help="print the raw journal as JSON Lines")
    show.add_argument(
        "--notices", action="store_true", help="show notices and replies to commands too"
    )
    text = "Find messages by their words."
    search = sessions.add(
        "search", text, runs.search_sessions, example="perdure sessions search garden party"
    )
    search.add_argument(
        "words", nargs="+", metavar="WORDS", help="the words; a message must contain all of them"
    )
    _add_limit(search, default=20)
    search.add_argument(
        "--after", help="show the page after this cursor, which the page before it has printed"
    )


def _add_places(verbs: Verbs) -> None:
    text = "Send a message to a place, such as telegram:123."
    send = verbs.add("send", text, runs.send, example="perdure send home The backup is done.")
    send.add_argument(
        "to",
        type=nonempty,
        metavar="TO",
        help="an address, `home`, or the name of a conversation over HTTP",
    )
    send.add_argument("text", nargs="+", metavar="TEXT", help="the text of the message")
    send.add_argument("--id", help="an id of your choice; a repeat with the same id sends nothing")
    places = verbs.add("places", "List the places that a message can be sent to.", runs.list_places)
    _add_limit(places, default=50)
    places.add_argument(
        "--after", help="show the page after this cursor, which the page before it has printed"
    )


def _add_parked(verbs: Verbs) -> None:
    parked = Verbs(
        verbs.add("parked", "Handle messages that could not be delivered.", None), is_required=True
    )
    listing = parked.add(
        "list", "List messages that could not be delivered, newest first.", runs.list_parked
    )
    _add_limit(listing, default=50)
    listing.add_argument(
        "--after", help="show the page after this cursor, which the page before it has printed"
    )
    for name, text, run in (
        ("show", "Print one parked message in full.", runs.show_parked),
        ("replay", "Try to deliver a parked message again.", runs.replay_parked),
        ("drop", "Remove a parked message from the list.", runs.drop_parked),
    ):
        parser = parked.add(name, text, run)
        parser.add_argument("id", type=nonempty, metavar="ID", help="the id from the list")
        if name == "replay":
            parser.add_argument(
                "--yes", action="store_true", help="send it even if it may appear twice"
            )


def _add_approvals(verbs: Verbs) -> None:
    approvals = Verbs(verbs.add("approvals", "Decide what agents may do.", None), is_required=True)
    listing = approvals.add("list", "List what agents ask for, oldest first.", runs.list_approvals)
    _add_limit(listing, default=50)
    listing.add_argument(
        "--after", help="show the page after this cursor, which the page before it has printed"
    )
    listing.add_argument("--all", action="store_true", help="show answered ones too")
    show = approvals.add("show", "Print one request with its exact arguments.", runs.show_approval)
    allow = approvals.add("allow", "Allow a call.", runs.allow)
    lasting = allow.add_mutually_exclusive_group()
    lasting.add_argument("--session", action="store_true", help="and such calls in this session")
    lasting.add_argument("--forever", action="store_true", help="and such calls from now on")
    lasting.add_argument(
        "--for",
        dest="lasting",
        type=duration,
        metavar="TIME",
        help="and such calls for a time such as 30m, 2h or 1d",
    )
    deny = approvals.add("deny", "Deny a call.", runs.deny)
    answer = approvals.add("answer", "Answer an agent's question.", runs.answer_question)
    for parser in (show, allow, deny, answer):
        parser.add_argument("id", type=nonempty, metavar="ID", help="the id from the list")
    answer.add_argument("text", nargs="+", metavar="TEXT", help="the answer")


def _add_jobs(verbs: Verbs) -> None:
    text = "Do something later, or again and again."
    jobs = Verbs(verbs.add("jobs", text, None), is_required=True)
    listing = jobs.add(
        "list", "List jobs with their next and last runs, oldest first.", runs.list_jobs
    )
    text = "Order a job: what is to be asked, and when."
    example = "perdure jobs add home 'what is new?' --when 'every weekday at 9'"
    add = jobs.add("add", text, runs.add_job, example=example)
    add_job_arguments(add)
    show = jobs.add("runs", "List what became of the occurrences of a job.", runs.job_runs)
    for parser in (listing, show):
        _add_limit(parser, default=50)
        parser.add_argument(
            "--after", help="show the page after this cursor, which the page before it has printed"
        )
    named = [
        show,
        jobs.add("remove", "Remove a job.", runs.remove_job),
        jobs.add("pause", "Pause a job.", runs.pause_job),
        jobs.add("resume", "Let a paused job go on from now.", runs.resume_job),
        jobs.add("run", "Run a job now, beside its schedule.", runs.run_job),
    ]
    for parser in named:
        parser.add_argument("id", type=nonempty, metavar="ID", help="the id from the list")


def _add_agents(verbs: Verbs) -> None:
    agents = Verbs(verbs.add("agents", "Look at agents, and try them.", None), is_required=True)
    agents.add("list", "List the configured agents and how they are.", runs.list_agents)
    text = "Let an agent answer a prompt, and say where the time went."
    trial = agents.add("test", text, runs.try_agent, example="perdure agents test main")
    text = "Start a process of an external agent, so that the next turn need not wait for it."
    warm = agents.add("warm", text, runs.warm_agent, example="perdure agents warm gemini")
    text = "Print the end of what the processes of an external agent have written."
    logs = agents.add("logs", text, runs.agent_logs, example="perdure agents logs gemini")
    for parser in (trial, warm, logs):
        parser.add_argument(
            "name", type=nonempty, metavar="NAME", help="the name of the agent: [agents.NAME]"
        )
    trial.add_argument(
        "text", nargs="*", metavar="TEXT", help="what to ask it; without it, to say hello"
    )


def _add_servers(verbs: Verbs) -> None:
    servers = Verbs(
        verbs.add("mcp", "Look at the tool servers of agents, and try them.", None),
        is_required=True,
    )
    servers.add("list", "List the configured tool servers and how they are.", runs.list_servers)
    text = "Start or reach a tool server as the configuration says, and list what it offers."
    trial = servers.add("test", text, runs.try_server, example="perdure mcp test time")
    trial.add_argument(
        "--wait",
        type=seconds,
        default=60,
        metavar="SECONDS",
        help="give up if the server takes longer (60)",
    )
    text = "Print the end of what a tool server has written to its standard error."
    logs = servers.add("logs", text, runs.server_logs, example="perdure mcp logs time")
    for parser in (trial, logs):
        parser.add_argument(
            "name", type=nonempty, metavar="NAME", help="NAME of the section [tools.mcp.NAME]"
        )


def _add_pair(verbs: Verbs) -> None:
    pairs = Verbs(
        verbs.add("pair", "Decide who may speak with the agents.", None), is_required=True
    )
    pairs.add("list", "List people who have access, and people who ask for it.", runs.list_pairings)
    text = "Give access to the person who got this code from the bot."
    approve = pairs.add(
        "approve", text, runs.approve_pairing, example="perdure pair approve K7WQ2MZR"
    )
    approve.add_argument(
        "code", type=nonempty, metavar="CODE", help="the code that the bot showed to the person"
    )
    revoke = pairs.add(
        "revoke", "Revoke a person's access, and stop their turns.", runs.revoke_pairing
    )
    revoke.add_argument("id", type=nonempty, metavar="ID", help="the id from the list")


def _add_token(verbs: Verbs) -> None:
    tokens = Verbs(verbs.add("token", "Make, list and revoke API tokens.", None), is_required=True)
    tokens.add("list", "List tokens and the principals that hold them.", runs.list_tokens)
    tokens.add("link", "Print the address that opens the web chat signed in.", runs.link_token)
    text = "Make a token and print it. It cannot be printed again."
    add = tokens.add("add", text, runs.add_token, example="perdure token add phone")
    add.add_argument(
        "name", type=nonempty, metavar="NAME", help="the person or program that will use it"
    )
    text = "Revoke a token, and stop the turns of a principal that has no other."
    revoke = tokens.add("revoke", text, runs.revoke_token, example="perdure token revoke phone")
    revoke.add_argument(
        "which", type=nonempty, metavar="ID_OR_NAME", help="the id or name from the list"
    )


def _add_limit(parser: argparse.ArgumentParser, *, default: int) -> None:
    parser.add_argument(
        "--limit",
        "-n",
        type=page_limit,
        default=default,
        help=f"show at most this many ({default})",
    )
