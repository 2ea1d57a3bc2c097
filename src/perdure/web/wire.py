"""The bodies of the native API, in and out."""

import msgspec

from perdure.domain.journal.events import Attachment
from perdure.domain.journal.options import Options
from perdure.domain.journal.records import PartView, SessionView, TurnView
from perdure.domain.journal.transcript import Entry, RunningText
from perdure.ports.gateway import AgentView
from perdure.ports.people.access import PairingView
from perdure.ports.people.places import PlaceView
from perdure.ports.people.principals import TokenView
from perdure.ports.records.audit import SessionMark
from perdure.ports.records.history import ArrivalRecord, Hit


class AttachmentIn(msgspec.Struct, forbid_unknown_fields=True):
    media: str | None = None
    url: str | None = None


class MessageIn(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""
    id: str | None = None
    attachments: list[AttachmentIn] = []
    agent: str = ""


class AmendIn(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class MessageOut(msgspec.Struct, omit_defaults=True):
    """Says what became of a message, of all that `Accepted` tells the engine."""

    message: str
    session: str
    turn: str | None
    duplicate: bool
    queued: int | None = None
    effect: str | None = None
    command: str | None = None
    reply: str | None = None


class ConversationOut(msgspec.Struct, omit_defaults=True):
    """Shows a `ConversationView` flat, without whose it is and where it is kept."""

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


class ConversationsOut(msgspec.Struct):
    conversations: list[ConversationOut]
    next: str | None


class CommandOut(msgspec.Struct):
    """Shows of a `Command` what people read, without how it is parsed."""

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


class SessionsOut(msgspec.Struct):
    sessions: list[SessionView]
    next: str | None


class EventOut(msgspec.Struct):
    """Carries a `Recorded` with its event as it is stored: by its kind, in a body that says its
    version."""

    seq: int
    at: int
    kind: str
    body: msgspec.Raw


class JournalOut(msgspec.Struct):
    session: str
    events: list[EventOut]
    next: str | None
    partial: RunningText | None = None


class SearchOut(msgspec.Struct):
    hits: list[Hit]
    next: str | None


class MediaOut(msgspec.Struct):
    """Shows a `Media` without the digest by which its bytes are kept."""

    id: str
    mime: str
    name: str
    size: int


class SoundIn(msgspec.Struct, forbid_unknown_fields=True):
    """Sessions that were found sound, and where they stood then: `[id, last event, epoch]` each."""

    sound: list[SessionMark]


class TokenIn(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class TokensOut(msgspec.Struct):
    tokens: list[TokenView]
    next: str | None = None


class AdapterOut(msgspec.Struct):
    """Shows a `PlatformView` without how long it has been silent: `health` is what that means."""

    name: str
    account: str
    health: str
    error: str


class StoreOut(msgspec.Struct, frozen=True):
    """`reason` says why the store does not take messages; it is empty while `is_up`."""

    is_up: bool = True
    reason: str = ""


class HealthOut(msgspec.Struct):
    """`reason` says why the status is not `serving`."""

    status: str
    version: str
    adapters: dict[str, str]
    store: StoreOut = StoreOut()
    reason: str = ""


class StatusOut(msgspec.Struct):
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
    # Since the start, by the kind of quota.
    refused: dict[str, int] = {}


class ParkedOut(msgspec.Struct):
    parked: list[PartView]
    next: str | None = None


class ReplayIn(msgspec.Struct, forbid_unknown_fields=True):
    force: bool = False


class SendIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    to: str
    text: str
    id: str | None = None


class SendOut(msgspec.Struct):
    """Shows a `Sent` flat, without what only the engine needs to know of it."""

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
    """A piece of a message to the model. A note is derived again, for notes are `stored` nowhere:
    it may read differently from what was sent."""

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
    """The last request of a turn, made again. `missing` names the texts that are kept no more;
    `encoded` are the messages as the agent's wire has them, or null if that agent is not there."""

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
    """Shows an `Explanation` with its events as they are stored."""

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
    request: RequestOut | None = None


class ProblemOut(msgspec.Struct):
    code: str
    message: str
    retryable: bool


class ErrorOut(msgspec.Struct):
    error: ProblemOut
