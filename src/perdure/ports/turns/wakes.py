"""Wake-ups by topic: whoever has made work says so, and knows nobody who does it."""

from enum import Enum, auto
from typing import Protocol, TypeAlias

from perdure.domain.address import Address


class Topic(Enum):
    """What there may be work for. A topic with a key is about that one thing only.

    `ENDED`, `STEERED` and `DOUBTED` name a turn, a turn and an adapter; `LINES` names the address
    of a conversation. The others have no key.
    """

    TURNS = auto()  # a turn may be claimed
    OUTBOX = auto()  # a part may be due
    FETCHES = auto()  # a file may be fetched
    BEGUN = auto()  # a turn has begun
    ENDED = auto()  # a turn was ended by a transaction that is not its runner's
    STEERED = auto()  # a message for a turn that runs was accepted
    DOUBTED = auto()  # nobody knows whether a part on this platform has arrived
    LINES = auto()  # something was written about a part of this conversation


WakeKey: TypeAlias = str | Address | None


class Wakes(Protocol):
    """Tells those who wait for a topic that they may have work.

    Guarantees: `publish` never waits and never fails; whoever waits for the topic looks at the
    store after it; to publish twice costs a look and nothing else.
    Requires: what there is to do is durable already. A wake-up is only there for speed.
    Raises: nothing.
    After a crash: nothing is kept; the next process looks at everything when it begins.
    """

    def publish(self, topic: Topic, key: WakeKey = None) -> None: ...
