"""Defines the port through which addresses that somebody else has chosen are read."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

# The code of an error for an address inside of a private network.
PRIVATE_ADDRESS: Final = "private_address"
# The code of an error for an answer that broke off.
BROKEN_OFF: Final = "broken_off"
REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})


class WebReply(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the beginning of a server's answer, and its bytes as they come. The names of `headers`
    are found in capital and small letters alike. `location` is where a redirect leads, as a whole
    address; empty if the answer is no redirect, or leads nowhere."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]
    location: str = ""

    @property
    def is_redirect(self) -> bool:
        """Tell whether the answer is a redirect."""
        return self.status in REDIRECT_STATUSES


class PublicWeb(Protocol):
    """Asks addresses of the web that somebody else has chosen: a sender, an agent, a page, a
    browser.

    Guarantees: no private network is reached, whatever the address says and whatever its name
    resolves to; the addresses that are checked are those that are connected to. No redirect is
    followed, so each step is checked like the first. Nothing is unpacked.
    Requires: the caller counts the bytes, and limits the time.
    Raises: `Permanent` for an address that must not be read, with the code `PRIVATE_ADDRESS` if it
    is private; `Transient` if its server cannot be reached (with the code `UNREACHABLE`) or breaks
    off (`BROKEN_OFF`), also while the bytes come.
    After a crash: nothing is kept.
    """

    def get(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[WebReply]:
        """Ask for an address, and return the answer. It ends with the block."""

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[WebReply]:
        """Post to an address, and return the answer. It ends with the block. `BROKEN_OFF` may mean
        that the server has taken it."""
