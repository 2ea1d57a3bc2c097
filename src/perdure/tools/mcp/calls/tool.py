"""Makes a tool of an agent from a tool that a server lists."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from perdure.domain.errors import Ambiguous, Rejected
from perdure.domain.ids import PrincipalId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.text import storable
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook
from perdure.ports.turns.tools import ToolCaller, ToolReply
from perdure.tools.mcp.calls.forms import asked_in, declined, given_by, question_of
from perdure.tools.mcp.calls.results import output_of
from perdure.tools.mcp.calls.sampling import sampler_for
from perdure.tools.mcp.calls.schemas import required_by
from perdure.tools.mcp.link import (
    InputGiven,
    InputNeeded,
    ListedTool,
    Sampler,
    ServerAnswer,
    ServerLink,
)
from perdure.tools.tool import ToolOutput

T = TypeVar("T")
DESCRIPTION_MAX: Final = 8_000
# The most characters of names that a refusal lists.
MISSING_MAX: Final = 500
# How often a server is told no in one call before the call is given up.
_REFUSALS_MAX: Final = 3
_Result = ServerAnswer | InputNeeded
_arguments: Final = msgspec.json.Decoder(dict[str, Any])
_named: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class LinkUser(Protocol):
    """Lets a call use the link to a server.

    Guarantees: the link is that of the person, or the one that all people share. What is certain
    not to have reached the server is tried once more on a new link, if the old one has ended; so is
    what `may_repeat`.
    Requires: nothing.
    Raises: the errors of the link; `Transient` if the server cannot be reached.
    After a crash: nothing is kept.
    """

    @property
    def name(self) -> str:
        """Return the server's name in the configuration."""

    @property
    def may_sample(self) -> bool:
        """Tell whether the server may ask for a model's words."""

    async def use(
        self,
        principal: PrincipalId,
        act: Callable[[ServerLink], Awaitable[T]],
        *,
        may_repeat: bool,
        call: str = "",
    ) -> T:
        """Do something with the link, and return what it returns. `call` names the tool's call that
        it belongs to; if that needs input, the link is kept for it."""


class McpTool:
    """Calls one tool of a server."""

    def __init__(
        self, server: LinkUser, listed: ListedTool, *, name: str, traits: CallTraits, limit_s: float
    ) -> None:
        self.name: str = name
        self.description: str = storable(listed.description[:DESCRIPTION_MAX]) or listed.name
        self.parameters: str = _for_models(listed.parameters)
        self.time_limit_s: float = limit_s
        self._server = server
        self._own = listed.name
        self._required = required_by(self.parameters)
        self._traits = traits

    def traits(self, arguments: str) -> CallTraits:
        given = _named.decode(arguments.strip() or "{}")
        missing = [name for name in self._required if name not in given]
        if missing:
            # No person should be asked about a call that cannot work.
            raise Rejected(
                f"wrong arguments: it requires {', '.join(missing)[:MISSING_MAX]} as well; call "
                f"{self.name} again with all of them"
            )
        return self._traits

    def kinds(self) -> Sequence[CallTraits]:
        return (self._traits,)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:  # noqa: ARG002 - nobody knows
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolOutput:
        arguments = _arguments.decode(call.arguments.strip() or "{}")
        if caller.reply is None:
            found = await self._begin(call, caller, arguments)
        else:
            needed = asked_in(caller.reply.state)
            given = _given(caller.reply, needed)
            if isinstance(given, str):
                question = question_of(self._server.name, needed, problem=given)
                return ToolOutput(question=question)
            found = await self._resume(call, caller, arguments, given)
        return await self._ended(call, caller, arguments, found)

    async def _ended(
        self, call: ToolCall, caller: ToolCaller, arguments: dict[str, Any], found: _Result
    ) -> ToolOutput:
        """Return the output of a call, or the question that it asks. What cannot be asked is
        declined for the person."""
        why = "nobody can be asked here"
        for _ in range(_REFUSALS_MAX):
            if isinstance(found, ServerAnswer):
                return output_of(found)
            try:
                if caller.can_ask:
                    return ToolOutput(question=question_of(self._server.name, found))
            except Rejected as error:
                why = error.message
            found = await self._resume(call, caller, arguments, declined(found))
        if isinstance(found, ServerAnswer):
            return output_of(found)
        raise Ambiguous(f"the server asks a person again and again, and {why}")

    async def _begin(
        self, call: ToolCall, caller: ToolCaller, arguments: dict[str, Any]
    ) -> _Result:
        async def act(link: ServerLink) -> _Result:
            return await link.call(
                call.id, self._own, arguments, report=caller.report, sampler=self._sampler(caller)
            )

        return await self._use(call, caller, act)

    async def _resume(
        self, call: ToolCall, caller: ToolCaller, arguments: dict[str, Any], given: InputGiven
    ) -> _Result:
        async def act(link: ServerLink) -> _Result:
            return await link.resume(
                call.id,
                self._own,
                arguments,
                given,
                report=caller.report,
                sampler=self._sampler(caller),
            )

        return await self._use(call, caller, act)

    def _sampler(self, caller: ToolCaller) -> Sampler | None:
        return sampler_for(caller) if self._server.may_sample else None

    async def _use(
        self, call: ToolCall, caller: ToolCaller, act: Callable[[ServerLink], Awaitable[_Result]]
    ) -> _Result:
        may_repeat = self._traits.repeat is not Repeat.ONCE
        return await self._server.use(caller.principal, act, may_repeat=may_repeat, call=call.id)


def _given(reply: ToolReply, needed: InputNeeded) -> InputGiven | str:
    """Return what a person has answered, or what is wrong with it."""
    try:
        return given_by(reply, needed)
    except Rejected as error:
        return error.message


def _for_models(parameters: str) -> str:
    """Return a schema of arguments as models' servers take it: some want to see properties even
    where there are none, and do not know the dialect that a schema names."""
    schema = _arguments.decode(parameters)
    schema.pop("$schema", None)
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    return msgspec.json.encode(schema).decode()
