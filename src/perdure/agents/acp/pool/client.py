"""Answers what the process of an agent asks its client: permissions, files and terminals."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import msgspec
from acp import RequestError, schema

from perdure.agents.acp.pool.desk import exit_status
from perdure.agents.acp.pool.session import ProcessSession
from perdure.domain.text import storable
from perdure.ports.agents.client import AGENT_FILES, AGENT_SHELL, ClientOffers, FileText

_UNKNOWN: Final = -32602
_NOT_OFFERED: Final = -32601
_NOTHING_OF_THIS: Final = (
    "Perdure offers no files and no terminals to this agent, or not in this way"
)


class ProcessClient:
    """Serves all sessions of one process. `find` returns a session by its id and notes that the
    process lives."""

    def __init__(self, offers: ClientOffers, find: Callable[[str], ProcessSession | None]) -> None:
        self._offers = offers
        self._find = find

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: Sequence[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        """Ask the session that it is for. A session that nobody knows is told no."""
        session = self._find(session_id)
        if session is None:
            return schema.RequestPermissionResponse(
                outcome=schema.DeniedOutcome(outcome="cancelled")
            )
        return await session.ask(tool_call, options)

    # Files.

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> schema.ReadTextFileResponse:
        """Read a file, or some lines of it."""
        session = self._session(session_id, is_offered=self._offers.reads)
        asked = {"action": "read", "path": path, "line": line, "limit": limit}
        found = await session.ask_client(AGENT_FILES, _arguments(session, asked))
        if not isinstance(found, FileText):
            raise RequestError.internal_error({"details": "the text could not be handed over"})
        return schema.ReadTextFileResponse(content=found.text)

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> schema.WriteTextFileResponse:
        """Write a whole file."""
        session = self._session(session_id, is_offered=self._offers.writes)
        asked = {"action": "write", "path": path, "text": content}
        await session.ask_client(AGENT_FILES, _arguments(session, asked), has_return=False)
        return schema.WriteTextFileResponse()

    # Terminals.

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: Sequence[str] | None = None,
        env: Sequence[schema.EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> schema.CreateTerminalResponse:
        """Begin a command, and return its terminal."""
        session = self._session(session_id, is_offered=self._offers.terminals)
        asked = {
            "argv": [command, *(args or ())],
            "env": [f"{each.name}={each.value}" for each in env or ()],
            "cwd": cwd or "",
        }
        terminal = await session.ask_client(AGENT_SHELL, _arguments(session, asked))
        if terminal is None or isinstance(terminal, FileText):
            raise RequestError.internal_error({"details": "the terminal could not be handed over"})
        session.open_terminal(terminal, output_byte_limit)
        return schema.CreateTerminalResponse(terminal_id=terminal.name)

    async def terminal_output(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.TerminalOutputResponse:
        """Return what a terminal's command has written so far."""
        session = self._session(session_id, is_offered=self._offers.terminals)
        output = session.terminal_output(terminal_id)
        return schema.TerminalOutputResponse(
            output=storable(output.text),
            truncated=output.is_cut,
            exit_status=exit_status(output.exit) if output.exit is not None else None,
        )

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        """Wait until a terminal's command has ended. Nothing is decided about that: the command
        runs already."""
        session = self._session(session_id, is_offered=self._offers.terminals)
        ended = await session.desk.wait(terminal_id)
        return schema.WaitForTerminalExitResponse(exit_code=ended.code, signal=ended.signal or None)

    async def kill_terminal(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.KillTerminalResponse:
        """End a terminal's command. The terminal can still be read."""
        session = self._session(session_id, is_offered=self._offers.terminals)
        session.desk.terminal(terminal_id).end()
        return schema.KillTerminalResponse()

    async def release_terminal(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.ReleaseTerminalResponse:
        """End a terminal's command, and forget the terminal."""
        session = self._session(session_id, is_offered=self._offers.terminals)
        session.desk.release(terminal_id)
        return schema.ReleaseTerminalResponse()

    # What is never offered.

    async def create_elicitation(self, **_: Any) -> NoReturn:
        """Refuse to show a form: people are asked by the gateway's own tool."""
        raise RequestError(_NOT_OFFERED, "Perdure offers no forms to agents")

    async def ext_method(self, method: str, _: dict[str, Any]) -> dict[str, Any]:
        """Refuse what is not part of the protocol."""
        raise RequestError.method_not_found(method)

    def _session(self, identity: str, *, is_offered: bool) -> ProcessSession:
        """Return the session of a request. Raises `RequestError` if nothing is offered, or if it is
        not in the middle of an answer."""
        if not is_offered:
            raise RequestError(_NOT_OFFERED, _NOTHING_OF_THIS)
        session = self._find(identity)
        if session is None or not session.is_answering:
            raise RequestError(
                _UNKNOWN, "no answer is under way in this session, so nothing was done"
            )
        return session


def _arguments(session: ProcessSession, asked: dict[str, Any]) -> str:
    """Return the arguments of a call as JSON text: what the agent has given, and where it works."""
    told = {"folder": session.cwd, **asked}
    kept = {name: value for name, value in told.items() if value is not None}
    return storable(msgspec.json.encode(kept).decode())
