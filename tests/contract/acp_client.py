"""Speaks with agents by the client of the official package."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    CreateTerminalResponse,
    DeniedOutcome,
    InitializeResponse,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)

WAIT_S = 20.0
LINE_BYTES = 16 << 20


class Person:
    """Answers as a client: keeps the updates of each session, and answers questions with
    `choice`, the id of an option. Without a choice nobody answers until `release`."""

    def __init__(self) -> None:
        self.updates: dict[str, list[Any]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.forms: list[Any] = []
        self.choice = ""
        self.release = asyncio.Event()
        self._changed = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **kw: Any) -> None:
        self.updates.setdefault(session_id, []).append(update)
        self._changed.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kw: Any
    ) -> RequestPermissionResponse:
        self.asked.append((session_id, tool_call))
        self._changed.set()
        if not self.choice:
            await self.release.wait()
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        (taken,) = [each for each in options if self.choice in {each.kind, each.option_id}]
        outcome = AllowedOutcome(outcome="selected", option_id=taken.option_id)
        return RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(
        self, message: str, mode: Any, **kw: Any
    ) -> AcceptElicitationResponse:
        self.forms.append(mode)
        return AcceptElicitationResponse(action="accept", content={"answer": self.choice})

    async def read_text_file(self, session_id: str, path: str, **kw: Any) -> ReadTextFileResponse:
        return ReadTextFileResponse(content=f"content of {path}")

    async def write_text_file(self, **kw: Any) -> WriteTextFileResponse:
        return WriteTextFileResponse()

    async def create_terminal(self, **kw: Any) -> CreateTerminalResponse:
        return CreateTerminalResponse(terminal_id="term-1")

    async def wait_for_terminal_exit(self, **kw: Any) -> WaitForTerminalExitResponse:
        return WaitForTerminalExitResponse(exit_code=0)

    async def terminal_output(self, **kw: Any) -> TerminalOutputResponse:
        status = TerminalExitStatus(exit_code=0)
        return TerminalOutputResponse(output="printed", truncated=False, exit_status=status)

    async def release_terminal(self, **kw: Any) -> None:
        return None

    def said(self, session: str) -> str:
        """Return all text that was said in a session."""
        chunks = self.kind(session, "agent_message_chunk")
        return "".join(each.content.text for each in chunks)

    def kind(self, session: str, *kinds: str) -> list[Any]:
        """Return the updates of these kinds, in the order in which they came."""
        return [each for each in self.updates.get(session, []) if each.session_update in kinds]

    async def until(self, is_true: Callable[[], object]) -> None:
        """Wait until something is true that an update or a question makes true."""
        async with asyncio.timeout(WAIT_S):
            while not is_true():
                self._changed.clear()
                await self._changed.wait()


class Spoken:
    """Holds a running agent: its connection, its process, and the person who speaks with it."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        errors: Path,
    ) -> None:
        self.person = Person()
        self.process = process
        self.errors = errors
        self.reader, self.writer = streams
        self.connection: ClientSideConnection = acp.connect_to_agent(
            self.person,  # type: ignore[arg-type]
            self.writer,
            self.reader,
            use_unstable_protocol=True,
        )

    async def greet(self) -> InitializeResponse:
        async with asyncio.timeout(WAIT_S):
            return await self.connection.initialize(protocol_version=acp.PROTOCOL_VERSION)

    async def new(self, cwd: Path, *servers: Any) -> str:
        async with asyncio.timeout(WAIT_S):
            made = await self.connection.new_session(cwd=str(cwd), mcp_servers=list(servers))
        return made.session_id

    async def ask(self, session: str, words: str) -> tuple[str, str]:
        """Send a prompt, and return why it ended and what was said in it."""
        before = len(self.person.said(session))
        async with asyncio.timeout(WAIT_S):
            answer = await self.connection.prompt(
                session_id=session, prompt=[acp.text_block(words)]
            )
        return answer.stop_reason, self.person.said(session)[before:]

    async def say(self, session: str, words: str) -> str:
        """Send a prompt, and return what was said in it."""
        return (await self.ask(session, words))[1]

    async def cancel(self, session: str, words: str) -> tuple[str, str]:
        """Send a prompt, cancel it when the agent works on it, and return what `ask` returns."""
        seen = len(self.person.kind(session, "agent_thought_chunk"))
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(self.ask(session, f"[[THINK x]]{words}"))
            await self.person.until(
                lambda: len(self.person.kind(session, "agent_thought_chunk")) > seen
            )
            await self.connection.cancel(session_id=session)
        return asking.result()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    async def gone(self) -> int:
        """Wait until the process has ended, and return its status."""
        async with asyncio.timeout(WAIT_S):
            while self.is_running:
                await asyncio.sleep(0.005)
        return self.process.returncode


@asynccontextmanager
async def spoken(command: list[str], home: Path, **environ: str) -> AsyncIterator[Spoken]:
    """Start an agent, and connect to it. Its whole group ends with the block."""
    home.mkdir(parents=True, exist_ok=True)
    errors = home / "errors"
    with errors.open("ab") as sink:
        # The loop of these tests would give the process more than its three files.
        process = subprocess.Popen(  # noqa: ASYNC220 it takes a millisecond
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            cwd=home,
            env={"PATH": os.environ["PATH"], "HOME": str(home), **environ},
            start_new_session=True,
        )
    async with streams_of(process) as streams:
        agent = Spoken(process, streams, errors)
        try:
            yield agent
        finally:
            with contextlib.suppress(OSError):
                await agent.connection.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await agent.gone()


@asynccontextmanager
async def streams_of(
    process: "subprocess.Popen[bytes]",
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to the pipes of a process, and close them after the block."""
    assert process.stdin is not None
    assert process.stdout is not None
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LINE_BYTES)
    output, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), process.stdout
    )
    sink = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    entry, protocol = await loop.connect_write_pipe(lambda: sink, process.stdin)
    try:
        yield reader, asyncio.StreamWriter(entry, protocol, None, loop)
    finally:
        output.close()
        entry.close()
