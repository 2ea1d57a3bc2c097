"""Keeps texts of model requests that no journal holds, each stored once under its digest.

Texts are never cleaned up, because turns are never deleted: only an attempt that was followed by
another one can leave a text that no turn uses. So nodes may remember what is stored. The exception
are texts that contain people's memories: they are deleted when such a memory is changed or erased.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perdure.domain.people.memory import MemoryId, line_told
from perdure.domain.prompt.prefix import KeptText
from perdure.store.statement import Op, listed, many, run

# Stores a text unless it is stored already.
_KEEP = """
    INSERT INTO texts (owner, digest, body) VALUES ($1, $2, $3)
    ON CONFLICT (owner, digest) DO NOTHING"""
# Reads when memories were last changed; the caller appends which ones.
_REMEMBERED = "SELECT id, changed_at FROM memories WHERE id IN "
# Reads texts; the caller appends whose and which.
_FOUND = "SELECT digest, body FROM texts WHERE owner IN "
# Deletes texts that contain a memory. Whole lines are compared, because the words of one memory may
# be part of another's.
_DROP = """
    DELETE FROM texts
    WHERE owner = $1 AND REPLACE(body || CAST($2 AS TEXT), CAST($3 AS TEXT), '') <> body || $2"""


class _Remembered(NamedTuple):
    memory: MemoryId
    changed_at: int


class _Found(NamedTuple):
    digest: str
    body: str


def keep(texts: Sequence[KeptText]) -> Op[None]:
    """Store texts that may be new. Writes them in sorted order, so that two nodes with the same
    texts cannot deadlock."""
    for text in sorted(texts, key=lambda each: (each.owner, each.digest)):
        if not text.lines or (yield from _is_remembered(text)):
            yield from run(_KEEP, text.owner, text.digest, text.body)


def _is_remembered(text: KeptText) -> Op[bool]:
    """Tell whether all memories in a text are unchanged since it was made. Locks them until the
    transaction ends: a transaction that erases one of them then finds this text and deletes it."""
    ids = [memory for memory, _ in text.lines]
    sql = f"{_REMEMBERED}{listed(1, len(ids))} ORDER BY id FOR UPDATE"
    return set((yield from many(_Remembered, sql, *ids))) == set(text.lines)


def of(digests: Iterable[str], owners: Sequence[str]) -> Op[Mapping[str, str]]:
    """Return the texts with these digests that belong to everybody or to these owners, by
    digest."""
    wanted = [digest for digest in digests if digest]
    if not wanted:
        return {}
    scopes = ["", *owners]
    sql = f"{_FOUND}{listed(1, len(scopes))} AND digest IN {listed(1 + len(scopes), len(wanted))}"
    found = yield from many(_Found, sql, *scopes, *wanted)
    return {each.digest: each.body for each in found}


def drop_line(words: str, owners: Iterable[str | None]) -> Op[None]:
    """Delete these owners' texts that contain a memory which was changed or erased."""
    line = f"\n{line_told(words)}\n"
    for owner in owners:
        if owner is not None:
            yield from run(_DROP, owner, "\n", line)
