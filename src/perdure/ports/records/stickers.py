"""Defines the port through which a sticker is described once and turns are told what it shows."""

from typing import Protocol

import msgspec

from perdure.domain.journal.events import Recorded
from perdure.ports.records.media import Fetch, FetchedFile


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what `Stickers.meet` has done. `is_new`: nobody has described the sticker or is doing
    so, and `agent` answers the turn that brought it."""

    recorded: list[Recorded] = []
    is_new: bool = False
    agent: str = ""


class Stickers(Protocol):
    """Tells turns what the stickers in their messages show.

    Guarantees: each method is one transaction; repeating it after a lost answer changes nothing
    more. A turn waits for a description no longer than `WAIT_MS` (`domain/content/stickers.py`).
    Requires: the file was taken from `Fetches`.
    Raises: `Conflict` when nobody waits for the file any more, or another attempt has it;
    `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: a turn that waits is told when its time is over.
    """

    async def meet(self, fetch: Fetch) -> Met:
        """Tell the turn the known description, and let it begin if nothing else is missing; or let
        it wait for a description that was ordered; or return that nobody describes it yet."""

    async def describe(self, fetch: Fetch, found: FetchedFile, *, agent: str) -> list[Recorded]:
        """Order one errand that describes the sticker, however many turns meet it, for the person
        who sent it. Requires that the picture's bytes are in the library."""

    async def pass_by(self, fetch: Fetch) -> list[Recorded]:
        """Tell the turn of the sticker without a description."""
