"""Requests from the journal, each message encoded once.

A settled turn never changes, so the encoded window that ends at it can be kept. The cache is keyed
by the turn and by the agent that has encoded it (another one of the same name may speak another
wire), knows the view it was made for, is bounded in bytes, and nothing but speed depends on it:
what is missing is read from the store.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from perdure.domain.errands import Errand, errand_of
from perdure.domain.errors import NotFound
from perdure.domain.events import Recorded, TurnQueued
from perdure.domain.ids import MediaId, TurnId
from perdure.domain.memory import told
from perdure.domain.prefix import Prefix, digest
from perdure.domain.prompt import (
    MediaBlock,
    Message,
    Request,
    Window,
    assemble,
    extend,
    messages_of,
    tokens_of_messages,
    weave,
)
from perdure.domain.recovery import Telling, messages_with_notes
from perdure.domain.shortening import shortened
from perdure.domain.tokens import tokens_of
from perdure.engine.roster import Seat
from perdure.ports.agent import Agent
from perdure.ports.history import Conversations
from perdure.ports.media import MediaLibrary
from perdure.ports.turns import Claimed

CACHE_BYTES = 64 * 1024 * 1024
CHAIN_MAX = 1_000_000
IMAGE_BYTES_MAX = 8 * 1024 * 1024
# Of a summariser's context, how much the conversation may take.
READABLE_SHARE = 0.8
# Errands that look at a conversation without taking part in it.
_WITHOUT_TOOLS = (Errand.TITLE, Errand.SUMMARY, Errand.STICKER)
_Key = tuple[Agent, TurnId]


class Prompted(msgspec.Struct, frozen=True, kw_only=True):
    """A request, about how many tokens it has, and what it begins with."""

    request: Request
    tokens: int
    prefix: Prefix


class Prompts:
    def __init__(
        self,
        conversations: Conversations,
        media: MediaLibrary,
        *,
        personas: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._conversations = conversations
        self._media = media
        self._personas = personas
        self._windows: OrderedDict[_Key, tuple[str, Window]] = OrderedDict()
        self._bytes = 0

    async def request(
        self, seat: Seat, claimed: Claimed, *, turn: Sequence[Recorded], telling: Telling
    ) -> Prompted:
        """The request for the turn's next model call, with the notes this attempt carries."""
        queued = next(r.event for r in turn if isinstance(r.event, TurnQueued))
        errand = errand_of(queued.kind)
        if errand is Errand.SUMMARY:
            window = await self._readable_window(seat, claimed)
        else:
            window = await self._window(seat, claimed)
        messages = await self._with_media(seat, messages_with_notes(turn, telling))
        tools = "" if errand in _WITHOUT_TOOLS else queued.tools or seat.tools.schemas()
        persona = self._personas().get(queued.persona, "")
        spoken = "\n\n".join(t for t in (seat.instructions, persona, queued.instructions) if t)
        memory = told(claimed.memories) if seat.has_memory else ""
        if errand is Errand.STICKER:
            spoken = memory = ""  # its words are for everybody: nobody's secrets may be in them
        request = assemble(
            window,
            messages,
            instructions="\n\n".join(t for t in (spoken, memory) if t),
            context=queued.context,
            tools=tools,
            options=queued.options,
            purpose=errand or "",
        )
        tokens = window.tokens + tokens_of_messages(request.messages)
        return Prompted(
            request=request,
            tokens=tokens + tokens_of(request.instructions) + tokens_of(request.context + tools),
            prefix=Prefix(
                agent=seat.name,
                instructions=digest(spoken),
                memory=digest(memory),
                tools=digest(tools),
                view=claimed.view,
            ),
        )

    async def _window(self, seat: Seat, claimed: Claimed) -> Window:
        turn, view = claimed.parent, claimed.view
        if turn is None:
            return Window()
        known = self._windows.get((seat.agent, turn))
        if known is not None and known[0] == view:
            self._windows.move_to_end((seat.agent, turn))
            return known[1]
        chain = await self._conversations.window(turn, limit=CHAIN_MAX)
        messages = [message for events in chain for message in messages_of(events)]
        window = extend(Window(), await self._with_media(seat, messages), encode=seat.agent.encode)
        self._keep((seat.agent, turn), view, window)
        return window

    async def _readable_window(self, seat: Seat, claimed: Claimed) -> Window:
        """What a summariser reads must fit, or what is too long could never be made shorter."""
        window = await self._window(seat, claimed)
        tokens_max = int(seat.context_tokens * READABLE_SHARE)
        if window.tokens <= tokens_max or claimed.parent is None:
            return window
        chain = await self._conversations.window(claimed.parent, limit=CHAIN_MAX)
        messages = [message for events in chain for message in messages_of(events)]
        woven, newest = weave(None, messages)
        whole = [*woven, newest] if newest else woven
        fitting = shortened(whole, tokens_max=tokens_max)
        return extend(Window(), fitting, encode=seat.agent.encode)

    async def settled(self, seat: Seat, claimed: Claimed, *, turn: Sequence[Recorded]) -> None:
        """Grow the parent's window by a turn that has just been settled."""
        parent, view = claimed.parent, claimed.view
        known = (view, Window()) if parent is None else self._windows.get((seat.agent, parent))
        if known is None or known[0] != view or not turn:
            return
        queued = next(r.event for r in turn if isinstance(r.event, TurnQueued))
        if errand_of(queued.kind):
            return  # nobody follows it, and its parent's window is another session's
        own = [recorded for recorded in turn if recorded.turn == queued.turn]
        messages = await self._with_media(seat, messages_of(own))
        self._forget((seat.agent, parent) if parent else None)
        grown = extend(known[1], messages, encode=seat.agent.encode)
        self._keep((seat.agent, queued.turn), view, grown)

    def forget(self, agent: Agent) -> None:
        """Drop what this agent has encoded: nobody will ask it again."""
        for key in [key for key in self._windows if key[0] is agent]:
            self._forget(key)

    def _keep(self, key: _Key, view: str, window: Window) -> None:
        self._forget(key)
        self._windows[key] = (view, window)
        self._bytes += window.size
        while self._bytes > CACHE_BYTES:
            _, (_, dropped) = self._windows.popitem(last=False)
            self._bytes -= dropped.size

    def _forget(self, key: _Key | None) -> None:
        dropped = self._windows.pop(key, None) if key else None
        if dropped is not None:
            self._bytes -= dropped[1].size

    async def _with_media(self, seat: Seat, messages: Sequence[Message]) -> list[Message]:
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
