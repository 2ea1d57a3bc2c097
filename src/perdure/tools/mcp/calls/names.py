"""Names the tools of servers, for models and for rules.

Models allow 64 letters, digits, `_` and `-`, and servers allow more. A name that a model may use as
it is becomes `SERVER__TOOL`. Any other name is changed to fit, and a digest of what it was stands
behind it. Nothing but the two names decides, so the order in which a server lists its tools, and
what else it lists, changes no name.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

WIRE_MAX: Final = 64
_DIGEST: Final = 8
# How much of a server's name a changed name keeps, so that there is room for the tool's.
_SERVER_MAX: Final = 20
_RULE_MAX: Final = 128
_BETWEEN: Final = "__"
_NOT_ON_WIRE: Final = re.compile(r"[^A-Za-z0-9_-]")
_NOT_IN_RULES: Final = re.compile(r"[^A-Za-z0-9_.-]")
_LIKE_DIGEST: Final = re.compile(r"_[0-9a-f]{8}\Z")


def wire_name(server: str, own: str) -> str:
    """Return the name by which models call something of a server, such as `time__now`."""
    name = f"{server}{_BETWEEN}{own}"
    # Where these hold, the first two underscores end the server's name, so no two names of two
    # servers are alike. A name that looks like a changed one is changed too.
    is_plain = (
        own
        and len(name) <= WIRE_MAX
        and _NOT_ON_WIRE.search(name) is None
        and _BETWEEN not in server
        and not server.endswith("_")
        and _LIKE_DIGEST.search(name) is None
    )
    if is_plain:
        return name
    digest = hashlib.sha256(f"{server}\n{own}".encode("utf-8", "surrogatepass")).hexdigest()
    kept = f"{_fitted(server)[:_SERVER_MAX]}{_BETWEEN}{_fitted(own)}"
    return f"{kept[: WIRE_MAX - _DIGEST - 1]}_{digest[:_DIGEST]}"


def wire_names(server: str, owns: Iterable[str]) -> dict[str, str]:
    """Return the server's own name of each thing, by the name that models use, in the order of
    the latter. Should two ever get the same name, the first of both own names is kept."""
    found: dict[str, str] = {}
    for own in sorted(set(owns)):
        found.setdefault(wire_name(server, own), own)
    return dict(sorted(found.items()))


def rule_name(server: str, own: str) -> str:
    """Return the name by which rules mean a tool of a server, such as `mcp.time.now`. What has a
    meaning in globs or would end a line is replaced."""
    return f"mcp.{server}.{plain_name(own)}"


def plain_name(own: str) -> str:
    """Return a server's own name with each character replaced that a rule could not match."""
    return _NOT_IN_RULES.sub("_", own)[:_RULE_MAX]


def _fitted(name: str) -> str:
    return _NOT_ON_WIRE.sub("_", name)
