"""Connects standard input and output with the gateway's socket, for agents that start tool servers
themselves. It is run by itself (`python -I -S relay.py`), so it imports only what is quick to load.
The first line on the socket is the secret."""

from __future__ import annotations

import os
import socket
import sys
import threading

_PIECE = 65536


def main() -> int:
    """Pass on what comes until either side ends."""
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(os.environ["PERDURE_BRIDGE"])  # noqa: TID251 - it has no other way in
    except OSError as error:
        sys.stderr.write(f"the gateway's tools cannot be reached: {error}\n")
        return 1
    token = os.environ["PERDURE_BRIDGE_TOKEN"]  # noqa: TID251
    line.sendall(token.encode() + b"\n")

    def upward() -> None:
        while piece := os.read(0, _PIECE):
            line.sendall(piece)
        line.shutdown(socket.SHUT_WR)

    threading.Thread(target=upward, daemon=True).start()
    while piece := line.recv(_PIECE):
        view = memoryview(piece)
        while view:
            view = view[os.write(1, view) :]
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrokenPipeError, ConnectionError):
        sys.exit(0)
