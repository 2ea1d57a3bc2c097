"""Defines the ports of the tools that an agent may call through the gateway, and of the prompts of
tool servers that people may call."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.named_prompts import NamedPrompt, PromptFound
from perdure.domain.journal.events import Recorded, ToolCall
from perdure.domain.outcomes import CallEnding
from perdure.domain.prompt.prompt import PromptMessage
from perdure.domain.tools.traits import CallTraits, Outlook


def _say_nothing(text: str) -> None:
    """Report progress to nobody."""


class ToolQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a person must answer before a call can go on. `state` is what the tool needs to
    continue the call with the answer; it is stored with the question."""

    text: str
    choices: tuple[str, ...] = ()
    state: str = ""


class ToolReply(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the answer to the last question of a call, and the `state` of that question. If nobody
    has answered, `answer` is empty, and `reason` says why."""

    answer: str
    state: str
    reason: str = ""


class WordsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a tool asks the model of the agent that has called it. The model is told nothing
    else: nothing of the conversation, and no tools."""

    messages: tuple[PromptMessage, ...]
    tokens_max: int
    instructions: str = ""
    stop: tuple[str, ...] = ()


class WordsGiven(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the model has answered to a tool. `is_cut`: it would have said more."""

    text: str
    model: str
    is_cut: bool = False


async def _no_words(asked: WordsAsked) -> WordsGiven:  # noqa: ARG001 - nobody is asked
    """Refuse to ask a model."""
    raise Rejected("no model can be asked here")


class ToolCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Says for whom a tool runs, and in which conversation. `is_shared`: other people read there
    too, so the result may contain nothing that is only the caller's. A tool that takes long says
    how far it is by `report`. `can_ask`: a person can be asked here. `reply` is set if the call was
    made before and ended with a question: it continues with the answer. `ask_model` asks the model
    of the turn's agent, at the turn's cost, and raises `Rejected` or `Transient` if it does not
    answer; once the call has ended it is always refused."""

    principal: PrincipalId
    conversation: ConversationId
    session: SessionId
    turn: TurnId
    is_shared: bool = False
    report: Callable[[str], None] = _say_nothing
    can_ask: bool = False
    reply: ToolReply | None = None
    ask_model: Callable[[WordsAsked], Awaitable[WordsGiven]] = _no_words


class ToolFile(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a picture or another file that a tool has made for the people."""

    name: str
    mime: str
    data: bytes


# The most characters of a result that are kept.
RESULT_CHARS_MAX: Final = 10_000_000


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how a call has ended, the text that the model reads, the files that go to the people,
    and the events that the tool has stored to show something. With a `question` the call has not
    ended: a person must answer first, and the call is then made once more with the reply."""

    ending: CallEnding
    text: str
    files: tuple[ToolFile, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    question: ToolQuestion | None = None


class ToolOffer(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one tool for people who ask what the agent may do. `traits` are those of each kind
    of call that it takes. `trouble` says why it cannot be used now, or not yet; then nothing needs
    to be known of its calls."""

    name: str
    description: str
    traits: tuple[CallTraits, ...]
    trouble: str = ""

    @property
    def acts(self) -> set[str]:
        """Return the names that rules may use for the tool's calls."""
        return {name for each in self.traits for name in each.names}


NO_TOOLS: Final = ""


class Tools(Protocol):
    """Holds the tools of one agent, and calls them.

    Guarantees: those of each method. What `current` returns never changes.
    Requires: a call was journalled as started before it is made.
    Raises: nothing; the failure of a tool is its result.
    After a crash: a call without a journalled result may have happened; its traits say whether it
    may be made again.
    """

    async def current(self, principal: PrincipalId) -> "Tools":
        """Return the tools as they are now for this person. A source of tools may change them
        between turns; a turn keeps those that it began with."""

    def schemas(self) -> str:
        """Return the tools as JSON text in OpenAI's format, the same bytes at each call; an empty
        string if there are none."""

    def offers(self) -> list[ToolOffer]:
        """Return the tools as people are told of them, as far as they are known without asking
        anybody."""

    def has(self, name: str) -> bool:
        """Tell whether there is a tool of this name."""

    def traits(self, name: str, arguments: str) -> CallTraits:
        """Return what is known of such a call before it runs. Unknown names and bad arguments are a
        `problem` of the call."""

    def time_limit_s(self, name: str) -> float:
        """Return how long a call of this tool may take."""

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        """Return what a call would do if it ran now."""

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        """Call a tool. An unknown name or bad arguments give a failed result that the model
        reads."""


class NamedPrompts(Protocol):
    """Holds the prompts that the tool servers of one agent offer to people.

    Guarantees: `expand` ends in time, and what it returns can be stored.
    Requires: nothing.
    Raises: nothing; why a prompt cannot be had is in what is returned.
    After a crash: nothing is kept; a prompt may be fetched again.
    """

    async def expand(self, text: str, principal: PrincipalId) -> PromptFound:
        """Return the text of the prompt with whose name this message of a person begins."""

    def offers(self) -> Sequence[NamedPrompt]:
        """Return the prompts, as far as they are known without asking anybody."""
