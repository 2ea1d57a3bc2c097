"""Computes the text that people see of a running turn, from the events and deltas published for
it."""

import re
from typing import Final

from perdure.domain.content.silence import may_become_silent
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
from perdure.domain.journal.question_events import AnswerAwaited, WorkDelegated
from perdure.domain.tools.asking import code_line
from perdure.domain.turn.watching import Delta, ToolProgress
from perdure.engine.watching.feed import FeedItem
from perdure.ports.turns.turns import Claimed

# A line in which no platform and no markdown finds anything but words: no link, no mention.
_PLAIN: Final = re.compile(r"[\w ,%()+=-]*")


class TurnText:
    """Holds what a running turn has said so far, earlier attempts included, and what it is doing.
    `is_over` becomes true when this attempt has ended."""

    def __init__(self, claimed: Claimed, display: Display) -> None:
        self._turn = claimed.lease.turn
        self._display = display
        self._texts: dict[MessageId, str] = {}
        self._tools: dict[CallId, str] = {}
        self._names: dict[CallId, str] = {}
        # When each of these tools has begun, and when the turn has.
        self._begun: dict[CallId, int] = {}
        self._begun_at = claimed.events[0].at
        self._is_thinking = False
        self.is_over = False
        for recorded in claimed.events:
            self.see(recorded)
        # An earlier attempt may have ended with an interruption; this attempt has just begun.
        self.is_over = False

    def see(self, item: FeedItem) -> None:
        """Apply what was published in the turn's session. Ignores other turns."""
        if item.turn != self._turn:
            return
        if isinstance(item, ToolProgress):
            name = self._names.get(CallId(item.call), "a tool")
            self._tools[CallId(item.call)] = f"{name}: {_as_words(item.text)}"
        elif isinstance(item, Delta):
            self._is_thinking = False
            known = self._texts.get(item.message, "")
            self._texts[item.message] = known[: item.offset] + item.text
        else:
            self._see_fact(item)

    def _see_fact(self, recorded: Recorded) -> None:
        match recorded.event:
            case AssistantSaid() as said:
                self._texts[said.message] = said.text
                self._names.update({call.id: _as_words(call.name) for call in said.calls})
            case ToolStarted(call=call):
                self._tools[call] = self._names.get(call, "a tool")
                self._begun[call] = recorded.at
            case ToolFinished(call=call):
                self._tools.pop(call, None)
                self._begun.pop(call, None)
            case AttemptInterrupted() | AnswerAwaited() | WorkDelegated() | TurnSettled():
                self.is_over = True
            case _:
                pass

    def think(self) -> None:
        """Note that the model was asked and has said nothing yet."""
        self._is_thinking = True

    def working(self, now_ms: int) -> tuple[tuple[str, ...], float]:
        """Return the names of the tools at work, and for how many seconds the first of them is; or,
        if there is none to be named, no name, and for how many seconds the turn is under way."""
        if not self._begun or not self._display.has_tools:
            return (), max(now_ms - self._begun_at, 0) / 1000
        names = (self._names.get(call, "a tool") for call in self._begun)
        return tuple(dict.fromkeys(names)), max(now_ms - min(self._begun.values()), 0) / 1000

    def now(self, streaming: Streaming) -> str:
        """Return the text to show: what was said, and, where a message can be changed later, what
        the turn is doing."""
        said = "\n\n".join(text for text in self._texts.values() if text.strip())
        if may_become_silent(said):
            said = ""  # people must not see an answer that may turn out to be none
        if streaming in (Streaming.NATIVE, Streaming.APPEND):
            return said  # such a message only grows, so a status in it could not be removed again
        working = list(dict.fromkeys(self._tools.values())) if self._display.has_tools else []
        if self._is_thinking and self._display.has_reasoning:
            working.append("thinking")
        return f"{said}\n\n_{', '.join(working)} …_".lstrip() if working else said


def _as_words(text: str) -> str:
    """Return a line that a tool or a model has written so that it means nothing but its words: as
    code, if anything in it could mean more."""
    line = " ".join(text.split())
    return line if _PLAIN.fullmatch(line) else code_line(line)
