"""Serves what `hostile_mcp` serves, as streamable HTTP at `/mcp`: `--port`, and `--token` if a
bearer token is needed. `GET /ready` answers 200."""

import contextlib
import json
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

from tests.peers import hostile_mcp as wire

SESSION = "Mcp-Session-Id"


class Session(wire.Connection):
    """Holds one session. What belongs to no call waits for the stream that the client opens."""

    def __init__(self, server: wire.Server) -> None:
        super().__init__(server, self._route)
        self.unasked: SimpleQueue[Any] = SimpleQueue()
        self.streams: dict[Any, Handler] = {}

    def _route(self, message: Any, call: wire.Call | None) -> None:
        stream = self.streams.get(call.identity) if call is not None else None
        if stream is None:
            self.unasked.put(message)
        else:
            stream.send_event(message)


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one TCP connection."""

    protocol_version = "HTTP/1.1"
    shared: wire.Server
    token = ""

    def do_POST(self) -> None:
        """Take one message of the client."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with contextlib.suppress(ConnectionError):
            if not self._is_refused():
                self._take(json.loads(body))

    def do_GET(self) -> None:
        """Send what belongs to no call, for as long as the client listens."""
        if self.path == "/ready":
            self._answer(200)
            return
        session = None if self._is_refused() else self._session()
        if session is None:
            return
        with contextlib.suppress(ConnectionError):
            self._begin_stream()
            while True:
                self.send_event(session.unasked.get())

    def do_DELETE(self) -> None:
        """End a session."""
        self.shared.sessions.pop(self.headers.get(SESSION, ""), None)
        self._answer(200)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the library names it
        """Print nothing."""

    def send_event(self, message: Any) -> None:
        self.wfile.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
        self.wfile.flush()

    def _take(self, message: dict[str, Any]) -> None:
        method = message.get("method", "")
        session = self._new_session() if method == "initialize" else self._session()
        if session is None:
            return
        session.headers = {name.lower(): value for name, value in self.headers.items()}
        if "id" not in message or not method:
            wire.take_notification(session, message)
            if "forgetful" in self.shared.mischief and method == "notifications/initialized":
                self.shared.sessions.clear()
            self._answer(202)
        elif wire.is_unanswered(self.shared, method):
            session.unasked.get()
        elif method == "tools/call":
            self._call(session, wire.Call(session, message))
        else:
            headers = {SESSION: self._named(session)} if method == "initialize" else {}
            self._answer(200, wire.answer_request(session, message), headers)

    def _call(self, session: Session, call: wire.Call) -> None:
        mischief = self.shared.mischief
        if "accepts_requests" in mischief:
            call.ran()
            self._answer(202)
        elif "dies_without_ids" in mischief:
            call.ran()
            self._begin_stream()
            self.send_event({"jsonrpc": "2.0", "method": "notifications/message", "params": NOTICE})
        elif "plain" in mischief:
            session.write = lambda message, _: self._answer(200, message)
            wire.run_call(call)
        else:
            self._begin_stream()
            session.streams[call.identity] = self
            wire.run_call(call)
            session.streams.pop(call.identity, None)

    def _is_refused(self) -> bool:
        """Answer instead of the server, if the mischief says so."""
        mischief = self.shared.mischief
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if "unauthorized" in mischief or (self.token and token != self.token):
            self._answer(401, headers={"WWW-Authenticate": "Bearer"})
        elif "unavailable" in mischief:
            self._answer(500)
        elif "redirects" in mischief:
            self._answer(307, headers={"Location": "http://127.0.0.2:9/mcp"})
        elif "page" in mischief:
            self._answer(200, "<h1>Welcome</h1>", {"Content-Type": "text/html"})
        else:
            return False
        return True

    def _new_session(self) -> Session:
        session = Session(self.shared)
        self.shared.sessions[secrets.token_hex(8)] = session
        return session

    def _named(self, session: Session) -> str:
        known = self.shared.sessions.items()
        return next((name for name, each in known if each is session), "forgotten")

    def _session(self) -> Session | None:
        """Return the session that the request names, or refuse the request."""
        session = self.shared.sessions.get(self.headers.get(SESSION, ""))
        if isinstance(session, Session):
            return session
        self._answer(400 if "bad_request" in self.shared.mischief else 404)
        return None

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _answer(
        self, status: int, body: object = None, headers: dict[str, str] | None = None
    ) -> None:
        given = headers or {}
        words = (
            b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        )
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | given).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)


NOTICE = {"level": "info", "data": "the stream ends after this"}


class RoomyServer(ThreadingHTTPServer):
    """Lets many connect at the same instant. With the usual line of five, the kernel drops some of
    a hundred, and their requests hang."""

    request_queue_size = 512


def main() -> None:
    """Read the options, and serve."""
    parser = wire.options()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", default="", help="answer 401 without this bearer token")
    given = parser.parse_args()
    Handler.shared, Handler.token = wire.Server(given), given.token
    server = RoomyServer(("127.0.0.1", given.port), Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main()
