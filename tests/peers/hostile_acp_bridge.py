"""Connects the hostile agent to the servers of tools that its client names: over HTTP, or as a
program on standard input and output. It is a small client of MCP without any package."""

import http.client
import json
import os
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any

VERSION = "2025-06-18"
ANSWER_S = 60
CALL_S = 3600


class BridgeFailed(Exception):
    """Says why there is no answer."""


class Link:
    """Connects to one server. `shake_hands` comes first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tools: list[str] = []
        self._count = 0
        self._lock = threading.Lock()

    def shake_hands(self) -> None:
        """Introduce the agent, and list the tools."""
        about = {"name": "hostile-agent", "version": "1"}
        params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about}
        self.request("initialize", params)
        self.notify("notifications/initialized", {})
        self.list()

    def list(self) -> None:
        listed = self.request("tools/list", {})["tools"]
        self.tools = [str(each["name"]) for each in listed]

    def call(self, name: str, arguments: object, is_cancelled: threading.Event) -> dict[str, Any]:
        """Call a tool, and return its result. A cancelled call is given up, and the server told."""
        identity = self._next()
        answers: SimpleQueue[Any] = SimpleQueue()

        def work() -> None:
            params = {"name": name, "arguments": arguments}
            try:
                answers.put(self._sent(identity, "tools/call", params, CALL_S))
            except (BridgeFailed, OSError, http.client.HTTPException, ValueError) as error:
                answers.put(error)

        threading.Thread(target=work, daemon=True).start()
        while True:
            try:
                answer = answers.get(timeout=0.02)
            except Empty:
                if not is_cancelled.is_set():
                    continue
                self.notify("notifications/cancelled", {"requestId": identity})
                raise BridgeFailed("cancelled") from None
            if isinstance(answer, Exception):
                raise BridgeFailed(f"{type(answer).__name__}: {answer}")
            result: dict[str, Any] = answer
            return result

    def request(self, method: str, params: object) -> dict[str, Any]:
        return self._sent(self._next(), method, params, ANSWER_S)

    def _next(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def _sent(self, identity: int, method: str, params: object, wait_s: float) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        answer = self.exchange(message, wait_s)
        if answer is None or "result" not in answer:
            raise BridgeFailed(json.dumps(answer))
        result: dict[str, Any] = answer["result"]
        return result

    def notify(self, method: str, params: object) -> None:
        raise NotImplementedError

    def exchange(self, message: dict[str, Any], wait_s: float) -> dict[str, Any] | None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class HttpLink(Link):
    """Connects to a server at a URL, each request on a connection of its own."""

    def __init__(self, entry: dict[str, Any]) -> None:
        super().__init__(entry["name"])
        self._url = urllib.parse.urlsplit(entry["url"])
        self._headers = {each["name"]: each["value"] for each in entry.get("headers") or []}
        self._headers |= {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }

    def notify(self, method: str, params: object) -> None:
        self.exchange({"jsonrpc": "2.0", "method": method, "params": params}, ANSWER_S)

    def exchange(self, message: dict[str, Any], wait_s: float) -> dict[str, Any] | None:
        connection = http.client.HTTPConnection(self._url.netloc, timeout=wait_s)
        try:
            body = json.dumps(message).encode()
            connection.request("POST", self._url.path or "/", body, self._headers)
            answer = connection.getresponse()
            if answer.status >= 300:
                raise BridgeFailed(f"status {answer.status}: {answer.read(200)!r}")
            session = answer.getheader("Mcp-Session-Id")
            if session:
                self._headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": VERSION}
            return _answer_to(message.get("id"), answer)
        finally:
            connection.close()

    def close(self) -> None:
        """Leave the session to its server."""


def _answer_to(identity: object, answer: http.client.HTTPResponse) -> dict[str, Any] | None:
    if answer.status == 202:
        return None
    kind = answer.getheader("Content-Type", "")
    messages = _events(answer) if kind.startswith("text/event-stream") else iter([answer.read()])
    for raw in messages:
        message: dict[str, Any] = json.loads(raw)
        if message.get("id") == identity and "method" not in message:
            return message
    return None


def _events(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    data = b""
    for line in answer:
        if line.startswith(b"data:"):
            data += line[5:].strip()
        elif not line.strip() and data:
            yield data
            data = b""


class StdioLink(Link):
    """Starts a server as a program, and speaks with it line by line."""

    def __init__(self, entry: dict[str, Any]) -> None:
        super().__init__(entry["name"])
        given = {each["name"]: each["value"] for each in entry.get("env") or []}
        # Its errors go where those of the agent go.
        self._process = subprocess.Popen(
            [entry["command"], *entry.get("args", [])],
            env={**os.environ, **given},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._waiting: dict[object, SimpleQueue[Any]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def notify(self, method: str, params: object) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def exchange(self, message: dict[str, Any], wait_s: float) -> dict[str, Any] | None:
        queue: SimpleQueue[Any] = SimpleQueue()
        self._waiting[message["id"]] = queue
        self._write(message)
        try:
            answer: dict[str, Any] | None = queue.get(timeout=wait_s)
        except Empty:
            raise BridgeFailed("no answer in time") from None
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _write(self, message: object) -> None:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            queue = self._waiting.pop(message.get("id"), None)
            if queue is not None and "method" not in message:
                queue.put(message)
        self._process.wait()
        for queue in list(self._waiting.values()):
            queue.put(None)


def opened(entry: dict[str, Any]) -> Link:
    """Return a link to the server of an entry as clients write it, after the handshake."""
    link: Link = HttpLink(entry) if entry.get("type") == "http" else StdioLink(entry)
    try:
        link.shake_hands()
    except BaseException:
        link.close()
        raise
    return link
