"""What a process does not load although a library would."""

import sys


def import_structlog() -> None:
    """Before anything else imports it. It would load rich, a sixth of a node's start, for drawing
    tracebacks that no log of ours has; those who draw tables load it later."""
    if "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401, PLC0415
    finally:
        del sys.modules["rich"]
