"""Texts that requests were made of and no journal holds, each kept once, by its digest.

Turns are never deleted, so nothing is swept: a text without a turn is left only by an attempt that
another one has followed, and is as small as any. Nodes may so remember what is stored. What tells
of people's memories is the exception: it must go when one of them is changed or erased.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perdure.domain.people.memory import MemoryId, line_told
from perdure.domain.prompt.prefix import KeptText
from perdure.store.statement import Op, listed, many, run

# Keeps a text, unless it is kept already.
_KEEP = """
    INSERT INTO texts (owner, digest, body) VALUES ($1, $2, $3)
    ON CONFLICT (owner, digest) DO NOTHING"""
# Reads when memories were changed last; what follows says which.
_REMEMBERED = "SELECT id, changed_at FROM memories WHERE id IN "
# Reads texts; what follows says whose and which.
_FOUND = "SELECT digest, body FROM texts WHERE owner IN "
# Removes what tells of a memory. Whole lines are compared: a memory may be a part of another's
# words.
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
    """Keep texts that may be new. In one order, so that two nodes with the same ones never wait for
    each other."""
    for text in sorted(texts, key=lambda each: (each.owner, each.digest)):
        if not text.lines or (yield from _is_remembered(text)):
            yield from run(_KEEP, text.owner, text.digest, text.body)


def _is_remembered(text: KeptText) -> Op[bool]:
    """Tell whether all memories are still what they were when the model was told of them, and hold
    them so until the transaction ends: who erases one of them then finds the text."""
    ids = [memory for memory, _ in text.lines]
    sql = f"{_REMEMBERED}{listed(1, len(ids))} ORDER BY id FOR UPDATE"
    return set((yield from many(_Remembered, sql, *ids))) == set(text.lines)


def of(digests: Iterable[str], owners: Sequence[str]) -> Op[Mapping[str, str]]:
    """Find the texts with these digests that are everybody's or these owners'."""
    wanted = [digest for digest in digests if digest]
    if not wanted:
        return {}
    scopes = ["", *owners]
    sql = f"{_FOUND}{listed(1, len(scopes))} AND digest IN {listed(1 + len(scopes), len(wanted))}"
    found = yield from many(_Found, sql, *scopes, *wanted)
    return {each.digest: each.body for each in found}


def drop_line(words: str, owners: Iterable[str | None]) -> Op[None]:
    """Remove what tells these words of a memory that has changed or is gone."""
    line = f"\n{line_told(words)}\n"
    for owner in owners:
        if owner is not None:
            yield from run(_DROP, owner, "\n", line)
