"""Defines what an external agent may ask the gateway as its client: files, and terminals.

An agent that reads, writes or runs something through its client makes calls of the gateway's hidden
tools. A call goes through the turn like any other: rules, questions, journal. The journal holds
what came of it in the words of a tool's result. The agent must have the exact text of a file, and a
terminal that goes on, so the tool hands these over here, in memory, to the prompt that waits.
"""

from typing import Final, Protocol

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import CallId, TurnId

# The hidden tools that serve these calls.
AGENT_FILES: Final = "agent_files"
AGENT_SHELL: Final = "agent_shell"
# How many calls of one session may wait, and how many bytes of arguments may wait with them.
CALLS_MAX: Final = 64
ARGUMENTS_MAX: Final = 2_000_000
WAITING_MAX: Final = 16_000_000
# How much text may be handed over to one turn before the agent takes it.
HANDED_MAX: Final = 16_000_000


class ClientOffers(msgspec.Struct, frozen=True, kw_only=True):
    """Says what an agent is told that its client can do for it."""

    reads: bool = False
    writes: bool = False
    terminals: bool = False


NO_OFFERS: Final = ClientOffers()


class FileText(msgspec.Struct, frozen=True):
    """Holds exactly the lines of a file that an agent has asked for."""

    text: str


class NoFile(msgspec.Struct, frozen=True):
    """Says that there is no such file."""


class TerminalExit(msgspec.Struct, frozen=True, kw_only=True):
    """Says how a terminal's command has ended: with a code, or by a signal."""

    code: int | None = None
    signal: str = ""


class TerminalOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the last that a terminal's command has written. `is_cut`: it has written more. `exit`
    is None while it runs."""

    text: str
    is_cut: bool
    exit: TerminalExit | None


class AgentTerminal(Protocol):
    """Runs one command for an agent.

    Guarantees: what it keeps of the output is bounded. `end` and `forget` may be called twice.
    Requires: nothing.
    Raises: nothing.
    After a crash: the command has ended with the gateway.
    """

    @property
    def name(self) -> str:
        """Return the name by which the agent calls it."""

    @property
    def command(self) -> str:
        """Return the command as one short line."""

    def output(self, limit: int | None) -> TerminalOutput:
        """Return the last bytes of the output, no more than `limit`."""

    def told(self) -> str:
        """Return what came of the command, in words and with its output."""

    async def over(self) -> None:
        """Wait until the command has ended, with everything that it has started."""

    def end(self) -> None:
        """Begin to end the command."""

    def forget(self) -> None:
        """End the command, and make room for another one."""


HandedOver = FileText | NoFile | AgentTerminal


class ClientCalls:
    """Knows for which turns an agent waits, and keeps what was handed over until the agent takes
    it. Nothing is kept for a turn that nobody waits for."""

    def __init__(self) -> None:
        self._by_turn: dict[TurnId, dict[CallId, HandedOver]] = {}

    def expect(self, turn: TurnId) -> None:
        """Note that an agent works on a turn and may wait for what its calls return."""
        self._by_turn.setdefault(turn, {})

    def is_expected(self, turn: TurnId) -> bool:
        """Tell whether an agent works on a turn."""
        return turn in self._by_turn

    def hand_over(self, turn: TurnId, call: CallId, what: HandedOver) -> None:
        """Keep what a call returns to the agent. Raises `Rejected` if too much is kept already."""
        kept = self._by_turn.get(turn)
        if kept is None:
            return
        if sum(map(_size, kept.values())) + _size(what) > HANDED_MAX:
            raise Rejected(
                f"more than {HANDED_MAX:,} characters were read at once; read fewer files, or use "
                "line and limit"
            )
        kept[call] = what

    def take(self, turn: TurnId, call: CallId) -> HandedOver | None:
        """Return what a call has handed over, and keep it no more."""
        return self._by_turn.get(turn, {}).pop(call, None)

    def drop(self, turn: TurnId) -> None:
        """Note that no agent works on a turn any more. Its terminals are ended."""
        for what in self._by_turn.pop(turn, {}).values():
            if not isinstance(what, FileText | NoFile):
                what.forget()

    def close(self) -> None:
        """Note that no agent works on any turn any more."""
        for turn in tuple(self._by_turn):
            self.drop(turn)


def _size(what: HandedOver) -> int:
    return len(what.text) if isinstance(what, FileText) else 0
