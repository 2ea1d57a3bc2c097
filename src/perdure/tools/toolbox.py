"""Holds the tools of one agent, by name.

Every call gets a result that the model can act on: an unknown tool is answered with the known ones,
arguments that are not JSON with what they must be, and a failure with its message. A call that must
not be repeated and that fails in a way which leaves open whether it has happened ends as unknown. A
long result is kept as a file by whoever runs the call; only what no file would hold is cut here.
"""

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Final

import msgspec
import structlog

from perdure.domain.errors import Ambiguous, PerdureError, Transient
from perdure.domain.ids import PrincipalId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.text import most_like, storable
from perdure.domain.tools.framing import framed
from perdure.domain.tools.traits import (
    NOTHING_AHEAD,
    CallTraits,
    Outlook,
    Permission,
    digest_of,
)
from perdure.ports.system.time_limits import time_limit
from perdure.ports.turns.tools import (
    NO_TOOLS,
    RESULT_CHARS_MAX,
    ToolCaller,
    ToolOffer,
    ToolResult,
)
from perdure.tools.tool import TIME_LIMIT_S, Tool, ToolOutput, ToolSource

NAME_MAX: Final = 100
# How long a tool may take to find out what a call would do.
OUTLOOK_LIMIT_S: Final = 30.0
_MAY_HAVE_HAPPENED: Final = (
    "The call failed, and it may have happened. Do not repeat it without asking the person. What "
    "the tool says:"
)
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
log = structlog.get_logger("tools")


class _Parameters(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    parameters: msgspec.Raw


class _Function(msgspec.Struct, frozen=True, kw_only=True):
    type: str = "function"
    function: _Parameters


class Toolbox:
    """Implements the `Tools` port with tools that are known already, and with those that `sources`
    list. Without either, it serves an agent that has none. `hidden` tools are called like others,
    and no model is told of them: they take what the gateway itself asks for an agent."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        sources: Sequence[ToolSource] = (),
        hidden: Sequence[Tool] = (),
    ) -> None:
        self._shown = tuple(tools)
        self._hidden = tuple(hidden)
        # A hidden tool wins: whatever a server calls its own tool, it must not take its place.
        self._tools = {tool.name: tool for tool in (*tools, *hidden)}
        assert len(self._tools) == len(tools) + len(hidden), "two tools of one name"
        self._sources = tuple(sources)
        # What was listed last. Most turns find the same tools, and describing them takes a while.
        self._last: Toolbox | None = None
        self._schemas = f"[{','.join(map(_schema, tools))}]" if tools else NO_TOOLS
        self._definitions = {name: definition_of(tool) for name, tool in self._tools.items()}

    async def current(self, principal: PrincipalId) -> "Toolbox":
        if not self._sources:
            return self
        # Side by side: a slow source must not make the others wait.
        listed = await asyncio.gather(*(source.tools(principal) for source in self._sources))
        tools = {tool.name: tool for tool in self._shown}
        for tool in chain.from_iterable(listed):
            # The first of two tools with one name is kept: a server must not take the place of a
            # tool that the operator trusts.
            tools.setdefault(tool.name, tool)
        for each in self._hidden:
            tools.pop(each.name, None)
        found = tuple(tools.values())
        if self._last is None or self._last.tools != found:
            self._last = Toolbox(found, hidden=self._hidden)
        return self._last

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that are known already."""
        return self._shown

    def schemas(self) -> str:
        return self._schemas

    def offers(self) -> list[ToolOffer]:
        offers = [_offer(tool) for tool in self._shown]
        return offers + [offer for source in self._sources for offer in source.offers()]

    def has(self, name: str) -> bool:
        return name in self._tools

    def traits(self, name: str, arguments: str) -> CallTraits:
        tool = self._tools.get(name)
        problem = self._unknown(name) if tool is None else _problem(arguments)
        if tool is None or problem:
            return _unusable(name, problem)
        try:
            found = tool.traits(arguments)
        except PerdureError as error:
            return _unusable(name, error.message)
        except Exception as error:
            log.exception("a tool failed unexpectedly", tool=name)
            return _unusable(name, _unforeseen(error))
        return msgspec.structs.replace(found, definition=self._definitions[name])

    def time_limit_s(self, name: str) -> float:
        tool = self._tools.get(name)
        return tool.time_limit_s if tool else TIME_LIMIT_S

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        tool = self._tools.get(call.name)
        if tool is None:
            return NOTHING_AHEAD
        try:
            async with time_limit(min(OUTLOOK_LIMIT_S, tool.time_limit_s)):
                return await tool.outlook(call, caller)
        except PerdureError as error:
            return Outlook(problem=error.message)
        except TimeoutError:
            return Outlook(problem="it took too long to find out what it would do; try again later")
        except Exception as error:
            log.exception("a tool failed unexpectedly", tool=call.name, call=call.id)
            return Outlook(problem=_unforeseen(error))

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        tool = self._tools.get(call.name)
        problem = self._unknown(call.name) if tool is None else _problem(call.arguments)
        if tool is None or problem:
            return _failed(problem)
        try:
            output = await tool.call(call, caller)
        except Ambiguous as error:
            return _in_doubt(call, error.message)
        except Transient as error:
            return _failed(f"{error.message}; you may call again")
        except PerdureError as error:
            return _failed(error.message)
        except Exception as error:
            log.exception("a tool failed unexpectedly", tool=call.name, call=call.id)
            return _in_doubt(call, _unforeseen(error))
        if isinstance(output, str):
            output = ToolOutput(text=output)
        return ToolResult(
            ending=CallEnding.FAILED if output.has_failed else CallEnding.RETURNED,
            text=storable(_fitting(output.text)),
            files=output.files,
            recorded=output.recorded,
            question=output.question,
        )

    def _unknown(self, name: str) -> str:
        shown = name[:NAME_MAX]
        if not self._shown:
            return f"there is no tool {shown!r}, and no other; answer without tools"
        names = [tool.name for tool in self._shown]
        near = most_like(shown, names)
        hint = f"; did you mean {near}?" if near else ""
        return f"there is no tool {shown!r}{hint}; you have: {', '.join(names)}"


def _offer(tool: Tool) -> ToolOffer:
    """Return a tool as people are told of it. A kind of call that cannot run is its trouble."""
    kinds = tuple(tool.kinds())
    trouble = next((each.problem for each in kinds if each.problem), "")
    return ToolOffer(name=tool.name, description=tool.description, traits=kinds, trouble=trouble)


def definition_of(tool: Tool) -> str:
    """Return a digest of what a tool says of itself. Grants end when it changes."""
    return digest_of(tool.name, tool.description, tool.parameters)


def _schema(tool: Tool) -> str:
    """Return a tool's description for the model, as JSON text."""
    function = _Parameters(
        name=tool.name,
        description=tool.description,
        parameters=msgspec.Raw(tool.parameters.encode()),
    )
    return msgspec.json.encode(_Function(function=function)).decode()


def _unusable(name: str, problem: str) -> CallTraits:
    """Return the traits of a call that cannot run."""
    return CallTraits(
        names=(name[:NAME_MAX],), repeat=Repeat.PURE, permission=Permission.OWN, problem=problem
    )


def _problem(arguments: str) -> str:
    """Return what is wrong with a call's arguments, or an empty string."""
    if not arguments.strip():
        return ""
    try:
        _object.decode(arguments)
    except msgspec.ValidationError:
        return "the arguments must be a JSON object; call again with one"
    except (msgspec.DecodeError, RecursionError) as error:
        return f"the arguments are not valid JSON ({error}); call again with a JSON object"
    return ""


def _in_doubt(call: ToolCall, why: str) -> ToolResult:
    """Return the result of a call that may have happened and has failed. What the tool says of it
    is framed, because the result of a call that ends as unknown is told in the gateway's words."""
    if call.repeat is not Repeat.ONCE:
        return _failed(f"{why}; you may call again")
    said = framed(call.id, call.name, storable(why))
    return ToolResult(ending=CallEnding.UNKNOWN, text=f"{_MAY_HAVE_HAPPENED}\n{said}")


def _unforeseen(error: Exception) -> str:
    """Return what is told of an error that no tool should raise. Its own words are left out: they
    may hold anything, also of other people."""
    return f"the tool failed unexpectedly ({type(error).__name__})"


def _fitting(text: str) -> str:
    """Return a result, cut if it is longer than any that is kept."""
    if len(text) <= RESULT_CHARS_MAX:
        return text
    cut = f"\n[The result has {len(text):,} characters. The rest was left out.]"
    return text[: RESULT_CHARS_MAX - len(cut)] + cut


def _failed(text: str) -> ToolResult:
    return ToolResult(ending=CallEnding.FAILED, text=storable(text))
