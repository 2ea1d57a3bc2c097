"""Provides an agent that answers by a rule and records what it was asked, and tools that count
their calls."""

from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
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
from perdure.domain.journal.events import (
    Recorded,
    ToolCall,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import CallEnding, Repeat, StopReason
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage, ResultBlock, TextBlock
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.domain.turn.stream import (
    AgentCall,
    AgentEvent,
    AgentFile,
    AgentSpent,
    AgentText,
    Stopped,
)
from perdure.ports.turns.agent import Work
from perdure.ports.turns.tools import ToolCaller, ToolOffer, ToolResult

AnswerRule = Callable[[ModelRequest], Sequence[AgentEvent]]


def said(request: ModelRequest) -> str:
    """Return the last text in the request's messages, or an empty string if there is none."""
    texts = [b.text for m in request.messages for b in m.blocks if isinstance(b, TextBlock)]
    return texts[-1] if texts else ""


def echo(request: ModelRequest) -> Sequence[AgentEvent]:
    """Return an answer that repeats the user's words, word by word. `tool NAME` calls a tool first,
    and `file NAME` sends a file."""
    text = said(request)
    has_result = any(isinstance(b, ResultBlock) for b in request.messages[-1].blocks)
    if text.startswith("tool ") and not has_result:
        name = text.split()[1]
        return [
            AgentText("Let me look. "),
            AgentCall(id="given-by-provider", name=name, arguments="{}"),
            Stopped(reason=StopReason.TOOL_CALLS),
        ]
    if text.startswith("file "):
        given = AgentFile(name=text.split()[1], mime="text/plain", data=b"words of the agent")
        return [AgentText("Here "), given, AgentText("it is."), Stopped(reason=StopReason.STOP)]
    words = [AgentText(word + " ") for word in f"echo: {text}".split()]
    return [*words, AgentSpent(Usage(output_tokens=len(words))), Stopped(reason=StopReason.STOP)]


class LooseWork:
    """Implements `Work` for a model call that belongs to no stored turn."""

    session = SessionId("ses_loose")
    turn = TurnId("trn_loose")
    attempt = 1
    conversation = ConversationId("con_loose")
    principal = PrincipalId("pri_loose")
    parent: TurnId | None = None
    events: Sequence[Recorded] = ()

    async def chain(self, *, limit: int) -> list[list[Recorded]]:
        return []


class ScriptedAgent:
    """Implements the `Agent` port by a rule from a request to the events of an answer. It records
    each request, and the work that it was for."""

    def __init__(self, rule: AnswerRule = echo) -> None:
        self._rule = rule
        self.requests: list[ModelRequest] = []
        self.works: list[Work] = []

    def encode(self, message: PromptMessage) -> bytes:
        return msgspec.json.encode(message)

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        self.requests.append(request)
        self.works.append(work)
        for event in self._rule(request):
            yield event

    def let_go(self, turn: TurnId) -> None:
        return

    async def lost(self, turn: TurnId) -> bool:
        return False

    async def close(self) -> None:
        return


class ScriptedPrompts:
    """Implements the `NamedPrompts` port with one prompt, `/sea__tide place`. It adds the text of
    each fetch to `fetched`, which belongs to the test, and no two of these texts are equal. The
    prompt of `nowhere` cannot be had."""

    def __init__(self, fetched: list[str]) -> None:
        self._fetched = fetched

    async def expand(self, text: str, principal: PrincipalId) -> PromptFound:
        typed = typed_name(text)
        prompt = prompt_named(typed.name, self.offers()) if typed else None
        if typed is None or prompt is None:
            return NO_PROMPT
        if problem := missing_text(prompt, arguments_in(prompt, typed.rest)):
            return PromptFound(name=prompt.name, problem=problem, is_mistake=True)
        if typed.rest == "nowhere":
            return PromptFound(name=prompt.name, problem="the server sea is down: it has ended")
        self._fetched.append(f"Tell the tide of {typed.rest}, as of fetch {len(self._fetched)}.")
        return PromptFound(name=prompt.name, text=self._fetched[-1])

    def offers(self) -> list[NamedPrompt]:
        place = PromptArgument(name="place", description="where", is_required=True)
        return [NamedPrompt(name="sea__tide", server="sea", own="tide", arguments=(place,))]


class CountingTools:
    """Implements the `Tools` port with tools that only add the id of each call to `ran`. The list
    belongs to the test, so it survives every crash of the gateway. Nobody is asked about a call,
    unless it has another `permission`."""

    def __init__(
        self,
        ran: list[str],
        *,
        repeat: Repeat = Repeat.ONCE,
        permission: Permission = Permission.OWN,
    ) -> None:
        self.ran = ran
        self._repeat = repeat
        self._permission = permission

    async def current(self, principal: PrincipalId) -> "CountingTools":
        return self

    def schemas(self) -> str:
        return "[]"

    def offers(self) -> list[ToolOffer]:
        return []

    def has(self, name: str) -> bool:
        return True

    def traits(self, name: str, arguments: str) -> CallTraits:
        return CallTraits(
            names=(name,), repeat=self._repeat, permission=self._permission, definition=name
        )

    def time_limit_s(self, name: str) -> float:
        return 600.0

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        self.ran.append(call.id)
        return ToolResult(ending=CallEnding.RETURNED, text=f"{call.name} done")
