"""Checks everything stored, over HTTP. That can take long, so it is cancelled when the client
leaves."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from aiohttp import web

from perdure.ports.gateway import Report
from perdure.web.access import operator_of
from perdure.web.http.answers import json_response
from perdure.web.services import Services

LOOK_EVERY_S: Final = 0.5
# The client is gone, so nobody reads this answer.
CLIENT_GONE: Final = 499


class VerifyApi:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/verify", self.verify)]

    async def verify(self, request: web.Request) -> web.Response:
        """Check everything stored, and return the report."""
        operator_of(request)
        report = await _while_connected(request, self._services.verify())
        if report is None:
            return web.Response(status=CLIENT_GONE)
        return json_response(report)


async def _while_connected(request: web.Request, work: Awaitable[Report]) -> Report | None:
    """Wait for the work as long as the client stays connected. Returns None if it has left."""

    async def report() -> Report:
        return await work

    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(report())
            while not task.done():
                await asyncio.wait({task}, timeout=LOOK_EVERY_S)
                if request.transport is None:
                    task.cancel()
                    return None
    except BaseExceptionGroup as failed:
        # The group has one task, so it holds one failure.
        raise failed.exceptions[0] from failed
    return task.result()
