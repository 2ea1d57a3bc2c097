"""Requests from the journal, each message encoded once.

A settled turn never changes, so the encoded window that ends at it can be kept. The cache is keyed
by (agent, turn), bounded in bytes, and nothing but speed depends on it: what is missing is read
from the store.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.events import Recorded, TurnQueued
from perdure.domain.ids import MediaId, TurnId
from perdure.domain.prompt import (
    MediaBlock,
    Message,
    Request,
    Window,
    assemble,
    extend,
    messages_of,
)
from perdure.domain.recovery import messages_with_notes
from perdure.engine.roster import Seat
from perdure.ports.history import Conversations
from perdure.ports.media import MediaLibrary

CACHE_BYTES = 64 * 1024 * 1024
CHAIN_MAX = 1_000_000
IMAGE_BYTES_MAX = 8 * 1024 * 1024


class Telling(msgspec.Struct, frozen=True):
    """What an attempt tells the model: interruptions it has not heard of, and the interrupted turns
    before this one. It stays the same in every request of the attempt."""

    interruptions: tuple[Recorded, ...] = ()
    before: tuple[Recorded, ...] = ()


class Prompts:
    def __init__(self, conversations: Conversations, media: MediaLibrary) -> None:
        self._conversations = conversations
        self._media = media
        self._windows: OrderedDict[tuple[str, TurnId], Window] = OrderedDict()
        self._bytes = 0

    async def request(
        self, seat: Seat, *, parent: TurnId | None, turn: Sequence[Recorded], telling: Telling
    ) -> Request:
        """The request for the turn's next model call, with the note this attempt carries."""
        queued = next(r.event for r in turn if isinstance(r.event, TurnQueued))
        window = await self._window(seat, parent)
        noted = messages_with_notes(turn, telling.interruptions, telling.before)
        messages = await self._with_media(noted)
        instructions = "\n\n".join(t for t in (seat.instructions, queued.instructions) if t)
        return assemble(
            window,
            messages,
            instructions=instructions,
            context=queued.context,
            tools=queued.tools or seat.tools.schemas(),
        )

    async def _window(self, seat: Seat, turn: TurnId | None) -> Window:
        if turn is None:
            return Window()
        known = self._windows.get((seat.name, turn))
        if known is not None:
            self._windows.move_to_end((seat.name, turn))
            return known
        chain = await self._conversations.chain(turn, limit=CHAIN_MAX)
        window = Window()
        messages = [message for events in chain for message in messages_of(events)]
        window = extend(window, await self._with_media(messages), encode=seat.agent.encode)
        self._keep((seat.name, turn), window)
        return window

    async def settled(self, seat: Seat, *, parent: TurnId | None, turn: Sequence[Recorded]) -> None:
        """Grow the parent's window by a turn that has just been settled."""
        window = Window() if parent is None else self._windows.get((seat.name, parent))
        if window is None or not turn:
            return
        queued = next(r.event for r in turn if isinstance(r.event, TurnQueued))
        messages = await self._with_media(messages_of(turn))
        self._forget((seat.name, parent) if parent else None)
        grown = extend(window, messages, encode=seat.agent.encode)
        self._keep((seat.name, queued.turn), grown)

    def _keep(self, key: tuple[str, TurnId], window: Window) -> None:
        self._forget(key)
        self._windows[key] = window
        self._bytes += window.size
        while self._bytes > CACHE_BYTES:
            _, dropped = self._windows.popitem(last=False)
            self._bytes -= dropped.size

    def _forget(self, key: tuple[str, TurnId] | None) -> None:
        dropped = self._windows.pop(key, None) if key else None
        if dropped is not None:
            self._bytes -= dropped.size

    async def _with_media(self, messages: Sequence[Message]) -> list[Message]:
        """Fill in the bytes of images, which models see; other files are named to them."""
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
