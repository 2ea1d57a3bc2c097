"""Makes the addresses of servers safe to show.

People put secrets into addresses: a user and a password, or a key as a folder of the path or in the
query. So only the scheme, the host, the port, and folders with usual names are ever shown.
"""

from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

# The usual names of folders in APIs. Any other folder may be a key, and is shown as `…`.
_USUAL: Final = frozenset(
    {"api", "v1", "v1beta", "v2", "v3", "v4", "openai", "anthropic", "chat", "completions"}
    | {"messages", "models", "audio", "transcriptions", "inference", "compatible-mode"}
)
_HIDDEN: Final = "…"
_UNREADABLE: Final = "an address that cannot be shown"
# Shorter parts appear in many texts, which would become unreadable if they were masked there.
_SECRET_MIN: Final = 4


def shown_url(url: str) -> str:
    """Return the address of a server without anything that may be secret."""
    try:
        parts = urlsplit(url)
        folders = [each if _is_usual(each) else _HIDDEN for each in parts.path.split("/")]
        return _place_of(parts) + "/".join(folders)
    except ValueError:
        return _UNREADABLE


def shown_database(url: str) -> str:
    """Return the address of a database with its path, which is the database's name, and without
    anything that may be secret."""
    try:
        parts = urlsplit(url)
        return _place_of(parts) + parts.path
    except ValueError:
        return _UNREADABLE


def _place_of(parts: SplitResult) -> str:
    """Return the scheme, the host and the port of an address."""
    port = f":{parts.port}" if parts.port else ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{parts.scheme}://{host}{port}"


def secrets_in_url(url: str) -> tuple[str, ...]:
    """Return the parts of an address that may be secrets, as they are written there and also
    decoded. They are masked wherever a server repeats them."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ()
    login = parts.netloc.rpartition("@")[0]
    folders = [each for each in parts.path.split("/") if not _is_usual(each)]
    values = [each.partition("=")[2] or each for each in parts.query.split("&")]
    found = [login, *login.split(":"), parts.query, *values, *folders]
    both = {form for each in found for form in (each, unquote(each))}
    long_first = sorted(both, key=lambda each: (-len(each), each))
    return tuple(each for each in long_first if len(each) >= _SECRET_MIN)


def below(base: str, path: str) -> str:
    """Return the address of a path below another address. The query stays behind the path."""
    parts = urlsplit(base)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))


def without_login(url: str) -> tuple[str, str, str]:
    """Return an address without its user and password, and those two."""
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    name, _, password = login.partition(":")
    return urlunsplit(parts._replace(netloc=host)), unquote(name), unquote(password)


def _is_usual(folder: str) -> bool:
    return not folder or folder.lower() in _USUAL
