"""What stickers show: found out once, and told to the turns that bring them."""

from typing import Protocol

import msgspec

from perdure.domain.journal.events import Recorded
from perdure.ports.records.media import Fetch, FetchedFile


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """What came of meeting a sticker. `is_new`: nobody has described it, nor tries to, and `agent`
    is who answers the turn that brought it."""

    recorded: list[Recorded] = []
    is_new: bool = False
    agent: str = ""


class Stickers(Protocol):
    """Turns that wait to be told what a sticker shows.

    Guarantees: `meet` tells the turn the words that are kept, in the transaction that lets it go,
    or lets it wait for whoever finds them out, though never longer than `WAIT_MS` of
    `domain/content/stickers.py`. `describe` sends one errand for a sticker, however many meet it,
    on the account of the person who sent it. `pass_by` tells the turn of the sticker without words.
    Requires: the file was taken from `Fetches`; the picture's bytes are in the library before
    `describe`.
    Raises: `Conflict` when the file is no longer ours: its turn was ended, or we were away.
    After a crash: a turn that waits is told when its time is over.
    """

    async def meet(self, fetch: Fetch) -> Met: ...

    async def describe(self, fetch: Fetch, found: FetchedFile, *, agent: str) -> list[Recorded]: ...

    async def pass_by(self, fetch: Fetch) -> list[Recorded]: ...
