"""Serves the web chat: static files under a strict content security policy.

A browser keeps the files, and asks each time whether they have changed. They are compressed once.
"""

import asyncio
import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Diagrams are drawn by a library that writes styles. It runs in a frame without an origin, which
# may fetch nothing but its own files, and can neither read this page nor be shown by another site.
DIAGRAM: Final = "diagram.html"
DIAGRAM_CSP: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
WORKER: Final = "sw.js"
HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
# What is larger than this is read when it is asked for.
LARGE_BYTES: Final = 110_000
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
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
}


class PageFile(NamedTuple):
    """Holds a file of the page. `packed` is the file compressed, or None if that saves nothing."""

    body: bytes
    packed: bytes | None
    mime: str
    etag: str


@cache
def files() -> dict[str, Path]:
    """Return where each file of the page is, by its path there."""
    static = Path(__file__).with_name("static")
    return {
        entry.relative_to(static).as_posix(): entry
        for entry in static.rglob("*")
        if entry.suffix in TYPES and entry.is_file()
    }


@cache
def load() -> dict[str, PageFile]:
    """Return the files that most pages need, by their paths. They are read once; the large ones are
    not among them."""
    return {
        name: read(entry) for name, entry in files().items() if entry.stat().st_size <= LARGE_BYTES
    }


def read(path: Path) -> PageFile:
    """Read and compress one file."""
    body = path.read_bytes()
    packed = gzip.compress(body, mtime=0) if len(body) > _SHORT_BYTES else None
    if packed is not None and len(packed) > 0.9 * len(body):
        packed = None
    etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return PageFile(body, packed, TYPES[path.suffix], etag)


async def page(request: web.Request) -> web.Response:
    return await _file(request, "index.html")


async def static(request: web.Request) -> web.Response:
    return await _file(request, request.match_info["path"])


async def worker(request: web.Request) -> web.Response:
    """Serve what shows notifications. It stands beside the page, because a browser lets it act for
    nothing that is higher up."""
    return await _file(request, WORKER)


async def _found(path: str) -> PageFile:
    """Return a file. A large one is read when it is asked for, and not kept: few texts need it, and
    browsers keep it."""
    known = load().get(path)
    if known is not None:
        return known
    if path not in files():
        raise web.HTTPNotFound
    return await asyncio.to_thread(read, files()[path])


async def _file(request: web.Request, path: str) -> web.Response:
    found = await _found(path)
    headers = {**HEADERS, "ETag": found.etag}
    if path == DIAGRAM:
        headers["Content-Security-Policy"] = DIAGRAM_CSP
    if request.headers.get("If-None-Match") == found.etag:
        return web.Response(status=304, headers=headers)
    body = found.body
    if found.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = found.packed
        headers["Content-Encoding"] = "gzip"
    charset = "utf-8" if found.mime.startswith("text/") else None
    return web.Response(body=body, content_type=found.mime, charset=charset, headers=headers)


def routes() -> list[web.RouteDef]:
    return [
        web.get("/", page),
        web.get(f"/{WORKER}", worker),
        web.get("/static/{path:.+}", static),
    ]
