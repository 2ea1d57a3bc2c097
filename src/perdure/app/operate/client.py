"""Talks to a running node over HTTP, on the socket of its home.

`server.json` in the home is only a hint: it outlives a killed node, and its port may now belong to
another program, which must not get the token. So nothing is ever sent to the port. The node is
asked through the socket of its home, once it is proven whose that is (`local_socket.py`). It counts
as running if it answers as a Perdure with the process id of the hint. `node_process.py` knows
whether there is a node that does not answer. A restarted node may have another socket; `look_again`
finds it.
"""

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

import msgspec

from perdure.app.config.environment import TOKEN_FILE, TOKEN_VARIABLE
from perdure.app.operate import local_http
from perdure.app.operate.local_socket import proven
from perdure.app.operate.node_process import hint
from perdure.domain.errors import (
    Ambiguous,
    Conflict,
    NotFound,
    PerdureError,
    Rejected,
    Transient,
)
from perdure.domain.turn.watching import NAMES, News, Position
from perdure.ports.system.time_limits import time_limit
from perdure.web import wire
from perdure.web.endpoints import ANSWER_S, BODY, Endpoint

P = ParamSpec("P")
T = TypeVar("T")
PROBE_S: Final = 5.0
# How long a stream may be silent. A node sends a sign of life four times as often.
SILENCE_S: Final = 60.0
# Bounds a line of an event stream, which holds a whole message.
LINE_BYTES_MAX: Final = 32 * 1024 * 1024
# Bounds an answer. Pages are much smaller, except for one that has a single huge message.
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
# The code of an error that says that the node could not be reached.
UNREACHABLE: Final = "unreachable"
# The position before the first event of a conversation.
BEGINNING: Final = str(Position(1, 0))

# A placeholder in the path of an endpoint.
_NAME: Final = re.compile(r"\{\w+\}")
_NEWS: Final = {name: msgspec.json.Decoder(kind) for kind, name in NAMES.items()}


async def node_client(home: Path, environ: Mapping[str, str]) -> "NodeClient | None":
    """Return a client of this home's node, or None if no node runs."""
    client = NodeClient(home, environ)
    return client if await client.look_again() else None


async def store_trouble(home: Path, environ: Mapping[str, str]) -> str:
    """Return why the store of this home's node does not work, as the node itself says. Use it for a
    node that does not answer otherwise: to check our token it would need its store."""
    return await NodeClient(home, environ).store_trouble()


def _authorization(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    token = _token(home, environ)
    return {"Authorization": f"Bearer {token}"} if token and token.isprintable() else {}


def _token(home: Path, environ: Mapping[str, str]) -> str:
    """Return the operator's token, or an empty string if it cannot be read."""
    token = environ.get(TOKEN_VARIABLE, "").strip()
    if token:
        return token
    try:
        return (home / TOKEN_FILE).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


class NodeClient:
    """Asks the node of a home, once `look_again` has found it. It keeps no connection open."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = environ
        self._socket: Path | None = None
        self._headers: dict[str, str] = {}
        self.pid = 0
        self.port = 0
        self.url = ""
        self.public = ""

    @property
    def token(self) -> str:
        return _token(self._home, self._environ)

    async def look_again(self) -> bool:
        """Find where the node is now. Raises `Rejected` if the node does not accept our token."""
        if not await self._reach():
            return False
        try:
            status = await self._ask(wire.StatusOut, "/api/status", timeout_s=PROBE_S)
        except Rejected as error:
            if error.code == "unauthorized":
                raise Rejected(_unknown_token(self.url), code="unauthorized") from error
            return False
        except PerdureError:
            return False
        return status.pid == self.pid

    async def store_trouble(self) -> str:
        """Return why the node's store does not work, or an empty string."""
        try:
            if not await self._reach():
                return ""
            health = await self._ask(wire.HealthOut, "/healthz", timeout_s=PROBE_S)
        except PerdureError:
            return ""
        return health.store.reason

    async def _reach(self) -> bool:
        """Find the socket of this home's node. Returns False if there is none that is proven to be
        ours."""
        found = hint(self._home)
        path = None if found is None else proven(self._home, found.socket)
        if found is None or path is None:
            return False
        self.pid, self.port, self.url = found.pid, found.port, found.url
        self.public = found.public or found.url
        self._socket, self._headers = path, _authorization(self._home, self._environ)
        return True

    async def status(self) -> wire.StatusOut:
        """Return how the node is."""
        return await self._ask(wire.StatusOut, "/api/status", timeout_s=PROBE_S)

    async def ask(self, endpoint: Endpoint[Any, P, T], *names: P.args, **given: P.kwargs) -> T:
        """Call an endpoint of the node. Messages and sendings may be repeated with the same id: the
        node recognizes them. Raises `Ambiguous` if the connection breaks."""
        body = given.pop(BODY, None)
        target = _target(endpoint.path, *names, **given)
        return await self._ask(
            endpoint.gives,
            target,
            method=endpoint.method,
            body=body,
            timeout_s=endpoint.within_s,
        )

    async def upload(self, data: bytes, *, mime: str, name: str) -> wire.MediaOut:
        """Store a file for the holder of the token. Raises `Ambiguous` if the connection breaks; a
        repeat may store it twice."""
        request = local_http.HttpRequest(
            method="POST",
            target="/api/media",
            headers={**self._headers, "X-Filename": _quoted(name)},
            body=data,
            mime=mime,
        )
        return await self._sent(wire.MediaOut, request, timeout_s=ANSWER_S)

    async def watch(
        self, conversation: str, *, after: str | None
    ) -> AsyncGenerator[tuple[str, News], None]:
        """Yield what happens in a conversation, each with the position to continue from. Ends with
        the connection."""
        target = _target("/api/conversations/{name}/events", conversation)
        position = {"Last-Event-ID": after} if after else {}
        request = local_http.HttpRequest(target=target, headers=self._headers | position)
        events = _Events()
        try:
            async with local_http.asked(self._way(), request, silence_s=SILENCE_S) as answer:
                if answer.status != 200:
                    raise _refusal(answer.status, await answer.whole(bytes_max=ANSWER_BYTES_MAX))
                while piece := await answer.piece():
                    for told in events.fed(piece):
                        yield told
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise _translated(error, self.url) from error

    def _way(self) -> Path:
        """Return the socket that was proven last."""
        if self._socket is None:
            raise _unreachable(self.url)
        return self._socket

    async def _ask(
        self,
        shape: type[T],
        path: str,
        *,
        method: str = "GET",
        body: object = None,
        timeout_s: float = ANSWER_S,
    ) -> T:
        data = None if body is None else msgspec.json.encode(body)
        request = local_http.HttpRequest(
            method=method, target=path, headers=self._headers, body=data
        )
        return await self._sent(shape, request, timeout_s=timeout_s)

    async def _sent(
        self, shape: type[T], request: local_http.HttpRequest, *, timeout_s: float
    ) -> T:
        """Make one request, and decode its answer. Raises the node's own error if it refuses,
        `Transient` if it cannot be reached, and `Ambiguous` if the request may have arrived."""
        try:
            async with time_limit(timeout_s), local_http.asked(self._way(), request) as answer:
                status, raw = answer.status, await answer.whole(bytes_max=ANSWER_BYTES_MAX)
        except (OSError, ValueError) as error:
            raise _translated(error, self.url) from error
        if status >= 300:
            raise _refusal(status, raw)
        return _decoded(raw, shape, self.url)


def _target(path: str, *names: object, **query: object) -> str:
    """Return a path with its placeholders filled in, in order, and with the query."""
    left = iter(names)
    filled = _NAME.sub(lambda _: _quoted(next(left)), path)
    given = [f"{key}={_quoted(each)}" for key, each in query.items() if each is not None]
    return f"{filled}?{'&'.join(given)}" if given else filled


def _quoted(value: object) -> str:
    return quote(str(value), safe="", errors="replace")


class _Events:
    """Reads server-sent events out of a stream that may be cut anywhere. An event counts once its
    blank line has arrived. Events of unknown kinds are skipped."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._fields: dict[str, str] = {}

    def fed(self, piece: bytes) -> Iterator[tuple[str, News]]:
        """Yield the events that are complete now. Raises `ValueError` if a line is too long, and
        `msgspec.MsgspecError` if an event cannot be decoded."""
        *lines, rest = piece.split(b"\n")
        for line in lines:
            self._held += line
            yield from self._line(self._held.decode().rstrip("\r"))
            self._held.clear()
        self._held += rest
        if len(self._held) > LINE_BYTES_MAX:
            raise ValueError(f"a line is longer than {LINE_BYTES_MAX:,} bytes")

    def _line(self, line: str) -> Iterator[tuple[str, News]]:
        if line:
            name, _, text = line.partition(":")
            self._fields[name] = text.removeprefix(" ")
            return
        fields, self._fields = self._fields, {}
        decoder = _NEWS.get(fields.get("event", ""))
        if decoder is not None:
            yield fields.get("id", ""), decoder.decode(fields.get("data", ""))


def _decoded(raw: bytes, shape: type[T], url: str) -> T:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.MsgspecError as error:
        raise Transient(
            f"what answers at {url} is not this version of Perdure ({error})", code="foreign"
        ) from error


def _refusal(status: int, raw: bytes) -> PerdureError:
    """Return the error that the node reported, with its own text."""
    try:
        problem = msgspec.json.decode(raw, type=wire.ErrorOut).error
    except msgspec.MsgspecError:
        return Transient(f"the node answered with HTTP status {status}", code="foreign")
    if problem.retryable:
        return Transient(problem.message, code=problem.code)
    if status == 409:
        return Conflict(problem.message, code=problem.code)
    return (NotFound if status == 404 else Rejected)(problem.message, code=problem.code)


def _translated(error: Exception, url: str) -> PerdureError:
    """Return the error of ours for a broken connection."""
    if isinstance(error, local_http.NobodyListens):
        return _unreachable(url)
    # In all other cases the request may have arrived.
    if isinstance(error, OSError):
        how = "was silent for too long" if isinstance(error, TimeoutError) else "broke off"
        return Ambiguous(f"the connection to {url} {how}; look before you repeat")
    return Ambiguous(f"what came from {url} cannot be read ({error}); look before you repeat")


def _unreachable(url: str) -> Transient:
    return Transient(f"nothing answers at {url}; is the node running?", code=UNREACHABLE)


def _unknown_token(url: str) -> str:
    return (
        f"the node at {url} does not know the token of this home; set {TOKEN_VARIABLE} to the "
        f"one it was started with, or check --home"
    )
