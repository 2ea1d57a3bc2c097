"""Names the kinds of turns and of updates. No other file names them."""

from enum import StrEnum
from typing import Final


class TurnKind(StrEnum):
    """Says what a turn is for.

    A person waits for the answer to a MESSAGE, and a program for the answer to a CALL. A RESULT
    says what an errand has found, and SENT is a text that was sent here from elsewhere; no model is
    asked for these two. The others are errands, which serve another session. BACKGROUND: a request
    of a person that is answered later. TITLE: what to call the session. SUMMARY: a shorter form of
    its older turns. MEMORY: what to remember of a session that was closed. STICKER: what a sticker
    shows that has no description yet. SCHEDULED: one run of a job. DELEGATED: a piece of work that
    one agent gives to another.
    """

    MESSAGE = "message"
    CALL = "call"
    RESULT = "result"
    SENT = "sent"
    BACKGROUND = "background"
    TITLE = "title"
    SUMMARY = "summary"
    MEMORY = "memory"
    STICKER = "sticker"
    SCHEDULED = "scheduled"
    DELEGATED = "delegated"

    @property
    def is_errand(self) -> bool:
        return self in ERRANDS

    @property
    def has_tools(self) -> bool:
        """Tell whether the agent may call its tools in a turn of this kind."""
        return self not in WITHOUT_TOOLS

    @property
    def is_told_overheard(self) -> bool:
        """Tell whether the model is told what others said in the place. It gets into no title and
        into nobody's memory."""
        return self not in (TurnKind.TITLE, TurnKind.MEMORY)

    @property
    def is_unasked(self) -> bool:
        """Tell whether a turn of this kind is said as it is, without asking a model."""
        return self in UNASKED


WITHOUT_TOOLS: Final = (TurnKind.TITLE, TurnKind.SUMMARY, TurnKind.STICKER)
UNASKED: Final = (TurnKind.RESULT, TurnKind.SENT)
ERRANDS: Final = (
    TurnKind.BACKGROUND,
    TurnKind.TITLE,
    TurnKind.SUMMARY,
    TurnKind.MEMORY,
    TurnKind.STICKER,
    TurnKind.SCHEDULED,
    TurnKind.DELEGATED,
)


class UpdateKind(StrEnum):
    """Says what came in. An EDIT or a DELETE is about an earlier message. SENT is meant for another
    place than the one it came from. LEFT: the bot is not in the place any more. MOVED: the place
    has another id now."""

    MESSAGE = "message"
    CALL = "call"
    SENT = "sent"
    EDIT = "edit"
    DELETE = "delete"
    LEFT = "left"
    MOVED = "moved"
