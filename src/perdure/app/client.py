"""A running node, spoken to over HTTP.

`server.json` in the home is a hint: it outlives a killed node, and its port may by now belong to
somebody else. So a node counts as running when the address answers as a Perdure that has the
process id of the hint; whether there is one that does not answer, `presence` knows. A node that was
restarted may sit at another port; `look_again` finds it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from perdure.app.environment import TOKEN_FILE, TOKEN_VARIABLE
from perdure.app.presence import hint, silent_node
from perdure.domain.errors import (
    Ambiguous,
    Conflict,
    NotFound,
    PerdureError,
    Rejected,
    Transient,
)
from perdure.domain.watching import NAMES, News, Position
from perdure.ports.gateway import Report
from perdure.web import wire

T = TypeVar("T")
CONNECT_S: Final = 2.0
PROBE_S: Final = 5.0
ANSWER_S: Final = 60.0
VERIFY_S: Final = 3600.0
# A node says at least that it is still there four times as often.
SILENCE_S: Final = 60.0
# The longest line of an event stream: one message whole.
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
# Of an error: nobody was there to take the call.
UNREACHABLE: Final = "unreachable"
# Before everything: what a watcher sends who wants a conversation from its first event on.
BEGINNING: Final = str(Position(1, 0))

_NEWS: Final = {name: msgspec.json.Decoder(kind) for kind, name in NAMES.items()}


@asynccontextmanager
async def node_client(home: Path, environ: Mapping[str, str]) -> AsyncIterator["NodeClient | None"]:
    """The client of this home's node, or None when none runs."""
    async with seeking_client(home, environ) as client:
        yield client if await client.look_again() else None


@asynccontextmanager
async def seeking_client(home: Path, environ: Mapping[str, str]) -> AsyncIterator["NodeClient"]:
    """A client that has not looked for the node yet."""
    headers = _authorization(home, environ)
    async with aiohttp.ClientSession(headers=headers, read_bufsize=LINE_BYTES_MAX) as http:
        yield NodeClient(http, home, environ)


def _authorization(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    token = environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        try:
            token = (home / TOKEN_FILE).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return {}
    return {"Authorization": f"Bearer {token}"} if token.isprintable() else {}


class NodeClient:
    def __init__(self, http: aiohttp.ClientSession, home: Path, environ: Mapping[str, str]) -> None:
        self._http = http
        self._home = home
        self._environ = environ
        self._base = ""
        self.pid = 0
        self.port = 0

    @property
    def url(self) -> str:
        return self._base

    async def look_again(self) -> bool:
        """Find where the node is now. Raises `Rejected` when it does not take our token."""
        found = hint(self._home)
        if found is None:
            return False
        self._base, self.pid, self.port = found.url, found.pid, found.port
        try:
            status = await self._ask(wire.StatusOut, "/api/status", timeout_s=PROBE_S)
        except Rejected as error:
            # Somebody answers there; where that is no node of this home, it is somebody else's.
            is_ours = silent_node(self._home, self._environ) == found.pid
            if error.code == "unauthorized" and is_ours:
                raise Rejected(_unknown_token(found.url), code="unauthorized") from error
            return False
        except PerdureError:
            return False
        return status.pid == found.pid

    async def status(self) -> wire.StatusOut:
        return await self._ask(wire.StatusOut, "/api/status", timeout_s=PROBE_S)

    async def drain(self, *, is_replaced: bool = False) -> None:
        """`is_replaced`: we take its place, so what it parks goes on at once."""
        query = "?replaced=true" if is_replaced else ""
        await self._ask(dict[str, str], f"/api/drain{query}", method="POST")

    async def restart(self) -> None:
        await self._ask(dict[str, str], "/api/restart", method="POST")

    async def verify(self) -> Report | None:
        """None: this node cannot do it."""
        try:
            return await self._ask(Report, "/api/verify", timeout_s=VERIFY_S)
        except NotFound:
            return None

    async def sessions(self, *, limit: int, after: str | None) -> wire.SessionsOut:
        return await self._ask(wire.SessionsOut, _path("sessions", limit=limit, cursor=after))

    async def session(self, session: str) -> wire.SessionOut:
        return await self._ask(wire.SessionOut, _path("sessions", session))

    async def session_transcript(
        self, session: str, *, before: str | None, limit: int
    ) -> wire.TranscriptOut:
        path = _path("sessions", session, "transcript", limit=limit, cursor=before)
        return await self._ask(wire.TranscriptOut, path)

    async def session_of(self, conversation: str) -> str:
        """The live session of one of our own conversations."""
        found = await self._ask(wire.ConversationOut, _path("conversations", conversation))
        return found.session

    async def journal(self, session: str, *, after: int, limit: int) -> wire.JournalOut:
        path = _path("sessions", session, "journal", after=after, limit=limit)
        return await self._ask(wire.JournalOut, path)

    async def search(self, query: str, *, limit: int, after: str | None) -> wire.SearchOut:
        path = _path("search", q=query, limit=limit, before=after)
        return await self._ask(wire.SearchOut, path)

    async def explain(self, any_id: str) -> wire.ExplanationOut:
        return await self._ask(wire.ExplanationOut, _path("explain", any_id))

    async def send(self, to: str, text: str, *, client_id: str | None) -> wire.SendOut:
        """Safe to repeat with the same id: the node knows it."""
        body = wire.SendIn(to=to, text=text, id=client_id)
        return await self._ask(wire.SendOut, _path("send"), method="POST", body=body)

    async def places(self, *, limit: int, after: str | None) -> wire.PlacesOut:
        return await self._ask(wire.PlacesOut, _path("places", limit=limit, cursor=after))

    async def pairings(self) -> wire.PairingsOut:
        return await self._ask(wire.PairingsOut, _path("pairings"))

    async def approve(self, code: str) -> wire.PairingOut:
        path, body = _path("pairings", "approve"), wire.ApproveIn(code=code)
        return await self._ask(wire.PairingOut, path, method="POST", body=body)

    async def unpair(self, pairing: str) -> wire.PairingOut:
        return await self._ask(wire.PairingOut, _path("pairings", pairing), method="DELETE")

    async def parked(self, *, limit: int, after: str | None) -> wire.ParkedOut:
        return await self._ask(wire.ParkedOut, _path("parked", limit=limit, cursor=after))

    async def parked_part(self, part: str) -> wire.PartOut:
        return await self._ask(wire.PartOut, _path("parked", part))

    async def replay(self, part: str, *, force: bool) -> wire.PartOut:
        path, body = _path("parked", part, "replay"), wire.ReplayIn(force=force)
        return await self._ask(wire.PartOut, path, method="POST", body=body)

    async def drop(self, part: str) -> wire.PartOut:
        return await self._ask(wire.PartOut, _path("parked", part), method="DELETE")

    async def tokens(self) -> wire.TokensOut:
        return await self._ask(wire.TokensOut, _path("tokens"))

    async def grant(self, name: str) -> wire.TokenOut:
        body = wire.TokenIn(name=name)
        return await self._ask(wire.TokenOut, _path("tokens"), method="POST", body=body)

    async def revoke(self, which: str) -> wire.TokenOut:
        return await self._ask(wire.TokenOut, _path("tokens", which), method="DELETE")

    async def transcript(self, conversation: str, *, limit: int) -> wire.TranscriptOut:
        path = _path("conversations", conversation, "transcript", limit=limit)
        return await self._ask(wire.TranscriptOut, path)

    async def post(self, conversation: str, text: str, *, client_id: str) -> wire.MessageOut:
        """Safe to repeat with the same id: the node knows it."""
        path = _path("conversations", conversation, "messages")
        body = wire.MessageIn(text=text, id=client_id)
        return await self._ask(wire.MessageOut, path, method="POST", body=body)

    async def stop_turn(self, turn: str) -> wire.TurnOut:
        return await self._ask(wire.TurnOut, _path("turns", turn, "stop"), method="POST")

    async def watch(
        self, conversation: str, *, after: str | None
    ) -> AsyncGenerator[tuple[str, News], None]:
        """What happens, each with the id to go on from. Ends with the connection."""
        url = URL(self._base + _path("conversations", conversation, "events"), encoded=True)
        headers = {"Last-Event-ID": after} if after else {}
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=SILENCE_S)
        try:
            async with self._http.get(url, headers=headers, timeout=timeout) as response:
                if response.status != 200:
                    raise _refusal(response.status, await response.read())
                async for told in _events(response.content):
                    yield told
        except (aiohttp.ClientError, OSError, ValueError, msgspec.MsgspecError) as error:
            raise _translated(error, self._base) from error

    async def _ask(
        self,
        shape: type[T],
        path: str,
        *,
        method: str = "GET",
        body: msgspec.Struct | None = None,
        timeout_s: float = ANSWER_S,
    ) -> T:
        data = None if body is None else msgspec.json.encode(body)
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            async with self._http.request(
                method, URL(self._base + path, encoded=True), data=data, timeout=timeout
            ) as response:
                status, raw = response.status, await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error, self._base) from error
        if status >= 300:
            raise _refusal(status, raw)
        return _decoded(raw, shape, self._base)


def _path(*parts: str, **query: str | int | None) -> str:
    path = "/".join(["/api", *(_quoted(part) for part in parts)])
    given = [f"{key}={_quoted(str(each))}" for key, each in query.items() if each is not None]
    return f"{path}?{'&'.join(given)}" if given else path


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


async def _events(lines: aiohttp.StreamReader) -> AsyncIterator[tuple[str, News]]:
    """Server-sent events of kinds we know; an event counts once its blank line is there."""
    fields: dict[str, str] = {}
    async for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        decoder = _NEWS.get(fields.get("event", ""))
        if decoder is not None:
            yield fields.get("id", ""), decoder.decode(fields["data"])
        fields = {}


def _decoded(raw: bytes, shape: type[T], url: str) -> T:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.MsgspecError as error:
        raise Transient(
            f"what answers at {url} is not this version of Perdure ({error})", code="foreign"
        ) from error


def _refusal(status: int, raw: bytes) -> PerdureError:
    """The node's own words, as the error that they were."""
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
    if isinstance(error, aiohttp.ClientConnectorError):
        return Transient(f"nothing answers at {url}; is the node running?", code=UNREACHABLE)
    # From here on the request may have arrived.
    if isinstance(error, aiohttp.ClientError | OSError):
        how = "was silent for too long" if isinstance(error, TimeoutError) else "broke off"
        return Ambiguous(f"the connection to {url} {how}; look before you repeat")
    return Ambiguous(f"what came from {url} cannot be read ({error}); look before you repeat")


def _unknown_token(url: str) -> str:
    return (
        f"the node at {url} does not know the token of this home; set {TOKEN_VARIABLE} to the "
        f"one it was started with, or check --home"
    )
