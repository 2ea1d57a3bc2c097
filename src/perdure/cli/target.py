"""Decides where a verb gets its answers: from the running node, or else from the store itself.

The code for the store is imported only if it is needed, because most of the time a node runs.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn, ParamSpec, Protocol, TypeVar

from perdure.app.config.environment import check_home, home_folder, process_environ
from perdure.app.operate.client import NodeClient, node_client, store_trouble
from perdure.app.operate.node_process import hint, silent_node
from perdure.cli.exits import conduct
from perdure.domain.errors import Rejected
from perdure.web.endpoints import Endpoint, OperatorServices

P = ParamSpec("P")
T = TypeVar("T")


class EndpointAnswerer(Protocol):
    """Answers endpoints: the running node, or the store."""

    async def ask(
        self, endpoint: Endpoint[OperatorServices, P, T], *names: P.args, **given: P.kwargs
    ) -> T:
        """Call an endpoint and return its answer."""


class CommandTarget(NamedTuple):
    """Says which home is meant, and whether to print JSON."""

    home: Path
    environ: Mapping[str, str]
    is_json: bool


def ask(
    home: Path | None, *, is_json: bool, verb: Callable[[CommandTarget], Awaitable[int | None]]
) -> NoReturn:
    """Run a verb on the home that was meant, and leave the process with its exit code."""

    async def work() -> int | None:
        return await verb(place_of(home, is_json=is_json))

    conduct(lambda: asyncio.run(work()))


def place_of(home: Path | None, *, is_json: bool) -> CommandTarget:
    """Return the target of a command. Raises `ConfigError` if there can be no home."""
    environ = process_environ()
    folder = home_folder(home, environ)
    check_home(folder)
    return CommandTarget(folder, environ, is_json)


@asynccontextmanager
async def answering(
    target: CommandTarget, *, make: bool = False
) -> AsyncIterator[EndpointAnswerer]:
    """Yield what answers: the running node, or the opened store. With `make`, a missing home is
    created."""
    node = await node_client(target.home, target.environ)
    if node is not None:
        yield node
        return
    async with _store(target, make=make) as answers:
        yield answers


@asynccontextmanager
async def _store(target: CommandTarget, *, make: bool) -> AsyncIterator[EndpointAnswerer]:
    """Open the store. If a node has it open and does not answer, the error says why."""
    from perdure.app.config import loading as config  # noqa: PLC0415
    from perdure.app.operate.offline import opened_store, store_answers  # noqa: PLC0415

    try:
        async with opened_store(target.home, target.environ, make=make) as store:
            yield await store_answers(store, config.load(target.home, target.environ))
    except Rejected as error:
        if error.code != "in_use":
            raise
        trouble = await store_trouble(target.home, target.environ)
        why = (
            f"its store refuses writes: {trouble}"
            if trouble
            else "it does not answer over HTTP: it may be starting or stopping; try again in a "
            "moment, and see `perdure logs`"
        )
        raise Rejected(f"{error.message.partition(';')[0]}, but {why}", code="in_use") from error


async def running(target: CommandTarget) -> NodeClient:
    """Return the running node, for verbs that need one. Raises `Rejected` if there is none."""
    node = await node_client(target.home, target.environ)
    if node is None:
        raise await not_running(target)
    return node


async def not_running(target: CommandTarget) -> Rejected:
    """Return the error that says why nobody answered: no node runs, or one runs and cannot be
    asked."""
    pid = silent_node(target.home, target.environ)
    trouble = "" if pid is None else await store_trouble(target.home, target.environ)
    return unanswered(target, pid, trouble)


def unanswered(target: CommandTarget, pid: int | None, trouble: str = "") -> Rejected:
    """Return the error for a node that did not answer. `pid` is its process as `silent_node`
    returns it, and `trouble` is what the node says about its store."""
    if pid is None:
        return Rejected(
            f"no node is running in {target.home}; start one with `perdure serve`",
            code="not_running",
        )
    found = hint(target.home)
    is_known = found is not None and found.pid == pid
    where = f"it does not answer at {found.url}" if found and is_known else "its address is unknown"
    process = f"process {pid}" if pid else "a process that cannot be seen from here"
    if trouble:
        return Rejected(
            f"the node in {target.home} ({process}) is running, but its store refuses writes: "
            f"{trouble}",
            code="store_trouble",
        )
    return Rejected(
        f"a node runs in {target.home} ({process}), but {where}: it may be starting or stopping; "
        "see `perdure logs`. `perdure stop` ends it, `perdure serve --replace` takes over",
        code="unreachable",
    )
