"""Retells what happens in a conversation as updates of an editor's session.

The same news may come more than once: as deltas and as a whole message, in the transcript and in
the stream of events, after a lost connection. Each text is told once. What models think is never
told, because the node does not show it.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from perdure.app.editor.calls import CallSeen, call_seen, shown
from perdure.app.editor.edits import edits_in
from perdure.app.editor.shapes import (
    AgentChunk,
    CallAsked,
    CallChanged,
    CallShown,
    LinkShown,
    PlanItem,
    PlanShown,
    Status,
    TextShown,
    TitleShown,
    Update,
    UserChunk,
)
from perdure.domain.journal.transcript import Entry
from perdure.domain.outcomes import Outcome
from perdure.domain.tools.todo import TodoItem, TodoState, todo_items
from perdure.domain.turn.watching import Delta, News, OutcomeNews, StateNews, ToolNews

# How many messages are remembered, so that they are not told again.
KNOWN_MAX: Final = 2_000
_UNDER_WAY: Final = ("started", "progress")
_DONE: Final = "finished"
_PLAN_STATES: Final[dict[TodoState, Literal["pending", "in_progress", "completed"]]] = {
    TodoState.OPEN: "pending",
    TodoState.DOING: "in_progress",
    TodoState.DONE: "completed",
}


class Retelling:
    """Remembers what an editor was told of one conversation. `folder` is open in the editor, and
    `media` is the address below which the node serves files."""

    def __init__(self, *, folder: str, media: str) -> None:
        self.folder = folder
        self._media = media
        self._known: dict[str, None] = {}
        # How many characters were told of the messages that are being written.
        self._told: dict[str, int] = {}
        self._calls: dict[str, CallSeen] = {}
        self._speaking = ""
        self._title = ""

    def know(self, message: str) -> None:
        """Take a message as told. The editor shows what its person has typed by itself."""
        self._keep(message)
        self._speaking = ""

    def _keep(self, message: str) -> None:
        self._told.pop(message, None)
        self._known[message] = None
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def retold(self, news: News, *, may_grow: bool = False) -> list[Update]:
        """Return what an editor is told of a piece of news. Questions are not told: the editor is
        asked. `may_grow`: the message may still be written."""
        match news:
            case Delta():
                return self._grown(news.message, news.offset, news.text)
            case Entry():
                return self._entry(news, may_grow=may_grow)
            case ToolNews():
                said = news.text if news.result is None else news.result
                return [*self._call(news.call, news.name, news.ended or news.state, said)]
            case OutcomeNews():
                return self._ended()
            case StateNews(title=title) if title and title != self._title:
                self._title = title
                return [TitleShown(title=title)]
            case _:
                return []

    def noticed(self, text: str) -> AgentChunk:
        """Return a text that the gateway says itself, set apart from what the agent says."""
        quoted = "\n".join(f"> {line}" for line in text.strip().split("\n"))
        return self._said("", f"{quoted}\n\n")

    def replied(self, text: str) -> AgentChunk:
        """Return the reply to a command."""
        return self._said("", text)

    def asked(self, call: str, tool: str, arguments: str, text: str) -> CallAsked:
        """Return the call about which a person is asked, with the changes that the question
        shows."""
        seen = self._calls.get(call) or call_seen(tool, arguments)
        seen.edits = seen.edits or edits_in(text)
        self._calls[call] = seen
        return CallAsked(
            tool_call_id=call,
            title=seen.title,
            kind=seen.kind,
            raw_input=seen.raw_input,
            content=shown(text, seen.edits, self.folder),
        )

    def _entry(self, entry: Entry, *, may_grow: bool) -> list[Update]:
        if entry.id in self._known:
            return []
        match entry.role:
            case "user":
                self.know(entry.id)
                files = f"\n{_names(entry)}" if entry.attachments else ""
                text = TextShown(text=f"{entry.text}{files}")
                return [UserChunk(content=text, message_id=entry.id)]
            case "assistant":
                updates = self._message(entry)
                if not may_grow:
                    self._keep(entry.id)
                return updates
            case "tool":
                self.know(entry.id)
                return [*self._call(entry.id, entry.name, entry.state, entry.text)]
            case _:
                return self._notice(entry)

    def _message(self, entry: Entry) -> list[Update]:
        """Return the rest of a message, its files and its calls. In a transcript it may have an
        outcome that its text does not tell."""
        updates = self._grown(entry.id, 0, entry.text)
        updates += [
            AgentChunk(
                content=LinkShown(
                    name=each.name or each.mime or "file",
                    uri=f"{self._media}/{each.media}",
                    mime_type=each.mime,
                ),
                message_id=entry.id,
            )
            for each in entry.attachments
            if each.media
        ]
        updates += [self._begun(each.id, each.name, each.arguments) for each in entry.tool_calls]
        ending = ending_of(entry.outcome, entry.reason, entry.detail) if entry.outcome else ""
        return [*updates, self.noticed(ending)] if ending else updates

    def _notice(self, entry: Entry) -> list[Update]:
        items = todo_items(entry.text)
        if items is not None:
            # The same list comes again under the same id whenever it changes.
            return [PlanShown(entries=_plan(items))]
        self.know(entry.id)
        return [] if entry.question or not entry.text.strip() else [self.noticed(entry.text)]

    def _grown(self, message: str, offset: int, text: str) -> list[Update]:
        """Return the part of a text that was not told before."""
        if message in self._known:
            return []
        known = self._told.get(message, 0)
        new = text[max(known - offset, 0) :]
        self._told[message] = max(known, offset + len(text))
        return [self._said(message, new)] if new else []

    def _said(self, message: str, text: str) -> AgentChunk:
        """Return a piece of text. Editors join all pieces that follow each other, so a new message
        begins with a blank line."""
        is_next = bool(self._speaking) and self._speaking != (message or "notice")
        self._speaking = message or "notice"
        joined = f"\n\n{text}" if is_next else text
        return AgentChunk(content=TextShown(text=joined), message_id=message)

    def _begun(self, call: str, name: str, arguments: str) -> CallShown | CallChanged:
        """Return a call as it begins. One that an external agent makes by itself is told when it
        begins, and once more when its arguments are in a message."""
        self._speaking = ""
        is_told = call in self._calls
        seen = self._calls[call] = call_seen(name, arguments)
        shape = CallChanged if is_told else CallShown
        return shape(tool_call_id=call, title=seen.title, kind=seen.kind, raw_input=seen.raw_input)

    def _call(self, call: str, name: str, state: str, text: str) -> Iterator[Update]:
        """Yield what is told when a call begins to run, is under way, or is over."""
        if call not in self._calls:
            yield self._begun(call, name, "")
        seen = self._calls[call]
        if state in _UNDER_WAY:
            content = shown(text, seen.edits, self.folder)
            yield CallChanged(tool_call_id=call, status="in_progress", content=content)
            return
        content = shown(text, seen.edits or edits_in(text), self.folder)
        status: Status = "completed" if state == _DONE else "failed"
        yield CallChanged(tool_call_id=call, status=status, content=content)
        del self._calls[call]

    def _ended(self) -> list[Update]:
        """Return the end of what a turn leaves open: calls that will not be made any more."""
        left, self._calls = list(self._calls), {}
        self._told.clear()
        return [CallChanged(tool_call_id=call, status="failed") for call in left]


def ending_of(outcome: str, reason: str, detail: str) -> str:
    """Return in words how a turn ended, or an empty text if its answer is all there is to say."""
    if outcome in {Outcome.DONE, Outcome.STOPPED, Outcome.SUPERSEDED, Outcome.INTERRUPTED}:
        return ""
    why = ", ".join(part for part in (reason, detail) if part)
    return f"the turn ended as {outcome}" + (f": {why}" if why else "")


def _names(entry: Entry) -> str:
    return " ".join(f"[{each.name or each.mime or each.url}]" for each in entry.attachments)


def _plan(items: Iterable[TodoItem]) -> tuple[PlanItem, ...]:
    """Return a list as a plan. What was dropped is left out, because a plan has no word for it."""
    return tuple(
        PlanItem(content=each.text, status=state)
        for each in items
        if (state := _PLAN_STATES.get(each.state))
    )
