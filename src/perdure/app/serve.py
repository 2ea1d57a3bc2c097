"""`perdure serve`: a node with its HTTP server, from the first line printed to the exit code."""

import asyncio
import errno
import ipaddress
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from perdure import __version__
from perdure.app import agents, config, discovery, environment, logs, storage
from perdure.app.environment import OPERATOR, SERVER_FILE
from perdure.app.node import Node, Running, Surroundings, limits_of, running_node
from perdure.app.reload import Reloading
from perdure.app.system import SystemClock, SystemEntropy
from perdure.domain.errors import Rejected
from perdure.engine.roster import Roster
from perdure.store.store import Store
from perdure.web.server import application

GRACE_S = 1.0
LOCK_PATIENCE_S = 2.0


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    home: Path
    host: str | None = None
    port: int | None = None
    verbose: bool = False


async def serve(
    options: ServeOptions, environ: Mapping[str, str], announce: Callable[[str], None]
) -> None:
    """Run until a signal or a drain; returns once everything is put away."""
    home = options.home
    environment.prepare_home(home)
    settings = config.load(home, environ)
    entropy, clock = SystemEntropy(), SystemClock()
    token = environment.home_token(home, environ, entropy.random_bytes)
    async with AsyncExitStack() as stack:
        stack.callback(logs.begin(home, verbose=options.verbose).stop)
        found = await discovery.agents(settings, environ)
        roster = Roster(agents.seats(found.by_name, clock=clock))
        stack.push_async_callback(roster.close)
        store = await stack.enter_async_context(
            _opened(storage.store(settings, home, clock=clock, entropy=entropy))
        )
        operator = await store.principals.ensure(OPERATOR, role="operator")
        await store.principals.grant(operator.id, token)
        around = Surroundings(
            store=store,
            roster=roster,
            clock=clock,
            entropy=entropy,
            limits=limits_of(settings),
            is_shared=not settings.store.is_sqlite,
        )
        running = await stack.enter_async_context(running_node(around, settings))
        host = options.host or settings.server.host
        port = settings.server.port if options.port is None else options.port
        url = await stack.enter_async_context(_listening(running, host, port))
        stack.callback((home / SERVER_FILE).unlink, missing_ok=True)
        _write_server_file(home / SERVER_FILE, url)
        reloading = Reloading(
            home / config.FILE_NAME, settings, roster=roster, environ=environ, clock=clock
        )
        await stack.enter_async_context(_meanwhile(reloading.run()))
        announce(_banner(settings.server.base_url or url, token, roster, found.reason))
        await _until_told(running.node)
        # The drain begins while HTTP still answers: posts are accepted and kept.
        await running.node.drain()


@asynccontextmanager
async def _meanwhile(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def _opened(store: Store) -> AsyncIterator[Store]:
    await _open_patiently(store)
    try:
        yield store
    finally:
        await store.close()


async def _open_patiently(store: Store) -> None:
    """A verb of the command line may hold the file for a moment; a gateway holds it for good."""
    patience = asyncio.get_running_loop().time() + LOCK_PATIENCE_S
    while True:
        try:
            await store.open()
        except Rejected as error:
            if error.code != "in_use" or asyncio.get_running_loop().time() > patience:
                raise
            await asyncio.sleep(0.05)
        else:
            return


@asynccontextmanager
async def _listening(running: Running, host: str, port: int) -> AsyncIterator[str]:
    """The HTTP server. Live streams end with it: their clients come back by themselves."""
    runner = web.AppRunner(
        application(running.services, running.tally),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=GRACE_S,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, reuse_address=True, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            raise _cannot_listen(error, host, port) from error
        chosen = runner.addresses[0][1]
        yield f"http://{_in_url(host)}:{chosen}"
    finally:
        await runner.cleanup()


def _cannot_listen(error: OSError, host: str, port: int) -> Rejected:
    if error.errno == errno.EADDRINUSE:
        return Rejected(
            f"port {port} on {host} is in use; stop what uses it, or choose another with "
            "--port (0 picks a free one)",
            code="port_in_use",
        )
    return Rejected(f"cannot listen on {host}:{port}: {error.strerror}", code="cannot_listen")


def _in_url(host: str) -> str:
    """An address a browser on this machine can open."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return f"[{host}]" if address.version == 6 else host


def _write_server_file(path: Path, url: str) -> None:
    port = int(url.rpartition(":")[2])
    body = msgspec.json.encode({"pid": os.getpid(), "port": port, "url": url})
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(body)
    unfinished.replace(path)


def _banner(url: str, token: str, roster: Roster, reason: str) -> str:
    lines = [f"Perdure {__version__} is ready."]
    for seat in roster.seats:
        why = f": {reason}" if reason and seat.name == roster.default else ""
        lines.append(f"  agent  {seat.name} ({seat.kind}){why}")
    lines.append(f"  chat   {url}/#token={token}")
    lines.append("  stop   Ctrl-C (twice: do not wait for turns)")
    return "\n".join(lines)


async def _until_told(node: Node) -> None:
    """The first signal asks for a drain, the second one to stop waiting for it."""
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if node.drain_requested.is_set():
            node.hurry()
        node.request_drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    await node.drain_requested.wait()
