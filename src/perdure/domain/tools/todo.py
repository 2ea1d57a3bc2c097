"""Describes the list of what an agent still has to do in a session."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from perdure.domain.text import without_disguise

ITEMS_MAX: Final = 100
TEXT_MAX: Final = 300


class TodoState(StrEnum):
    OPEN = "open"
    DOING = "doing"
    DONE = "done"
    DROPPED = "dropped"


class TodoItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds one thing to do."""

    text: Annotated[str, Meta(description="what is to be done", min_length=1, max_length=TEXT_MAX)]
    state: Annotated[
        TodoState, Meta(description="open, doing (one at a time), done, or dropped")
    ] = TodoState.OPEN


_MARKS: Final = {
    TodoState.OPEN: "☐",
    TodoState.DOING: "▶️",
    TodoState.DONE: "☑️",
    TodoState.DROPPED: "✖️",
}


_HEAD: Final = "📋 **To do**"


def todo_text(items: tuple[TodoItem, ...]) -> str:
    """Return the list as people are shown it, as markdown."""
    done = sum(each.state is TodoState.DONE for each in items)
    head = f"{_HEAD} ({done} of {len(items)} done)" if items else f"{_HEAD}: nothing"
    lines = [f"- {_MARKS[each.state]} {without_disguise(each.text)}" for each in items]
    return "\n".join([head, *lines])


def todo_items(text: str) -> tuple[TodoItem, ...] | None:
    """Return the list that people were shown by `todo_text`, or None if the text shows none."""
    head, *lines = text.split("\n")
    if not head.startswith(_HEAD):
        return None
    items = list[TodoItem]()
    for line in lines:
        state = next((each for each in TodoState if line.startswith(f"- {_MARKS[each]} ")), None)
        if state is not None:
            items.append(TodoItem(text=line.removeprefix(f"- {_MARKS[state]} "), state=state))
        elif items:
            longer = f"{items[-1].text}\n{line}"
            items[-1] = msgspec.structs.replace(items[-1], text=longer)
    return tuple(items)
