"""Speaks the wires of search engines on a loopback socket: SearXNG, Brave Search and Tavily.

Requests are checked against what the makers document, and refused in their words. `pages` are the
results that every engine knows.
"""

from types import TracebackType
from typing import Any, Final, Self

import msgspec
from aiohttp import web

KEY: Final = "key-of-the-search-engine"
_BRAVE_MAX: Final = 20


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a page that can be found."""

    title: str
    url: str
    words: str


class SearchEngines:
    """Serves three search engines. `asked` lists the queries. `has_json` says whether the SearXNG
    server may answer in JSON. `answer`, if it is set, is given to every request instead."""

    def __init__(self, *pages: SearchPage) -> None:
        self.pages = list(pages)
        self.asked: list[str] = []
        self.has_json = True
        self.answer: web.Response | None = None
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/search", self._searxng)
        app.router.add_get("/res/v1/web/search", self._brave)
        app.router.add_post("/search", self._tavily)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _searxng(self, request: web.Request) -> web.StreamResponse:
        if self.answer is not None:
            return self.answer
        query = request.query["q"]
        self.asked.append(query)
        if request.query.get("format") != "json":
            return web.Response(
                text="<!DOCTYPE html><html>results</html>", content_type="text/html"
            )
        if not self.has_json:
            return web.Response(status=403, text="<!doctype html><title>403 Forbidden</title>")
        results = [
            {"url": each.url, "title": each.title, "content": each.words, "engine": "duckduckgo",
             "parsed_url": ["https", "h", "/", "", "", ""], "score": 1.0, "category": "general"}
            for each in self.pages
        ]  # fmt: skip
        return web.json_response(
            {
                "query": query, "number_of_results": 0, "results": results, "answers": [],
                "corrections": [], "infoboxes": [], "suggestions": [],
                "unresponsive_engines": [["qwant", "access denied"]],
            }
        )  # fmt: skip

    async def _brave(self, request: web.Request) -> web.StreamResponse:
        if self.answer is not None:
            return self.answer
        if request.headers.get("X-Subscription-Token") != KEY:
            detail = "The provided subscription token is invalid."
            return _brave_error(422, "SUBSCRIPTION_TOKEN_INVALID", detail)
        query, count = request.query["q"], int(request.query.get("count", _BRAVE_MAX))
        self.asked.append(query)
        if not 1 <= count <= _BRAVE_MAX or len(query) > 400 or len(query.split()) > 50:
            return _brave_error(422, "VALIDATION", "Unable to validate request parameter(s)")
        results = [
            {"type": "search_result", "title": each.title, "url": each.url,
             "description": each.words, "is_source_local": False}
            for each in self.pages[:count]
        ]  # fmt: skip
        body: dict[str, Any] = {
            "type": "search", "query": {"original": query, "more_results_available": False}
        }  # fmt: skip
        if results:
            body["web"] = {"type": "search", "results": results, "family_friendly": True}
        return web.json_response(body)

    async def _tavily(self, request: web.Request) -> web.StreamResponse:
        if self.answer is not None:
            return self.answer
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            error = "Unauthorized: missing or invalid API key."
            return web.json_response({"detail": {"error": error}}, status=401)
        body = await request.json()
        self.asked.append(body["query"])
        if not 0 <= body.get("max_results", 5) <= 20:
            error = "max_results must be between 0 and 20"
            return web.json_response({"detail": {"error": error}}, status=400)
        results = [
            {"title": each.title, "url": each.url, "content": each.words, "score": 0.9,
             "raw_content": None}
            for each in self.pages[: body.get("max_results", 5)]
        ]  # fmt: skip
        return web.json_response(
            {
                "query": body["query"], "follow_up_questions": None, "answer": None, "images": [],
                "results": results, "response_time": 0.4, "request_id": "1",
            }
        )  # fmt: skip


def _brave_error(status: int, code: str, detail: str) -> web.Response:
    error = {"id": "1", "status": status, "code": code, "detail": detail, "meta": {}}
    return web.json_response({"type": "ErrorResponse", "error": error, "time": 1}, status=status)
