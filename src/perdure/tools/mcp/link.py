"""Defines a link: one live connection to one tool server, in words that do not depend on how it is
reached or on which version of the protocol it speaks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import msgspec

from perdure.tools.mcp.server_log import ServerLog

# What a server may list, and how much of it is read. More is refused as a fault of the server.
TOOLS_MAX: Final = 1_000
SCHEMA_BYTES_MAX: Final = 200_000
# How much one answer of a server may hold.
ANSWER_BYTES_MAX: Final = 20_000_000


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a tool as its server lists it. The hints are None where the server says nothing.
    `parameters` is the JSON Schema of the arguments, as JSON text of an object."""

    name: str
    description: str = ""
    parameters: str = '{"type":"object"}'
    is_read_only: bool | None = None
    is_destructive: bool | None = None
    is_idempotent: bool | None = None
    is_open_world: bool | None = None


class ListedArgument(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one argument of a prompt."""

    name: str
    description: str = ""
    is_required: bool = False


class ListedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a prompt as its server lists it."""

    name: str
    description: str = ""
    arguments: tuple[ListedArgument, ...] = ()


class ListedResource(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a resource, or a template of resources' addresses (`is_template`)."""

    uri: str
    name: str = ""
    description: str = ""
    mime: str = ""
    is_template: bool = False


class WordsPiece(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """Holds text of an answer. `uri` is set if it is the content of a resource."""

    text: str
    uri: str = ""


class FilePiece(msgspec.Struct, frozen=True, kw_only=True, tag="file"):
    """Holds a picture, a sound or another file of an answer."""

    data: bytes
    mime: str
    name: str = ""
    uri: str = ""


class PointerPiece(msgspec.Struct, frozen=True, kw_only=True, tag="pointer"):
    """Names a resource that an answer points to."""

    resource: ListedResource


Piece = WordsPiece | FilePiece | PointerPiece


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a server has answered to a call. `structured` is JSON text, or empty. With
    `has_failed` the tool itself says that it failed; the link is whole."""

    pieces: tuple[Piece, ...] = ()
    structured: str = ""
    has_failed: bool = False


class InputNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a server asks the person something before it goes on with a call: to fill in a
    form (`schema` is a JSON Schema of an object with plain fields, as JSON text), or to look at an
    address (`url`). `state` is what `resume` needs; a link that has ended since may still know it,
    if the server keeps nothing meanwhile."""

    message: str
    schema: str = ""
    url: str = ""
    state: str = ""


class InputGiven(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the person has done about an `InputNeeded`. `content` are the fields of the form,
    if it was accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = {}
    state: str


class Sampler(Protocol):
    """Answers a server that asks for a model's words in the middle of a call. `request` and the
    result are the parameters and the result of `sampling/createMessage`, as plain values. Raises
    `Rejected` or `Transient`, with words for the server, if there are none."""

    async def __call__(self, request: dict[str, Any], /) -> dict[str, Any]: ...


def _unheard() -> None:
    """Do nothing about a list that has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms:
    """Holds the terms of a link: how long connecting may take, how long each answer may take that
    is not of a call, and how long a call waits for a person. `on_change` hears, about once a second
    at most, that the server's lists have changed. `log` gets what the server says beside its
    answers. `is_of_one`: all calls of the link are made for the same person. `can_sample`: the
    server is told that it may ask for a model's words."""

    connect_s: float = 30.0
    answer_s: float = 30.0
    waits_s: float = 3600.0
    on_change: Callable[[], None] = _unheard
    can_sample: bool = False
    log: ServerLog = field(default_factory=ServerLog)
    is_of_one: bool = False


class ServerLink(Protocol):
    """Talks to one server over one connection.

    Guarantees: every call ends, in the time that its caller allows. A call that is cancelled is
    cancelled at the server, its late answer is ignored, and the link stays usable. What a server
    sends is bounded, and it cannot make other parts of the gateway wait. Nothing is ever sent
    twice.
    Requires: it is used by any number of tasks at once; only its owner closes it.
    Raises: `Transient` if the request cannot have reached the server, `Ambiguous` if nobody knows
    what became of it, `Rejected` if the server refuses it in words, `Permanent` if what it sends is
    no answer.
    After a crash: the link is gone, and so is its server if we had started it.
    """

    @property
    def server(self) -> str:
        """Return what the server calls itself, with its version; empty if it does not say."""

    @property
    def version(self) -> str:
        """Return the version of the protocol that is spoken."""

    @property
    def has_prompts(self) -> bool:
        """Tell whether the server says that it has prompts."""

    @property
    def has_resources(self) -> bool:
        """Tell whether the server says that it has resources."""

    @property
    def ended(self) -> str:
        """Return why the link has ended, in words that follow "it"; empty while it lives."""

    @property
    def errors(self) -> str:
        """Return the end of what the server has written to its log, as far as it is known here."""

    async def tools(self) -> list[ListedTool]:
        """Return all tools of the server. A tool that makes no sense (no name, a schema that is
        none) is left out; a list without end is an error."""

    async def prompts(self) -> list[ListedPrompt]:
        """Return all prompts of the server."""

    async def resources(self) -> list[ListedResource]:
        """Return all resources of the server, and the templates of their addresses."""

    async def read(self, uri: str) -> ServerAnswer:
        """Return what a resource holds."""

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> ServerAnswer:
        """Return the messages of a prompt, each as a piece; a message of the assistant begins with
        "Assistant: "."""

    async def call(
        self,
        call: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        report: Callable[[str], None],
        sampler: Sampler | None = None,
    ) -> ServerAnswer | InputNeeded:
        """Call a tool. `call` is our own id of the call, `report` hears how far it is, and
        `sampler` answers a server that asks for a model's words; without it none are given. If the
        server asks the person something, the call goes on with `resume`. A server that asks for
        either while several calls of several people are under way, so that nobody knows whom it
        means, is told no."""

    async def resume(
        self,
        call: str,
        tool: str,
        arguments: dict[str, Any],
        given: InputGiven,
        *,
        report: Callable[[str], None],
        sampler: Sampler | None = None,
    ) -> ServerAnswer | InputNeeded:
        """Go on with a call that needed input. Raises `Ambiguous` if this link does not know the
        call any more and the server cannot be asked again."""

    async def ping(self) -> None:
        """Ask the server whether it still lives. Raises `Transient` if it does not answer."""

    async def close(self) -> None:
        """End the connection, and the server if we have started it. Returns in bounded time."""
