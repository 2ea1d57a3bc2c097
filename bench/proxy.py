"""Forwards a request and each chunk of its answer, and reads neither: the bare proxy."""

import sys
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web

from bench.model import listen


class Proxy:
    """Forwards requests to the model, and answers chunk by chunk."""

    def __init__(self, model_url: str) -> None:
        self._model_url = model_url
        self._session: aiohttp.ClientSession | None = None

    async def open_session(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            self._session = session
            yield

    async def forward(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        body = await request.read()
        headers = {"Content-Type": request.content_type}
        url = self._model_url + request.path
        async with self._session.post(url, data=body, headers=headers) as answer:
            response = web.StreamResponse(headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


def main() -> None:
    (model_url,) = sys.argv[1:]
    proxy = Proxy(model_url)
    app = web.Application()
    app.cleanup_ctx.append(proxy.open_session)
    app.router.add_post("/v1/chat/completions", proxy.forward)
    uvloop.run(listen(app))


if __name__ == "__main__":
    main()
