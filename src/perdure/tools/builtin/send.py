"""Implements the tool `send`: a text, with files, for another conversation.

The gateway queues it in the transaction that stores the call's result. So the tool itself never
runs: it says what is to be sent, and whether that is possible and permitted is found out by whoever
runs the call.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.text import storable
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission, Posting
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of

NAME: Final = "send"
TEXT_MAX: Final = 10_000
FILES_MAX: Final = 10
_DESCRIPTION: Final = (
    "Send a text to another conversation than this one, as a message of yours. Everybody who reads "
    "there sees it. It cannot be taken back. Say in your answer here what you have sent."
)


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    to: Annotated[
        str,
        Meta(
            description="the address, such as telegram:123 or matrix:!room:host, the name of a "
            "conversation of this person over HTTP, or home",
            max_length=500,
        ),
    ]
    text: Annotated[str, Meta(description="the text, in Markdown", max_length=TEXT_MAX)]
    files: Annotated[
        tuple[str, ...],
        Meta(
            description="the names of files to send along: of this turn's messages and tools",
            max_length=FILES_MAX,
        ),
    ] = ()


class SendTool:
    """Sends something to another conversation."""

    name: str = NAME
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def traits(self, arguments: str) -> CallTraits:
        asked = arguments_of(arguments, _Arguments, tool=NAME)
        to = storable(asked.to.strip())
        if not to:
            raise Rejected("there is no address; call send again with `to`")
        if not asked.text.strip():
            raise Rejected("there is nothing to send; call send again with a text")
        return _traits(Posting(to=to, text=storable(asked.text), files=asked.files))

    def kinds(self) -> Sequence[CallTraits]:
        return (_traits(None),)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        raise Rejected("nothing can be sent from here")


def _traits(posting: Posting | None) -> CallTraits:
    """Return the traits of a call. Rules and grants are about the address."""
    return CallTraits(
        names=(NAME,),
        repeat=Repeat.ONCE,
        permission=Permission.ACT,
        paths=(posting.to,) if posting else (),
        posting=posting,
    )
