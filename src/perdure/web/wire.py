"""Declares the bodies of the native API. Their docstrings appear in the OpenAPI document."""

import msgspec

from perdure.domain.journal.events import Attachment
from perdure.domain.journal.model.options import Options
from perdure.domain.journal.model.timings import UNTIMED, Timings
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.records import EffectView, PartView, QuestionView, SessionView, TurnView
from perdure.domain.journal.transcript import Entry, RunningText
from perdure.domain.people.menu import OfferedTool
from perdure.ports.agents.programs import AgentStanding
from perdure.ports.gateway import AgentView
from perdure.ports.people.access import PairingView
from perdure.ports.people.places import PlaceView
from perdure.ports.people.principals import TokenView
from perdure.ports.records.audit import SessionMark
from perdure.ports.records.history import ArrivalRecord, Hit
from perdure.ports.records.occasions import HookFailures
from perdure.ports.turns.questions import GrantView
from perdure.ports.turns.servers import ToolServerView


class AttachmentIn(msgspec.Struct, forbid_unknown_fields=True):
    """Names a file: an uploaded one by its id (`media`), or a link (`url`)."""

    media: str | None = None
    url: str | None = None


class MessageIn(msgspec.Struct, forbid_unknown_fields=True):
    """Holds a message to send. `id` is the client's own; the same id again is the same message.
    `language` is the tag of the language in which the gateway itself is to answer."""

    text: str = ""
    id: str | None = None
    attachments: list[AttachmentIn] = []
    agent: str = ""
    language: str = ""


class AmendIn(msgspec.Struct, forbid_unknown_fields=True):
    """Holds the new text of a message that still waits."""

    text: str


class MessageOut(msgspec.Struct, omit_defaults=True):
    """Says what became of a message. `duplicate` is true if it was accepted before; `reply` is the
    answer to a command, and `choices` are commands that it offers."""

    message: str
    session: str
    turn: str | None
    duplicate: bool
    queued: int | None = None
    effect: str | None = None
    command: str | None = None
    reply: str | None = None
    choices: tuple[str, ...] = ()


class ConversationOut(msgspec.Struct, omit_defaults=True):
    """Shows a conversation and its live session."""

    name: str
    session: str
    state: str
    queued: int
    turn: str | None
    head: str | None
    at: int
    title: str = ""
    resume_reason: str = ""
    linked: str = ""
    agent: str = ""
    pinned: bool = False
    archived: bool = False
    hidden: bool = False
    unread: bool = False


class OfferedAgentOut(msgspec.Struct, omit_defaults=True):
    """Shows an agent that can be chosen. `window` is the size of its model's window, in tokens."""

    name: str
    model: str = ""
    window: int = 0


class ContextOut(msgspec.Struct, omit_defaults=True):
    """Shows who answers in a conversation, what could be chosen instead, and how many `tokens` of
    the model's `window` it takes. `summary` stands for `summarized_turns` of its older turns."""

    agent: str
    agents: list[OfferedAgentOut]
    personas: list[str]
    persona: str = ""
    effort: str = ""
    tokens: int = 0
    window: int = 0
    summary: str = ""
    summarized_turns: int = 0


class ShelfIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Says what to do with a conversation in its person's list. What is left out stays as it is.
    `seen`: everything that is there now was seen."""

    pinned: bool | None = None
    archived: bool | None = None
    hidden: bool | None = None
    seen: bool = False


class ConversationsOut(msgspec.Struct):
    conversations: list[ConversationOut]
    next: str | None


class CommandOut(msgspec.Struct):
    """Shows a command as people read it, without its parsing rules."""

    name: str
    usage: str
    help: str
    aliases: tuple[str, ...]


class CommandsOut(msgspec.Struct):
    commands: list[CommandOut]


class TranscriptOut(msgspec.Struct):
    session: str
    messages: list[Entry]
    next: str | None


class TurnMessagesOut(msgspec.Struct):
    """Holds what was said in one turn."""

    turn: str
    messages: list[Entry]


class SessionsOut(msgspec.Struct):
    sessions: list[SessionView]
    next: str | None


class EventOut(msgspec.Struct):
    """Shows an event as it is stored: its kind, and a body that names its format version."""

    seq: int
    at: int
    kind: str
    body: msgspec.Raw


class JournalOut(msgspec.Struct):
    """Holds a page of a session's events. `partial` is the text of the running turn."""

    session: str
    events: list[EventOut]
    next: str | None
    partial: RunningText | None = None


class SearchOut(msgspec.Struct):
    hits: list[Hit]
    next: str | None


class MediaOut(msgspec.Struct):
    """Shows a stored file, without the digest under which its bytes are kept."""

    id: str
    mime: str
    name: str
    size: int


class SoundIn(msgspec.Struct, forbid_unknown_fields=True):
    """Lists sessions that were found sound, each as `[id, last event, epoch]` at the time of the
    check."""

    sound: list[SessionMark]


class TokenIn(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class TokensOut(msgspec.Struct):
    tokens: list[TokenView]
    next: str | None = None


class AdapterOut(msgspec.Struct):
    """Shows a platform. `health` already reflects how long it has been silent."""

    name: str
    account: str
    health: str
    error: str


class StoreOut(msgspec.Struct, frozen=True):
    """Tells whether the store works. `reason` says why it takes no messages; it is empty while
    `is_up`."""

    is_up: bool = True
    reason: str = ""


class HealthOut(msgspec.Struct):
    """Shows the node's health. `reason` says why the status is not `serving`."""

    status: str
    version: str
    adapters: dict[str, str]
    store: StoreOut = StoreOut()
    reason: str = ""


class StatusOut(msgspec.Struct):
    """Shows what runs and what waits. `turns` and `outbox` are empty if the store did not
    answer."""

    version: str
    state: str
    node: str
    pid: int
    started_at: int
    principal: str
    role: str
    agents: list[AgentView]
    turns: dict[str, int]
    outbox: dict[str, int]
    adapters: list[AdapterOut] = []
    store: StoreOut = StoreOut()
    # Refusals since the start, by the kind of quota.
    refused: dict[str, int] = {}
    tool_servers: list[ToolServerView] = []
    # Agents that are programs of their own, for operators.
    programs: list[AgentStanding] = []
    # How often hooks have failed since the start, for operators.
    hooks: HookFailures = HookFailures()
    # What keeps BOOT.md from running, for operators.
    boot: str = ""


class ParkedOut(msgspec.Struct):
    parked: list[PartView]
    next: str | None = None


class ApprovalsOut(msgspec.Struct):
    approvals: list[QuestionView]
    next: str | None = None


class AnswerIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Holds the answer to an approval (`allow` or `deny`, for a `scope` or for `for_s` seconds) or
    to a question."""

    answer: str
    scope: str | None = None
    for_s: float | None = None


class GrantsOut(msgspec.Struct):
    grants: list[GrantView]
    next: str | None = None


class EffectsOut(msgspec.Struct):
    effects: list[EffectView]
    next: str | None = None


class HappenedIn(msgspec.Struct, forbid_unknown_fields=True):
    """Says whether a call has happened."""

    happened: bool


class ToolsOut(msgspec.Struct):
    tools: list[OfferedTool]
    next: str | None = None


class ToolServersOut(msgspec.Struct):
    servers: list[ToolServerView]
    next: str | None = None


class ServerLogOut(msgspec.Struct):
    """Holds the end of what a tool server has written."""

    name: str
    log: str


class AgentsOut(msgspec.Struct):
    agents: list[AgentStanding]
    next: str | None = None


class AgentLogOut(msgspec.Struct):
    """Holds the end of what an agent's processes have written."""

    name: str
    log: str


class AgentTrialIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Holds what to ask an agent; with an empty text it is asked to say hello."""

    text: str = ""


class AgentTrialOut(msgspec.Struct, kw_only=True):
    """Holds what came of a trial of an agent. `agent` is the one that has answered, which may be
    another if `missed` says why the wanted one did not. `first_text` and `took` are milliseconds
    since the prompt was taken, as a person sees them; `timings` are what the agent itself has
    measured."""

    turn: str
    outcome: str
    reason: str = ""
    detail: str = ""
    agent: str = ""
    text: str = ""
    first_text: int = 0
    took: int = 0
    usage: Usage = Usage()
    timings: Timings = UNTIMED
    missed: list[str] = []


class ReplayIn(msgspec.Struct, forbid_unknown_fields=True):
    """Says how to replay a part."""

    force: bool = False


class SendIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Holds a message to a place. The same `id` again is the same message."""

    to: str
    text: str
    id: str | None = None


class SendOut(msgspec.Struct):
    """Says what became of a sent message."""

    message: str
    turn: str | None
    conversation: str
    session: str
    duplicate: bool


class PlacesOut(msgspec.Struct):
    places: list[PlaceView]
    next: str | None


class PairingsOut(msgspec.Struct):
    pairings: list[PairingView]
    next: str | None = None


class ApproveIn(msgspec.Struct, forbid_unknown_fields=True):
    code: str


class BlockOut(msgspec.Struct, omit_defaults=True):
    """Shows a piece of a message to the model. Notes are never stored (`stored` is false): they are
    derived again, and may differ from what was sent."""

    kind: str
    text: str = ""
    call: str = ""
    name: str = ""
    arguments: str = ""
    is_error: bool = False
    file: Attachment | None = None
    stored: bool = True


class AskedMessageOut(msgspec.Struct):
    role: str
    blocks: list[BlockOut]


class RequestOut(msgspec.Struct, omit_defaults=True):
    """Shows the last request of a turn, rebuilt. `missing` names the texts that are no longer kept;
    `encoded` holds the messages as the agent's wire encodes them, or null if the agent does not
    exist."""

    agent: str
    instructions: str
    memory: str
    tools: str
    context: str
    options: Options
    messages: list[AskedMessageOut]
    encoded: msgspec.Raw
    missing: list[str] = []


class ExplanationOut(msgspec.Struct):
    """Shows everything stored about one message, turn or part."""

    conversation: str
    updates: tuple[ArrivalRecord, ...]
    turn: TurnView | None
    events: list[EventOut]
    parts: tuple[PartView, ...]
    command: str = ""
    reply: str = ""
    refused: str = ""
    partial: RunningText | None = None
    left: str = ""
    questions: tuple[QuestionView, ...] = ()
    effects: tuple[EffectView, ...] = ()
    request: RequestOut | None = None


class ProblemOut(msgspec.Struct):
    code: str
    message: str
    retryable: bool


class ErrorOut(msgspec.Struct):
    error: ProblemOut
