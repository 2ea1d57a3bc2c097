"""Implements the tool `result`, by which an agent reads on in a result that was too long for it.

Every agent that has tools has this one. The handle is the id of a file of the person's, so the
result of another person's call is answered like one that does not exist.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import MediaId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.ports.records.media import MediaLibrary
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of

NAME: Final = "result"
COUNT_MAX: Final = 16_000
_DESCRIPTION: Final = (
    "Read on in a tool result that was too long to be shown at once. Its handle is at the end of "
    "what was shown."
)


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    handle: Annotated[str, Meta(description="the handle of the result", max_length=100)]
    offset: Annotated[int, Meta(description="at which character to begin", ge=0)] = 0
    count: Annotated[int, Meta(description="how many characters to read", ge=1, le=COUNT_MAX)] = (
        COUNT_MAX
    )


class ResultTool:
    """Reads pieces of long results."""

    name: str = NAME
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def __init__(self, library: MediaLibrary) -> None:
        self._library = library

    def traits(self, arguments: str) -> CallTraits:
        return CallTraits(names=(NAME,), repeat=Repeat.PURE, permission=Permission.OWN)

    def kinds(self) -> Sequence[CallTraits]:
        return (self.traits("{}"),)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        asked = arguments_of(call.arguments, _Arguments, tool=NAME)
        try:
            media = await self._library.get(MediaId(asked.handle), principal=caller.principal)
        except NotFound as error:
            raise NotFound(f"there is no result {asked.handle!r}") from error
        if not media.mime.startswith("text/"):
            raise Rejected(f"{media.name} is a file of the kind {media.mime}, not a long result")
        text = (await self._library.read(media.id)).decode(errors="replace")
        piece = text[asked.offset : asked.offset + asked.count]
        end = asked.offset + len(piece)
        if not piece:
            return f"The result has {len(text):,} characters; there is nothing at {asked.offset:,}."
        left = len(text) - end
        more = f"\n[{left:,} more characters; go on with offset {end}]" if left else ""
        return f"{piece}{more}"
