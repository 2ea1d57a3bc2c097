"""Answers an editor: Perdure as an agent of the Agent Client Protocol.

A session of the protocol is a conversation, and its id is the conversation's name. So whatever is
open in an editor can be continued in the chat, on the page and in a terminal, and the other way
round. The tools are the gateway's; tool servers that the editor names are not used.
"""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final, TypeVar

import msgspec

from perdure import __version__
from perdure.app.editor.conversation import OpenConversation
from perdure.app.editor.link import EditorLink, NoMethod
from perdure.app.editor.prompts import message_of
from perdure.app.editor.reach import FindNode, PatientNode
from perdure.app.editor.retelling import Retelling
from perdure.app.editor.shapes import (
    PROTOCOL,
    AgentAbilities,
    AgentName,
    CommandHint,
    CommandShown,
    CommandsShown,
    Greeting,
    ListWanted,
    Nothing,
    PromptCapabilities,
    PromptEnded,
    PromptGiven,
    SessionCapabilities,
    SessionListed,
    SessionMade,
    SessionsListed,
    SessionWanted,
    UpdateSent,
    Welcome,
)
from perdure.domain.errors import PerdureError, Rejected
from perdure.ports.system.entropy import Entropy
from perdure.web.api import native

T = TypeVar("T")
# How many idle conversations are followed at once. Editors open many and close few.
OPEN_MAX: Final = 32
LISTED: Final = 50
_FOLDER_MAX: Final = 40
_OTHERS: Final = re.compile(r"[^\w.-]+")


class EditorAgent:
    """Serves one editor. `name` is the conversation that new sessions continue; if it is empty,
    each new session is a conversation of its own."""

    def __init__(
        self, link: EditorLink, find: FindNode, entropy: Entropy, *, name: str = ""
    ) -> None:
        self._link = link
        self._node = PatientNode(find)
        self._entropy = entropy
        self._name = name
        self._has_forms = False
        self._open: dict[str, OpenConversation] = {}
        self._methods: dict[str, Callable[[msgspec.Raw], Awaitable[object]]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
            "session/close": self._close,
        }

    async def answer(self, method: str, params: msgspec.Raw) -> object:
        """Answer one call of the editor. Raises `PerdureError` or `msgspec.ValidationError`."""
        called = self._methods.get(method)
        if called is None:
            raise NoMethod(f"Perdure does not serve {method}")
        return await called(params)

    async def _initialize(self, params: msgspec.Raw) -> Welcome:
        greeting = _read(params, Greeting)
        can = greeting.client_capabilities
        asks = can.elicitation if can else None
        self._has_forms = asks is not None and asks.form is not None
        return Welcome(
            protocol_version=PROTOCOL,
            agent_capabilities=AgentAbilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(
                    image=True, audio=True, embedded_context=True
                ),
                session_capabilities=SessionCapabilities(),
            ),
            agent_info=AgentName(name="perdure", title="Perdure", version=__version__),
        )

    async def _new(self, params: msgspec.Raw) -> SessionMade:
        wanted = _read(params, SessionWanted)
        name = self._name or self._fresh_name(wanted.cwd)
        opened = await self._opened(name, wanted.cwd)
        await opened.begin(with_past=False, must_exist=False)
        self._link.begin(self._tell_commands(name))
        return SessionMade(session_id=name)

    async def _load(self, params: msgspec.Raw) -> Nothing:
        await self._reopened(params, with_past=True)
        return Nothing()

    async def _resume(self, params: msgspec.Raw) -> Nothing:
        await self._reopened(params, with_past=False)
        return Nothing()

    async def _reopened(self, params: msgspec.Raw, *, with_past: bool) -> None:
        wanted = _read(params, SessionWanted)
        opened = await self._opened(wanted.session_id, wanted.cwd)
        try:
            await opened.begin(with_past=with_past, must_exist=True)
        except PerdureError:
            if self._open.get(wanted.session_id) is opened:
                del self._open[wanted.session_id]
            raise
        await self._tell_commands(wanted.session_id)

    async def _list(self, params: msgspec.Raw) -> SessionsListed:
        """List conversations. None of them belongs to a folder, so each can be opened in any."""
        wanted = _read(params, ListWanted)
        found = await self._node.insist(
            lambda node: node.ask(native.conversations, limit=LISTED, cursor=wanted.cursor)
        )
        sessions = [
            SessionListed(
                session_id=each.name,
                cwd=wanted.cwd or "/",
                title=each.title or each.name,
                updated_at=datetime.fromtimestamp(each.at / 1000, UTC).isoformat(),
            )
            for each in found.conversations
        ]
        return SessionsListed(sessions=tuple(sessions), next_cursor=found.next)

    async def _prompt(self, params: msgspec.Raw) -> PromptEnded:
        given = _read(params, PromptGiven)
        message = message_of(given.prompt)
        client_id = self._entropy.random_bytes(12).hex()
        reason = await self._named(given.session_id).say(message, client_id)
        return PromptEnded(stop_reason=reason)

    async def _cancel(self, params: msgspec.Raw) -> None:
        await self._named(_read(params, SessionWanted).session_id).cancel()

    async def _close(self, params: msgspec.Raw) -> Nothing:
        """Close a session. As the protocol wants it, its prompt is cancelled."""
        wanted = _read(params, SessionWanted)
        closed = self._named(wanted.session_id)
        if closed.is_busy:
            await closed.cancel()
        self._open.pop(wanted.session_id, None)
        closed.close()
        return Nothing()

    def _named(self, session: str) -> OpenConversation:
        try:
            # The one that was used last is the last to rest.
            opened = self._open[session] = self._open.pop(session)
        except KeyError:
            raise Rejected(
                f"the session {session!r} is not open; load it first", code="not_open"
            ) from None
        return opened

    async def _opened(self, name: str, folder: str) -> OpenConversation:
        """Return a conversation that nothing was told of yet. If it was open, it is opened anew."""
        node = await self._node.client()
        if name in self._open:
            self._open.pop(name).close()
        idle = [each for each in self._open.values() if not each.is_busy]
        for each in idle[: max(len(idle) - OPEN_MAX + 1, 0)]:
            each.rest()
        telling = Retelling(folder=folder, media=f"{node.public}/api/media")
        opened = self._open[name] = OpenConversation(
            name, self._link, self._node, telling, has_forms=self._has_forms
        )
        return opened

    async def _tell_commands(self, session: str) -> None:
        """Tell the editor which commands can be typed."""
        found = await self._node.insist(lambda node: node.ask(native.commands))
        shown = [
            CommandShown(
                name=each.name,
                description=each.help,
                input=CommandHint(hint=hint) if (hint := each.usage.partition(" ")[2]) else None,
            )
            for each in found.commands
        ]
        update = CommandsShown(available_commands=tuple(shown))
        await self._link.tell("session/update", UpdateSent(session_id=session, update=update))

    def _fresh_name(self, folder: str) -> str:
        """Return a name for a new conversation, which shows the folder that is open."""
        last = _OTHERS.sub("-", PurePath(folder).name)[:_FOLDER_MAX].strip("-.")
        return f"{last or 'editor'}-{self._entropy.random_bytes(4).hex()}"


def _read(params: msgspec.Raw, shape: type[T]) -> T:
    return msgspec.json.decode(params, type=shape)
