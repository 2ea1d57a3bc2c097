"""Defines the messages of the Agent Client Protocol that an agent reads and writes.

What is read is lenient: fields that are not known are skipped, because each editor sends its own.
The official library takes half a second to import, which is longer than everything else that
`perdure acp` does before it answers.
"""

from typing import Final, Literal

import msgspec

PROTOCOL: Final = 1

PromptReason = Literal["end_turn", "max_tokens", "cancelled"]
Status = Literal["pending", "in_progress", "completed", "failed"]


class _Read(msgspec.Struct, frozen=True, rename="camel"):
    """Serves as the root of what is read."""


class _Written(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Serves as the root of what is written."""


class FormCapability(_Read, frozen=True):
    """Stands for an object that says nothing but that it is there."""


class Elicitation(_Read, frozen=True):
    """Tells which ways of asking a person the editor has. `form` is set if it shows forms."""

    form: FormCapability | None = None


class EditorCapabilities(_Read, frozen=True):
    elicitation: Elicitation | None = None


class Greeting(_Read, frozen=True):
    client_capabilities: EditorCapabilities | None = None


class SessionWanted(_Read, frozen=True):
    """Names the session that a request is about, and the folder that is open in the editor. Which
    of them a request needs is checked where it is used."""

    session_id: str = ""
    cwd: str = ""


class ListWanted(_Read, frozen=True):
    cwd: str | None = None
    cursor: str | None = None


class ResourceGiven(_Read, frozen=True):
    uri: str = ""
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class BlockGiven(_Read, frozen=True):
    """Holds a piece of a prompt. `type` says which of the fields it has."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    uri: str | None = None
    name: str = ""
    resource: ResourceGiven | None = None


class PromptGiven(_Read, frozen=True):
    session_id: str
    prompt: tuple[BlockGiven, ...]


class PermissionOutcome(_Read, frozen=True):
    outcome: str
    option_id: str = ""


class PermissionGiven(_Read, frozen=True):
    outcome: PermissionOutcome


class FormFilled(_Read, frozen=True):
    action: str
    content: dict[str, str | float | bool | list[str] | None] | None = None


class TextShown(_Written, frozen=True, tag_field="type", tag="text"):
    text: str


class LinkShown(_Written, frozen=True, tag_field="type", tag="resource_link"):
    name: str
    uri: str
    mime_type: str = ""


class ContentShown(_Written, frozen=True, tag_field="type", tag="content"):
    content: TextShown


class EditShown(_Written, frozen=True, tag_field="type", tag="diff"):
    """Shows what becomes of a stretch of a file. A file that is new has no old text."""

    path: str
    new_text: str
    old_text: str | None = None


class _Update(_Written, frozen=True, tag_field="sessionUpdate"):
    """Serves as the root of what happens in a session."""


class UserChunk(_Update, frozen=True, tag="user_message_chunk"):
    content: TextShown
    message_id: str = ""


class AgentChunk(_Update, frozen=True, tag="agent_message_chunk"):
    content: TextShown | LinkShown
    message_id: str = ""


class CallShown(_Update, frozen=True, tag="tool_call"):
    tool_call_id: str
    title: str
    kind: str = "other"
    status: Status = "pending"
    raw_input: msgspec.Raw | str = ""
    content: tuple[ContentShown | EditShown, ...] = ()


class CallChanged(_Update, frozen=True, tag="tool_call_update"):
    tool_call_id: str
    status: Status | None = None
    title: str = ""
    kind: str = ""
    raw_input: msgspec.Raw | str = ""
    content: tuple[ContentShown | EditShown, ...] = ()


class PlanItem(_Written, frozen=True, omit_defaults=False):
    """Shows one thing to do. The protocol wants a priority; our lists have none."""

    content: str
    status: Literal["pending", "in_progress", "completed"]
    priority: Literal["medium"] = "medium"


class PlanShown(_Update, frozen=True, tag="plan"):
    entries: tuple[PlanItem, ...]


class CommandHint(_Written, frozen=True):
    hint: str


class CommandShown(_Written, frozen=True):
    name: str
    description: str
    input: CommandHint | None = None


class CommandsShown(_Update, frozen=True, tag="available_commands_update"):
    available_commands: tuple[CommandShown, ...]


class TitleShown(_Update, frozen=True, tag="session_info_update"):
    title: str


Update = UserChunk | AgentChunk | CallShown | CallChanged | PlanShown | CommandsShown | TitleShown


class UpdateSent(_Written, frozen=True):
    session_id: str
    update: Update


class CallAsked(_Written, frozen=True):
    """Shows the call about which a person is asked."""

    tool_call_id: str
    title: str
    kind: str = "other"
    status: Status = "pending"
    raw_input: msgspec.Raw | str = ""
    content: tuple[ContentShown | EditShown, ...] = ()


class Option(_Written, frozen=True):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once"]


class PermissionWanted(_Written, frozen=True):
    session_id: str
    tool_call: CallAsked
    options: tuple[Option, ...]


class Field(_Written, frozen=True, tag_field="type", tag="string"):
    title: str
    enum: tuple[str, ...] = ()


class Form(_Written, frozen=True, tag_field="type", tag="object"):
    properties: dict[str, Field]
    required: tuple[str, ...]


class FormWanted(_Written, frozen=True, tag_field="mode", tag="form"):
    session_id: str
    message: str
    requested_schema: Form


class Nothing(_Written, frozen=True):
    """Stands for an empty object."""


class PromptCapabilities(_Written, frozen=True):
    image: bool
    audio: bool
    embedded_context: bool


class SessionCapabilities(_Written, frozen=True, omit_defaults=False):
    list: Nothing = Nothing()
    resume: Nothing = Nothing()
    close: Nothing = Nothing()


class AgentAbilities(_Written, frozen=True):
    load_session: bool
    prompt_capabilities: PromptCapabilities
    session_capabilities: SessionCapabilities


class AgentName(_Written, frozen=True):
    name: str
    title: str
    version: str


class Welcome(_Written, frozen=True, omit_defaults=False):
    protocol_version: int
    agent_capabilities: AgentAbilities
    agent_info: AgentName
    auth_methods: tuple[()] = ()


class SessionMade(_Written, frozen=True):
    session_id: str


class SessionListed(_Written, frozen=True):
    session_id: str
    cwd: str
    title: str
    updated_at: str


class SessionsListed(_Written, frozen=True):
    sessions: tuple[SessionListed, ...]
    next_cursor: str | None = None


class PromptEnded(_Written, frozen=True):
    stop_reason: PromptReason
