"""Runs `perdure serve`: a node with its HTTP server, from its first line to its exit code."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import structlog
from aiohttp import web

from perdure import __version__
from perdure.app import logs
from perdure.app.config import environment, platforms
from perdure.app.config import loading as config
from perdure.app.config.environment import OPERATOR, SERVER_FILE, signed_in
from perdure.app.config.toml_errors import ConfigError, Problem
from perdure.app.config.toml_positions import Positions
from perdure.app.hooks.hooks import HomeHooks
from perdure.app.life.descriptors import shares
from perdure.app.life.life_log import tell_of_migrations, tell_of_start, tell_of_store
from perdure.app.life.listening import Bound, LocalSite, UnusableHost, backlog, bound, cannot_listen
from perdure.app.life.node import Node, RunningNode, running_node
from perdure.app.life.reload import Reloading, warn_of_what_has_no_effect
from perdure.app.life.signals import Signals
from perdure.app.life.standstill import Standstill
from perdure.app.life.stopping import NodeStop
from perdure.app.life.systemd import Notifier
from perdure.app.light_start import spare_what_stays
from perdure.app.network.outgoing import RoutedOutgoing
from perdure.app.network.reachability import tell_of_proxies
from perdure.app.network.web_fetching import WebFetcher
from perdure.app.operate.local_socket import bound_socket
from perdure.app.operate.node_process import ServerFile, hint, lock_of
from perdure.app.operate.settings import usable_settings
from perdure.app.reading.file_reading import FileReader
from perdure.app.reading.speech import speaker_of, transcriber_of
from perdure.app.schedule.making import job_settings, zone_for
from perdure.app.wiring import agents, discovery, storage
from perdure.app.wiring.budgets import budgets_of, limits_of
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock, SystemEntropy, give_memory_back
from perdure.app.wiring.web import push_sender, web_of
from perdure.domain.errors import NO_SPACE, Rejected
from perdure.domain.urls import without_login
from perdure.engine.models.roster import Roster
from perdure.store.migrations import Applied
from perdure.store.store import Store
from perdure.web.http.doorway import Doorway
from perdure.web.server import application

# How long running requests are waited for, once before they are cancelled and once after.
GRACE_S = 0.5
# How long the start waits for a command of the command line that has the store open.
LOCK_PATIENCE_S = 2.0
# A restarting node sets this for the next process. If port 0 was asked for, the next process takes
# the same port again, so that clients find it.
KEPT_PORT_VARIABLE = "PERDURE_KEPT_PORT"
log = structlog.get_logger("serve")


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the options of `perdure serve`."""

    home: Path
    host: str | None = None
    port: int | None = None
    is_replacing: bool = False
    is_verbose: bool = False
    has_token_shown: bool = False


class Again(msgspec.Struct, frozen=True):
    """Says that the node is to begin again. It listened on this port."""

    port: int


async def serve(
    options: ServeOptions,
    environ: Mapping[str, str],
    announce: Callable[[str], None],
    leave: Callable[[Again | None], NoReturn],
) -> Again | None:
    """Run a node until a signal, a drain or a restart. Returns when everything is closed. If that
    does not end in time, `leave` is called on another thread and ends the process."""
    signals = Signals(lambda port: leave(None if port is None else Again(port)))
    try:
        return await _life(options, environ, announce, signals)
    except asyncio.CancelledError:
        if not signals.has_ended_the_start:
            raise
        return None
    finally:
        signals.outlive_the_loop()


async def _life(
    options: ServeOptions,
    environ: Mapping[str, str],
    announce: Callable[[str], None],
    signals: Signals,
) -> Again | None:
    """Start everything, wait for the end, and drain. Returns whether to begin again."""
    home, entropy, clock = options.home, SystemEntropy(), SystemClock()
    settings, outgoing = _settings(home, environ)
    token = environment.home_token(home, environ, entropy.random_bytes)
    notifier = Notifier(environ, clock)
    # Everything is started in this order, and closed in the reverse order when the block ends.
    async with AsyncExitStack() as stack:
        stop = stack.enter_context(_logging(options, signals))
        warn_of_what_has_no_effect(settings)
        found = await discovery.agents(settings, environ, outgoing=outgoing)
        store = storage.store(settings, home, clock=clock, entropy=entropy)
        maker = agents.backend_maker(store, clock, outgoing, settings, home=home, environ=environ)
        stack.push_async_callback(maker.close)
        roster = Roster(maker.backends(found.by_name, settings.tools))
        stack.push_async_callback(roster.close)
        kept = await _made_way(options, settings, environ, notifier)
        # Opened only now: on SQLite the node that is being replaced holds the lock until it is
        # gone.
        await stack.enter_async_context(_opened(store))
        await _admit_operators(store, token, settings)
        place = stack.enter_context(_place(options, settings, kept))
        hosts = platforms.Hosts(settings.adapters)
        dependencies = _dependencies(
            place, options, settings, store, roster, hosts=hosts, outgoing=outgoing, environ=environ
        )
        dependencies = _with_programs(dependencies, maker, home)
        running = await stack.enter_async_context(running_node(dependencies, settings))
        stack.callback(Standstill(running.tally.stood_still).end)
        public = without_login(settings.server.base_url or place.url)[0]
        reached = _reached(running, place, home, environ, public=public)
        url = await stack.enter_async_context(reached)
        reloading = Reloading(
            home / config.FILE_NAME,
            settings,
            roster=roster,
            backend_maker=maker,
            hosts=hosts,
            appoint=store.principals.platforms_operators,
            review=running.node.review_access,
            environ=environ,
            shown=notifier.reloading,
        )
        telling = (notifier.watch(), tell_of_proxies(outgoing.proxies))
        for work in (reloading.run(), maker.warm(), *telling):
            await stack.enter_async_context(_meanwhile(work))
        drain_s = settings.drain.timeout_s
        signals.lead_to(running.node, reload=reloading.ask, port=place.port, drain_s=drain_s)
        spare_what_stays()
        tell_of_start(settings, found.by_name, home=home, node=store.node, url=url)
        notifier.ready("serving")
        announce(_banner(public, token if options.has_token_shown else "", roster, found.reason))
        await running.node.drain_requested.wait()
        await _drain(running.node, stop, notifier, within_s=drain_s)
    return Again(_port_of(url)) if signals.is_restart else None


def _with_programs(
    dependencies: NodeDependencies, maker: agents.BackendMaker, home: Path
) -> NodeDependencies:
    """Return the dependencies with what starts programs: the tool servers, and the hooks."""
    hooks = HomeHooks(home, children=maker.children, clock=dependencies.clock)
    return msgspec.structs.replace(dependencies, servers=maker.servers, hooks=hooks)


async def _made_way(
    options: ServeOptions,
    settings: config.Config,
    environ: Mapping[str, str],
    notifier: Notifier,
) -> int | None:
    """Wait until the node that is to be replaced has left. Returns the port to take if port 0 is
    asked for: the one that the node before had."""
    kept = _kept_port(environ)
    if not options.is_replacing:
        return kept
    from perdure.app.life.replace import make_way  # noqa: PLC0415 - few starts replace a node

    notifier.status("waiting for the running node")
    lock = lock_of(options.home) if settings.store.is_sqlite else None
    return await make_way(options.home, environ, lock=lock, clock=SystemClock()) or kept


async def _drain(node: Node, stop: NodeStop, notifier: Notifier, *, within_s: float) -> None:
    """Drain the node while HTTP still answers, so that messages which arrive meanwhile are accepted
    and stored."""
    notifier.stopping("draining", within_s=within_s)
    stop.begin(node)
    await node.drain()


@contextmanager
def _logging(options: ServeOptions, signals: Signals) -> Iterator[NodeStop]:
    """Write the log. Its last line says how the stop went, even if the last resort ends the
    process."""
    writer = logs.begin(options.home, verbose=options.is_verbose)
    signals.write_log = writer.finish
    stop = NodeStop(signals)
    try:
        yield stop
    finally:
        stop.over()
        writer.finish()


def _settings(home: Path, environ: Mapping[str, str]) -> tuple[config.Config, RoutedOutgoing]:
    """Prepare the home, and load the configuration. Also returns how other servers are reached.
    Raises `ConfigError`."""
    environment.prepare_home(home)
    settings, network = usable_settings(home, environ)
    return settings, RoutedOutgoing(network.proxies, trusted=network.trusted)


async def _admit_operators(store: Store, token: str, settings: config.Config) -> None:
    """Make the operator with the home's token, and the operators that the configuration names."""
    operator = await store.principals.ensure(OPERATOR, role="operator")
    await store.principals.grant(operator.id, token)
    await store.principals.platforms_operators(platforms.operators_of(settings.adapters))


def _dependencies(  # noqa: PLR0913 - what a node is assembled from
    place: Bound,
    options: ServeOptions,
    settings: config.Config,
    store: Store,
    roster: Roster,
    *,
    hosts: platforms.Hosts,
    outgoing: RoutedOutgoing,
    environ: Mapping[str, str],
) -> NodeDependencies:
    entropy, clock = SystemEntropy(), SystemClock()
    return NodeDependencies(
        store=store,
        roster=roster,
        clock=clock,
        entropy=entropy,
        limits=limits_of(settings, turns_max=shares().turns),
        budgets=budgets_of(settings),
        personas={name: each.instructions for name, each in settings.personas.items()},
        platforms=platforms.platforms(
            settings.adapters,
            home=options.home,
            clock=clock,
            entropy=entropy,
            hook_url=partial(_hook_url, settings.server.base_url or place.url),
            answers=lambda name: partial(store.archive.answer, adapter=name),
            outgoing=outgoing,
        ),
        terms=hosts.terms,
        platform=partial(platforms.platform_named, settings.adapters),
        forms=platforms.address_forms(settings.adapters),
        displays={name: platforms.display_of(each) for name, each in settings.adapters.items()},
        web=WebFetcher(web_of(settings.limits, outgoing)),
        pushes=push_sender(settings, outgoing, clock=clock, entropy=entropy),
        reader=FileReader(transcriber_of(settings.transcriber, outgoing)),
        speaker=speaker_of(settings.speech, outgoing),
        give_back=give_memory_back,
        zone=zone_for(settings, environ),
        jobs=job_settings(settings, options.home),
        is_shared=not settings.store.is_sqlite,
    )


def begin_again(again: Again, environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by a new one with the same arguments and process id. Does not return."""
    variables = {**environ, KEPT_PORT_VARIABLE: str(again.port)}
    try:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], variables)  # noqa: S606
    except OSError as error:
        raise Rejected(
            f"everything is put away, but {sys.executable} could not be started again "
            f"({error.strerror}); start it with `perdure serve`",
            code="cannot_restart",
        ) from error


def _kept_port(environ: Mapping[str, str]) -> int | None:
    text = environ.get(KEPT_PORT_VARIABLE, "")
    return int(text) if text.isascii() and text.isdigit() else None


@contextmanager
def _place(options: ServeOptions, settings: config.Config, kept: int | None) -> Iterator[Bound]:
    """Bind the address of the node, before anybody is told about it."""
    host = options.host or settings.server.host
    port = settings.server.port if options.port is None else options.port
    try:
        with bound(host, [kept, 0] if port == 0 and kept else [port]) as place:
            yield place
    except UnusableHost as error:
        if options.host:
            raise
        raise _in_file(options.home / config.FILE_NAME, error) from error


def _in_file(path: Path, error: UnusableHost) -> Rejected:
    """Return the same error with the line of the file that names the host."""
    try:
        positions = Positions(path.read_text(encoding="utf-8-sig"))
    except OSError:
        return error
    line = positions.line(("server", "host"))
    return ConfigError([Problem(str(path), line, f"[server] host: {error.message}")])


def _hook_url(base: str, adapter: str) -> str:
    """Return the URL at which a platform reaches our hook. Behind a proxy only the configuration
    knows the base."""
    return f"{base.rstrip('/')}/hooks/{adapter}"


@asynccontextmanager
async def _meanwhile(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run a coroutine while the `with` block runs, and cancel it at its end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def _opened(store: Store) -> AsyncIterator[None]:
    """Open the store, and log its migrations and its troubles. It is closed at the end of the
    block."""
    tell_of_migrations(await _open_patiently(store))
    store.condition.when_changed(tell_of_store)
    try:
        async with _meanwhile(store.condition.watch()):
            yield
    finally:
        await store.close()


async def _open_patiently(store: Store) -> list[Applied]:
    """Open the store. A command of the command line may have it open for a moment, so this is tried
    for a while; a gateway does not let go of it."""
    patience = asyncio.get_running_loop().time() + LOCK_PATIENCE_S
    while True:
        try:
            return await store.open()
        except Rejected as error:
            if error.code != "in_use" or asyncio.get_running_loop().time() > patience:
                raise
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _reached(
    running: RunningNode, place: Bound, home: Path, environ: Mapping[str, str], *, public: str
) -> AsyncIterator[str]:
    """Serve at the address and on the home's socket, and write down where that is."""
    with bound_socket(home, environ) as local:
        async with _listening(running, place, local) as url:
            reached = "" if local is None else os.fsdecode(local.getsockname())
            told = ServerFile(
                pid=os.getpid(), port=place.port, url=url, socket=reached, public=public
            )
            with _server_file(home / SERVER_FILE, told):
                yield url


@asynccontextmanager
async def _listening(
    running: RunningNode, place: Bound, local: socket.socket | None
) -> AsyncIterator[str]:
    """Run the HTTP server. Live streams end with it, and their clients reconnect by themselves."""
    runner = web.AppRunner(
        application(running.services, running.tally),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=GRACE_S,
        auto_decompress=False,  # bodies are unpacked within bounds (`web/http/bodies.py`)
    )
    await runner.setup()
    assert runner.server is not None
    try:
        _listen(place)
        async with Doorway(runner.server, shares().connections).opened(place.sockets):
            if local is None:
                log.warning(
                    "no socket could be made for the command line, which will not find the node"
                )
            else:
                await LocalSite(runner, local).start()
            running.node.tell_hooks_of_start()
            yield place.url
    finally:
        await runner.cleanup()


def _listen(place: Bound) -> None:
    try:
        for each in place.sockets:
            each.listen(backlog())
    except OSError as error:
        # Another program bound the same port and was the first to listen.
        raise cannot_listen(error, place.host, place.port) from error


@contextmanager
def _server_file(path: Path, told: ServerFile) -> Iterator[None]:
    """Write `server.json`, and remove it at the end. It is replaced as a whole, so readers never
    see half of it."""
    unfinished = path.with_suffix(".part")
    try:
        unfinished.write_bytes(msgspec.json.encode(told))
        unfinished.replace(path)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise environment.disk_full(path) from error
        raise
    try:
        yield
    finally:
        # Remove only our own file: on a shared store another node may have started in the same
        # home.
        found = hint(path.parent)
        if found is None or found.pid == os.getpid():
            with suppress(OSError):  # it is only a hint, so it may stay behind
                path.unlink()


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _banner(url: str, token: str, roster: Roster, reason: str) -> str:
    lines = [f"Perdure {__version__} is ready."]
    for backend in roster.backends:
        why = f": {reason}" if reason and backend.name == roster.default else ""
        lines.append(f"  agent  {backend.name} ({backend.kind}){why}")
    if token:
        lines.append(f"  chat   {signed_in(url, token)}")
    else:
        lines.append(f"  chat   {url}/")
        lines.append("  token  `perdure token link` prints the address that signs you in")
    lines.append("  stop   Ctrl-C (twice: do not wait for turns)")
    return "\n".join(lines)
