"""Translates what is heard of an agent's prompt into the events of an answer. It is pure: updates
go in, events come out.

An agent reports a call of a tool of its own in pieces: that it begins, what it is given, what comes
of it. It may leave any piece out, and come back to a call that nobody knows. So the pieces are put
together by the call's id, and the whole is told when the call is over, or when the prompt is.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.agents.acp.translation.own_calls import BridgedCalls, BridgedNames
from perdure.domain.journal.model.thoughts import Thought, Thoughts
from perdure.domain.text import storable, without_disguise
from perdure.domain.tools.diffs import unified_diff
from perdure.domain.tools.todo import ITEMS_MAX, TEXT_MAX, TodoItem, TodoState
from perdure.domain.turn.stream import (
    AgentActed,
    AgentBegan,
    AgentEvent,
    AgentFile,
    AgentPlan,
    AgentText,
    AgentThoughts,
    Thinking,
)

if TYPE_CHECKING:
    from acp import schema

    from perdure.agents.acp.pool.seam import Update

    _Content = (
        schema.TextContentBlock
        | schema.ImageContentBlock
        | schema.AudioContentBlock
        | schema.ResourceContentBlock
        | schema.EmbeddedResourceContentBlock
    )
    _Outcome = (
        schema.ContentToolCallContent
        | schema.FileEditToolCallContent
        | schema.TerminalToolCallContent
    )

# How many calls of one prompt may be open at a time, and how much is kept of one.
OPEN_MAX: Final = 256
TEXT_CHARS_MAX: Final = 1_000_000
INPUT_CHARS_MAX: Final = 100_000
NAME_MAX: Final = 100
# How much of what an agent thinks is kept between two things that it does.
THOUGHT_CHARS_MAX: Final = 20_000
# Marks thoughts that no model is given back: the agent's program keeps its own.
THINKER: Final = "acp"
FILE_BYTES_MAX: Final = 20_000_000
# The longest texts that are compared line by line.
COMPARED_MAX: Final = 1_000_000
_STATES: Final = {
    "pending": TodoState.OPEN,
    "in_progress": TodoState.DOING,
    "completed": TodoState.DONE,
}
_UNFINISHED: Final = "The agent has not said what came of this."


class _OwnCall:
    """Collects what an agent reports of one call of its own tools."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.title = ""
        self.kind = "other"
        self.status = ""
        self.given: object = None
        self.returned: object = None
        self.content: Sequence[_Outcome] = ()
        self.paths: tuple[str, ...] = ()
        self.is_shown = False

    def add(self, update: "schema.ToolCallStart | schema.ToolCallProgress") -> None:
        """Add a piece of the report. What it leaves out stays as it was."""
        self.title = update.title or self.title
        self.kind = update.kind or self.kind
        self.status = update.status or self.status
        self.given = self.given if update.raw_input is None else update.raw_input
        self.returned = self.returned if update.raw_output is None else update.raw_output
        if update.content is not None:
            self.content = update.content
        if update.locations is not None:
            self.paths = tuple(location.path for location in update.locations[:ITEMS_MAX])

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed")

    @property
    def name(self) -> str:
        return _line(self.title) or self.kind

    def whole(self, *, is_over: bool = True) -> AgentActed:
        """Return the call with what came of it."""
        text = "\n".join(filter(None, map(_outcome_text, self.content)))
        if not text and self.returned is not None:
            text = self.returned if isinstance(self.returned, str) else _json(self.returned)
        return AgentActed(
            id=self.identity,
            name=self.name,
            arguments=_arguments(self),
            text=text[:TEXT_CHARS_MAX] if is_over else text[:TEXT_CHARS_MAX] or _UNFINISHED,
            has_failed=self.status == "failed",
        )


class UpdateReader:
    """Reads the updates of one prompt. Calls that come over the bridge as well are left out."""

    def __init__(self, names: BridgedNames) -> None:
        self.bridged = BridgedCalls(names)
        self._calls: dict[str, _OwnCall] = {}
        self._files = 0
        self._thought: list[str] = []
        self._thought_chars = 0

    def thoughts(self) -> Iterator[AgentThoughts]:
        """Yield what was thought since the last time, if anything. It belongs to what the agent
        does next."""
        text, self._thought, self._thought_chars = "".join(self._thought), [], 0
        if text:
            piece = Thought(kind=THINKER, body=_json(storable(text)))
            yield AgentThoughts(Thoughts(thinker=THINKER, pieces=(piece,)))

    def _think(self, content: "_Content") -> None:
        """Keep a piece of what the agent thinks, within bounds."""
        text = content.text if content.type == "text" else ""
        kept = text[: THOUGHT_CHARS_MAX - self._thought_chars]
        self._thought_chars += len(kept)
        self._thought.append(kept)

    def read(self, update: "Update") -> Iterator[AgentEvent]:
        """Yield the events that an update means. Most mean one, and some mean none."""
        if update.session_update == "agent_message_chunk":
            yield from self._said(update.content)
        elif update.session_update == "agent_thought_chunk":
            self._think(update.content)
            yield Thinking()
        elif update.session_update == "tool_call" or update.session_update == "tool_call_update":  # noqa: PLR1714 - mypy tells them apart
            yield from self._reported(update)
        elif update.session_update == "plan":
            yield AgentPlan(items=_items(update.entries))
        # What a session says of its mode and commands is kept by the session (`states.py`).

    def asked(self, tool: "schema.ToolCallUpdate") -> None:
        """Note what a question for permission says of a call: later reports leave that out. Its
        other words are about the question, and not about what came of the call."""
        call = self._known(tool.tool_call_id)
        for name, value in (("title", tool.title), ("kind", tool.kind), ("given", tool.raw_input)):
            if value is not None:
                setattr(call, name, value)
        if changes := [each for each in tool.content or () if each.type == "diff"]:
            call.content = changes

    def given(self, identity: str) -> object:
        """Return what the agent has said that a call is given, or None."""
        return self._known(identity).given

    def rest(self) -> Iterator[AgentEvent]:
        """Yield the calls of which nothing more will be heard, because the prompt is over."""
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            if call.is_shown and not self._is_bridged(call):
                yield call.whole(is_over=False)

    def _said(self, content: "_Content") -> Iterator[AgentEvent]:
        if content.type == "image" or content.type == "audio":  # noqa: PLR1714 - likewise
            yield self._file(content.data, content.mime_type)
        elif text := _content_text(content):
            yield AgentText(storable(text))

    def _file(self, data: str, mime: str) -> AgentFile | AgentText:
        """Return a picture or sound of the answer, or words if it cannot be read."""
        try:
            is_fitting = len(data) <= FILE_BYTES_MAX * 4 // 3 + 4
            raw = base64.b64decode(data, validate=True) if is_fitting else b""
        except (binascii.Error, ValueError):
            raw = b""
        if not raw:
            return AgentText(f"[{_line(mime)}]")
        self._files += 1
        ending = _line(mime.partition("/")[2].partition(";")[0])[:10] or "bin"
        return AgentFile(name=f"file-{self._files}.{ending}", mime=mime[:NAME_MAX], data=raw)

    def _reported(
        self, update: "schema.ToolCallStart | schema.ToolCallProgress"
    ) -> Iterator[AgentEvent]:
        call = self._known(update.tool_call_id)
        call.add(update)
        if call.is_over:
            del self._calls[call.identity]
            if not self._is_bridged(call):
                yield call.whole()
        elif not call.is_shown and call.title and not self.bridged.names.named(call.title):
            call.is_shown = True
            yield AgentBegan(id=call.identity, name=call.name)

    def _known(self, identity: str) -> _OwnCall:
        """Return what is known of a call. If an agent opens calls without end, the oldest one is
        forgotten."""
        identity = identity[:NAME_MAX]
        if identity not in self._calls and len(self._calls) >= OPEN_MAX:
            del self._calls[next(iter(self._calls))]
        return self._calls.setdefault(identity, _OwnCall(identity))

    def _is_bridged(self, call: _OwnCall) -> bool:
        return self.bridged.is_one(call.title, call.given)


def _items(entries: "Sequence[schema.PlanEntry]") -> tuple[TodoItem, ...]:
    """Return an agent's plan as a list of things to do."""
    told = (
        (_line(entry.content, TEXT_MAX), _STATES[entry.status]) for entry in entries[:ITEMS_MAX]
    )
    return tuple(TodoItem(text=text, state=state) for text, state in told if text)


def _content_text(content: "_Content") -> str:
    """Return what a piece of content says."""
    if content.type == "text":
        return content.text
    if content.type == "resource_link":
        return f"[{_line(content.name)}]({content.uri})"
    if content.type == "resource":
        text = getattr(content.resource, "text", "")
        return str(text) or f"[{content.resource.uri}]"
    return f"[{content.mime_type}]"


def _outcome_text(outcome: "_Outcome") -> str:
    """Return a piece of what came of a call. A change of a file is told as its difference."""
    if outcome.type == "content":
        return _content_text(outcome.content)
    if outcome.type == "diff":
        return difference(outcome.path, outcome.old_text, outcome.new_text)
    return ""


def difference(path: str, old: str | None, new: str) -> str:
    """Return how a file changes, as a block of markdown."""
    name = _line(path, 500)
    if len(new) + len(old or "") > COMPARED_MAX:
        return f"{name}: {len(new):,} characters in place of {len(old or ''):,}"
    shown = unified_diff(old, new, name)
    ticks = "```"
    while ticks in shown:
        ticks += "`"
    return f"{ticks}diff\n{shown}\n{ticks}" if shown else f"{name}: nothing changes"


def _arguments(call: _OwnCall) -> str:
    """Return what an agent's tool was given, as JSON text. Too much of it is left out."""
    told: dict[str, object] = {"kind": call.kind}
    if call.paths:
        told["paths"] = call.paths
    if call.given is not None:
        told["input"] = call.given
    text = _json(told)
    if len(text) > INPUT_CHARS_MAX:
        told["input"] = f"{len(text):,} characters, left out"
        text = _json(told)
    return storable(text)


def _json(value: object) -> str:
    """Return a value that came as JSON, as JSON text."""
    return msgspec.json.encode(value).decode()


def _line(text: str, most: int = NAME_MAX) -> str:
    """Return a text as one line of bounded length."""
    return " ".join(without_disguise(storable(text[: 4 * most])).split())[:most].strip()
