"""Provides the model and the tools of a world of the crash simulator, which wait where an act wants
them to."""

from collections.abc import AsyncGenerator

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage
from perdure.domain.tools.traits import CallTraits, Inquiry, Permission
from perdure.domain.turn.stream import AgentEvent, AgentText
from perdure.ports.turns.agent import Work
from perdure.ports.turns.tools import ToolCaller, ToolQuestion, ToolReply, ToolResult
from perdure.testkit.simulator.agent import CountingTools
from perdure.testkit.simulator.world import World

PICKS = ("left", "right")


class HeldAgent:
    """Waits at the world's gate after each piece of an answer that the world holds."""

    def __init__(self, world: World) -> None:
        self._world = world

    def encode(self, message: PromptMessage) -> bytes:
        return self._world.agent.encode(message)

    def let_go(self, turn: TurnId) -> None:
        self._world.agent.let_go(turn)

    async def lost(self, turn: TurnId) -> bool:
        return await self._world.agent.lost(turn)

    async def close(self) -> None:
        await self._world.agent.close()

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        async for event in self._world.agent.run(request, work):
            yield event
            if isinstance(event, AgentText) and self._world.holds(request):
                await self._world.gate.enter()


class HeldTools(CountingTools):
    """Waits at the world's gate after a tool has run and before its result is returned. Where
    people are asked, `save` may be repeated, nobody is asked about `peek`, and a person's answer is
    the result of `ask`, which never runs. `pick` asks a person in the middle of its call; that it
    goes on is noted by the call's id and the answer."""

    def __init__(self, world: World) -> None:
        permission = Permission.ACT if world.setup.asks else Permission.OWN
        super().__init__(world.tools_ran, permission=permission)
        self._world = world

    def traits(self, name: str, arguments: str) -> CallTraits:
        found = super().traits(name, arguments)
        if not self._world.setup.asks:
            return found
        if name == "peek":
            return msgspec.structs.replace(found, repeat=Repeat.PURE, permission=Permission.OWN)
        if name == "ask":
            asked = Inquiry(text="Which one?", choices=PICKS)
            return msgspec.structs.replace(found, repeat=Repeat.REPEATABLE, inquiry=asked)
        return msgspec.structs.replace(found, repeat=Repeat.REPEATABLE) if name == "save" else found

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        if call.name == "pick":
            result = self._picked(call, caller.reply)
        else:
            result = await super().call(call, caller)
        self._world.when_called()
        await self._world.gate.enter()
        return result

    def _picked(self, call: ToolCall, reply: ToolReply | None) -> ToolResult:
        if reply is None:
            self.ran.append(call.id)
            question = ToolQuestion(text="Which one?", choices=PICKS, state="which")
            return ToolResult(ending=CallEnding.RETURNED, text="", question=question)
        assert reply.state == "which"
        self.ran.append(f"{call.id} {reply.answer or reply.reason}")
        return ToolResult(ending=CallEnding.RETURNED, text=f"picked {reply.answer or reply.reason}")
