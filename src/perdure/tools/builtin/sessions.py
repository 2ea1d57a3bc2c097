"""Implements the tool `sessions`: searches and reads earlier conversations with the person.

The person comes from the caller, never from the arguments: the session id of another person is
answered like one that does not exist.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, assert_never

import msgspec
from msgspec import Meta

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import SessionId
from perdure.domain.journal.events import ToolCall
from perdure.domain.journal.left_out import MESSAGE_LEFT_OUT, omissions_of
from perdure.domain.journal.records import SessionView, ToldTurn
from perdure.domain.journal.transcript import Entry, entries_of
from perdure.domain.outcomes import Repeat
from perdure.domain.text import excerpt
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.ports.records.history import Archive, Hit
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of

NAME: Final = "sessions"
HITS: Final = 10
MESSAGES_MAX: Final = 200
_MESSAGES_DEFAULT: Final = 20
_EXCERPT: Final = 240
_DESCRIPTION: Final = (
    "Look up earlier conversations with the person you talk with. search finds messages that hold "
    "all the given words and names their sessions; read shows the newest messages of one session."
)


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    action: Annotated[
        Literal["search", "read"], Meta(description="search by words, or read a session")
    ]
    words: Annotated[str, Meta(description="search: words that the message holds")] = ""
    session: Annotated[str, Meta(description="read: a session's id, as search shows it")] = ""
    count: Annotated[int, Meta(description="read: how many messages", ge=1, le=MESSAGES_MAX)] = (
        _MESSAGES_DEFAULT
    )


class SessionsTool:
    """Searches messages, and reads sessions."""

    name: str = NAME
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def traits(self, arguments: str) -> CallTraits:
        return CallTraits(names=(NAME,), repeat=Repeat.PURE, permission=Permission.OWN)

    def kinds(self) -> Sequence[CallTraits]:
        return (self.traits("{}"),)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        asked = arguments_of(call.arguments, _Arguments, tool=NAME)
        if caller.is_shared:
            # Another participant's message could talk the model into reading the person's private
            # sessions aloud.
            raise Rejected("earlier conversations are private, and others read along here")
        match asked.action:
            case "search":
                return await self._search(asked.words, caller)
            case "read":
                return await self._read(asked, caller)
            case _:
                assert_never(asked.action)

    async def _search(self, words: str, caller: ToolCaller) -> str:
        if not words.split():
            raise Rejected("search needs words; call again with some")
        hits = await self._archive.search(
            words, principal=caller.principal, before=None, limit=HITS
        )
        if not hits:
            return "No message holds these words. Try fewer or other ones."
        return "\n".join(_found(hit, words) for hit in hits)

    async def _read(self, asked: _Arguments, caller: ToolCaller) -> str:
        if not asked.session:
            raise Rejected("read needs session; search shows sessions' ids")
        try:
            view = await self._archive.session(SessionId(asked.session), principal=caller.principal)
        except NotFound as error:
            raise NotFound("there is no such session; search shows sessions' ids") from error
        entries = await self._newest(view, asked.count)
        said = [f"{_time(each.at)} {each.role}: {each.text}" for each in entries]
        title = f" ({view.title})" if view.title else ""
        return "\n".join([f"{view.id}{title}", *(said or ["Nothing was said in it."])])

    async def _newest(self, view: SessionView, count: int) -> list[Entry]:
        # Every started turn holds a message, so `count` turns are enough. A turn too long for one
        # page comes in several, and the last page may hold only tool results; then earlier pages
        # are read.
        turns = await self._archive.told(view.id, limit=count)
        while not (said := _said_in(turns)) and turns and turns[0].begins_at:
            turns = await self._archive.told(
                view.id, before=turns[0].turn, before_seq=turns[0].begins_at, limit=count
            )
        return said[-count:]


def _said_in(turns: Sequence[ToldTurn]) -> list[Entry]:
    entries = [
        msgspec.structs.replace(entry, text=MESSAGE_LEFT_OUT)
        if entry.left_out == "message"
        else entry
        for turn in turns
        for entry in entries_of(
            turn.events, since=turn.begins_at, omissions=omissions_of(turn.left_out)
        )
    ]
    return [each for each in entries if each.role != "tool" and each.text.strip()]


def _found(hit: Hit, words: str) -> str:
    text = excerpt(" ".join(hit.text.split()), words, length=_EXCERPT)
    return f"{hit.session} in {hit.conversation}, {_time(hit.at)} {hit.role}: {text}"


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")
