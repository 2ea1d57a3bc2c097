"""Calls the control interface of the peers that run inside Node: one command per POST, with JSON
both ways."""

from typing import Any

import aiohttp


class NodeControl:
    """Calls the control interface at `url`."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def call(self, verb: str, **fields: object) -> Any:
        """Send one command, and return its answer."""
        async with self._session.post(f"{self._url}/{verb}", json=fields) as response:
            answer = await response.json()
            assert response.status == 200, (verb, answer)
            return answer
