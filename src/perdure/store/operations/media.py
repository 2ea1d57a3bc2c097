"""Rows of files. The bytes lie beside the database, named by their digest."""

from collections.abc import Sequence

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.ids import MediaId, PrincipalId
from perdure.ports.media import Media
from perdure.store.statement import Op, row, run

_PUT = """
    INSERT INTO media (id, digest, mime, name, size, principal_id, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)"""
_GET = """
    SELECT id, mime, name, size, digest FROM media
    WHERE id = $1 AND (CAST($2 AS TEXT) IS NULL OR principal_id = $2)"""

_SAME = """
    SELECT id FROM media WHERE digest = $1 AND principal_id = $2 AND mime = $3 AND name = $4
    ORDER BY id LIMIT 1"""
_HAS_ROW = "SELECT 1 FROM media WHERE digest = $1 LIMIT 1"


def put(media: Media, principal: PrincipalId, *, at: int) -> Op[Media]:
    """The same file of the same owner keeps its id: a message that is repeated with it is the same
    message."""
    known = yield from row(_SAME, media.digest, principal, media.mime, media.name)
    if known is not None:
        return msgspec.structs.replace(media, id=known[0])
    yield from run(_PUT, media.id, media.digest, media.mime, media.name, media.size, principal, at)
    return media


def without_rows(digests: Sequence[str]) -> Op[list[str]]:
    """Those of these bytes that are nobody's."""
    alone = []
    for digest in digests:
        if (yield from row(_HAS_ROW, digest)) is None:
            alone += [digest]
    return alone


def get(media: MediaId, *, principal: PrincipalId | None) -> Op[Media]:
    found = yield from row(_GET, media, principal)
    if found is None:
        raise NotFound(f"there is no file {media}; upload it with POST /api/media")
    media_id, mime, name, size, digest = found
    return Media(id=media_id, mime=mime, name=name, size=size, digest=digest)
