"""Starts the verb that was asked for, and leaves the process with its exit code.

Each verb's module is imported only when the verb runs, so that help and a mistyped command answer
at once.
"""
# ruff: noqa: PLC0415

import argparse
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeAlias

if TYPE_CHECKING:
    from perdure.cli.target import CommandTarget

Arguments: TypeAlias = argparse.Namespace


def _ask(
    arguments: Arguments, verb: "Callable[[CommandTarget], Awaitable[int | None]]"
) -> NoReturn:
    """Run a verb that asks the node or the store, and leave the process with its exit code."""
    from perdure.cli.target import ask

    ask(arguments.home, is_json=arguments.json, verb=verb)


def _heed_signals() -> None:
    """End the start cleanly at SIGTERM, and go on at SIGHUP, until the node handles its signals
    (`app/life/signals.py`). Loading the program takes a while, and nothing is open meanwhile."""
    import os
    import signal

    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def serve(arguments: Arguments) -> NoReturn:
    _heed_signals()
    from perdure.app.light_start import collect_rarely, import_aiohttp, import_structlog

    collect_rarely()
    import_structlog()
    import_aiohttp()
    from perdure.cli.exits import conduct
    from perdure.cli.verbs.serving import run_serve

    conduct(
        partial(
            run_serve,
            arguments.home,
            host=arguments.host,
            port=arguments.port,
            is_replacing=arguments.replace,
            is_verbose=arguments.verbose,
            has_token_shown=arguments.show_token,
        )
    )


def check_config(arguments: Arguments) -> NoReturn:
    from perdure.app.light_start import import_structlog

    import_structlog()
    from perdure.cli.exits import conduct
    from perdure.cli.verbs.configuring import check

    conduct(partial(check, arguments.home, is_json=arguments.json))


def chat(arguments: Arguments) -> NoReturn:
    from perdure.cli.exits import conduct
    from perdure.cli.verbs.chat import chat

    conduct(partial(chat, arguments.home, name=arguments.name, is_json=arguments.json))


def serve_editor(arguments: Arguments) -> NoReturn:
    from perdure.cli.editing import serve_editor

    _ask(arguments, partial(serve_editor, name=arguments.name))


def status(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, control.status)


def stop(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, control.stop)


def drain(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, control.drain if arguments.no_wait else control.stop)


def restart(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, control.restart)


def stop_turn(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import control

    _ask(arguments, partial(control.stop_turn, turn=arguments.id))


def verify(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs.verifying import verify

    _ask(arguments, partial(verify, only_new=arguments.new))


def logs(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs.logs import logs

    lines, level = arguments.lines, arguments.level
    _ask(arguments, partial(logs, lines=lines, level=level, follow=arguments.follow))


def explain(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs.explaining import explain

    _ask(arguments, partial(explain, any_id=arguments.id, with_request=arguments.request))


def list_sessions(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    limit, after = arguments.limit, arguments.after
    _ask(arguments, partial(records.list_sessions, limit=limit, after=after))


def show_session(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    showing = partial(
        records.show,
        which=arguments.which,
        is_raw=arguments.journal,
        with_notices=arguments.notices,
    )
    _ask(arguments, showing)


def search_sessions(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    words, limit, after = arguments.words, arguments.limit, arguments.after
    _ask(arguments, partial(records.search, words=words, limit=limit, after=after))


def send(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import places

    text, own_id = " ".join(arguments.text), arguments.id
    _ask(arguments, partial(places.send, to=arguments.to, text=text, own_id=own_id))


def list_places(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import places

    limit, after = arguments.limit, arguments.after
    _ask(arguments, partial(places.list_places, limit=limit, after=after))


def list_parked(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import parked

    limit, after = arguments.limit, arguments.after
    _ask(arguments, partial(parked.list_parked, limit=limit, after=after))


def show_parked(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import parked

    _ask(arguments, partial(parked.show, part=arguments.id))


def replay_parked(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import parked

    _ask(arguments, partial(parked.replay, part=arguments.id, force=arguments.yes))


def drop_parked(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import parked

    _ask(arguments, partial(parked.drop, part=arguments.id))


def list_approvals(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import approvals

    listing = partial(
        approvals.list_approvals,
        limit=arguments.limit,
        after=arguments.after,
        has_all=arguments.all,
    )
    _ask(arguments, listing)


def show_approval(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import approvals

    _ask(arguments, partial(approvals.show, question=arguments.id))


def allow(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import approvals

    scope = "forever" if arguments.forever else "session" if arguments.session else None
    for_ms = arguments.lasting
    answer = partial(
        approvals.answer,
        question=arguments.id,
        word="allow",
        scope=scope,
        for_s=for_ms / 1000 if for_ms else None,
    )
    _ask(arguments, answer)


def deny(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import approvals

    _ask(arguments, partial(approvals.answer, question=arguments.id, word="deny"))


def answer_question(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import approvals

    text = " ".join(arguments.text)
    _ask(arguments, partial(approvals.answer, question=arguments.id, word=text))


def list_jobs(arguments: Arguments) -> NoReturn:
    from perdure.cli.jobs import showing as jobs

    _ask(arguments, partial(jobs.list_jobs, limit=arguments.limit, after=arguments.after))


def add_job(arguments: Arguments) -> NoReturn:
    from perdure.cli.jobs import showing as jobs

    wishes = {name: getattr(arguments, name) for name in jobs.WISHES}
    _ask(
        arguments,
        partial(
            jobs.add, conversation=arguments.conversation, prompt=arguments.prompt, wishes=wishes
        ),
    )


def job_runs(arguments: Arguments) -> NoReturn:
    from perdure.cli.jobs import showing as jobs

    listing = partial(jobs.runs, job=arguments.id, limit=arguments.limit, after=arguments.after)
    _ask(arguments, listing)


def remove_job(arguments: Arguments) -> NoReturn:
    from perdure.cli.jobs import showing as jobs

    _ask(arguments, partial(jobs.remove, job=arguments.id))


def pause_job(arguments: Arguments) -> NoReturn:
    from perdure.cli.jobs import showing as jobs

    _ask(arguments, partial(jobs.change, job=arguments.id, state="paused"))


def resume_job(arguments: Arguments) -> NoReturn:
    from perdure.cli.jobs import showing as jobs

    _ask(arguments, partial(jobs.change, job=arguments.id, state="active"))


def run_job(arguments: Arguments) -> NoReturn:
    from perdure.cli.jobs import showing as jobs

    _ask(arguments, partial(jobs.run, job=arguments.id))


def list_agents(arguments: Arguments) -> NoReturn:
    from perdure.cli.agents import showing

    _ask(arguments, showing.list_agents)


def warm_agent(arguments: Arguments) -> NoReturn:
    from perdure.cli.agents import showing

    _ask(arguments, partial(showing.warm, name=arguments.name))


def agent_logs(arguments: Arguments) -> NoReturn:
    from perdure.cli.agents import showing

    _ask(arguments, partial(showing.logs, name=arguments.name))


def try_agent(arguments: Arguments) -> NoReturn:
    from perdure.cli.agents.trying import try_agent

    text = " ".join(arguments.text)
    _ask(arguments, partial(try_agent, name=arguments.name, text=text))


def list_servers(arguments: Arguments) -> NoReturn:
    from perdure.cli.mcp import showing

    _ask(arguments, showing.list_servers)


def try_server(arguments: Arguments) -> NoReturn:
    from perdure.app.light_start import import_structlog

    import_structlog()
    from perdure.cli.mcp.trying import try_server

    _ask(arguments, partial(try_server, name=arguments.name, within_s=arguments.wait))


def server_logs(arguments: Arguments) -> NoReturn:
    from perdure.cli.mcp import showing

    _ask(arguments, partial(showing.logs, name=arguments.name))


def list_pairings(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import pairings

    _ask(arguments, pairings.list_pairings)


def approve_pairing(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import pairings

    _ask(arguments, partial(pairings.approve, code=arguments.code))


def revoke_pairing(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import pairings

    _ask(arguments, partial(pairings.revoke, pairing=arguments.id))


def list_tokens(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    _ask(arguments, records.list_tokens)


def link_token(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    _ask(arguments, records.link_token)


def add_token(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    _ask(arguments, partial(records.add_token, name=arguments.name))


def revoke_token(arguments: Arguments) -> NoReturn:
    from perdure.cli.verbs import records

    _ask(arguments, partial(records.revoke_token, which=arguments.which))
