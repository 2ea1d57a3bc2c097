"""Holds the agents of this gateway, by name."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import TurnId
from perdure.domain.journal.model.options import Options
from perdure.domain.people.menu import AgentOffer, OfferedTool
from perdure.domain.people.prices import Tariff
from perdure.domain.prompt.compaction import KEEP_SHARE
from perdure.domain.prompt.old_pictures import PICTURES_KEPT
from perdure.domain.tools.globs import is_match
from perdure.domain.tools.policy import Do, ToolPolicy, default_for
from perdure.ports.agents.programs import AgentProgramKeeper
from perdure.ports.turns.agent import Agent
from perdure.ports.turns.tools import NamedPrompts, ToolOffer, Tools

# What a wire that requires a limit asks for an answer. Smaller windows have no room for so much.
_ANSWER_TOKENS: Final = 8192


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an agent with its configuration and its tools. `patience_s` is how long a turn waits
    for the agent while it is away; `concurrent` is how many calls it takes at once; `account` is
    the same for agents that share a limit at a provider. `window` is the size of the model's window
    as its server has named it, or 0; a smaller window than the configured one takes its place in
    `context_tokens`. `missing_tools` are those that it could have and does not, as people are told
    of them. `program` are the processes of an agent that is a program of its own."""

    name: str
    kind: str
    agent: Agent
    tools: Tools
    prompts: NamedPrompts | None = None
    policy: ToolPolicy = ToolPolicy()
    missing_tools: tuple[OfferedTool, ...] = ()
    program: AgentProgramKeeper | None = None
    model: str = ""
    reasoning: str = ""
    instructions: str = ""
    fallbacks: tuple[str, ...] = ()
    patience_s: float = 60.0
    concurrent: int | None = None
    account: str = ""
    tariff: Tariff = Tariff()
    has_memory: bool = False
    has_vision: bool = True
    pictures: int = PICTURES_KEPT
    has_context: bool = False
    context_tokens: int = 128_000
    window: int = 0
    compact_at: float = 0.75
    compact_agent: str = ""

    @property
    def compact_tokens(self) -> int:
        """Return the size of the context above which older turns are summarised."""
        return int(self.context_tokens * self.compact_at)

    def fitting(self, options: Options) -> Options:
        """Return options with which the answer leaves room for the request in a small window: some
        servers count both together."""
        most = self.window // 2
        if not 0 < most < _ANSWER_TOKENS:
            return options
        return msgspec.structs.replace(options, max_tokens=options.within(most))

    @property
    def offer(self) -> AgentOffer:
        return AgentOffer(
            has_memory=self.has_memory,
            keep_tokens=int(self.context_tokens * KEEP_SHARE),
            compact_agent=self.compact_agent,
            model=self.model,
            context_tokens=self.context_tokens,
            reasoning=self.reasoning,
            list_tools=self.list_tools,
            list_prompts=self.prompts.offers if self.prompts else tuple,
        )

    def list_tools(self) -> tuple[OfferedTool, ...]:
        """Return what the agent may do, and why not the rest."""
        return (*offered_tools(self.tools.offers(), self.policy), *self.missing_tools)


def offered_tools(offers: Iterable[ToolOffer], policy: ToolPolicy) -> Iterator[OfferedTool]:
    """Yield an agent's tools as people are told of them."""
    for offer in offers:
        if offer.trouble:
            yield OfferedTool(
                name=offer.name, description=offer.description, state="off", why=offer.trouble
            )
            continue
        # A model calls a tool of a server by another name than the configuration does.
        tools = dict.fromkeys([offer.name, *(traits.tool for traits in offer.traits)])
        mode = next((policy.approve[tool] for tool in tools if tool in policy.approve), None)
        has_rules = any(is_match(rule.tool, name) for rule in policy.rules for name in offer.acts)
        states = sorted({default_for(traits, policy) for traits in offer.traits})
        asked = {
            Do.ALLOW: "it may be called without a question",
            Do.ASK: "you are asked before it is called",
            Do.DENY: "a rule forbids it",
        }
        why = f'approve = "{mode}"' if mode else ", or ".join(asked[each] for each in states)
        yield OfferedTool(
            name=offer.name,
            description=offer.description,
            state=" or ".join(states),
            why=f"{why}; rules refine it" if has_rules else why,
        )


class Roster:
    """Holds the agents by name; the first one is the default. An agent that a new configuration
    has replaced continues the turns that it has, and is closed after the last of them."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        assert backends
        self._windows: dict[tuple[str, str], int] = {}
        self._configured = dict(backends)
        self._backends = dict(backends)
        # By agent, not by name: a replaced agent and the one in its place have the same name.
        self._at_work: Counter[Agent] = Counter()
        self._retired: set[Agent] = set()
        self._forget: list[Callable[[Agent], None]] = []
        self.default = next(iter(self._backends))

    def when_gone(self, forget: Callable[[Agent], None]) -> None:
        """Call `forget` with every agent that is about to be closed because it was replaced."""
        self._forget.append(forget)

    @property
    def backends(self) -> list[Backend]:
        return list(self._backends.values())

    async def replace(self, backends: Mapping[str, Backend]) -> None:
        """Take over a new configuration. Turns under way keep the backends that they have."""
        assert backends
        kept = {backend.agent for backend in backends.values()}
        replaced = {backend.agent for backend in self._backends.values()} - kept
        self._retired = (self._retired | replaced) - kept
        self._configured = dict(backends)
        self._backends = self._fitted()
        self.default = next(iter(self._backends))
        await self._let_go()

    def learn(self, windows: Iterable[tuple[str, str, int]]) -> None:
        """Take over the windows that servers have named: agent, model and tokens of each."""
        self._windows.update({(agent, model): tokens for agent, model, tokens in windows})
        self._backends = self._fitted()

    def places(self, name: str) -> int | None:
        """Return how many calls an agent takes at once, or None if that is not bounded."""
        backend = self._backends.get(name)
        return backend.concurrent if backend else None

    def window(self, backend: Backend) -> int:
        """Return the window that the server of this backend's model has named, or 0."""
        return self._windows.get((backend.name, backend.model), 0)

    def fresh(self, backend: Backend) -> Backend:
        """Return a backend with what is known by now."""
        found = next((each for each in self.backends if each.agent is backend.agent), backend)
        return msgspec.structs.replace(found, tools=backend.tools, policy=backend.policy)

    def _fitted(self) -> dict[str, Backend]:
        """Return the backends with the windows that are known."""
        return {
            name: msgspec.structs.replace(
                backend, window=known, context_tokens=min(backend.context_tokens, known)
            )
            if (known := self.window(backend))
            else backend
            for name, backend in self._configured.items()
        }

    @asynccontextmanager
    async def at_work(self, name: str) -> AsyncIterator[list[Backend]]:
        """Yield the backends that a turn for this agent may use. Their agents stay open
        meanwhile."""
        backends = self.candidates(name)
        self._at_work.update(_agents(backends))
        try:
            yield backends
        finally:
            self._at_work.subtract(_agents(backends))
            await self._let_go()

    def let_go(self, turn: TurnId) -> None:
        """Tell all agents that nobody waits for a turn any more."""
        for agent in {*_agents(self.backends), *self._retired}:
            agent.let_go(turn)

    async def _let_go(self) -> None:
        """Close the replaced agents that no turn uses any more. They leave the set first: closing
        takes a while, and the next turn that ends must not close them again."""
        idle = [agent for agent in self._retired if not self._at_work[agent]]
        self._retired.difference_update(idle)
        for agent in idle:
            del self._at_work[agent]
            for forget in self._forget:
                forget(agent)
            await agent.close()

    async def close(self) -> None:
        for agent in (*self._retired, *_agents(self.backends)):
            await agent.close()
        self._retired.clear()

    def resolve(self, name: str) -> str:
        """Return the name of a configured agent; an empty name means the default. Raises `Rejected`
        if there is no such agent."""
        chosen = name or self.default
        if chosen not in self._backends:
            known = ", ".join(self._backends)
            raise Rejected(f"there is no agent {chosen!r}; choose one of: {known}", code="no_agent")
        return chosen

    def candidates(self, name: str) -> list[Backend]:
        """Return the agent's backend, then those that stand in if it fails before the first token.
        An unknown name stands for the default agent."""
        first = self._backends.get(name) or self._backends[self.default]
        return [
            first,
            *(self._backends[each] for each in first.fallbacks if each in self._backends),
        ]


def _agents(backends: Sequence[Backend]) -> list[Agent]:
    return [backend.agent for backend in backends]
