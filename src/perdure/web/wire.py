"""The bodies of the native API, in and out."""

import msgspec

from perdure.domain.transcript import Entry


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
    message: str
    session: str
    turn: str | None
    duplicate: bool
    queued: int | None = None
    effect: str | None = None
    command: str | None = None
    reply: str | None = None


class ConversationOut(msgspec.Struct, omit_defaults=True):
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


class TurnOut(msgspec.Struct):
    id: str
    session: str
    state: str
    outcome: str | None
    reason: str
    detail: str
    attempts: int
    parent: str | None
    message: str
    queued_at: int
    started_at: int | None
    settled_at: int | None


class SessionOut(msgspec.Struct):
    id: str
    conversation: str
    state: str
    title: str
    parent: str | None
    live: bool
    events: int
    opened_at: int
    active_at: int


class SessionsOut(msgspec.Struct):
    sessions: list[SessionOut]
    next: str | None


class EventOut(msgspec.Struct):
    seq: int
    at: int
    kind: str
    body: msgspec.Raw


class PartialOut(msgspec.Struct):
    """What was shown of a message that is not in the journal yet."""

    turn: str
    message: str
    text: str
    at: int


class JournalOut(msgspec.Struct):
    session: str
    events: list[EventOut]
    next: str | None
    partial: PartialOut | None = None


class HitOut(msgspec.Struct):
    conversation: str
    session: str
    turn: str | None
    message: str
    role: str
    text: str
    at: int


class SearchOut(msgspec.Struct):
    hits: list[HitOut]
    next: str | None


class MediaOut(msgspec.Struct):
    id: str
    mime: str
    name: str
    size: int


class TokenIn(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class TokenOut(msgspec.Struct, omit_defaults=True):
    id: str
    principal: str
    role: str
    created_at: int
    revoked_at: int | None
    token: str = ""


class TokensOut(msgspec.Struct):
    tokens: list[TokenOut]
    next: str | None = None


class AgentOut(msgspec.Struct):
    name: str
    kind: str


class AdapterOut(msgspec.Struct):
    name: str
    account: str
    health: str
    error: str


class StatusOut(msgspec.Struct):
    version: str
    state: str
    node: str
    pid: int
    started_at: int
    principal: str
    role: str
    agents: list[AgentOut]
    turns: dict[str, int]
    outbox: dict[str, int]
    adapters: list[AdapterOut] = []


class PartOut(msgspec.Struct):
    id: str
    message: str
    turn: str | None
    part: int
    adapter: str
    state: str
    attempts: int
    receipt: str
    error: str
    text: str
    step: str = "post"
    address: str = ""
    at: int = 0
    choices: tuple[str, ...] = ()
    media: str | None = None


class ParkedOut(msgspec.Struct):
    parked: list[PartOut]
    next: str | None = None


class ReplayIn(msgspec.Struct, forbid_unknown_fields=True):
    force: bool = False


class SendIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    to: str
    text: str
    id: str | None = None


class SendOut(msgspec.Struct):
    message: str
    turn: str | None
    conversation: str
    session: str
    duplicate: bool


class PlaceOut(msgspec.Struct, omit_defaults=True):
    adapter: str
    address: str
    label: str
    kind: str
    active_at: int
    linked: str = ""


class PlacesOut(msgspec.Struct):
    places: list[PlaceOut]
    next: str | None


class PairingOut(msgspec.Struct):
    id: str
    adapter: str
    account: str
    sender: str
    name: str
    place: str
    state: str
    asked_at: int
    expires_at: int
    decided_at: int | None


class PairingsOut(msgspec.Struct):
    pairings: list[PairingOut]
    next: str | None = None


class ApproveIn(msgspec.Struct, forbid_unknown_fields=True):
    code: str


class ArrivalOut(msgspec.Struct):
    adapter: str
    account: str
    external_id: str
    kind: str
    at: int


class ExplanationOut(msgspec.Struct):
    conversation: str
    updates: list[ArrivalOut]
    turn: TurnOut | None
    events: list[EventOut]
    parts: list[PartOut]
    command: str = ""
    reply: str = ""
    refused: str = ""
    partial: PartialOut | None = None
    left: str = ""


class ProblemOut(msgspec.Struct):
    code: str
    message: str
    retryable: bool


class ErrorOut(msgspec.Struct):
    error: ProblemOut
