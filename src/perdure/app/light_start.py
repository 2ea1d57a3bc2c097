"""Keeps a start light: what is large is loaded when somebody needs it, and what is loaded to stay
is not looked through for garbage."""

import gc
import mimetypes
import ssl
import sys
from typing import Any, Final

_USUAL: Final = gc.get_threshold()
# How many new objects the collector waits for during a start.
_MANY: Final = 20_000


class LateContext(ssl.SSLContext):
    """Reads the certificate authorities of the system before its first connection, and is an
    ordinary context from then on."""

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        super().load_default_certs()
        # Reading fails without a word, for example while no file can be opened. Then the next
        # connection tries again.
        if self.cert_store_stats()["x509_ca"]:
            self.__class__ = ssl.SSLContext  # type: ignore[assignment]
        return ssl.SSLContext.wrap_bio(self, *args, **kwargs)


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


def collect_rarely() -> None:
    """Let the garbage collector run rarely during a start. Nearly everything that a start makes
    stays, and looking through it again and again would take a tenth of the start."""
    gc.set_threshold(_MANY)


def spare_what_stays() -> None:
    """Keep the garbage collector away from the objects that exist now, and let it run as usual from
    now on. The objects live as long as the node, and looking through them costs time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_USUAL)
