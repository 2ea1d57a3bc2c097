"""Requests from the journal, each message encoded once.

A settled turn never changes, so the encoded window that ends at it can be kept (`windows.py`).
Nothing but speed depends on that: what is missing is read from the store. A turn that nobody can
follow leaves no window behind: a call without a conversation, and an errand.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.ids import MediaId, TurnId
from perdure.domain.journal.events import Recorded, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.people.memory import told
from perdure.domain.prompt.prefix import (
    Basis,
    KeptText,
    RequestOrigin,
    and_then,
    digest,
    kept,
    source_of,
    written,
)
from perdure.domain.prompt.prompt import (
    MediaBlock,
    ModelRequest,
    PromptMessage,
    Window,
    assemble,
    extend,
    messages_of,
    tokens_of_messages,
)
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.turn.rebuilding import (
    StoredRequest,
    history_in,
    own_in,
    readable,
    rebuilt,
    together,
)
from perdure.domain.turn.recovery import Telling, messages_with_notes
from perdure.engine.models.roster import Seat
from perdure.engine.models.windows import WindowKey, Windows
from perdure.ports.records.history import Conversations
from perdure.ports.records.media import MediaLibrary
from perdure.ports.turns.turns import Claimed

CHAIN_MAX = 1_000_000
IMAGE_BYTES_MAX = 8 * 1024 * 1024
# Of a summariser's context, how much the conversation may take.
READABLE_SHARE = 0.8
# Errands that look at a conversation without taking part in it.
_WITHOUT_TOOLS = (TurnKind.TITLE, TurnKind.SUMMARY, TurnKind.STICKER)


class Prompted(msgspec.Struct, frozen=True, kw_only=True):
    """A request, about how many tokens it has, what it begins with and was made from, and those of
    its texts that no journal holds."""

    request: ModelRequest
    tokens: int
    basis: Basis
    texts: tuple[KeptText, ...] = ()

    @property
    def origin(self) -> RequestOrigin:
        """What the request was made from, as it is stored."""
        return RequestOrigin(prefix=written(self.basis), texts=self.texts)


class _Words(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says beside its messages: `own` is `spoken` without what the turn brought, and
    `kept` are those of the texts that no journal holds."""

    own: str = ""
    spoken: str = ""
    memory: str = ""
    tools: str = ""
    kept: tuple[KeptText, ...] = ()


class Prompts:
    def __init__(
        self,
        conversations: Conversations,
        media: MediaLibrary,
        *,
        windows: Windows,
        personas: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._conversations = conversations
        self._media = media
        self._personas = personas
        self._windows = windows
        # What errands have read that was not kept before, by their turn.
        self._passing: dict[TurnId, list[WindowKey]] = {}

    async def request(
        self, seat: Seat, claimed: Claimed, *, turn: Sequence[Recorded], telling: Telling
    ) -> Prompted:
        """The request for the turn's next model call, with the notes this attempt carries."""
        queued = next(r.event for r in turn if isinstance(r.event, TurnQueued))
        window = await self._window(seat, claimed, is_passing=queued.kind.is_errand)
        tokens_max = 0
        if queued.kind is TurnKind.SUMMARY:
            window, tokens_max = await self._readable(window, seat, claimed)
        messages = await self._with_media(seat, messages_with_notes(turn, telling))
        words = self._words(seat, claimed, queued)
        request = assemble(
            window,
            messages,
            instructions=together(words.spoken, words.memory),
            context=queued.context,
            tools=words.tools,
            options=queued.options,
            purpose=queued.kind if queued.kind.is_errand else "",
        )
        tokens = window.tokens + tokens_of_messages(request.messages)
        given = request.context + request.tools
        return Prompted(
            request=request,
            tokens=tokens + tokens_of(request.instructions) + tokens_of(given),
            texts=words.kept,
            basis=Basis(
                agent=seat.name,
                instructions=digest(words.spoken),
                memory=digest(words.memory),
                tools=digest(words.tools),
                view=claimed.view,
                own=digest(words.own) if queued.instructions else "",
                upto=turn[-1].seq,
                source=and_then(window.source, turn),
                has_vision=seat.has_vision,
                tokens_max=tokens_max,
            ),
        )

    def _words(self, seat: Seat, claimed: Claimed, queued: TurnQueued) -> _Words:
        """Return what a request says beside its messages."""
        tools = "" if queued.kind in _WITHOUT_TOOLS else queued.tools or seat.tools.schemas()
        kept_tools = () if queued.tools else kept(tools)
        if queued.kind is TurnKind.STICKER:
            # Its words are for everybody: nobody's secrets may be in them.
            return _Words(tools=tools, kept=kept_tools)
        own = together(seat.instructions, self._personas().get(queued.persona, ""))
        memories = claimed.memories if seat.has_memory else ()
        memory = told(memories)
        owner = claimed.conversation if claimed.is_shared else claimed.principal
        lines = tuple(sorted((each.id, each.changed_at) for each in memories))
        return _Words(
            own=own,
            spoken=together(own, queued.instructions),
            memory=memory,
            tools=tools,
            kept=(*kept(own), *kept(memory, owner=owner, lines=lines), *kept_tools),
        )

    async def _window(self, seat: Seat, claimed: Claimed, *, is_passing: bool) -> Window:
        turn, view = claimed.parent, claimed.view
        if turn is None:
            return Window()
        key = (seat.agent, turn)
        known = self._windows.get(key, view)
        if known is not None:
            return known
        chain = await self._conversations.window(turn, limit=CHAIN_MAX)
        messages = [message for events in chain for message in messages_of(events)]
        begun = Window(source=source_of(chain))
        window = extend(begun, await self._with_media(seat, messages), encode=seat.agent.encode)
        if is_passing:
            self._passing.setdefault(claimed.lease.turn, []).append(key)
        self._windows.keep(key, view, window)
        return window

    async def _readable(self, window: Window, seat: Seat, claimed: Claimed) -> tuple[Window, int]:
        """What a summariser reads must fit, or what is too long could never be made shorter.
        Returns with it to how many tokens it was cut, or 0."""
        tokens_max = int(seat.context_tokens * READABLE_SHARE)
        if window.tokens <= tokens_max or claimed.parent is None:
            return window, 0
        chain = await self._conversations.window(claimed.parent, limit=CHAIN_MAX)
        messages = [message for events in chain for message in messages_of(events)]
        fitting = readable(messages, tokens_max=tokens_max)
        begun = Window(source=source_of(chain))
        return extend(begun, fitting, encode=seat.agent.encode), tokens_max

    async def encoded_again(self, asked: StoredRequest, seat: Seat) -> ModelRequest:
        """Make the last request of a turn again, in the words of the agent at this seat."""
        sees = msgspec.structs.replace(seat, has_vision=asked.basis.has_vision)
        history = history_in(asked)
        if not asked.basis.tokens_max:
            history = await self._with_media(sees, history)
        own = await self._with_media(sees, own_in(asked))
        return rebuilt(asked, history, own, encode=seat.agent.encode)

    async def settled(self, seat: Seat, claimed: Claimed, *, turn: Sequence[Recorded]) -> None:
        """Grow the parent's window by a turn that has just been settled."""
        parent, view = claimed.parent, claimed.view
        if not claimed.is_listed or not turn:
            return  # nobody comes back to a call without a conversation
        known = Window() if parent is None else self._windows.get((seat.agent, parent), view)
        if known is None:
            return
        queued = next(r.event for r in turn if isinstance(r.event, TurnQueued))
        if queued.kind.is_errand:
            return  # nobody follows it, and its parent's window is another session's
        own = [recorded for recorded in turn if recorded.turn == queued.turn]
        messages = await self._with_media(seat, messages_of(own))
        if parent is not None:
            self._windows.forget((seat.agent, parent))
        known = msgspec.structs.replace(known, source=and_then(known.source, own))
        grown = extend(known, messages, encode=seat.agent.encode)
        self._windows.keep((seat.agent, queued.turn), view, grown)

    def is_over(self, turn: TurnId) -> None:
        """Drop what was read for this turn alone, which runs here no longer."""
        for key in self._passing.pop(turn, ()):
            self._windows.forget(key)

    async def _with_media(
        self, seat: Seat, messages: Sequence[PromptMessage]
    ) -> list[PromptMessage]:
        """Fill in the bytes of pictures, for models that see; other files are told in words."""
        if not seat.has_vision:
            return list(messages)
        filled = []
        for message in messages:
            if not any(isinstance(block, MediaBlock) for block in message.blocks):
                filled.append(message)
                continue
            blocks = [
                await self._filled(block) if isinstance(block, MediaBlock) else block
                for block in message.blocks
            ]
            filled.append(msgspec.structs.replace(message, blocks=tuple(blocks)))
        return filled

    async def _filled(self, block: MediaBlock) -> MediaBlock:
        attachment = block.attachment
        if attachment.media is None or not attachment.mime.startswith("image/"):
            return block
        try:
            data = await self._media.read(MediaId(attachment.media))
        except NotFound:
            return block
        if len(data) > IMAGE_BYTES_MAX:
            return block
        return msgspec.structs.replace(block, data=data)
