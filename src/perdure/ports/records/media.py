"""Files: those that came with messages, those that are still elsewhere, and what they say."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import MediaId, MessageId, PrincipalId, TurnId
from perdure.domain.journal.events import Attachment, Recorded
from perdure.domain.people.sharing import EQUAL, FairShares
from perdure.domain.reading.texts import FileReading


class Media(msgspec.Struct, frozen=True, kw_only=True):
    id: MediaId
    mime: str
    name: str
    size: int
    digest: str


class KeptBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that are in the library, without a row yet; `head` is how they begin."""

    digest: str
    size: int
    head: bytes


class MediaLibrary(Protocol):
    """Bytes by content, rows by owner.

    Guarantees: `put` returns once the bytes and their row are durable; the same bytes are kept
    once. A file that `is_loose` is named by no message yet; `remove_loose` removes the rows of
    some that none has named for a day, and returns how many. `keep` takes bytes as they come, makes
    them durable and leaves the row to its caller.
    `get` shows a principal its own files only (operators all). `sweep` looks through one of
    `SHARDS` parts of the library and removes bytes that have been there for a day without a row.
    Requires: bytes within the body limit.
    Raises: `NotFound`; `OverQuota` when its owner may store no more; `Transient` when the disk is
    full, or with the code `NOT_WRITABLE` and the name of the folder when that takes no files;
    `keep` raises `Permanent` for more than `bytes_max`, and whatever the bytes' source raises.
    After a crash: bytes without a row are swept; a row never lacks its bytes.
    """

    async def put(
        self, data: bytes, *, mime: str, name: str, principal: PrincipalId, is_loose: bool = True
    ) -> Media: ...

    async def keep(self, pieces: AsyncIterator[bytes], *, bytes_max: int) -> KeptBytes: ...

    async def get(self, media: MediaId, *, principal: PrincipalId | None) -> Media: ...

    async def read(self, media: MediaId) -> bytes: ...

    async def read_kept(self, digest: str) -> bytes: ...

    async def remove_loose(self) -> int: ...

    async def sweep(self, shard: int) -> int: ...


SHARDS: Final = 256
NOT_WRITABLE: Final = "not_writable"


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a turn waits for. `adapter` is where it comes from; it is empty for what the
    gateway gets itself, from the attachment's `url`, and for what is here and only to be read.
    `attempts` counts this one."""

    id: str
    turn: TurnId
    message: MessageId
    index: int
    adapter: str
    attachment: Attachment
    principal: PrincipalId
    attempts: int
    created_at: int

    @property
    def sticker_id(self) -> str:
        """The platform's id of the sticker that it is a picture of; empty for other files."""
        return self.attachment.sticker.id if self.attachment.sticker else ""


class FetchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was brought here, and what it says. `digest` is empty where it was here."""

    mime: str
    name: str
    size: int
    digest: str = ""
    reading: FileReading = FileReading()


class AwaitedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a turn waits for now, and where the answer goes. `is_told`: the people were told
    that it takes long."""

    fetch: Fetch
    address: Address
    is_told: bool


class Late(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not waited for any longer. `found` is what is known of one that was brought
    here and is still being read."""

    fetch: Fetch
    found: FetchedFile | None = None


class Fetches(Protocol):
    """Files on their way to the turns that wait for them.

    Guarantees: `take` gives each due file of these adapters to one caller, in order of arrival per
    person, whatever the clock says. Where more wait than there is room for, the next is always of
    the person with the fewest by `shares`; nobody gets more than `shares.most`. `next_due_ms` says
    from when on there is one, 0 if there is one now.
    `done` makes it the
    turn's in one transaction: its row in the library, the fact in the journal, and the turn can be
    claimed if it was the last; it may be repeated. `lost` gives it up: the people are told, and the
    turn goes on without it; `again` leaves it for a later try. `release` gives back what this node
    has taken; `recover` does so for owners who are gone, and gives up what has ended several of
    them. `waiting` are the files that turns wait for, the oldest first, whoever has taken them.
    `tell_slow` tells the people of a turn about them, once, also over restarts. `expire` lets a
    turn go on without these files of it, whoever has taken them, and tells the people in one
    notice; what is no longer waited for by then stays as it is. Both may be repeated.
    Requires: the bytes are in the library before `done`.
    Raises: `Conflict` when the file is no longer ours: its turn was ended, or we were away.
    After a crash: what was taken is taken again by the next owner; fetching may be repeated.
    """

    async def take(
        self, *, adapters: Sequence[str], limit: int, shares: FairShares = EQUAL
    ) -> list[Fetch]: ...

    async def done(self, fetch: Fetch, found: FetchedFile) -> list[Recorded]: ...

    async def lost(self, fetch: Fetch, reason: str) -> list[Recorded]: ...

    async def again(self, fetch: Fetch, *, error: str, due_in_s: float) -> None: ...

    async def release(self) -> int: ...

    async def recover(self, *, attempts_max: int) -> list[Recorded]: ...

    async def waiting(self) -> list[AwaitedFile]: ...

    async def tell_slow(self, turn: TurnId, text: str) -> list[Recorded]: ...

    async def expire(self, files: Sequence[Late]) -> list[Recorded]: ...

    async def next_due_ms(self) -> int | None: ...


# The code of a `Transient` where nobody could even be asked.
UNREACHABLE: Final = "unreachable"
FOR_SENDER: Final = "for_sender"


class Fetcher(Protocol):
    """Where files come from: a platform, by the reference that came with the message, or the web,
    by an address.

    Guarantees: the bytes of one file, in order, from the beginning.
    Requires: the caller counts them and closes the iterator.
    Raises: `Transient` when it may work later, with the code `UNREACHABLE` where nobody answers at
    an address; `Permanent` when the file is gone, too large, or must not be fetched, with what to
    do. A platform's words are for the log unless they have the code `FOR_SENDER`: then they are
    told to whoever has sent the file.
    After a crash: nothing is kept; it may be asked again.
    """

    def fetch(self, reference: str) -> AsyncIterator[bytes]: ...


class FileSource(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is to be read."""

    data: bytes
    mime: str
    name: str
    is_voice: bool = False


class ReadsFiles(Protocol):
    """Finds out what a file says.

    Guarantees: an answer within a bounded time, of bounded length; what cannot be read, or was not
    understood, is a `problem` in words, never an error.
    Requires: nothing.
    Raises: nothing.
    After a crash: nothing is kept.
    """

    async def read(self, source: FileSource) -> FileReading: ...
