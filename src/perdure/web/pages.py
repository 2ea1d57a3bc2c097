"""Serves the web chat: static files under a strict content security policy.

A browser keeps the files, and asks each time whether they have changed. They are compressed once.
"""

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
# What is shorter than this is not worth compressing.
_SHORT_BYTES: Final = 1_000
TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}


class PageFile(NamedTuple):
    """Holds a file of the page. `packed` is the file compressed, or None if that saves nothing."""

    body: bytes
    packed: bytes | None
    mime: str
    etag: str


@cache
def load() -> dict[str, PageFile]:
    """Return every file of the page by its path. Read once; the large ones are read when they are
    asked for first."""
    found: dict[str, PageFile] = {}
    folders = [("", Path(__file__).with_name("static"))]
    while folders:
        prefix, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
                continue
            suffix = "." + entry.name.rpartition(".")[2]
            if suffix in TYPES:
                found[prefix + entry.name] = _read(entry, TYPES[suffix])
    return found


def _read(path: Path, mime: str) -> PageFile:
    body = path.read_bytes()
    packed = gzip.compress(body, mtime=0) if len(body) > _SHORT_BYTES else None
    if packed is not None and len(packed) > 0.9 * len(body):
        packed = None
    return PageFile(body, packed, mime, f'"{hashlib.sha256(body).hexdigest()[:20]}"')


async def page(request: web.Request) -> web.Response:
    return _file(request, "index.html")


async def static(request: web.Request) -> web.Response:
    return _file(request, request.match_info["path"])


def _file(request: web.Request, path: str) -> web.Response:
    found = load().get(path)
    if found is None:
        raise web.HTTPNotFound
    headers = {**HEADERS, "ETag": found.etag}
    if request.headers.get("If-None-Match") == found.etag:
        return web.Response(status=304, headers=headers)
    body = found.body
    if found.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = found.packed
        headers["Content-Encoding"] = "gzip"
    charset = "utf-8" if found.mime.startswith("text/") else None
    return web.Response(body=body, content_type=found.mime, charset=charset, headers=headers)


def routes() -> list[web.RouteDef]:
    return [web.get("/", page), web.get("/static/{path:.+}", static)]
