"""Holds what one session asks its client for: the requests that wait, and its terminals.

A request waits until whoever listens to the prompt has answered it. A terminal lives no longer than
the prompt in which it was opened.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from acp import RequestError, schema

from perdure.agents.acp.pool.seam import ClientAsked, TerminalOver
from perdure.ports.agents.client import (
    ARGUMENTS_MAX,
    CALLS_MAX,
    WAITING_MAX,
    AgentTerminal,
    FileText,
    NoFile,
    TerminalExit,
)

# How long the end of a terminal may take before its prompt is over without it.
ENDING_S: Final = 10.0
_MISSING: Final = -32002
_REFUSED: Final = -32000
_VOID: Final = "the prompt that asked for this is over, so it was not done"
ClientReply = FileText | AgentTerminal | None


class ClientDesk:
    """Takes the requests of one session. `hear` is told of each of them with its size."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[asyncio.Future[ClientReply], int]] = {}
        self._keys = 0
        self._terminals: dict[str, AgentTerminal] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._looking = 0

    # Requests that people and rules decide about.

    async def ask(
        self,
        tool: str,
        arguments: str,
        hear: Callable[[ClientAsked, int], None],
        *,
        has_return: bool = True,
    ) -> ClientReply:
        """Ask whoever listens, and return the answer. Raises `RequestError`."""
        size = len(arguments.encode())
        waiting = sum(each for _, each in self._waiting.values())
        if size > ARGUMENTS_MAX:
            raise RequestError(
                _REFUSED, f"the request is longer than {ARGUMENTS_MAX:,} bytes; ask for less"
            )
        if len(self._waiting) >= CALLS_MAX or waiting + size > WAITING_MAX:
            raise RequestError(_REFUSED, "too many requests wait already; wait for their answers")
        self._keys += 1
        key = self._keys
        answer: asyncio.Future[ClientReply] = asyncio.get_running_loop().create_future()
        self._waiting[key] = (answer, size)
        try:
            asked = ClientAsked(key=key, name=tool, arguments=arguments, has_return=has_return)
            hear(asked, size)
            return await answer
        finally:
            del self._waiting[key]

    def reply(self, key: int, what: FileText | NoFile | AgentTerminal | None) -> bool:
        """Answer a request. Returns False if nobody waits for it any more."""
        waiting, _ = self._waiting.get(key, (None, 0))
        if waiting is None or waiting.done():
            return False
        if isinstance(what, NoFile):
            waiting.set_exception(RequestError(_MISSING, "Resource not found: no such file"))
        else:
            waiting.set_result(what)
        return True

    def refuse(self, key: int, words: str) -> None:
        """Answer a request with an error. Does nothing if nobody waits for it any more."""
        waiting, _ = self._waiting.get(key, (None, 0))
        if waiting is not None and not waiting.done():
            waiting.set_exception(RequestError(_REFUSED, words))

    def void(self) -> None:
        """Answer all requests with an error, and end all terminals."""
        for key in tuple(self._waiting):
            self.refuse(key, _VOID)
        for terminal in self._terminals.values():
            terminal.forget()

    # Terminals.

    def open(
        self, terminal: AgentTerminal, watching: Callable[[AgentTerminal], "asyncio.Task[None]"]
    ) -> None:
        """Keep a terminal for the agent. `watching` starts the task that waits for its end."""
        self._terminals[terminal.name] = terminal
        self._watching[terminal.name] = watching(terminal)

    def terminal(self, name: str) -> AgentTerminal:
        """Return a terminal. Raises `RequestError` if the session has none of this name."""
        found = self._terminals.get(name)
        if found is None:
            raise RequestError(_MISSING, "Resource not found: this session has no such terminal")
        return found

    async def wait(self, name: str) -> TerminalExit:
        """Wait until a terminal's command has ended. Raises `RequestError`."""
        terminal = self.terminal(name)
        if self._looking >= CALLS_MAX:
            raise RequestError(_REFUSED, "too many requests wait already; wait for their answers")
        self._looking += 1
        try:
            await terminal.over()
        finally:
            self._looking -= 1
        return terminal.output(0).exit or TerminalExit()

    def release(self, name: str) -> None:
        """End a terminal, and know it no more."""
        self.terminal(name).forget()
        del self._terminals[name]

    async def end(self) -> None:
        """End all terminals of a prompt that is over, and wait until they have ended."""
        self.void()
        self._terminals.clear()
        watching, self._watching = [*self._watching.values()], {}
        if watching:
            await asyncio.wait(watching, timeout=ENDING_S)


def over(terminal: AgentTerminal) -> TerminalOver:
    """Return what is told of a terminal whose command has ended."""
    return TerminalOver(name=terminal.name, command=terminal.command, text=terminal.told())


def exit_status(ended: TerminalExit) -> schema.TerminalExitStatus:
    """Return how a command has ended, in the words of the protocol."""
    return schema.TerminalExitStatus(exit_code=ended.code, signal=ended.signal or None)
