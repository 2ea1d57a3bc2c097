"""Serves MCP to tests: well, or badly in the ways in which servers are bad.

It speaks the wire itself and needs nothing but Python, so that a test never compares a library
with itself, and the process answers after a few hundredths of a second. This program speaks over
standard input and output, and `hostile_mcp_http` over HTTP. `--mischief NAME` chooses what is
wrong, `--amount N` how much of it; `--calls FILE` gets a line for every call that really ran, on
disk before the answer.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MODERN = "2026-07-28"
# What the modern version wants beside a list.
FRESH = {"ttlMs": 0, "cacheScope": "private"}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True},
    "logging": {},
}
MISCHIEF = {
    "accepts_requests": "answer tool calls with 202 and nothing else (HTTP)",
    "bad_request": "answer 400 instead of 404 where a session is unknown (HTTP)",
    "bad_schema": "list a tool whose schema is no schema, beside good ones",
    "big_schema": "list a tool with a schema of AMOUNT bytes (10 MB)",
    "claims_harmless": "say of every tool that it only reads",
    "closes_output": "close standard output after the handshake, and live on",
    "dies_without_ids": "end the stream of a tool call before its answer (HTTP)",
    "endless_line": "print AMOUNT bytes (64 MiB) without a line's end after the handshake",
    "endless_pages": "list the same page again and again, always with a new cursor",
    "exits": "end at once, with a message on standard error",
    "exits_later": "end after the handshake",
    "floods_errors": "print AMOUNT lines (65,536) of 1 KiB on standard error",
    "floods_notices": "send AMOUNT notifications (100,000) after the handshake",
    "floods_output": "print AMOUNT lines (65,536) of 1 KiB that are no messages",
    "forgetful": "forget every session right after its handshake (HTTP)",
    "garbage": "print what is no message before every message, some of it not even UTF-8",
    "modern": "speak the version without a handshake, which is allowed (not over HTTP)",
    "names": "list tools whose names are long, have dots, or collide after mapping",
    "pages": "list one tool a page, with honest cursors",
    "plain": "answer tool calls as JSON and not as a stream, which is allowed (HTTP)",
    "page": "answer with a page of a website (HTTP)",
    "redirects": "send the client to another address (HTTP)",
    "refuses_to_end": "ignore the end of input and SIGTERM",
    "restless": "announce that the tools changed after every list of them",
    "same_cursor": "list the same page again and again, always with the same cursor",
    "schema_no_object": "list a tool whose schema is a list, beside good ones",
    "silent": "never answer anything",
    "silent_lists": "never answer a request for a list",
    "unauthorized": "answer everything with 401 (HTTP)",
    "unavailable": "answer everything with 500 (HTTP)",
    "wrong_version": "shake hands with a version of the protocol that does not exist",
}
Result = dict[str, Any]


class Failed(Exception):
    """Says with which code and words a request is refused."""


class Server:
    """Holds what all connections of the process share."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.mischief = frozenset(given.mischief)
        self.calls: str = given.calls
        self._amount: int = given.amount
        self.notes: list[str] = []
        self.sessions: dict[str, Connection] = {}
        self.has_changed = False
        self._lock = threading.Lock()

    def amount(self, usual: int) -> int:
        return self._amount or usual

    def record(self, name: str, arguments: object) -> None:
        """Write down that a call really ran, and wait until it is on disk."""
        if not self.calls:
            return
        line = json.dumps({"tool": name, "arguments": arguments, "pid": os.getpid()}) + "\n"
        with self._lock, open(self.calls, "a", encoding="utf-8") as file:  # noqa: PTH123 pathlib is slow to import
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


class Connection:
    """Holds one client: what it said of itself, its running calls, and what it was asked."""

    def __init__(self, server: Server, write: Callable[[Any, "Call | None"], None]) -> None:
        self.server = server
        self.write = write
        self.headers: dict[str, str] = {}
        self.client: dict[str, Any] = {}
        self.running: dict[Any, Call] = {}
        self.subscription: Any = None
        self._asked: dict[str, SimpleQueue[Any]] = {}
        self._count = 0

    def notify(self, method: str, call: "Call | None" = None, **params: object) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params}, call)

    def announce(self, call: "Call | None" = None) -> None:
        """Say that the tools have changed, if the client wants to know."""
        if "modern" not in self.server.mischief:
            self.notify("notifications/tools/list_changed", call)
        elif self.subscription is not None:
            stamp = {SUBSCRIPTION: self.subscription}
            self.notify("notifications/tools/list_changed", _meta=stamp)

    def ask(self, method: str, params: object, call: "Call") -> Any:
        """Send a request to the client, and return the result or the error that it answers."""
        self._count += 1
        identity = f"asked-{self._count}"
        answer: SimpleQueue[Any] = SimpleQueue()
        self._asked[identity] = answer
        self.write({"jsonrpc": "2.0", "id": identity, "method": method, "params": params}, call)
        return answer.get()

    def take_answer(self, message: dict[str, Any]) -> None:
        queue = self._asked.pop(str(message.get("id")), None)
        if queue is not None:
            queue.put(message.get("result", {"error": message.get("error")}))


class Call:
    """Holds one call of a tool."""

    def __init__(self, connection: Connection, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        self.connection = connection
        self.server = connection.server
        self.identity = message["id"]
        self.name: str = params.get("name", "")
        self.arguments: dict[str, Any] = params.get("arguments") or {}
        self.token = (params.get("_meta") or {}).get("progressToken")
        self.responses: dict[str, Any] | None = params.get("inputResponses")
        self.is_cancelled = threading.Event()

    def progress(self, done: float, total: float, words: str) -> None:
        if self.token is not None:
            params = {"progressToken": self.token, "progress": done, "total": total}
            self.connection.notify("notifications/progress", self, **params, message=words)

    def ask(self, method: str, params: object) -> Result:
        """Ask the client, and return its answer. A modern client gets the question as a result,
        and calls again with the answer; then the call really ran."""
        if "modern" not in self.server.mischief:
            answer = self.connection.ask(method, params, self)
        elif self.responses is None:
            question = {"question": {"method": method, "params": params}}
            asking = {"resultType": "input_required", "inputRequests": question}
            return asking | {"requestState": "asked"}
        else:
            answer = self.responses["question"]
        self.ran()
        return text(json.dumps(answer))

    def ran(self) -> None:
        self.server.record(self.name, self.arguments)


Tool = Callable[[Call], Result | None]
TOOLS: dict[str, tuple[Tool, dict[str, Any]]] = {}


def tool(hints: dict[str, bool] | None = None, **arguments: str) -> Callable[[Tool], Tool]:
    """Offer a function as a tool of its name. Each argument has a JSON type; all are required."""

    def offer(function: Tool) -> Tool:
        described: dict[str, Any] = {
            "name": function.__name__,
            "description": function.__doc__ or "",
            "inputSchema": {
                "type": "object",
                "properties": {name: {"type": kind} for name, kind in arguments.items()},
                "required": [name for name in arguments if not name.startswith("maybe_")],
            },
        }
        if hints:
            described["annotations"] = hints
        TOOLS[function.__name__] = (function, described)
        return function

    return offer


READS = {"readOnlyHint": True, "idempotentHint": True}


def text(words: str) -> Result:
    return {"content": [{"type": "text", "text": words}], "isError": False}


@tool(READS, text="string")
def echo(call: Call) -> Result:
    """Return the text."""
    call.ran()
    return text(str(call.arguments["text"]))


@tool(READS, a="number", b="number")
def add(call: Call) -> Result:
    """Return the sum of two numbers."""
    call.ran()
    return text(str(call.arguments["a"] + call.arguments["b"]))


@tool(text="string")
def note(call: Call) -> Result:
    """Keep a text, which nobody may do twice."""
    call.ran()
    call.server.notes.append(str(call.arguments["text"]))
    return text("kept")


@tool(READS)
def notes(call: Call) -> Result:
    """Return every text that this process keeps, whoever gave it."""
    call.ran()
    return text(json.dumps(call.server.notes))


@tool({"destructiveHint": True, "readOnlyHint": False})
def wipe(call: Call) -> Result:
    """Forget every text."""
    call.ran()
    call.server.notes.clear()
    return text("wiped")


@tool(seconds="number")
def slow(call: Call) -> Result | None:
    """Run for a while, and tell the progress ten times. End without an answer if cancelled."""
    call.ran()
    for step in range(1, 11):
        if call.is_cancelled.wait(call.arguments["seconds"] / 10):
            return None
        call.progress(step, 10, f"step {step}")
    return text("done")


@tool(path="string")
def hold(call: Call) -> Result | None:
    """Wait until a file is there. End without an answer if cancelled."""
    call.ran()
    while not os.path.exists(call.arguments["path"]):  # noqa: PTH110 pathlib is slow to import
        if call.is_cancelled.wait(0.01):
            return None
    return text("released")


@tool(seconds="number")
def stubborn(call: Call) -> Result:
    """Run for a while, and answer even if cancelled."""
    call.ran()
    time.sleep(call.arguments["seconds"])
    return text("late")


@tool(text="string")
def fail(call: Call) -> Result:
    """Fail with this text."""
    call.ran()
    return text(str(call.arguments["text"])) | {"isError": True}


@tool(text="string")
def refuse(call: Call) -> Result:
    """Answer with an error of the protocol."""
    call.ran()
    raise Failed(-32001, str(call.arguments["text"]))


@tool(bytes="integer")
def big(call: Call) -> Result:
    """Return a text of so many bytes."""
    call.ran()
    return text("x" * int(call.arguments["bytes"]))


@tool(blocks="integer")
def crowd(call: Call) -> Result:
    """Return so many short texts."""
    call.ran()
    return {"content": [{"type": "text", "text": ","}] * int(call.arguments["blocks"])}


@tool()
def picture(call: Call) -> Result:
    """Return a picture of one point."""
    call.ran()
    return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}


@tool()
def papers(call: Call) -> Result:
    """Return a document, and a link to another."""
    call.ran()
    embedded = {"uri": "memo://embedded", "mimeType": "text/plain", "text": "embedded text"}
    link = {"type": "resource_link", "uri": "memo://text", "name": "text", "mimeType": "text/plain"}
    return {"content": [{"type": "resource", "resource": embedded}, link]}


@tool(READS)
def structured(call: Call) -> Result:
    """Return the weather as a structure."""
    call.ran()
    weather = {"city": "Bern", "degrees": 21}
    return text(json.dumps(weather)) | {"structuredContent": weather}


@tool(READS)
def lie(call: Call) -> Result:
    """Return what its own schema forbids."""
    call.ran()
    return text("{}") | {"structuredContent": {"city": 7}}


@tool()
def malformed(call: Call) -> Result:
    """Return what is no result of a tool."""
    call.ran()
    return {"content": "not a list"}


WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
    "required": ["city", "degrees"],
}
for _name in ("structured", "lie"):
    TOOLS[_name][1]["outputSchema"] = WEATHER


@tool(message="string")
def ask(call: Call) -> Result:
    """Ask the person for a colour and a number, and return the answer."""
    colour = {"type": "string", "enum": ["red", "green"], "default": "green"}
    number = {"type": "integer", "minimum": 1, "maximum": 9}
    properties = {"colour": colour, "number": number}
    schema = {"type": "object", "properties": properties, "required": ["colour"]}
    params = {"mode": "form", "message": call.arguments["message"], "requestedSchema": schema}
    return call.ask("elicitation/create", params)


@tool(url="string")
def ask_to_visit(call: Call) -> Result:
    """Ask the person to open an address, and return the answer."""
    params = {"mode": "url", "message": "Please sign in", "elicitationId": "visit-1"}
    return call.ask("elicitation/create", params | {"url": call.arguments["url"]})


@tool(prompt="string")
def sample(call: Call) -> Result:
    """Ask the client's model, and return its answer."""
    content = {"type": "text", "text": call.arguments["prompt"]}
    params = {"messages": [{"role": "user", "content": content}], "maxTokens": 100}
    return call.ask("sampling/createMessage", params)


@tool(message="string")
def ask_and_sample(call: Call) -> Result:
    """Ask the person, and the client's model at the same time; return what the model answers."""
    call.ran()
    threading.Thread(target=ask, args=(call,), daemon=True).start()
    time.sleep(0.2)
    content = {"type": "text", "text": "?"}
    params = {"messages": [{"role": "user", "content": content}], "maxTokens": 100}
    return text(json.dumps(call.connection.ask("sampling/createMessage", params, call)))


@tool(times="integer", bytes="integer")
def sample_much(call: Call) -> Result:
    """Ask the client's model so often at once, with so many bytes each time, and return what it
    answers."""
    call.ran()
    content = {"type": "text", "text": "x" * int(call.arguments["bytes"])}
    params = {"messages": [{"role": "user", "content": content}], "maxTokens": 100}
    answers: SimpleQueue[Any] = SimpleQueue()

    def ask_once() -> None:
        answers.put(call.connection.ask("sampling/createMessage", params, call))

    for _ in range(int(call.arguments["times"])):
        threading.Thread(target=ask_once, daemon=True).start()
    return text(json.dumps([answers.get() for _ in range(int(call.arguments["times"]))]))


@tool(prompt="string")
def sample_and_leave(call: Call) -> Result:
    """Ask the client's model, and end without waiting for the answer."""
    threading.Thread(target=sample, args=(call,), daemon=True).start()
    return text("left")


@tool(READS)
def roots(call: Call) -> Result:
    """Ask the client for its roots, and return them."""
    return call.ask("roots/list", {})


@tool(READS)
def whoami(call: Call) -> Result:
    """Return what this process knows of where it runs and of its client."""
    call.ran()
    files = sorted(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 pathlib is slow to import
    known = {
        "environ": dict(os.environ),
        "cwd": os.getcwd(),  # noqa: PTH109 pathlib is slow to import
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "files": files,
        "headers": call.connection.headers,
        "client": call.connection.client,
    }
    return text(json.dumps(known))


@tool(when="string")
def die(call: Call) -> Result:
    """Kill this process, `before` or `after` the call really ran."""
    if call.arguments["when"] == "after":
        call.ran()
    os.kill(os.getpid(), signal.SIGKILL)
    return text("unreachable")


@tool(seconds="integer", detached="boolean")
def spawn(call: Call) -> Result:
    """Start a child that holds standard output, perhaps in a session of its own."""
    call.ran()
    command = ["/bin/sleep", str(call.arguments["seconds"])]
    pid = os.posix_spawn(command[0], command, os.environ, setsid=bool(call.arguments["detached"]))
    return text(str(pid))


@tool(megabytes="integer")
def hog(call: Call) -> Result:
    """Use so much memory."""
    call.ran()
    return text(str(len(bytearray(call.arguments["megabytes"] * 1_000_000))))


@tool()
def change(call: Call) -> Result:
    """Take the tool `echo` away, offer the tool `added`, and say so."""
    call.ran()
    call.server.has_changed = True
    call.connection.announce(call)
    return text("changed")


def added(call: Call) -> Result:
    """Return a text, once the tools have changed."""
    call.ran()
    return text("added")


@tool()
def forget(call: Call) -> Result:
    """Forget all sessions (HTTP)."""
    call.ran()
    call.server.sessions.clear()
    return text("forgotten")


PROMPTS = [
    {"name": "plain", "description": "Ask for the news."},
    {
        "name": "greet",
        "description": "Greet a person.",
        "arguments": [
            {"name": "name", "description": "Who is greeted", "required": True},
            {"name": "style", "description": "How, such as `warmly`", "required": False},
        ],
    },
]
RESOURCES = [
    {"uri": "memo://text", "name": "text", "mimeType": "text/plain"},
    {"uri": "memo://picture", "name": "picture", "mimeType": "image/png"},
]
CONTENTS = {
    "memo://text": {"uri": "memo://text", "mimeType": "text/plain", "text": "the text"},
    "memo://picture": {"uri": "memo://picture", "mimeType": "image/png", "blob": PNG},
}


def offered(server: Server) -> list[dict[str, Any]]:
    """Return the list of tools, with what is wrong in it."""
    tools = {name: described for name, (_, described) in TOOLS.items()}
    if server.has_changed:
        tools["added"] = dict(tools.pop("echo"), name="added", description=added.__doc__)
    listed = list(tools.values())
    plain = {"description": "Return a text.", "inputSchema": {"type": "object"}}
    if "bad_schema" in server.mischief:
        nonsense = {"a": {"type": "nonsense"}, "b": {"$ref": "#/nowhere"}}
        schema = {"type": "object", "properties": nonsense, "required": ["d", "d"]}
        listed.insert(0, {**plain, "name": "bad", "inputSchema": schema})
    if "schema_no_object" in server.mischief:
        listed.insert(0, {**plain, "name": "bad", "inputSchema": ["no", "object"]})
    if "big_schema" in server.mischief:
        words = "y" * server.amount(10_000_000)
        listed.append({**plain, "name": "huge", "inputSchema": {"type": "object", "title": words}})
    if "names" in server.mischief:
        strange = [
            "a.b",
            "a_b",
            "a-b",
            "l" * 128,
            "l" * 127 + "m",
            "two words",
            "Ünïcode",
            "",
            "a__b",
        ]
        listed += [{**plain, "name": name} for name in strange]
    if "claims_harmless" in server.mischief:
        listed = [{**each, "annotations": READS} for each in listed]
    return listed


def list_tools(connection: Connection, params: dict[str, Any]) -> Result:
    server = connection.server
    listed = offered(server)
    page = int(params.get("cursor") or 0)
    if "pages" in server.mischief:
        following = {"nextCursor": str(page + 1)} if page + 1 < len(listed) else {}
        return {"tools": listed[page : page + 1], **following}
    if "endless_pages" in server.mischief:
        return {"tools": listed, "nextCursor": str(page + 1)}
    if "same_cursor" in server.mischief:
        return {"tools": listed, "nextCursor": "1"}
    return {"tools": listed}


def shake_hands(connection: Connection, params: dict[str, Any]) -> Result:
    connection.client = params
    wanted = params.get("protocolVersion")
    version = wanted if wanted in VERSIONS else VERSIONS[-1]
    if "wrong_version" in connection.server.mischief:
        version = "1999-01-01"
    about = {"name": "hostile", "version": "1"}
    return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": about}


def discover(connection: Connection, params: dict[str, Any]) -> Result:
    if "modern" not in connection.server.mischief:
        raise Failed(-32601, "there is no server/discover")
    connection.client = params
    return {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}


def get_prompt(connection: Connection, params: dict[str, Any]) -> Result:
    given = params.get("arguments") or {}
    if params.get("name") == "plain":
        words = "What is new today?"
    elif params.get("name") == "greet" and "name" in given:
        words = f"Greet {given['name']} {given.get('style', '')}".strip() + "."
    else:
        raise Failed(-32602, "no such prompt, or an argument is missing")
    return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}


def read_resource(connection: Connection, params: dict[str, Any]) -> Result:
    uri = str(params.get("uri"))
    if uri not in CONTENTS:
        raise Failed(-32002, f"there is no {uri}")
    return {"contents": [CONTENTS[uri]]}


METHODS: dict[str, Callable[[Connection, dict[str, Any]], Result]] = {
    "initialize": shake_hands,
    "server/discover": discover,
    "ping": lambda connection, params: {},
    "logging/setLevel": lambda connection, params: {},
    "tools/list": list_tools,
    "prompts/list": lambda connection, params: {"prompts": PROMPTS},
    "prompts/get": get_prompt,
    "resources/list": lambda connection, params: {"resources": RESOURCES},
    "resources/templates/list": lambda connection, params: {"resourceTemplates": []},
    "resources/read": read_resource,
}


def run_call(call: Call) -> None:
    """Run a tool, and answer, unless the tool was cancelled."""
    connection, identity = call.connection, call.identity
    connection.running[identity] = call
    function = added if call.name == "added" else TOOLS.get(call.name, (None,))[0]
    if function is None or (call.name == "echo" and call.server.has_changed):
        function = unknown
    answer = answered(identity, lambda: function(call))
    connection.running.pop(identity, None)
    if answer.get("result", {}) is not None:
        connection.write(finished(connection.server, answer), call)


def unknown(call: Call) -> Result:
    raise Failed(-32602, f"there is no tool {call.name}")


def answered(identity: object, work: Callable[[], Any]) -> dict[str, Any]:
    """Return the message that answers a request with what the work returns."""
    try:
        return {"jsonrpc": "2.0", "id": identity, "result": work()}
    except Failed as failed:
        code, words = failed.args
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        code, words = -32603, f"{type(error).__name__}: {error}"
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": words}}


def finished(
    server: Server, answer: dict[str, Any], stamps: dict[str, object] | None = None
) -> dict[str, Any]:
    """Add to a result what the modern version wants in it."""
    if "modern" in server.mischief and "result" in answer:
        answer["result"] = {"resultType": "complete", **(stamps or {}), **answer["result"]}
    return answer


def subscribe(connection: Connection, message: dict[str, Any]) -> None:
    """Begin the one subscription of a modern client."""
    connection.subscription = message["id"]
    wanted = message["params"]["notifications"]
    stamp = {SUBSCRIPTION: message["id"]}
    connection.notify("notifications/subscriptions/acknowledged", notifications=wanted, _meta=stamp)


def answer_request(connection: Connection, message: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to every request that is not a call of a tool."""
    method, params = message["method"], message.get("params") or {}
    if method not in METHODS:
        refusal = {"code": -32601, "message": f"there is no {method}"}
        return {"jsonrpc": "2.0", "id": message["id"], "error": refusal}
    answer = answered(message["id"], lambda: METHODS[method](connection, params))
    return finished(connection.server, answer, FRESH)


def is_unanswered(server: Server, method: str) -> bool:
    return "silent" in server.mischief or (
        "silent_lists" in server.mischief and method.endswith("/list")
    )


def take_notification(connection: Connection, message: dict[str, Any]) -> None:
    """Note an answer of the client, and end a call that it cancels."""
    if "method" not in message:
        connection.take_answer(message)
    elif message["method"] == "notifications/cancelled":
        call = connection.running.get(message["params"].get("requestId"))
        if call is not None:
            call.is_cancelled.set()


def serve_standard_io(server: Server) -> None:
    """Speak over standard input and output until the input ends."""
    lock = threading.Lock()
    output = sys.stdout.buffer

    def write(message: object, call: Call | None) -> None:
        line = json.dumps(message).encode() + b"\n"
        if "garbage" in server.mischief:
            line = b'npm warn deprecated\n\xff\xfe\x00\n{"half": \n[]\n' + line
        with lock:
            output.write(line)
            output.flush()

    connection = Connection(server, write)
    for line in sys.stdin.buffer:
        take(connection, json.loads(line))
    while "refuses_to_end" in server.mischief:
        time.sleep(1)


def take(connection: Connection, message: dict[str, Any]) -> None:
    """Do what a message asks for. A call of a tool gets a thread of its own."""
    server, method = connection.server, message.get("method", "")
    if "id" not in message or not method:
        take_notification(connection, message)
        if method == "notifications/initialized":
            misbehave(connection)
    elif is_unanswered(server, method):
        return
    elif method == "tools/call":
        call = Call(connection, message)
        threading.Thread(target=run_call, args=(call,), daemon=True).start()
    elif method == "subscriptions/listen" and "modern" in server.mischief:
        subscribe(connection, message)
    else:
        connection.write(answer_request(connection, message), None)
        if method == "tools/list" and "restless" in server.mischief:
            connection.announce()


def misbehave(connection: Connection) -> None:
    """Do what is wrong right after the handshake."""
    server = connection.server
    if "exits_later" in server.mischief:
        os._exit(4)
    if "closes_output" in server.mischief:
        os.close(1)
    if "floods_notices" in server.mischief:
        for number in range(server.amount(100_000)):
            connection.notify("notifications/message", level="info", data=f"notice {number}")
    if "floods_output" in server.mischief:
        flood(sys.stdout.buffer, server.amount(65_536))
    if "floods_errors" in server.mischief:
        flood(sys.stderr.buffer, server.amount(65_536))
    if "endless_line" in server.mischief:
        sys.stdout.buffer.write(b"z" * server.amount(64 << 20))
        sys.stdout.buffer.flush()


def flood(output: Any, lines: int) -> None:
    for _ in range(lines):
        output.write(b"f" * 1023 + b"\n")
    output.flush()


def options() -> argparse.ArgumentParser:
    """Return the options that both programs take."""
    listed = "\n".join(f"  {name}: {words}" for name, words in MISCHIEF.items())
    parser = argparse.ArgumentParser(
        description=f"Serve MCP to tests. Mischief:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mischief", action="append", default=[], choices=sorted(MISCHIEF))
    parser.add_argument("--amount", type=int, default=0)
    parser.add_argument("--calls", default="", metavar="FILE")
    return parser


def main() -> None:
    """Read the options, and serve."""
    server = Server(options().parse_args())
    if "exits" in server.mischief:
        sys.exit("hostile: the setting TOKEN is missing")
    if "refuses_to_end" in server.mischief:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve_standard_io(server)


if __name__ == "__main__":
    main()
