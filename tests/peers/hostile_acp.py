"""Speaks ACP as an agent of the tests: well, or badly in the ways in which agents are bad.

It speaks the wire itself and needs nothing but Python, so that a test never compares a library
with itself, and the process answers after a few hundredths of a second. No model is behind it: the
prompt says what it does. Of a prompt, the last directives that stand beside each other count, in
turn. A prompt without any gets `echo: ` and its text.

`--mischief NAME` chooses what is wrong, `--amount N` how much of it. `--calls FILE` gets a line for
each start, session, prompt and call of a tool, on disk before the answer. With `--once FILE` only
the first process is bad: it makes that file. With `--keep FOLDER` sessions outlive the process.
"""

import argparse
import importlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

DIRECTIVES = {
    "ASK title": "ask for permission, and say `ASKED<option>`",
    "EDIT path text": "tell of an edit with its difference, and edit nothing",
    "ERR code words": "answer with an error of the protocol",
    "FLOOD n method {json}": "send n requests at once, and say `FLOOD<results,errors>`",
    "HISTORY": "say what was said in this session, as `HISTORY<json>`",
    "HOLD path": "wait until a file is there",
    "MODE name": "change the mode",
    "PEEK path": "read a file or folder from the disk, and say `PEEK<text>`",
    "PLAN one|two": "tell a plan",
    "READ path": "read a file through the client, and say `READ<text>`",
    "REQ method {json}": "ask the client, and say `REQ<json>`; $T is the last terminal",
    "SAY text": "say a text, in pieces of 12 characters",
    "SHELL command": "run a command through the client, and say `SHELL<text>`",
    "SLOW n text": "say a text n times, one piece each 50 ms",
    "STOP reason": "end for this reason",
    "THINK text": "think a text",
    "TOOL name {json}": "call the tool whose name ends so, and say `TOOLRESULT<text>`",
    "TOOLS": "say the names of all tools, as `TOOLS<a,b>`",
    "UPDATE json": "send this update as it is",
    "USAGE n": "tell how many tokens were used",
    "WHOAMI": "say what this process knows of where it runs, as `WHOAMI<json>`",
    "WRITE path text": "write a file through the client, and say `WROTE<answer>`",
}
MISCHIEF = {
    "abandons_tools": "do not tell a tool's server that a call was cancelled",
    "answers_strangers": "answer a request that nobody made before each answer",
    "answers_twice": "answer each prompt twice",
    "asks": "ask for permission before each tool, which is allowed",
    "asks_for_unknown_session": "ask for permission in a session that does not exist, and wait",
    "big_line": "say AMOUNT characters (8,000,000) at once",
    "bridge_late": "connect to the servers of tools AMOUNT ms (1,000) after session/new",
    "bridge_never": "take the servers of tools, and never connect to them",
    "cancelled_as_end": "end a cancelled prompt as one that was answered",
    "cancelled_as_error": "end a cancelled prompt with an error",
    "cancels_all": "cancel the prompts of all sessions when one is cancelled",
    "changes_ids": "send the updates of a prompt with another session's id",
    "closes_input": "close standard input after the first word, and say no more",
    "closes_output": "close standard output after the first word, and live on",
    "deaf_after_error": "lose the prompt that comes after an error, also its cancel",
    "dies_after_words": "die after the last word, before the answer",
    "dies_before_words": "die before the first word",
    "dies_in_initialize": "die during the handshake",
    "dies_in_load": "die while a session is loaded or resumed",
    "dies_in_new": "die while a session is made",
    "dies_in_tool": "die while a tool runs",
    "dies_mid_prompt": "die after the first word",
    "dies_when_cancelled": "die when a prompt is cancelled that waits for a permission",
    "endless_line": "print AMOUNT bytes (64 MiB) without a line's end before the first word",
    "error_as_text": "say the model's error, and end as if all was well",
    "exits": "end at once, with a message on standard error",
    "exits_mid_prompt": "end with status 7 and a message on standard error after the first word",
    "floods_errors": "print AMOUNT lines (1,024) of 1 KiB on standard error before the first word",
    "floods_updates": "send AMOUNT updates (20,000) before the first word",
    "forgets_sessions": "know no session that is loaded or resumed",
    "forks": "start a child in a session of its own, which sleeps and holds standard output",
    "garbage": "print what is no message before each message, some of it not even UTF-8",
    "hangs_close": "never answer session/close",
    "hangs_in_bridge": "wait without end for the servers of tools inside session/new",
    "hangs_initialize": "never answer the handshake",
    "hangs_load": "never load or resume a session",
    "hangs_new": "never make a session",
    "hangs_prompt": "never say a word, and end only if cancelled",
    "http_error": "fail each prompt with AMOUNT (429) as the error's code",
    "ignores_cancel": "go on when cancelled",
    "keeps_cancel": "let a cancel that comes too late end the next prompt",
    "late_updates": "say `late` after the answer",
    "model_fails": "fail each prompt with an internal error that has data",
    "never_ends": "say everything, and never answer the prompt",
    "no_close": "have no session/close",
    "no_http": "know no servers of tools over HTTP",
    "no_load": "have no session/load",
    "no_mcp": "ignore the servers of tools, and say that there is no HTTP",
    "no_resume": "have no session/resume",
    "non_object": "print JSON that is no object before the first word",
    "null_load": "answer session/load with null",
    "outlives_input": "ignore the end of input",
    "refuses_to_end": "ignore the end of input and SIGTERM",
    "remembers_always": "take an answer for always as one for all sessions",
    "replays_late": "say on load some of the history after the answer",
    "replays_on_resume": "say the history also on resume",
    "result_first": "answer a prompt before everything that is said",
    "same_session": "give each new session the same id",
    "slash_commands": "take a prompt that begins with a slash as a command",
    "slow_new": "make a session in AMOUNT ms (300), several at once much slower",
    "stops_itself": "stop by SIGSTOP after the first word",
    "unknown_session": "send updates for a session that does not exist",
    "unknown_stop": "end each prompt for a reason that does not exist",
    "unknown_update": "send updates of a kind that does not exist",
    "waits_for_answer": "end a cancelled prompt only when its permission is answered",
    "wrong_id": "answer prompts with an id that nobody used",
    "wrong_version": "shake hands with a version of the protocol that does not exist",
}
DIRECTIVE = re.compile(
    rf"\[\[({'|'.join(name.split()[0] for name in DIRECTIVES)})\b\s*(.*?)\]\]", re.DOTALL
)
OPTIONS = [
    {"optionId": "once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
MODES = ("ask", "code")
PIECE = 12
LONG = 2_100_000
Params = dict[str, Any]
Message = dict[str, Any]


class Failed(Exception):
    """Says with which code, words and data a request is refused."""


class Cancelled(Exception):
    """Ends a prompt that was cancelled."""


def text_of(blocks: list[dict[str, Any]]) -> str:
    """Return the text of a prompt or of a tool's result."""
    return "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")


def directives(text: str) -> list[tuple[str, str]]:
    """Return the last directives that stand beside each other."""
    run: list[tuple[str, str]] = []
    end = 0
    for found in DIRECTIVE.finditer(text):
        is_beside = not text[end : found.start()].strip()
        run = [*(run if is_beside else []), (found[1], found[2].strip())]
        end = found.end()
    return run


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def sleep_forever() -> None:
    while True:
        time.sleep(60)


class Session:
    """Holds one conversation. `shown_as` is the id that its updates carry."""

    def __init__(self, identity: str, params: Params) -> None:
        self.identity = self.shown_as = identity
        self.cwd: str = params.get("cwd", "")
        self.servers: list[dict[str, Any]] = params.get("mcpServers") or []
        self.links: list[Any] = []
        self.failures: list[str] = []
        self.history: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.held: list[Message] | None = None
        self.is_running = False
        self.is_asking = False
        self.is_deaf = False
        self.has_always = False
        self.is_cancelled = threading.Event()
        self.mode = MODES[0]
        self.terminal = ""
        self.ids = 0


class Agent:
    """Holds what all sessions of the process share, and speaks with the client."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.mischief = frozenset() if has_had_its_turn(given.once) else frozenset(given.mischief)
        self.sessions: dict[str, Session] = {}
        self.client: Params = {}
        self.has_always = False
        self.now_made = 0
        self._given = given
        self._lock = threading.Lock()
        self._asked: dict[str, SimpleQueue[Message]] = {}

    def amount(self, usual: int) -> int:
        return int(self._given.amount) or usual

    def record(self, name: str, **arguments: object) -> None:
        """Write down what really happened, and wait until it is on disk."""
        if not self._given.calls:
            return
        line = json.dumps({"tool": name, "arguments": arguments, "pid": os.getpid()}) + "\n"
        with self._lock, open(self._given.calls, "a", encoding="utf-8") as file:  # noqa: PTH123 pathlib is slow to import
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def write(self, message: object, *, times: int = 1) -> None:
        line = json.dumps(message).encode() + b"\n"
        if "garbage" in self.mischief:
            line = b'npm warn deprecated\n\xff\xfe\x00\n{"half": \n' + line
        self.write_raw(line * times)

    def write_raw(self, raw: bytes) -> None:
        with self._lock:
            sys.stdout.buffer.write(raw)
            sys.stdout.buffer.flush()

    def answer(self, identity: object, /, *, times: int = 1, **outcome: object) -> None:
        if "answers_strangers" in self.mischief:
            self.write({"jsonrpc": "2.0", "id": 987_654, "result": {}})
        self.write({"jsonrpc": "2.0", "id": identity, **outcome}, times=times)

    def expect(self, identity: str, answers: "SimpleQueue[Message]") -> None:
        """Let the answer to a request be put somewhere."""
        self._asked[identity] = answers

    def ask(
        self,
        method: str,
        session: Session | None,
        params: Params | None = None,
        /,
        **more: object,
    ) -> Message:
        """Send a request to the client, and return its answer. If the session's prompt is
        cancelled, the question is given up."""
        identity = f"asked-{os.urandom(6).hex()}"
        queue: SimpleQueue[Message] = SimpleQueue()
        self._asked[identity] = queue
        self.write(
            {
                "jsonrpc": "2.0",
                "id": identity,
                "method": method,
                "params": {**(params or {}), **more},
            }
        )
        while True:
            try:
                return queue.get(timeout=0.02)
            except Empty:
                if "waits_for_answer" not in self.mischief:
                    self.check(session)

    def take_answer(self, message: Message) -> None:
        queue = self._asked.pop(str(message.get("id")), None)
        if queue is not None:
            queue.put(message)

    def check(self, session: Session | None) -> None:
        """End the prompt if it was cancelled."""
        if session is None or "ignores_cancel" in self.mischief:
            return
        if session.is_cancelled.is_set():
            raise Cancelled

    def update(self, session: Session, kind: str, /, **fields: object) -> None:
        self.send_update(session, {"sessionUpdate": kind, **fields})

    def send_update(self, session: Session, update: object) -> None:
        params = {"sessionId": session.shown_as, "update": update}
        message = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        if session.held is None:
            self.write(message)
        else:
            session.held.append(message)

    def say(self, session: Session, text: str, *, pieces: int = PIECE, wait_s: float = 0) -> None:
        """Say a text, piece by piece."""
        for at in range(0, len(text), pieces):
            self.check(session)
            piece = text[at : at + pieces]
            session.said.append(piece)
            content = {"type": "text", "text": piece}
            self.update(session, "agent_message_chunk", content=content)
            if len(session.said) == 1:
                self._misbehave_after_first_word()
            if session.is_cancelled.wait(wait_s):
                self.check(session)
                # A cancel that is ignored would make the waits end at once.
                time.sleep(wait_s)

    def _misbehave_after_first_word(self) -> None:
        if "dies_mid_prompt" in self.mischief:
            die()
        if "exits_mid_prompt" in self.mischief:
            os.write(2, b"hostile: out of cheese\n")
            os._exit(7)
        if "stops_itself" in self.mischief:
            os.kill(os.getpid(), signal.SIGSTOP)
            # The signal may first reach another thread, and this one must say no more.
            time.sleep(0.5)
        if "closes_output" in self.mischief:
            os.close(1)
            sleep_forever()
        if "closes_input" in self.mischief:
            os.close(0)
            sleep_forever()

    def tell_history(self, session: Session, history: list[tuple[str, str]]) -> None:
        for role, text in history:
            kind = "user_message_chunk" if role == "user" else "agent_message_chunk"
            self.update(session, kind, content={"type": "text", "text": text})

    def keep(self, session: Session) -> None:
        if self._given.keep:
            os.makedirs(self._given.keep, exist_ok=True)  # noqa: PTH103 pathlib is slow to import
            with open(self._kept(session.identity), "w", encoding="utf-8") as file:  # noqa: PTH123 likewise
                json.dump({"cwd": session.cwd, "history": session.history}, file)

    def kept(self, identity: str) -> Params | None:
        """Return what another process has kept of a session."""
        try:
            with open(self._kept(identity), encoding="utf-8") as file:  # noqa: PTH123 pathlib is slow to import
                found: Params = json.load(file)
                return found
        except OSError:
            return None

    def _kept(self, identity: str) -> str:
        return f"{self._given.keep}/{identity}.json"


def has_had_its_turn(once: str) -> bool:
    """Tell whether another process was bad already. The first one makes the file."""
    if not once:
        return False
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return True
    return False


# Life of sessions


def initialize(agent: Agent, params: Params) -> Message:
    agent.client = params
    if "dies_in_initialize" in agent.mischief:
        die()
    if "hangs_initialize" in agent.mischief:
        sleep_forever()
    has = agent.mischief.isdisjoint
    sessions: dict[str, object] = {"list": {}}
    sessions |= {"resume": {}} if has({"no_resume"}) else {}
    sessions |= {"close": {}} if has({"no_close"}) else {}
    capabilities = {
        "loadSession": has({"no_load"}),
        "promptCapabilities": {"image": True, "embeddedContext": True},
        "mcpCapabilities": {"http": has({"no_mcp", "no_http"}), "sse": False},
        "sessionCapabilities": sessions,
    }
    return {
        "protocolVersion": 999 if "wrong_version" in agent.mischief else 1,
        "agentCapabilities": capabilities,
        "agentInfo": {"name": "hostile", "version": "1"},
        "authMethods": [],
    }


def connect(agent: Agent, session: Session) -> None:
    """Connect to the servers of tools, and say nothing of one that cannot be reached."""
    if not agent.mischief.isdisjoint({"no_mcp", "bridge_never"}) or not session.servers:
        return
    # Only who has servers of tools needs it.
    opened = importlib.import_module("hostile_acp_bridge").opened
    for entry in session.servers:
        if "no_http" in agent.mischief and entry.get("type") == "http":
            continue
        try:
            session.links.append(opened(entry))
        except Exception as error:  # noqa: BLE001 whatever is wrong, the agent goes on
            session.failures.append(f"{entry['name']}: {type(error).__name__}: {error}")


def connect_in_time(agent: Agent, session: Session) -> None:
    if "hangs_in_bridge" in agent.mischief and session.servers:
        sleep_forever()
    if "bridge_late" not in agent.mischief:
        connect(agent, session)
        return
    timer = threading.Timer(agent.amount(1000) / 1000, connect, (agent, session))
    timer.daemon = True
    timer.start()


def opened_session(agent: Agent, session: Session) -> Message:
    agent.sessions[session.identity] = session
    modes = [{"id": each, "name": each.title()} for each in MODES]
    return {"modes": {"currentModeId": session.mode, "availableModes": modes}}


def new(agent: Agent, params: Params) -> Message:
    if "dies_in_new" in agent.mischief:
        die()
    if "hangs_new" in agent.mischief:
        sleep_forever()
    agent.now_made += 1
    at_once = agent.now_made
    if "slow_new" in agent.mischief:
        time.sleep(agent.amount(300) / 1000 * 2 ** (at_once - 1))
    same = "same_session" in agent.mischief
    session = Session("ses-1" if same else f"ses-{os.urandom(6).hex()}", params)
    made = opened_session(agent, session)
    connect_in_time(agent, session)
    agent.now_made -= 1
    agent.record("session/new", session=session.identity, cwd=session.cwd, at_once=at_once)
    return {"sessionId": session.identity, **made}


def revived(agent: Agent, params: Params, method: str) -> Session:
    """Return a session that was made before, perhaps by another process."""
    if "dies_in_load" in agent.mischief:
        die()
    if "hangs_load" in agent.mischief:
        sleep_forever()
    identity = params["sessionId"]
    old = agent.sessions.get(identity)
    kept = {"history": old.history} if old else agent.kept(identity)
    if kept is None or "forgets_sessions" in agent.mischief:
        raise Failed(-32603, "Internal error", {"details": "No previous sessions found"})
    session = Session(identity, params)
    session.history = [(role, text) for role, text in kept["history"]]
    agent.record(method, session=identity, cwd=session.cwd)
    connect_in_time(agent, session)
    return session


def load(agent: Agent, params: Params) -> Message | None:
    if "no_load" in agent.mischief:
        raise Failed(-32601, "there is no session/load", None)
    session = revived(agent, params, "session/load")
    early = session.history[:1] if "replays_late" in agent.mischief else session.history
    agent.tell_history(session, early)
    opened = opened_session(agent, session)
    return None if "null_load" in agent.mischief else opened


def resume(agent: Agent, params: Params) -> Message:
    if "no_resume" in agent.mischief:
        raise Failed(-32601, "there is no session/resume", None)
    session = revived(agent, params, "session/resume")
    if "replays_on_resume" in agent.mischief:
        agent.tell_history(session, session.history)
    return opened_session(agent, session)


def close(agent: Agent, params: Params) -> Message:
    if "no_close" in agent.mischief:
        raise Failed(-32601, "there is no session/close", None)
    if "hangs_close" in agent.mischief:
        sleep_forever()
    session = agent.sessions.pop(params["sessionId"], None)
    if session is None:
        raise Failed(-32002, "there is no such session", None)
    session.is_cancelled.set()
    for link in session.links:
        link.close()
    agent.record("session/close", session=session.identity)
    return {}


def list_sessions(agent: Agent, params: Params) -> Message:
    known = [{"sessionId": each.identity, "cwd": each.cwd} for each in agent.sessions.values()]
    return {"sessions": known}


def set_mode(agent: Agent, params: Params) -> Message:
    session = agent.sessions[params["sessionId"]]
    session.mode = params["modeId"]
    agent.update(session, "current_mode_update", currentModeId=session.mode)
    return {}


# What a prompt may ask for

Doing = Callable[[Agent, Session, str], str | None]
DOINGS: dict[str, Doing] = {}


def doing(name: str) -> Callable[[Doing], Doing]:
    """Offer a function as a directive. What it returns is said."""

    def offer(function: Doing) -> Doing:
        DOINGS[name] = function
        return function

    return offer


@doing("SAY")
def say(agent: Agent, session: Session, words: str) -> str:
    return words


@doing("THINK")
def think(agent: Agent, session: Session, words: str) -> None:
    for at in range(0, len(words), PIECE):
        content = {"type": "text", "text": words[at : at + PIECE]}
        agent.update(session, "agent_thought_chunk", content=content)


@doing("SLOW")
def slow(agent: Agent, session: Session, words: str) -> None:
    times, _, text = words.partition(" ")
    whole = "".join(f"{text}{at:03}".ljust(8, ".") for at in range(int(times)))
    agent.say(session, whole, pieces=8, wait_s=0.05)


@doing("HOLD")
def hold(agent: Agent, session: Session, words: str) -> None:
    agent.record("hold", path=words)
    while not os.path.exists(words):  # noqa: PTH110 pathlib is slow to import
        agent.check(session)
        time.sleep(0.01)


@doing("PLAN")
def plan(agent: Agent, session: Session, words: str) -> None:
    steps = enumerate(words.split("|"))
    entries = [
        {"content": step, "priority": "medium", "status": "pending" if at else "in_progress"}
        for at, step in steps
    ]
    agent.update(session, "plan", entries=entries)


@doing("EDIT")
def edit(agent: Agent, session: Session, words: str) -> None:
    path, _, text = words.partition(" ")
    content = [{"type": "diff", "path": path, "oldText": "before\n", "newText": text}]
    identity = tool_id(session)
    agent.update(
        session,
        "tool_call",
        toolCallId=identity,
        title=f"Edit {path}",
        kind="edit",
        status="pending",
        content=content,
        locations=[{"path": path, "line": 1}],
    )
    agent.update(session, "tool_call_update", toolCallId=identity, status="completed")


@doing("MODE")
def mode(agent: Agent, session: Session, words: str) -> None:
    session.mode = words
    agent.update(session, "current_mode_update", currentModeId=words)


@doing("USAGE")
def usage(agent: Agent, session: Session, words: str) -> None:
    agent.update(session, "usage_update", used=int(words), size=100_000)


@doing("UPDATE")
def send_any(agent: Agent, session: Session, words: str) -> None:
    agent.send_update(session, json.loads(words))


@doing("ERR")
def fail(agent: Agent, session: Session, words: str) -> None:
    code, _, text = words.partition(" ")
    raise Failed(int(code), text or "refused", None)


@doing("HISTORY")
def history(agent: Agent, session: Session, words: str) -> str:
    return f"HISTORY<{json.dumps(session.history[:-1])}>"


@doing("WHOAMI")
def whoami(agent: Agent, session: Session, words: str) -> str:
    files = sorted(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 pathlib is slow to import
    known = {
        "environ": dict(os.environ),
        "cwd": os.getcwd(),  # noqa: PTH109 pathlib is slow to import
        "session_cwd": session.cwd,
        "servers": session.servers,
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "files": files,
        "client": agent.client,
    }
    return f"WHOAMI<{json.dumps(known)}>"


@doing("PEEK")
def peek(agent: Agent, session: Session, words: str) -> str:
    try:
        if os.path.isdir(words):  # noqa: PTH112 pathlib is slow to import
            return f"PEEK<{','.join(sorted(os.listdir(words)))}>"  # noqa: PTH208 likewise
        with open(words, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 likewise
            return f"PEEK<{file.read(2000)}>"
    except OSError as error:
        return f"PEEK<{type(error).__name__}>"


@doing("READ")
def read(agent: Agent, session: Session, words: str) -> str:
    answer = agent.ask("fs/read_text_file", session, sessionId=session.identity, path=words)
    return f"READ<{shown(answer, 'content')}>"


@doing("WRITE")
def write(agent: Agent, session: Session, words: str) -> str:
    path, _, text = words.partition(" ")
    params = {"sessionId": session.identity, "path": path, "content": text}
    return f"WROTE<{shown(agent.ask('fs/write_text_file', session, **params), '')}>"


@doing("SHELL")
def shell(agent: Agent, session: Session, words: str) -> str:
    """Run a command in a terminal of the client."""
    there = {"sessionId": session.identity}
    made = agent.ask("terminal/create", session, **there, command="/bin/sh", args=["-c", words])
    if "result" not in made:
        return f"SHELL<{shown(made, '')}>"
    there |= {"terminalId": made["result"]["terminalId"]}
    update = {"type": "terminal", "terminalId": there["terminalId"]}
    identity = tool_id(session)
    told: dict[str, Any] = {"toolCallId": identity, "title": words, "kind": "execute"}
    agent.update(session, "tool_call", **told, status="in_progress", content=[update])
    agent.ask("terminal/wait_for_exit", session, **there)
    answer = agent.ask("terminal/output", session, **there)
    agent.ask("terminal/release", session, **there)
    agent.update(session, "tool_call_update", toolCallId=identity, status="completed")
    return f"SHELL<{shown(answer, 'output')}>"


@doing("REQ")
def request(agent: Agent, session: Session, words: str) -> str:
    answer = agent.ask(*wanted(session, words))
    result = answer.get("result")
    if isinstance(result, dict) and "terminalId" in result:
        session.terminal = str(result["terminalId"])
    agent.record("request", session=session.identity, answer=answer)
    return f"REQ<{json.dumps(answer.get('error', result))}>"


@doing("FLOOD")
def flood(agent: Agent, session: Session, words: str) -> str:
    count, _, rest = words.partition(" ")
    answers: SimpleQueue[Message] = SimpleQueue()
    for number in range(int(count)):
        method, _, params = wanted(session, rest.replace("$N", str(number)))
        identity = f"flood-{number}-{os.urandom(4).hex()}"
        agent.expect(identity, answers)
        agent.write({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
    known: list[Message] = []
    while len(known) < int(count):
        try:
            known.append(answers.get(timeout=0.02))
        except Empty:
            agent.check(session)
    failed = sum("error" in each for each in known)
    return f"FLOOD<{int(count) - failed},{failed}>"


def wanted(session: Session, words: str) -> tuple[str, Session, Params]:
    """Return the method, the session and the parameters of a request to the client."""
    method, _, raw = words.partition(" ")
    for name, value in (("$T", session.terminal), ("$C", session.cwd), ("$LONG", "x" * LONG)):
        raw = raw.replace(name, value)
    return method, session, {"sessionId": session.identity, **json.loads(raw or "{}")}


def shown(answer: Message, name: str) -> str:
    """Return one field of a client's answer, or its error."""
    if "error" in answer:
        return f"error {answer['error'].get('message')} {answer['error'].get('data', '')}".strip()
    result = answer.get("result")
    return str(result.get(name, "")) if isinstance(result, dict) else ""


@doing("ASK")
def ask(agent: Agent, session: Session, words: str) -> str:
    return f"ASKED<{permission(agent, session, tool_id(session), words)}>"


def permission(agent: Agent, session: Session, identity: str, title: str) -> str:
    """Ask the person, and return the option that was taken, or `cancelled`."""
    is_leaky = "remembers_always" in agent.mischief
    if session.has_always or (is_leaky and agent.has_always):
        return "always before"
    call = {"toolCallId": identity, "title": title, "kind": "execute", "status": "pending"}
    agent.record("session/request_permission", session=session.identity, title=title)
    session.is_asking = True
    params: dict[str, Any] = {"sessionId": session.identity, "toolCall": call, "options": OPTIONS}
    answer = agent.ask("session/request_permission", session, **params)
    session.is_asking = False
    agent.check(session)
    outcome = (answer.get("result") or {}).get("outcome") or {}
    if outcome.get("optionId") == "always":
        session.has_always = agent.has_always = True
    return str(outcome.get("optionId") or outcome.get("outcome") or shown(answer, ""))


def tool_id(session: Session) -> str:
    session.ids += 1
    return f"call-{session.ids}"


@doing("TOOLS")
def tools(agent: Agent, session: Session, words: str) -> str:
    for link in session.links:
        link.list()
    names = ",".join(name for link in session.links for name in link.tools)
    failed = f" FAILED<{';'.join(session.failures)}>" if session.failures else ""
    return f"TOOLS<{names}>{failed}"


@doing("TOOL")
def tool(agent: Agent, session: Session, words: str) -> str:
    """Call a tool of the client."""
    wanted, _, raw = words.partition(" ")
    found = [(link, name) for link in session.links for name in link.tools if name.endswith(wanted)]
    if not found:
        return f"NOTOOL {wanted}"
    link, name = min(found, key=lambda each: len(each[1]))
    arguments = json.loads(raw or "{}")
    identity = tool_id(session)
    if "asks" in agent.mischief:
        choice = permission(agent, session, identity, f"{name} ({link.name})")
        if choice not in {"once", "always", "always before"}:
            return f"DENIED<{choice}>"
    started = {"toolCallId": identity, "title": name, "kind": "other", "rawInput": arguments}
    agent.update(session, "tool_call", **started, status="in_progress")
    agent.record(name, session=session.identity, arguments=arguments)
    if "dies_in_tool" in agent.mischief:
        threading.Timer(0.2, die).start()
    text, status = called(agent, session, link, name, arguments)
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    agent.update(session, "tool_call_update", toolCallId=identity, status=status, content=content)
    return f"TOOLRESULT<{text}>"


def called(
    agent: Agent, session: Session, link: Any, name: str, arguments: object
) -> tuple[str, str]:
    """Return what a tool answers, and how its call ended."""
    never = threading.Event()
    is_deaf = not agent.mischief.isdisjoint({"ignores_cancel", "abandons_tools"})
    try:
        result = link.call(name, arguments, never if is_deaf else session.is_cancelled)
    except Exception as error:  # noqa: BLE001 whatever is wrong, the model is told
        agent.check(session)
        return f"error {error}", "failed"
    agent.check(session)
    text = text_of(result.get("content") or [])
    return text, "failed" if result.get("isError") else "completed"


# Prompts


def misbehave_first(agent: Agent, session: Session) -> None:
    """Do what is wrong before the first word."""
    for name, act in BEFORE.items():
        if name in agent.mischief:
            act(agent, session)


def hang(agent: Agent, session: Session) -> None:
    while True:
        agent.check(session)
        time.sleep(0.02)


def flood_updates(agent: Agent, session: Session) -> None:
    for number in range(agent.amount(20_000)):
        content = {"type": "text", "text": f"{number} "}
        agent.update(session, "agent_message_chunk", content=content)


def flood_errors(agent: Agent, session: Session) -> None:
    for _ in range(agent.amount(1024)):
        sys.stderr.write("e" * 1023 + "\n")
    sys.stderr.flush()


def fork(agent: Agent, session: Session) -> None:
    command = ["/bin/sleep", "300"]
    pid = os.posix_spawn(command[0], command, os.environ, setsid=True)
    agent.record("fork", pid=pid)


def confuse(agent: Agent, session: Session) -> None:
    """Speak of a session that does not exist."""
    content = {"type": "text", "text": "for nobody"}
    agent.update(Session("ses-nobody", {}), "agent_message_chunk", content=content)


def ask_for_nobody(agent: Agent, session: Session) -> None:
    """Ask for permission in a session that does not exist."""
    call = {"toolCallId": "call-nobody", "title": "Delete everything"}
    params: dict[str, Any] = {"sessionId": "ses-nobody", "toolCall": call, "options": OPTIONS}
    answer = agent.ask("session/request_permission", session, **params)
    agent.record("nobody", answer=answer.get("result") or answer.get("error"))


def invent(agent: Agent, session: Session) -> None:
    agent.update(session, "dance", steps=3)


def change_id(agent: Agent, session: Session) -> None:
    session.shown_as = f"{session.identity}-changed"


def say_much(agent: Agent, session: Session) -> None:
    content = {"type": "text", "text": "y" * agent.amount(8_000_000)}
    agent.update(session, "agent_message_chunk", content=content)


def say_the_error(agent: Agent, session: Session) -> None:
    agent.say(session, "API Error: 500 internal server error")
    raise Ended


def fail_as_http(agent: Agent, session: Session) -> None:
    raise Failed(agent.amount(429), "the model's server answered so", None)


def fail_inside(agent: Agent, session: Session) -> None:
    raise Failed(-32603, "Internal error", {"details": "the model has overslept"})


class Ended(Exception):
    """Ends a prompt before its directives."""


BEFORE: dict[str, Callable[[Agent, Session], None]] = {
    "dies_before_words": lambda agent, session: die(),
    "hangs_prompt": hang,
    "http_error": fail_as_http,
    "model_fails": fail_inside,
    "forks": fork,
    "floods_errors": flood_errors,
    "floods_updates": flood_updates,
    "unknown_session": confuse,
    "asks_for_unknown_session": ask_for_nobody,
    "unknown_update": invent,
    "changes_ids": change_id,
    "big_line": say_much,
    "non_object": lambda agent, session: agent.write_raw(b'[1, 2]\n"text"\nnull\n7\n'),
    "endless_line": lambda agent, session: agent.write_raw(b"z" * agent.amount(64 << 20)),
    "error_as_text": say_the_error,
}


def perform(agent: Agent, session: Session, text: str) -> str:
    """Do what a prompt says, and return why it ended."""
    reason = "end_turn"
    if "slash_commands" in agent.mischief and text.startswith("/"):
        agent.say(session, f"Unknown command: {text}")
        return reason
    agent.record("session/prompt", session=session.identity, text=text)
    misbehave_first(agent, session)
    asked = directives(text)
    for name, words in asked:
        agent.check(session)
        if name == "STOP":
            reason = words
        else:
            agent.say(session, DOINGS[name](agent, session, words) or "")
    if not asked:
        agent.say(session, f"echo: {text}")
    if "dies_after_words" in agent.mischief:
        die()
    if "never_ends" in agent.mischief:
        hang(agent, session)
    return "exhausted" if "unknown_stop" in agent.mischief else reason


def outcome_of(agent: Agent, session: Session, text: str) -> Message:
    """Return the answer to a prompt, either `result` or `error`."""
    try:
        reason = perform(agent, session, text)
    except Ended:
        reason = "end_turn"
    except Cancelled:
        if "cancelled_as_error" in agent.mischief:
            return {"error": {"code": -32603, "message": "the operation was aborted"}}
        reason = "end_turn" if "cancelled_as_end" in agent.mischief else "cancelled"
    except Failed as failed:
        code, words, data = failed.args
        return {"error": {"code": code, "message": words, **({"data": data} if data else {})}}
    except (LookupError, TypeError, ValueError) as error:
        return {"error": {"code": -32602, "message": f"{type(error).__name__}: {error}"}}
    return {"result": {"stopReason": reason}}


def begin_prompt(agent: Agent, message: Message) -> None:
    """Begin to answer a prompt, before the next message is read: that may be its cancellation."""
    session = agent.sessions.get(message["params"]["sessionId"])
    if session is None or session.is_running:
        words = "a turn is already running" if session else "there is no such session"
        agent.answer(message["id"], error={"code": -32602, "message": words})
        return
    if session.is_deaf:
        session.is_deaf = False
        return
    session.is_running = True
    session.is_asking = False
    if "keeps_cancel" not in agent.mischief:
        session.is_cancelled.clear()
    session.said = []
    session.held = [] if "result_first" in agent.mischief else None
    text = text_of(message["params"]["prompt"])
    session.history.append(("user", text))
    threading.Thread(target=prompt, args=(agent, session, message["id"], text), daemon=True).start()


def prompt(agent: Agent, session: Session, identity: object, text: str) -> None:
    """Answer a prompt, in a thread of its own."""
    agent.keep(session)
    outcome = outcome_of(agent, session, text)
    session.is_deaf = "error" in outcome and "deaf_after_error" in agent.mischief
    session.history.append(("agent", "".join(session.said)))
    agent.keep(session)
    session.is_running = False
    session.is_cancelled.clear()
    finish(agent, session, identity, outcome)


def finish(agent: Agent, session: Session, identity: object, outcome: Message) -> None:
    """Send the answer to a prompt, and what comes too late."""
    held, session.held = session.held or [], None
    shown = f"wrong-{identity}" if "wrong_id" in agent.mischief else identity
    agent.answer(shown, times=2 if "answers_twice" in agent.mischief else 1, **outcome)
    for late in held:
        agent.write(late)
    if "late_updates" in agent.mischief:
        time.sleep(0.05)
        agent.update(session, "agent_message_chunk", content={"type": "text", "text": "late"})


# The wire

METHODS: dict[str, Callable[[Agent, Params], Message | None]] = {
    "initialize": initialize,
    "authenticate": lambda agent, params: {},
    "session/new": new,
    "session/load": load,
    "session/resume": resume,
    "session/close": close,
    "session/list": list_sessions,
    "session/set_mode": set_mode,
}


def answer_request(agent: Agent, message: Message) -> None:
    """Answer every request that is not a prompt, in a thread of its own."""
    method, params = message["method"], message.get("params") or {}
    try:
        if method not in METHODS:
            raise Failed(-32601, f"there is no {method}", None)
        result = METHODS[method](agent, params)
        agent.answer(message["id"], result=result)
    except Failed as failed:
        code, words, data = failed.args
        refusal = {"code": code, "message": words, **({"data": data} if data else {})}
        agent.answer(message["id"], error=refusal)
        return
    except (LookupError, TypeError, ValueError) as error:
        refusal = {"code": -32602, "message": f"{type(error).__name__}: {error}"}
        agent.answer(message["id"], error=refusal)
        return
    after(agent, method, {**params, **(result or {})})


def after(agent: Agent, method: str, params: Params) -> None:
    """Tell what agents tell after the answer."""
    session = agent.sessions.get(str(params.get("sessionId")))
    if session is None or method not in {"session/new", "session/load"}:
        return
    if method == "session/load" and "replays_late" in agent.mischief:
        agent.tell_history(session, session.history[1:])
    commands = [{"name": "compact", "description": "Shorten the conversation"}]
    agent.update(session, "available_commands_update", availableCommands=commands)


def cancel(agent: Agent, params: Params) -> None:
    session = agent.sessions.get(str(params.get("sessionId")))
    if session is None:
        return
    agent.record("session/cancel", session=session.identity)
    if session.is_asking and "dies_when_cancelled" in agent.mischief:
        die()
    every = agent.sessions.values() if "cancels_all" in agent.mischief else [session]
    for each in every:
        each.is_cancelled.set()


def take(agent: Agent, message: Message) -> None:
    method = message.get("method", "")
    if not method:
        agent.take_answer(message)
    elif method == "session/cancel":
        cancel(agent, message.get("params") or {})
    elif method == "session/prompt":
        begin_prompt(agent, message)
    elif "id" in message:
        threading.Thread(target=answer_request, args=(agent, message), daemon=True).start()


def options() -> argparse.ArgumentParser:
    def listed(described: dict[str, str]) -> str:
        return "\n".join(f"  {name}: {words}" for name, words in described.items())

    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nDirectives, as [[SAY text]]:\n{listed(DIRECTIVES)}\n"
        f"Mischief:\n{listed(MISCHIEF)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mischief", action="append", default=[], choices=sorted(MISCHIEF))
    parser.add_argument("--amount", type=int, default=0)
    parser.add_argument("--calls", default="", metavar="FILE")
    parser.add_argument("--once", default="", metavar="FILE")
    parser.add_argument("--keep", default="", metavar="FOLDER")
    return parser


def main() -> None:
    """Read the options, and speak until the input ends."""
    agent = Agent(options().parse_args())
    agent.record("start")
    if "exits" in agent.mischief:
        sys.exit("hostile: the setting TOKEN is missing")
    if "refuses_to_end" in agent.mischief:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        take(agent, json.loads(line))
    if not agent.mischief.isdisjoint({"refuses_to_end", "outlives_input"}):
        sleep_forever()
    # Threads that still run must not keep the process alive, nor hinder its end.
    os._exit(0)


if __name__ == "__main__":
    main()
