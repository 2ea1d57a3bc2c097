"""An arrival that may not be read yet.

What strangers send costs nothing but the decision about them. So an adapter hands over an envelope,
and how to read what is in it; the inlet opens the envelope once the sender may speak.
"""

import msgspec

from perdure.domain.errors import Permanent
from perdure.domain.inbound.arrivals import Arrival
from perdure.ports.platform.adapter import ArrivalReading


class Envelope:
    """Holds one arrival on its way in: what the decision needs, and from `open` on all of it."""

    def __init__(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        self.arrival = arrival
        self._reading = reading

    @property
    def is_open(self) -> bool:
        return self._reading is None

    @property
    def payload(self) -> str:
        """Return what to put aside: the whole arrival, which can be taken again, or what came from
        the platform where it was never read."""
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
        """Return the whole arrival; None where nobody has said anything."""
        if self._reading is None:
            return self.arrival
        whole = await self._reading.whole()
        if whole is None:
            return None
        if _identity(whole) != _identity(self.arrival):
            raise Permanent(
                "what was read is not what was decided on; tell whoever wrote the adapter"
            )
        self.arrival, self._reading = whole, None
        return whole


def _identity(arrival: Arrival) -> tuple[object, ...]:
    """Return what the decision was made on, as far as reading may not change it."""
    sender = arrival.sender
    where = (arrival.place, arrival.place_kind, "" if arrival.target else arrival.thread)
    who = (sender.id, sender.is_bot, sender.roles)
    return (arrival.kind, arrival.external_id, arrival.target, *where, *who)
