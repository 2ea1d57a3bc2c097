"""Provides an agent that stays in the middle of its answer while the gateway runs its tools, as
external agents do."""

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import TurnSettled
from perdure.domain.journal.model.timings import Timings
from perdure.domain.outcomes import Interruption, StopReason
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage, ResultBlock, Role, TextBlock
from perdure.domain.tools.todo import TodoItem
from perdure.domain.turn.stream import (
    AgentActed,
    AgentBegan,
    AgentCall,
    AgentEvent,
    AgentKept,
    AgentPlan,
    AgentText,
    AgentTimed,
    Stopped,
)
from perdure.ports.turns.agent import Work
from perdure.testkit.simulator.world import World

BEGAN: Final = "began"
WENT_ON: Final = "went on"
REBUILT: Final = "rebuilt"
KNOWN: Final = "known"


class FlyingAgent:
    """Answers `tool NAME {json}` in one flight: it uses a tool of its own, calls NAME, and goes on
    with what that returned. It lives in one process of the gateway. `lose N` loses the agent N
    times in the middle of its answer, and `lose N beside` loses it with the answers of others.
    `tool NAME dying` loses it while people are asked. How each run began is added to the world's
    `flown`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._in_flight: set[TurnId] = set()
        self._dying: set[TurnId] = set()
        self._kept: dict[str, TurnId] = {}

    def encode(self, message: PromptMessage) -> bytes:
        return msgspec.json.encode(message)

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        self._world.agent.requests.append(request)
        results = [b for b in request.messages[-1].blocks if isinstance(b, ResultBlock)]
        is_in_flight = work.turn in self._in_flight
        self._in_flight.discard(work.turn)
        self._world.flown.append(await self._how(work, is_in_flight, bool(results)))
        text = _asked(request)
        if text.startswith("tool ") and not results:
            for event in _beginning(*text.removesuffix(" dying").split(maxsplit=2)[1:]):
                if isinstance(event, Stopped):
                    self._in_flight.add(work.turn)
                    if text.endswith(" dying"):
                        self._dying.add(work.turn)
                yield event
            return
        lost = text.startswith("lose ") and self._world.flown.count(BEGAN) <= int(text.split()[1])
        yield AgentText("This is ")
        if lost:
            beside = text.endswith(" beside")
            yield _lost(Interruption.AGENT_LOST_BESIDE if beside else Interruption.AGENT_LOST)
            return
        yield AgentText("what I know.")
        yield AgentTimed(timings=Timings(transport="pool", first_token=1))
        name = f"kept-{work.turn}"
        self._kept[name] = work.turn
        yield AgentKept(session=name)
        yield Stopped(reason=StopReason.STOP)

    async def _how(self, work: Work, is_in_flight: bool, has_results: bool) -> str:  # noqa: FBT001
        """Return how a run begins."""
        if has_results:
            return WENT_ON if is_in_flight else REBUILT
        chain = await work.chain(limit=1)
        settled = [r.event for r in chain[-1] if isinstance(r.event, TurnSettled)] if chain else []
        is_known = any(self._kept.get(each.agent_session) == work.parent for each in settled)
        return KNOWN if is_known else BEGAN

    def let_go(self, turn: TurnId) -> None:
        if turn in self._in_flight:
            self._in_flight.discard(turn)
            self._world.flown.append("let go")

    async def lost(self, turn: TurnId) -> bool:
        """Lose the agent as soon as people were asked, if the turn's message says so."""
        if turn in self._dying:
            self._dying.discard(turn)
            self._in_flight.discard(turn)
            self._world.flown.append("lost")
            return True
        return False

    async def close(self) -> None:
        self._in_flight.clear()


def _lost(interruption: Interruption) -> Stopped:
    return Stopped(
        reason=StopReason.PROVIDER_CUT,
        detail="the agent's program ended",
        interruption=interruption,
    )


def _asked(request: ModelRequest) -> str:
    """Return what a person has said last."""
    messages = (m for m in reversed(request.messages) if m.role is Role.USER)
    texts = (b.text for m in messages for b in reversed(m.blocks) if isinstance(b, TextBlock))
    return next(texts, "")


def _beginning(tool: str, arguments: str = "{}") -> list[AgentEvent]:
    """Return what comes before the answer waits for a tool."""
    return [
        AgentPlan(items=(TodoItem(text="look"),)),
        AgentText("Let me look. "),
        AgentBegan(id="own", name="search"),
        AgentActed(id="own", name="search", arguments="{}", text="found"),
        AgentText("And ask. "),
        AgentCall(id="ours", name=tool, arguments=arguments),
        AgentTimed(timings=Timings(transport="pool")),
        Stopped(reason=StopReason.TOOL_CALLS),
    ]
