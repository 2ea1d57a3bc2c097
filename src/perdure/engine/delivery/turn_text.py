"""What the people of a running turn are to read right now, folded from what was published of it."""

from perdure.domain.delivery import Display, Streaming
from perdure.domain.ids import CallId, MessageId
from perdure.domain.journal.events import (
    AssistantSaid,
    AttemptInterrupted,
    Recorded,
    ToolFinished,
    ToolStarted,
    TurnSettled,
)
from perdure.domain.turn.watching import Delta
from perdure.engine.watching.feed import FeedItem
from perdure.ports.turns.turns import Claimed


class TurnText:
    """Begins with what earlier attempts have said. `is_over` once this attempt has ended."""

    def __init__(self, claimed: Claimed, display: Display) -> None:
        self._turn = claimed.lease.turn
        self._display = display
        self._texts: dict[MessageId, str] = {}
        self._tools: dict[CallId, str] = {}
        self._names: dict[CallId, str] = {}
        self._is_thinking = False
        self.is_over = False
        for recorded in claimed.events:
            self.see(recorded)
        self.is_over = False

    def see(self, item: FeedItem) -> None:
        """Take in what was published in the session of the turn."""
        if item.turn != self._turn:
            return
        if isinstance(item, Delta):
            self._is_thinking = False
            known = self._texts.get(item.message, "")
            self._texts[item.message] = known[: item.offset] + item.text
        else:
            self._see_fact(item)

    def _see_fact(self, recorded: Recorded) -> None:
        match recorded.event:
            case AssistantSaid() as said:
                self._texts[said.message] = said.text
                self._names.update({call.id: call.name for call in said.calls})
            case ToolStarted(call=call):
                self._tools[call] = self._names.get(call, "a tool")
            case ToolFinished(call=call):
                self._tools.pop(call, None)
            case AttemptInterrupted() | TurnSettled():
                self.is_over = True
            case _:
                pass

    def think(self) -> None:
        """The model is at work and says nothing yet."""
        self._is_thinking = True

    def now(self, streaming: Streaming) -> str:
        """Return what is to be read, with what is being done where that may stand for a while."""
        said = "\n\n".join(text for text in self._texts.values() if text.strip())
        if streaming in (Streaming.NATIVE, Streaming.APPEND):
            return said  # it only grows, so nothing may stand there for a while
        working = list(dict.fromkeys(self._tools.values())) if self._display.has_tools else []
        if self._is_thinking and self._display.has_reasoning:
            working.append("thinking")
        return f"{said}\n\n_{', '.join(working)} …_".lstrip() if working else said
