"""Takes uploaded files, as a body or in a form, and serves files so that no browser runs them."""

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from aiohttp import hdrs, web

from perdure.domain.errors import Rejected
from perdure.domain.ids import MediaId
from perdure.domain.text import storable
from perdure.web import wire
from perdure.web.access import PRINCIPAL
from perdure.web.http import forms
from perdure.web.http.answers import json_response
from perdure.web.http.bodies import bytes_of
from perdure.web.http.outlet import LongResponse
from perdure.web.long_reads import one_of_few
from perdure.web.services import Services

NAME_MAX: Final = 200
UNKNOWN: Final = "application/octet-stream"
SAFE_INLINE: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# Types that no browser executes. SVG and XML are excluded because they can carry scripts.
_HARMLESS: Final = re.compile(
    r"(?:image|audio|video)/(?!.*(?:svg|xml)).*|text/plain|application/pdf"
)
_MIME: Final = re.compile(r"^[\w.+-]+/[\w.+-]+$")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# Characters that cannot stand in a quoted `filename` parameter.
_UNQUOTABLE: Final = re.compile(r'[^ -~]|["\\%/]')


class _UploadBody(NamedTuple):
    data: bytes
    mime: str
    name: str


def shown_type(mime: str) -> str:
    """Return the type a file is served with: its own if no browser would execute it, else a neutral
    one."""
    plain = mime.partition(";")[0].strip().lower()
    return plain if _HARMLESS.fullmatch(plain) else UNKNOWN


def disposition(kind: str, name: str) -> str:
    """Return a Content-Disposition header with the name in both forms of RFC 6266: a plain one that
    every client reads, and an exact one."""
    if not name:
        return kind
    plain = _UNQUOTABLE.sub("_", name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


class MediaApi:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/media", self.post),
            web.get("/api/media/{id}", one_of_few(self.get)),
        ]

    async def post(self, request: web.Request) -> web.Response:
        """Store an uploaded file for its sender. Raises `Rejected` if it is empty or has no valid
        type."""
        if request.content_type == forms.FORM:
            upload = await self._in_form(request)
        else:
            name = unquote(request.headers.get("X-Filename", ""))
            upload = _UploadBody(await bytes_of(request), request.content_type, name)
        if not upload.data:
            raise Rejected("the file is empty; send its bytes", code="empty_body")
        if not _MIME.match(upload.mime):
            raise Rejected("the Content-Type header is not a media type", code="invalid_type")
        media = await self._services.media.put(
            upload.data,
            mime=upload.mime,
            name=_CONTROL.sub("", storable(upload.name))[:NAME_MAX],
            principal=request[PRINCIPAL].id,
        )
        out = wire.MediaOut(id=media.id, mime=media.mime, name=media.name, size=media.size)
        return json_response(out, status=201)

    async def _in_form(self, request: web.Request) -> _UploadBody:
        """Return the one file of a form, and ignore its other fields."""
        boundary = request.headers.get(hdrs.CONTENT_TYPE, "")
        parts = forms.parts_of(await bytes_of(request), forms.boundary_of(boundary))
        uploads = [part for part in parts if part.filename is not None]
        if len(uploads) != 1:
            raise Rejected(
                f"a form has one file here, and this one has {len(uploads)}; upload one at a time",
                code="invalid_body",
            )
        (part,) = uploads
        return _UploadBody(part.data, part.mime or UNKNOWN, part.filename or "")

    async def get(self, request: web.Request) -> web.Response:
        """Serve a file. Only pictures are shown inline; everything else is offered as a
        download."""
        media = await self._services.media.get(
            MediaId(request.match_info["id"]), principal=request[PRINCIPAL].scope
        )
        mime = shown_type(media.mime)
        headers = {
            "Content-Disposition": disposition(
                "inline" if mime in SAFE_INLINE else "attachment", media.name
            ),
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, max-age=31536000, immutable",
        }
        body = await self._services.media.read(media.id)
        return LongResponse(body=body, content_type=mime, headers=headers)
