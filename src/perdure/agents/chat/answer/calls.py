"""Assembles tool calls from the pieces of a stream.

The OpenAI wire sends a call's id and name first, then pieces of its arguments, all under one index.
Servers that only resemble it leave out the index or the id, send complete calls, put every call
under index 0, or repeat the name in each piece. The rules in `_slot` decide whether a piece begins
a new call. Ids are made unique within the request, because some servers count from zero in every
answer, and strict servers refuse an id that they have seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO

import msgspec

from perdure.domain.prompt.prompt import CallBlock, ModelRequest
from perdure.domain.text import storable
from perdure.domain.turn.stream import AgentCall


@dataclass(slots=True)
class _Slot:
    """Holds one call while its pieces arrive."""

    index: int | None
    id: str = ""
    name: str = ""
    # Pieces may be one character long. As separate strings they would take fifty times the memory.
    arguments: StringIO = field(default_factory=StringIO)

    @property
    def has_arguments(self) -> bool:
        return self.arguments.tell() > 0


@dataclass(slots=True)
class CallSlots:
    """Collects the tool calls of one answer."""

    _slots: list[_Slot] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        self._slots.clear()

    def has(self, index: int) -> bool:
        """Tell whether a call has begun under this index."""
        return any(slot.index == index for slot in self._slots)

    def add(
        self, *, index: int | None = None, call_id: str = "", name: str = "", arguments: str = ""
    ) -> None:
        """Take a piece of a call."""
        slot = self._slot(index, call_id, name)
        slot.id = slot.id or call_id
        if name and name != slot.name and not slot.has_arguments:
            slot.name += name
        if arguments:
            slot.arguments.write(arguments)

    def _slot(self, index: int | None, call_id: str, name: str) -> _Slot:
        """Return the newest call that a piece can belong to, or begin a new one."""
        for slot in reversed(self._slots):
            if index is not None and slot.index != index:
                continue
            if call_id and slot.id and call_id != slot.id:
                if index is None:
                    continue
                break
            # Without index and id, a name after arguments begins the next complete call.
            is_second_whole = index is None and not call_id and name and slot.has_arguments
            if is_second_whole:
                break
            return slot
        self._slots.append(_Slot(index=index))
        return self._slots[-1]

    def whole(self, request: ModelRequest) -> Iterator[AgentCall]:
        """Yield the calls in the order they began, each with an id that is not in the request."""
        earlier = [
            block.id
            for message in request.messages
            for block in message.blocks
            if isinstance(block, CallBlock)
        ]
        taken = set(earlier)
        for number, slot in enumerate(self._slots):
            call_id = storable(slot.id)
            if not call_id or call_id in taken or _is_held(call_id, request):
                # The history only grows, so its length in bytes was not used for an earlier id; the
                # number keeps the calls apart that follow it.
                size = sum(map(len, request.history))
                call_id = f"call_{size:x}_{len(earlier) + number}"
            taken.add(call_id)
            yield AgentCall(
                id=call_id,
                name=storable(slot.name) or "unknown",
                arguments=storable(slot.arguments.getvalue()) or "{}",
            )


def _is_held(call_id: str, request: ModelRequest) -> bool:
    """Tell whether the encoded history contains this id."""
    encoded = msgspec.json.encode(call_id)
    return any(encoded in stretch for stretch in request.history)
