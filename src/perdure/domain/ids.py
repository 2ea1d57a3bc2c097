"""Makes identifiers, which are opaque, sortable, and begin with a prefix.

An id is a prefix and, in Crockford's base 32, 48 bits of milliseconds and 80 random bits. So ids
sort by the time at which they were made, and any process can make them without asking another. No
code reads the time back from an id.
"""

from typing import Final, NewType

ConversationId = NewType("ConversationId", str)
SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
JobId = NewType("JobId", str)
QuestionId = NewType("QuestionId", str)
GrantId = NewType("GrantId", str)
UpdateId = NewType("UpdateId", str)
PartId = NewType("PartId", str)
PrincipalId = NewType("PrincipalId", str)
NodeId = NewType("NodeId", str)
MediaId = NewType("MediaId", str)
SubscriptionId = NewType("SubscriptionId", str)

RANDOM_BYTES: Final = 10
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH: Final = 26
# Two digits at a time, for speed: several ids are minted in every turn.
_PAIRS: Final = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS: Final = range(5 * (_LENGTH - 2), -1, -10)


def mint(prefix: str, *, now_ms: int, randomness: bytes) -> str:
    """Make an id such as `trn_01h…` from a time and ten random bytes."""
    assert len(randomness) == RANDOM_BYTES
    number = (now_ms << 80) | int.from_bytes(randomness, "big")
    return f"{prefix}_{''.join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])}"
