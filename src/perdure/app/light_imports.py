"""Keeps what is large from being loaded before somebody needs it."""

import mimetypes
import ssl
import sys
from typing import Any


class LateContext(ssl.SSLContext):
    """Reads the certificate authorities of the system before its first connection, and is an
    ordinary context from then on."""

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        super().load_default_certs()
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]
        return self.wrap_bio(*args, **kwargs)


def import_structlog() -> None:
    """Import structlog without rich. Must run before anything else imports structlog. Rich would
    take a sixth of a node's start, only for drawing tracebacks that our logs do not have. Code that
    draws tables can still import it later."""
    if "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401, PLC0415
    finally:
        del sys.modules["rich"]


def import_aiohttp() -> None:
    """Import aiohttp without what it reads from the system. The certificate authorities, all of
    them twice, would take a tenth of a node's start and two megabytes, although many nodes only
    reach models nearby. They are read when they are needed; the endings of files never are."""
    if "aiohttp" in sys.modules:
        return
    mimetypes.knownfiles = []
    ssl.SSLContext.set_default_verify_paths = _read_later  # type: ignore[assignment,method-assign]
    try:
        import aiohttp  # noqa: F401, PLC0415
    finally:
        # The method itself is inherited.
        del ssl.SSLContext.set_default_verify_paths


def _read_later(context: ssl.SSLContext) -> None:
    context.__class__ = LateContext
