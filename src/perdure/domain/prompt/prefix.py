"""What a request begins with, so that a provider's cache knows it again, and from what it was made.

A turn's request holds, before the turn's own messages, exactly the bytes of the request of the turn
it follows, as long as these parts are the same. They are kept as digests beside the turn; a
difference is a break, and its cause is the parts that differ.

A digest is also the name under which a text is kept that no journal holds, each once (`KeptText`).
With them, and with what a `Basis` says of the journal as it was then, the request can be made again
(`domain/turn/rebuilding.py`).
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from perdure.domain.ids import MessageId, SessionId
from perdure.domain.journal.events import Compacted, Recorded, TurnAmended

# Digests had so many digits when they were only compared. Longer ones begin with the same.
_SHORT: Final = 12
_DIGESTS: Final = ("instructions", "memory", "tools")


class Prefix(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`view` changes with a compaction, or when an older message was edited."""

    agent: str
    instructions: str = ""
    memory: str = ""
    tools: str = ""
    view: str = ""


class ChainSource(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How a chain of turns stood when it was told: the `summary` it began with, and of each journal
    the last rewording of a message that was known. What came later was not told."""

    summary: MessageId | None = None
    amended: tuple[tuple[SessionId, int], ...] = ()


class Basis(Prefix, frozen=True, kw_only=True, array_like=True):
    """A prefix with what it takes to make the whole request again. `own` is the digest of the
    instructions without those that stand in the turn itself, if there are any; `upto` is the last
    of the turn's events that was told; `has_vision`: pictures were shown, not told in words;
    `tokens_max`: the older turns were shortened to so much."""

    own: str = ""
    upto: int = 0
    source: ChainSource = ChainSource()
    has_vision: bool = False
    tokens_max: int = 0


class KeptText(msgspec.Struct, frozen=True, kw_only=True):
    """A text that requests are made of and no journal holds. `owner` is the person or the shared
    conversation that it tells of, `lines` the memories in it with the instants of their last
    change: once one of them is changed or erased, the text must not be kept any more."""

    digest: str
    body: str
    owner: str = ""
    lines: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Identify the text with the memories in it, which may come again with the same words."""
        return self.digest, self.owner, self.lines


class RequestOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """What a request was made from, as it is stored: a written `Basis`, and the texts that it names
    by their digests."""

    prefix: str = ""
    texts: tuple[KeptText, ...] = ()


NOTHING_ASKED: Final = RequestOrigin()


@lru_cache(maxsize=1024)
def digest(text: str) -> str:
    """Return the name of a text. It is long enough that nobody can make another text for it."""
    if not text:
        return ""
    body = text.encode()
    short = hashlib.blake2b(body, digest_size=_SHORT // 2).hexdigest()
    return short + hashlib.blake2b(body, digest_size=10, person=b"perdure").hexdigest()


def kept(
    text: str, *, owner: str = "", lines: tuple[tuple[str, int], ...] = ()
) -> tuple[KeptText, ...]:
    """Return the text as it is kept, and nothing for an empty one."""
    if not text:
        return ()
    return (KeptText(digest=digest(text), body=text, owner=owner, lines=lines),)


def source_of(turns: Iterable[Iterable[Recorded]]) -> ChainSource:
    """Find out how these turns stand, which begin with the summary if there is one."""
    summary: MessageId | None = None
    amended: dict[SessionId, int] = {}
    for events in turns:
        for recorded in events:
            match recorded.event:
                case Compacted(message=message):
                    summary = message
                case TurnAmended():
                    before = amended.get(recorded.session, 0)
                    amended[recorded.session] = max(before, recorded.seq)
                case _:
                    pass
    return ChainSource(summary=summary, amended=tuple(sorted(amended.items())))


def and_then(source: ChainSource, turn: Iterable[Recorded]) -> ChainSource:
    """Add a turn to what was told before it."""
    amended = dict(source.amended)
    for session, seq in source_of([turn]).amended:
        amended[session] = max(amended.get(session, 0), seq)
    return msgspec.structs.replace(source, amended=tuple(sorted(amended.items())))


def was_told(recorded: Recorded, source: ChainSource) -> bool:
    """Tell whether an event of a turn that was told stood there then already."""
    if not isinstance(recorded.event, TurnAmended):
        return True
    return recorded.seq <= dict(source.amended).get(recorded.session, 0)


def written(basis: Basis) -> str:
    return msgspec.json.encode(basis).decode()


def read(text: str) -> Basis:
    """Read what `written` has made, also in earlier versions, which knew only a prefix."""
    return msgspec.json.decode(text, type=Basis)


def break_between(before: str, now: Prefix) -> str:
    """The parts that differ, in words; empty where nothing does, or nothing came before."""
    if not before:
        return ""
    known = read(before)
    changed = [
        name
        for name in Prefix.__struct_fields__
        if not _is_same(name, getattr(known, name), getattr(now, name))
    ]
    return ", ".join(changed)


def _is_same(part: str, before: str, now: str) -> bool:
    """Compare a part; a digest of an earlier version is the beginning of today's."""
    is_old = part in _DIGESTS and len(before) == _SHORT
    return now.startswith(before) if is_old else before == now
