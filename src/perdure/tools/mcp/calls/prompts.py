"""Offers the prompts of an agent's tool servers to people."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from perdure.domain.errors import NotFound, PerdureError, Rejected
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.named_prompts import (
    NO_PROMPT,
    NamedPrompt,
    PromptArgument,
    PromptFound,
    arguments_in,
    missing_text,
    prompt_named,
    typed_name,
)
from perdure.domain.text import harmless_line, storable
from perdure.ports.turns.servers import ServerState, ToolServers
from perdure.tools.mcp.calls.names import wire_name
from perdure.tools.mcp.calls.results import output_of
from perdure.tools.mcp.link import ListedPrompt, ServerAnswer

# How much of a prompt the model is told.
TEXT_MAX: Final = 100_000
# How much of a server's own words people are told when it refuses.
_REFUSAL_MAX: Final = 500


class PromptServers(ToolServers, Protocol):
    """Asks tool servers for their prompts, by the names of the servers.

    Guarantees: each method ends in time; `known_prompts` asks nobody.
    Requires: nothing.
    Raises: `NotFound` for a server that is not configured; `Rejected` in the words of a server that
    refuses; `Transient` if a server cannot be asked now.
    After a crash: nothing is kept.
    """

    async def prompts(self, name: str, principal: PrincipalId) -> Sequence[ListedPrompt]:
        """Return the prompts of a server as they are now for this person. One that cannot be
        reached has those that are known."""

    def known_prompts(self, name: str) -> Sequence[ListedPrompt]:
        """Return the prompts of a server as far as they are known."""

    async def prompt(
        self, name: str, principal: PrincipalId, prompt: str, arguments: Mapping[str, str]
    ) -> ServerAnswer:
        """Return what a prompt of a server says."""


class ServerPrompts:
    """Implements `NamedPrompts` for an agent that has these tool servers."""

    def __init__(self, servers: PromptServers, names: Sequence[str]) -> None:
        self._servers = servers
        self._names = tuple(names)

    async def expand(self, text: str, principal: PrincipalId) -> PromptFound:
        typed = typed_name(text)
        if typed is None:
            return NO_PROMPT
        prompt = prompt_named(typed.name, await self._listed(typed.name, principal))
        if prompt is None:
            return self._out_of_reach(typed.name)
        given = arguments_in(prompt, typed.rest)
        if problem := missing_text(prompt, given):
            return PromptFound(name=prompt.name, problem=problem, is_mistake=True)
        try:
            answer = await self._servers.prompt(prompt.server, principal, prompt.own, given)
        except Rejected as error:
            why = harmless_line(error.message[:_REFUSAL_MAX])
            problem = f"{prompt.server} refuses /{prompt.name}: {why}. Write: {prompt.usage}"
            return PromptFound(name=prompt.name, problem=problem, is_mistake=True)
        except PerdureError as error:
            problem = f"{prompt.server} could not be asked for /{prompt.name}: {error.message}"
            return PromptFound(name=prompt.name, problem=storable(problem))
        if not answer.pieces:
            problem = f"{prompt.server} returned an empty text for /{prompt.name}"
            return PromptFound(name=prompt.name, problem=problem)
        return PromptFound(name=prompt.name, text=_told(answer))

    def offers(self) -> list[NamedPrompt]:
        return [prompt for name in self._names for prompt in self._known(name)]

    def _known(self, name: str) -> Iterator[NamedPrompt]:
        # A new configuration may have taken the server away, while a turn still has its old
        # backend.
        with suppress(NotFound):
            yield from (_named(name, each) for each in self._servers.known_prompts(name))

    async def _listed(self, typed: str, principal: PrincipalId) -> list[NamedPrompt]:
        """Return the prompts that a name may mean. Only the servers are asked that may have it,
        side by side."""
        meant = [name for name in self._names if _is_of(name, typed)]

        async def listed(name: str) -> list[NamedPrompt]:
            try:
                found = await self._servers.prompts(name, principal)
            except PerdureError:
                return list(self._known(name))
            return [_named(name, each) for each in found]

        found = await asyncio.gather(*(listed(name) for name in meant or self._names))
        return [prompt for prompts in found for prompt in prompts]

    def _out_of_reach(self, typed: str) -> PromptFound:
        """Return why a server cannot be asked whose prompt this may be. If it can, the word is
        none of its prompts, and means nothing."""
        for view in self._servers.views():
            is_meant = view.name in self._names and _is_of(view.name, typed)
            if is_meant and view.state is not ServerState.READY:
                problem = f"the tool server {view.name} cannot be asked for /{typed}: {view.why}"
                return PromptFound(name=typed, problem=storable(problem))
        return NO_PROMPT


def _is_of(server: str, typed: str) -> bool:
    """Tell whether a typed name is the full name of something of this server."""
    return typed.casefold().startswith(f"{server}__".casefold())


def _named(server: str, listed: ListedPrompt) -> NamedPrompt:
    return NamedPrompt(
        name=wire_name(server, listed.name),
        server=server,
        own=listed.name,
        description=listed.description,
        arguments=tuple(
            PromptArgument(
                name=each.name, description=each.description, is_required=each.is_required
            )
            for each in listed.arguments
        ),
    )


def _told(answer: ServerAnswer) -> str:
    """Return the words of a prompt. Its files are named."""
    output = output_of(answer)
    files = [f"[{each.name}, which is not shown]" for each in output.files]
    text = storable("\n\n".join([output.text, *files]))
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}\n[{len(text) - TEXT_MAX:,} more characters were left out.]"
