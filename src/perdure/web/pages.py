"""Serves the web chat: static files under a strict content security policy."""

from functools import cache
from pathlib import Path
from typing import Final

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
}
TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}


@cache
def load() -> dict[str, tuple[bytes, str]]:
    """Return every file of the page by its path. Read once, and a few dozen kilobytes in all."""
    found: dict[str, tuple[bytes, str]] = {}
    folders = [("", Path(__file__).with_name("static"))]
    while folders:
        prefix, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
                continue
            suffix = "." + entry.name.rpartition(".")[2]
            if suffix in TYPES:
                found[prefix + entry.name] = (entry.read_bytes(), TYPES[suffix])
    return found


async def page(request: web.Request) -> web.Response:
    return _file("index.html")


async def static(request: web.Request) -> web.Response:
    return _file(request.match_info["path"])


def _file(path: str) -> web.Response:
    found = load().get(path)
    if found is None:
        raise web.HTTPNotFound
    body, mime = found
    charset = "utf-8" if mime.startswith("text/") else None
    return web.Response(body=body, content_type=mime, charset=charset, headers=HEADERS)


def routes() -> list[web.RouteDef]:
    return [web.get("/", page), web.get("/static/{path:.+}", static)]
