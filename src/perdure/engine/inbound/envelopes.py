"""Holds an arrival that may not be read yet.

A message from a stranger must cost no more than the decision about its sender. So an adapter hands
over an envelope and a way to read its content, and the inlet opens it once the sender may speak.
"""

import msgspec

from perdure.domain.errors import Permanent
from perdure.domain.inbound.arrivals import Arrival
from perdure.ports.platform.adapter import ArrivalReading


class Envelope:
    """Holds one arrival: what the decision needs, and after `open` the whole arrival."""

    def __init__(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        self.arrival = arrival
        self._reading = reading

    @property
    def is_open(self) -> bool:
        """Tell whether the arrival is whole."""
        return self._reading is None

    @property
    def payload(self) -> str:
        """Return what to put aside: the whole arrival as JSON, which can be taken again, or the
        platform's own bytes if the arrival was not read."""
        if self._reading is None:
            return msgspec.json.encode(self.arrival).decode()
        return self._reading.payload.decode(errors="replace")

    async def name(self) -> Arrival:
        """Return the arrival with its sender's name, without reading anything else."""
        if self._reading is None or self._reading.name is None:
            return self.arrival
        sender = msgspec.structs.replace(self.arrival.sender, name=await self._reading.name())
        return msgspec.structs.replace(self.arrival, sender=sender)

    async def open(self) -> Arrival | None:
        """Return the whole arrival, or None if it turns out that nobody has said anything. Raises
        `Permanent` if it does not agree with its envelope."""
        if self._reading is None:
            return self.arrival
        whole = await self._reading.whole()
        if whole is None:
            return None
        if _identity(whole) != _identity(self.arrival):
            raise Permanent(
                "the whole arrival does not match its envelope; tell the author of the adapter"
            )
        self.arrival, self._reading = whole, None
        return whole


def _identity(arrival: Arrival) -> tuple[object, ...]:
    """Return the fields on which the decision was made and which reading must not change."""
    sender = arrival.sender
    where = (arrival.place, arrival.place_kind, "" if arrival.target else arrival.thread)
    who = (sender.id, sender.is_bot, sender.roles)
    return (arrival.kind, arrival.external_id, arrival.target, *where, *who)
