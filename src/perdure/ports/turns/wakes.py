"""Defines the port through which the parts of a node wake each other, by topic. A part that has
created work publishes its topic, and does not know which part does that work."""

from enum import Enum, auto
from typing import Protocol, TypeAlias

from perdure.domain.address import Address


class Topic(Enum):
    """Names what there may be work for. With a key, a topic is about one thing only.

    The key of `ENDED` and `STEERED` is a turn, that of `DOUBTED` an adapter, and that of `LINES`
    the address of a conversation; that of `CONNECTED` and `DISCONNECTED` is an adapter. The others
    have no key.
    """

    TURNS = auto()  # a turn may be claimed
    OUTBOX = auto()  # a part may be due
    FETCHES = auto()  # a file may be fetched
    QUESTIONS = auto()  # a turn waits, so a deadline may be due
    JOBS = auto()  # a job may be due
    BEGUN = auto()  # a turn has begun
    ENDED = auto()  # a turn was ended by a transaction that is not its runner's
    STEERED = auto()  # a message for a turn that runs was accepted
    DOUBTED = auto()  # nobody knows whether a part on this platform has arrived
    CONNECTED = auto()  # a platform was connected
    DISCONNECTED = auto()  # the connection to a platform was lost
    HOOKS = auto()  # hooks may have something to hear of
    PUSHES = auto()  # a person may have something to be notified of
    STOPPING = auto()  # the node has begun to stop
    LINES = auto()  # something was written about a part of this conversation


WakeKey: TypeAlias = str | Address | None


class Wakes(Protocol):
    """Wakes the parts of this node that wait for a topic.

    Guarantees: every part that waits for the topic looks at the store afterwards.
    Requires: the work is durable already. A wake-up is only there for speed.
    Raises: nothing.
    After a crash: nothing is kept; the next process looks at everything when it begins.
    """

    def publish(self, topic: Topic, key: WakeKey = None) -> None:
        """Wake the parts that wait for a topic, at once. To publish twice costs a look at the
        store, and nothing else."""
