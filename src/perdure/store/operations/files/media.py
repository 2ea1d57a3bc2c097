"""Keeps the rows of files. The bytes lie beside the database, in files named by their digest."""

from collections.abc import Sequence

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.ids import MediaId, PrincipalId
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.ports.records.media import FittedPicture, Media
from perdure.store.operations.people import quotas
from perdure.store.statement import Op, exists, one, run

# Stores a file's row.
_PUT = """
    INSERT INTO media (id, digest, mime, name, size, principal_id, created_at, is_loose)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"""
# Reads a file of the given principal, or of anybody if none is given.
_GET = """
    SELECT id, mime, name, size, digest FROM media
    WHERE id = $1 AND (CAST($2 AS TEXT) IS NULL OR principal_id = $2)"""
# Finds the row of the same file of the same owner.
_SAME = """
    SELECT id FROM media WHERE digest = $1 AND principal_id = $2 AND mime = $3 AND name = $4
    ORDER BY id LIMIT 1"""
# Finds any row with these bytes.
_HAS_ROW = """
    SELECT 1 FROM media WHERE digest = $1
    UNION ALL SELECT 1 FROM media WHERE shown = $1 AND shown <> '' LIMIT 1"""
# Finds what models are shown instead of these bytes.
_FITTED = "SELECT shown, shown_size FROM media WHERE digest = $1 AND shown <> '' LIMIT 1"
# Names what models are shown instead of a file, unless that is known, and returns its owner.
_FIT = """
    UPDATE media SET shown = $1, shown_size = $2 WHERE id = $3 AND shown = ''
    RETURNING principal_id"""


def put(
    media: Media,
    principal: PrincipalId,
    *,
    at: int,
    is_loose: bool = False,
    quota: Quota = NO_QUOTA,
) -> Op[Media]:
    """Store a file's row; `is_loose` means that no message names it yet. The same file of the same
    owner keeps its id, so that a message repeated with it is recognized as the same. Raises
    `OverQuota`."""
    known = yield from one(MediaId, _SAME, media.digest, principal, media.mime, media.name)
    if known is not None:
        return msgspec.structs.replace(media, id=known)
    yield from quotas.insist_on_file(quota, principal, media.size, is_loose=is_loose)
    yield from run(
        _PUT,
        media.id, media.digest, media.mime, media.name, media.size, principal, at, int(is_loose),
    )  # fmt: skip
    yield from quotas.add(principal, media.size, files=int(is_loose))
    return media


def fit(media: MediaId, picture: FittedPicture) -> Op[None]:
    """Name what models are shown instead of a picture. It belongs to the picture's owner too."""
    owner = yield from one(PrincipalId, _FIT, picture.digest, picture.size, media)
    if owner is not None:
        yield from quotas.add(owner, picture.size)


def fitted(digest: str) -> Op[FittedPicture | None]:
    """Return what models are shown instead of the picture with these bytes, if that is known."""
    return (yield from one(_fitted, _FITTED, digest))


def _fitted(digest: str, size: int) -> FittedPicture:
    """Return the picture that a row names."""
    return FittedPicture(digest=digest, size=size)


def without_rows(digests: Sequence[str]) -> Op[list[str]]:
    """Return those of these digests that no row has: nobody owns their bytes."""
    alone = []
    for digest in digests:
        if not (yield from exists(_HAS_ROW, digest)):
            alone += [digest]
    return alone


def get(media: MediaId, *, principal: PrincipalId | None) -> Op[Media]:
    """Return a file's row. With a principal, only their own files are found. Raises `NotFound`."""
    found = yield from one(_media, _GET, media, principal)
    if found is None:
        raise NotFound(f"there is no file {media}; upload it with POST /api/media")
    return found


def _media(media: MediaId, mime: str, name: str, size: int, digest: str) -> Media:
    """Return the file that a row holds."""
    return Media(id=media, mime=mime, name=name, size=size, digest=digest)
