"""Fetches attachments from the web, and only from public addresses."""

from collections.abc import AsyncGenerator
from typing import Final

from perdure.domain.errors import Permanent, Transient
from perdure.ports.system.web import BROKEN_OFF, PRIVATE_ADDRESS, PublicWeb, WebReply

REDIRECTS_MAX: Final = 3
_LATER: Final = frozenset({408, 425, 429})
# What the sender of a file can do about an error of the web.
_ADVICE: Final = {
    PRIVATE_ADDRESS: "upload the file instead",
    BROKEN_OFF: "send it again later",
}
_UNPACKED: Final = {"Accept-Encoding": "identity"}


class WebFetcher:
    """Implements the `Fetcher` port for http and https."""

    def __init__(self, web: PublicWeb) -> None:
        self._web = web

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the file at a URL. Raises `Permanent` for an address that is not
        allowed, and `Transient` if its server cannot be reached or breaks off."""
        try:
            async for piece in self._follow(reference):
                yield piece
        except (Permanent, Transient) as error:
            advice = _ADVICE.get(error.code)
            if advice is None:
                raise
            raise type(error)(f"{error.message}; {advice}", code=error.code) from error

    async def _follow(self, reference: str) -> AsyncGenerator[bytes, None]:
        """Yield the file's bytes, after at most `REDIRECTS_MAX` redirects."""
        url = reference
        for _ in range(REDIRECTS_MAX + 1):
            async with self._web.get(url, _UNPACKED) as reply:
                if not reply.is_redirect:
                    _check(reply)
                    async for piece in reply.pieces:
                        yield piece
                    return
                # Without a location, the same address is asked until there were too many.
                url = reply.location or url
        raise Permanent("its address leads from one to the next without end; upload the file")


def _check(reply: WebReply) -> None:
    """Raise an error unless the answer is a plain file."""
    status = reply.status
    if status in _LATER or status >= 500:
        raise Transient(f"its server answered with status {status}; send it again later")
    if status != 200:
        raise Permanent(f"its server answered with status {status}; check the address")
    if reply.headers.get("Content-Encoding", "identity") != "identity":
        raise Permanent("its server sends it packed only; upload the file instead")
