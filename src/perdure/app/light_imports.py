"""Keeps a large library from being loaded that nobody needs."""

import sys


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
