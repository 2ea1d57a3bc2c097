"""Writes addresses of the web in one way, so that a rule, a person and the request mean the same.

An address can be written in many ways that lead to the same page: with capital letters, with
letters that look alike, with dots and percent signs in the path. Rules match, people are asked
about, and the request is made with what `web_address` returns, and never with what a model wrote.
"""

import re
from typing import Final

from yarl import URL

from perdure.domain.errors import Rejected

LENGTH_MAX: Final = 4_000
_BEGINNING: Final = re.compile(r"(https?)://([^/?#]+)", re.IGNORECASE)
_NAME: Final = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_-]{1,63}")
_NUMERIC: Final = re.compile(r"[0-9a-f.]*:[0-9a-f:.]*")
_HOST_MAX: Final = 253
_USUAL_PORTS: Final = frozenset({80, 443})


def web_address(text: str) -> str:
    """Return an address as it is asked for, without its fragment. Raises `Rejected` for one that is
    never asked for, with what to do."""
    text = text.strip()
    if len(text) > LENGTH_MAX:
        raise Rejected(f"the address has more than {LENGTH_MAX:,} characters; give a shorter one")
    begun = _BEGINNING.match(text)
    if begun is None:
        raise Rejected("the address must begin with http:// or https:// and the name of a server")
    if "\\" in text or any(char.isspace() or not char.isprintable() for char in text):
        raise Rejected("the address holds a backslash, a blank or a hidden character; write it out")
    if "@" in begun[2]:
        raise Rejected("the address holds a user or a password; give it without")
    try:
        url = URL(text)
        # The name is decoded, so that one in broken letters is refused.
        host, port = (url.raw_host or "").rstrip("."), url.port if url.host else None
    except ValueError as error:
        raise Rejected("the address is not one; check it") from error
    if not _is_host(host) or not port:
        raise Rejected("the address names no server that can exist; check its name and its port")
    server = f"[{host}]" if ":" in host else host
    whole = URL.build(
        scheme=url.scheme,
        authority=server if url.is_default_port() else f"{server}:{port}",
        path=url.raw_path or "/",
        query_string=url.raw_query_string,
        encoded=True,
    )
    return str(whole)


def site_of(address: str) -> str:
    """Return the site of an address that `web_address` returned: its scheme, server and port."""
    return str(URL(address, encoded=True).origin())


def is_same_site(one: str, other: str) -> bool:
    """Tell whether a redirect from `one` to `other` stays on the site: the same server and port,
    with or without `www.`. A redirect from http to https stays, but never one back."""
    was, now = URL(one, encoded=True), URL(other, encoded=True)
    if (was.raw_host or "").removeprefix("www.") != (now.raw_host or "").removeprefix("www."):
        return False
    if was.scheme == now.scheme:
        return was.port == now.port
    return now.scheme == "https" and {was.port, now.port} == _USUAL_PORTS


def _is_host(host: str) -> bool:
    """Tell whether a server can have this name or numeric address."""
    if len(host) > _HOST_MAX:
        return False
    return bool(_NAME.fullmatch(host) or _NUMERIC.fullmatch(host))
