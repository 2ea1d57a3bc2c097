"""What a request begins with, so that a provider's cache knows it again.

A turn's request holds, before the turn's own messages, exactly the bytes of the request of the turn
it follows, as long as these parts are the same. They are kept as short digests beside the turn; a
difference is a break, and its cause is the parts that differ.
"""

import hashlib
from functools import lru_cache

import msgspec


class Prefix(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`view` changes with a compaction, or when an older message was edited."""

    agent: str
    instructions: str = ""
    memory: str = ""
    tools: str = ""
    view: str = ""


@lru_cache(maxsize=1024)
def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest() if text else ""


def written(prefix: Prefix) -> str:
    return msgspec.json.encode(prefix).decode()


def break_between(before: str, now: Prefix) -> str:
    """The parts that differ, in words; empty where nothing does, or nothing came before."""
    if not before:
        return ""
    known = msgspec.json.decode(before, type=Prefix)
    changed = [
        name for name in Prefix.__struct_fields__ if getattr(known, name) != getattr(now, name)
    ]
    return ", ".join(changed)
