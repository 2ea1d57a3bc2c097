"""Binds one session of an agent to one session of the gateway: with its own tools, its own folder,
and what it was told."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from perdure.agents.acp.flight import Flight
from perdure.agents.acp.kept_notes import KeptNote
from perdure.agents.acp.pool.seam import AgentSession
from perdure.agents.acp.translation.own_calls import BridgedNames
from perdure.agents.acp.translation.transcript import Told
from perdure.agents.acp.watch import StopWatch
from perdure.domain.ids import CallId
from perdure.domain.journal.model.agent_state import UNTOLD, AgentState
from perdure.ports.agents.bridge import BridgeBinding, BridgeCall
from perdure.ports.agents.client import HandedOver

_NOT_NOW = "This tool cannot be called now: no answer of yours is under way."


class _Function(msgspec.Struct):
    name: str


class _Listed(msgspec.Struct):
    function: _Function


_listed = msgspec.json.Decoder(list[_Listed])


def names_in(tools: str) -> list[str]:
    """Return the names of tools that are described in OpenAI's format."""
    return [each.function.name for each in _listed.decode(tools)] if tools else []


class Calls:
    """Gives the calls that come over the bridge to the prompt that is in flight."""

    def __init__(self) -> None:
        self.bridge: BridgeBinding | None = None
        self.flight: Flight | None = None

    def hear(self, call: BridgeCall) -> None:
        """Take a call."""
        if self.flight is not None:
            self.flight.hear(call)
        elif self.bridge is not None:
            self.bridge.answer(call.key, _NOT_NOW, is_error=True)

    def give_up(self, key: int) -> None:
        """Note that the agent does not wait for a call any more."""
        if self.flight is not None:
            self.flight.give_up(key)


class Binding:
    """Holds a session of an agent, as long as it belongs to a session of the gateway."""

    def __init__(
        self, session: AgentSession, calls: Calls, *, group: str, folder: Path, tools: str
    ) -> None:
        self.session = session
        self.group = group
        self.folder = folder
        self._calls = calls
        self._tools = tools
        self._is_opened_now = True
        self._told_state = UNTOLD
        self.note: KeptNote | None = None

    @property
    def flight(self) -> Flight | None:
        """Return the prompt that is in flight, or None."""
        return self._calls.flight

    def can_have(self, tools: str) -> bool:
        """Tell whether the session can be given these tools. One that was opened without a bridge
        stays without."""
        return self._calls.bridge is not None or not tools

    def begin(
        self,
        tools: str,
        watch: StopWatch,
        *,
        silence_s: float,
        handed: Callable[[CallId], HandedOver | None],
    ) -> Flight:
        """Return a prompt that can be sent, with the tools as they are now."""
        bridge = self._calls.bridge
        if bridge is not None and tools != self._tools:
            bridge.publish(tools)
        self._tools = tools
        name = bridge.address.name if bridge is not None else ""
        self._calls.flight = Flight(
            self.session,
            bridge,
            names=BridgedNames(name, names_in(tools)),
            folder=str(self.folder),
            watch=watch,
            silence_s=silence_s,
            handed=handed,
        )
        return self._calls.flight

    def newly_told(self) -> AgentState | None:
        """Return what the agent has told of the session since this was asked last, or None."""
        state = self.session.state
        if state == self._told_state:
            return None
        self._told_state = state
        return state

    def rests(self, told: Told, instructions: str) -> KeptNote:
        """Note that the prompt is over, and what the session was told by then."""
        self._calls.flight = None
        self.note = KeptNote(kept_as=self.session.kept_as, told=told, instructions=instructions)
        return self.note

    def close(self) -> None:
        """Give the session back. A prompt in flight is cancelled, and calls that wait fail."""
        if self._calls.flight is not None:
            self._calls.flight.end()
            self._calls.flight = None
        self.session.release()
        if self._calls.bridge is not None:
            self._calls.bridge.close()
