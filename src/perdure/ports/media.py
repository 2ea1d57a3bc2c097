"""Files that came with messages."""

from typing import Protocol

import msgspec

from perdure.domain.ids import MediaId, PrincipalId


class Media(msgspec.Struct, frozen=True, kw_only=True):
    id: MediaId
    mime: str
    name: str
    size: int
    digest: str


class MediaLibrary(Protocol):
    """Bytes by content, rows by owner.

    Guarantees: `put` returns once the bytes and their row are durable; the same bytes are kept
    once. `get` shows a principal its own files only (operators all).
    Requires: bytes within the body limit.
    Raises: `NotFound`; `Transient` when the disk is full.
    After a crash: bytes without a row are swept; a row never lacks its bytes.
    """

    async def put(self, data: bytes, *, mime: str, name: str, principal: PrincipalId) -> Media: ...

    async def get(self, media: MediaId, *, principal: PrincipalId | None) -> Media: ...

    async def read(self, media: MediaId) -> bytes: ...
