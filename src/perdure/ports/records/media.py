"""Defines the ports of files: the library, the files that turns wait for, and what files say."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import MediaId, MessageId, PrincipalId, TurnId
from perdure.domain.journal.events import Attachment, Recorded
from perdure.domain.people.sharing import EQUAL, FairShares
from perdure.domain.reading.texts import FileReading


class Media(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a file in the library. `digest` names its bytes."""

    id: MediaId
    mime: str
    name: str
    size: int
    digest: str


class KeptBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Describes bytes in the library that may have no row yet. `head` is their beginning."""

    digest: str
    size: int
    head: bytes


class FittedPicture(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the bytes that models are shown instead of a picture."""

    digest: str
    size: int


class MediaLibrary(Protocol):
    """Keeps files: their bytes by content, their rows by owner.

    Guarantees: a row never lacks its bytes; the same bytes are kept once.
    Requires: bytes within the body limit.
    Raises: `NotFound` for a file or bytes that are not there; `Transient` when the disk is full,
    or with the code `NOT_WRITABLE` and the folder's name when that takes no files.
    After a crash: bytes without a row are found by `sweep`.
    """

    async def put(
        self, data: bytes, *, mime: str, name: str, principal: PrincipalId, is_loose: bool = True
    ) -> Media:
        """Store a file, and return once its bytes and its row are durable. `is_loose`: no message
        names it yet. Raises `OverQuota` when its owner may store no more."""

    async def keep(self, pieces: AsyncIterator[bytes], *, bytes_max: int) -> KeptBytes:
        """Store bytes as they come, and return once they are durable. The caller writes their row.
        Raises `Permanent` for more than `bytes_max`, and whatever the source of the bytes raises.
        """

    async def get(self, media: MediaId, *, principal: PrincipalId | None) -> Media:
        """Return a file's row. With a principal, only their own files are found."""

    async def read(self, media: MediaId) -> bytes:
        """Return a file's bytes."""

    async def read_kept(self, digest: str) -> bytes:
        """Return the bytes with this digest."""

    async def fitted(self, digest: str) -> FittedPicture | None:
        """Return what models are shown instead of the picture with these bytes, if that was made
        before, whoever sent it."""

    async def remove_loose(self) -> int:
        """Delete the rows of some files that no message has named for a day. Returns how many."""

    async def sweep(self, shard: int) -> int:
        """Delete the bytes in one of `SHARDS` parts of the library that have had no row for a day.
        Returns how many files that were."""


# The library is swept in so many parts, so that each sweep is short.
SHARDS: Final = 256
# The code of a `Transient` for a folder that takes no files.
NOT_WRITABLE: Final = "not_writable"


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file that a turn waits for. `adapter` is where it comes from; it is empty for a file
    from the web (the attachment's `url`), and for one that is in the library already and only to be
    read. `attempts` counts the present attempt too."""

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
        """Return the platform's id of the sticker that the file shows; empty for other files."""
        return self.attachment.sticker.id if self.attachment.sticker else ""


class FetchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file that was fetched, and what it says. `digest` is empty if the file was in the
    library before. `fitted` is what models are shown instead of a picture, if it did not fit."""

    mime: str
    name: str
    size: int
    digest: str = ""
    reading: FileReading = FileReading()
    fitted: FittedPicture | None = None


class AwaitedFile(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file that a turn waits for now, and where the turn's answer goes. `is_told`: the
    people were told that it takes long."""

    fetch: Fetch
    address: Address
    is_told: bool


class Late(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file that is not waited for any longer. `found` describes it if it was fetched and is
    still being read."""

    fetch: Fetch
    found: FetchedFile | None = None


class Fetches(Protocol):
    """Brings files to the turns that wait for them.

    Guarantees: each method that writes is one transaction; those that record a result may be
    repeated after a lost answer. A turn can be claimed as soon as none of its files is missing.
    Requires: the bytes are in the library before `done`.
    Raises: `Conflict` when nobody waits for the file any more, or another attempt has it;
    `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: what was taken is taken again by the next owner; fetching may be repeated.
    """

    async def take(
        self, *, adapters: Sequence[str], limit: int, shares: FairShares = EQUAL
    ) -> list[Fetch]:
        """Take files of these adapters that are due. Gives each to one caller.

        The files of one person come in order of arrival, whatever the clock says. If more wait than
        there is room for, the next is always of the person with the fewest by `shares`; nobody gets
        more than `shares.most`. If the answer is lost, `release` gives the files back.
        """

    async def done(self, fetch: Fetch, found: FetchedFile) -> list[Recorded]:
        """Give a fetched file to its turn: its row in the library, which names the fitted picture
        too, and the event in the journal. If its owner may store no more, it is given up as by
        `lost`."""

    async def lost(self, fetch: Fetch, reason: str) -> list[Recorded]:
        """Give up a file: the people are told, and the turn goes on without it. For a sticker
        nobody is told."""

    async def again(self, fetch: Fetch, *, error: str, due_in_s: float) -> None:
        """Leave a file for a later try. Does nothing if another attempt has it."""

    async def release(self, *, keep: Sequence[Fetch] = ()) -> int:
        """Give back what this node has taken, except the attempts in `keep`. Returns how many files
        that were."""

    async def recover(self, *, attempts_max: int) -> list[Recorded]:
        """Give back the files whose owners are gone. A file that has been taken `attempts_max`
        times is given up: it has probably killed its owners."""

    async def waiting(self) -> list[AwaitedFile]:
        """Return the files that turns wait for, oldest first, whichever node has taken them."""

    async def tell_slow(self, turn: TurnId, text: str) -> list[Recorded]:
        """Tell the people of a turn, once, that its files take long; also if the process restarts
        in between."""

    async def expire(self, files: Sequence[Late]) -> list[Recorded]:
        """Let a turn go on without these of its files, whichever node has taken them, and tell its
        people in one notice. A file that is not waited for any more stays as it is."""

    async def next_due_ms(self) -> int | None:
        """Return when the next file can be taken; 0 if that is now, None if none waits."""


# The code of a `Transient` for an address at which nobody answers.
UNREACHABLE: Final = "unreachable"
# The code of an error whose words may be shown to the sender of the file.
FOR_SENDER: Final = "for_sender"


class Fetcher(Protocol):
    """Fetches files: from a platform, or from the web.

    Guarantees: nothing is changed at the source, so a file may be fetched again.
    Requires: the caller counts the bytes and closes the iterator.
    Raises: `Transient` when it may work later, with the code `UNREACHABLE` if nobody answers at a
    web address; `Permanent` when the file is gone, too large, or must not be fetched, with what to
    do. A platform's words are for the log, unless they have the code `FOR_SENDER`.
    After a crash: nothing is kept.
    """

    def fetch(self, reference: str) -> AsyncIterator[bytes]:
        """Yield the bytes of one file, in order, from the beginning. `reference` came with the
        message, or is a web address."""


class FileSource(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file that is to be read. `address` is that of a page from the web: then its links are
    told as whole addresses, and more of its text."""

    data: bytes
    mime: str
    name: str
    is_voice: bool = False
    address: str = ""


class ReadsFiles(Protocol):
    """Finds out what a file says, and makes pictures fit for models.

    Guarantees: an answer of bounded length within a bounded time.
    Requires: nothing.
    Raises: nothing.
    After a crash: nothing is kept.
    """

    async def read(self, source: FileSource) -> FileReading:
        """Return what a file says. A file that cannot be read or understood gives a `problem` in
        words, never an error."""
