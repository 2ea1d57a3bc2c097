"""Describes what a request begins with, so that a provider's cache recognizes it, and what the
request was made from.

The request of a turn begins with exactly the bytes of the request of the turn before it, as long as
the parts of the prefix are the same. They are stored as digests beside the turn. A difference is a
break, and the parts that differ are its cause.

A digest is also the name under which a text is kept that no journal holds, each text once
(`KeptText`). With these texts, and with what a `Basis` says about the journal at that time, the
request can be made again (`domain/turn/rebuilding.py`).
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from perdure.domain.ids import MessageId, SessionId
from perdure.domain.journal.events import ContentLeftOut, LeftOut, Recorded, TurnAmended
from perdure.domain.journal.session_events import Compacted

# The length of digests in earlier versions, which only compared them. Today's longer digests begin
# with the same digits.
_SHORT: Final = 12
_DIGESTS: Final = ("instructions", "memory", "tools")


class Prefix(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Holds the parts that a request begins with, most of them as digests. `view` changes with a
    compaction, or when an older message is edited."""

    agent: str
    instructions: str = ""
    memory: str = ""
    tools: str = ""
    view: str = ""


class ChainSource(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Says how a chain of turns was told: with which `summary` it began, and up to which event of
    each journal the edits of messages were known. Later edits were not told. `left_out` is a digest
    of what was left out, or empty if that was nothing."""

    summary: MessageId | None = None
    amended: tuple[tuple[SessionId, int], ...] = ()
    left_out: str = ""

    def view(self, view: str) -> str:
        """Return the name of how the turns are told: that of the session's view, and the digest of
        what is left out."""
        return f"{view}-{self.left_out}" if self.left_out else view


class Basis(Prefix, frozen=True, kw_only=True, array_like=True):
    """Holds a prefix and what else is needed to make the whole request again. `own` is the digest
    of the instructions without those that are in the turn itself, and empty if the turn has none.
    `upto` is the number of the last of the turn's events that was told. `has_vision`: pictures were
    shown, not described in words. `tokens_max`: the older turns were shortened to so many tokens; 0
    if they were not. `has_thoughts`: the turn's own messages had the model's reasoning in them,
    which the next turn's request leaves out. So many `old_pictures` were left out. `zone` is that
    in which times were told, or empty if they were not. `own_tools` is the digest of the agent's
    tools if the turn has brought others beside them."""

    own: str = ""
    upto: int = 0
    source: ChainSource = ChainSource()
    has_vision: bool = False
    tokens_max: int = 0
    has_thoughts: bool = False
    old_pictures: int = 0
    zone: str = ""
    own_tools: str = ""


class KeptText(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a text that requests are made of and no journal holds. `owner` is the person or the
    shared conversation that the text is about. `lines` names the memories in it, with the time at
    which each was last changed: once one of them is changed or erased, the text must not be kept
    any more."""

    digest: str
    body: str
    owner: str = ""
    lines: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Return what identifies the text together with its memories, because other memories may
        have the same words."""
        return self.digest, self.owner, self.lines


class RequestOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a request was made from, in the form in which it is stored: a written `Basis`, and
    the texts that it names by their digests."""

    prefix: str = ""
    texts: tuple[KeptText, ...] = ()


NOTHING_ASKED: Final = RequestOrigin()


@lru_cache(maxsize=1024)
def text_digest(text: str) -> str:
    """Return the name of a text, or an empty string for an empty text. It is so long that nobody
    can make another text with the same name."""
    if not text:
        return ""
    body = text.encode()
    short = hashlib.blake2b(body, digest_size=_SHORT // 2).hexdigest()
    return short + hashlib.blake2b(body, digest_size=10, person=b"perdure").hexdigest()


def kept_text(
    text: str, *, owner: str = "", lines: tuple[tuple[str, int], ...] = ()
) -> tuple[KeptText, ...]:
    """Return the text in the form in which it is kept, or nothing for an empty text."""
    if not text:
        return ()
    return (KeptText(digest=text_digest(text), body=text, owner=owner, lines=lines),)


def source_of(turns: Iterable[Iterable[Recorded]]) -> ChainSource:
    """Return how these turns are told. If there is a summary, they begin with it."""
    summary: MessageId | None = None
    amended: dict[SessionId, int] = {}
    left_out: list[LeftOut] = []
    for events in turns:
        for recorded in events:
            match recorded.event:
                case Compacted(message=message):
                    summary = message
                case TurnAmended():
                    before = amended.get(recorded.session, 0)
                    amended[recorded.session] = max(before, recorded.seq)
                case ContentLeftOut(what=what):
                    left_out += what
                case _:
                    pass
    digest = text_digest(msgspec.json.encode(left_out).decode()) if left_out else ""
    return ChainSource(summary=summary, amended=tuple(sorted(amended.items())), left_out=digest)


def and_then(source: ChainSource, turn: Iterable[Recorded]) -> ChainSource:
    """Return how the turns are told when this turn follows."""
    amended = dict(source.amended)
    for session, seq in source_of([turn]).amended:
        amended[session] = max(amended.get(session, 0), seq)
    return msgspec.structs.replace(source, amended=tuple(sorted(amended.items())))


def was_told(recorded: Recorded, source: ChainSource) -> bool:
    """Tell whether an event was known when its turn was told. Only an edit may have come later."""
    if not isinstance(recorded.event, TurnAmended):
        return True
    return recorded.seq <= dict(source.amended).get(recorded.session, 0)


def written_basis(basis: Basis) -> str:
    """Return a basis as text, to be stored."""
    return msgspec.json.encode(basis).decode()


def read_basis(text: str) -> Basis:
    """Return the basis that `written` has made into a text. Earlier versions wrote only a
    prefix."""
    return msgspec.json.decode(text, type=Basis)


def break_between(before: str, now: Prefix) -> str:
    """Return the names of the parts that differ. The text is empty if none do, or if nothing came
    before. Reasoning that the request before gave back is left out of this one, which is a
    difference too, and so are pictures that are left out from now on."""
    if not before:
        return ""
    known = read_basis(before)
    changed = [
        name
        for name in Prefix.__struct_fields__
        if not _is_same(name, getattr(known, name), getattr(now, name))
    ]
    if known.has_thoughts:
        changed.append("thoughts")
    if isinstance(now, Basis) and known.old_pictures != now.old_pictures:
        changed.append("pictures")
    return ", ".join(changed)


def _is_same(part: str, before: str, now: str) -> bool:
    """Compare one part. A digest of an earlier version is the beginning of today's."""
    is_old = part in _DIGESTS and len(before) == _SHORT
    return now.startswith(before) if is_old else before == now
