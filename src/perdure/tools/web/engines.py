"""Speaks to search engines: SearXNG, Brave Search and Tavily.

Each has a request of its own and an answer in JSON of its own; from here on they are alike. Their
refusals are sorted in one place (`refused_search`), in words that say who can do what about them.
"""

import math
from collections.abc import Mapping
from typing import Final, Literal, assert_never

import msgspec

from perdure.domain.errors import PerdureError, Permanent, Rejected, Transient
from perdure.domain.reading.markup import without_references
from perdure.domain.secret import Secret

EngineKind = Literal["searxng", "brave", "tavily"]
COUNT_MAX: Final = 20
# Where the engines that somebody else runs are reached, and the path of a search on each.
ENGINE_ADDRESSES: Final[Mapping[EngineKind, str]] = {
    "brave": "https://api.search.brave.com",
    "tavily": "https://api.tavily.com",
}
_PATHS: Final[Mapping[EngineKind, str]] = {
    "searxng": "/search",
    "brave": "/res/v1/web/search",
    "tavily": "/search",
}
TITLE_MAX: Final = 200
SNIPPET_MAX: Final = 500
_ADDRESS_MAX: Final = 2_000
_DETAIL_MAX: Final = 200
_LIMITS_USED_UP: Final = frozenset({402, 432, 433})
_NO_JSON: Final = (
    "the SearXNG server does not answer in JSON; its operator adds json to search.formats in its "
    "settings.yml"
)
_WRONG_KEY: Final = (
    "the search server did not accept the key; the operator of the gateway checks [tools.search] "
    "api_key"
)


class SearchEngine(msgspec.Struct, frozen=True, kw_only=True):
    """Says which search engine is asked, where it is, and with which key."""

    kind: EngineKind
    url: str = ""
    api_key: Secret | None = None

    @property
    def endpoint(self) -> str:
        """Return the address of a search."""
        path = _PATHS[self.kind]
        base = (self.url or ENGINE_ADDRESSES.get(self.kind, "")).rstrip("/")
        return base if base.endswith(path) else base + path


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the request for a search. With a `body`, it is posted as JSON."""

    url: str
    headers: dict[str, str]
    parameters: dict[str, str]
    body: dict[str, str | int] | None = None


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one result of a search."""

    title: str
    url: str
    snippet: str


class _Found(msgspec.Struct, frozen=True):
    url: str | None = None
    title: str | None = None
    content: str | None = None
    description: str | None = None


class _Results(msgspec.Struct, frozen=True):
    results: tuple[_Found, ...] = ()


class _BraveAnswer(msgspec.Struct, frozen=True):
    web: _Results | None = None


def request_for(engine: SearchEngine, query: str, count: int) -> SearchRequest:
    """Return the request for a search."""
    key = engine.api_key.reveal() if engine.api_key else ""
    bearer = {"Authorization": f"Bearer {key}"} if key else {}
    headers = {"Accept": "application/json", "User-Agent": "perdure"}
    url = engine.endpoint
    match engine.kind:
        case "searxng":
            found = {"q": query, "format": "json"}
            return SearchRequest(url=url, headers={**headers, **bearer}, parameters=found)
        case "brave":
            headers["X-Subscription-Token"] = key
            found = {"q": query, "count": str(count), "text_decorations": "false"}
            return SearchRequest(url=url, headers=headers, parameters=found)
        case "tavily":
            body: dict[str, str | int] = {"query": query, "max_results": count}
            headers |= bearer
            return SearchRequest(url=url, headers=headers, parameters={}, body=body)
        case _:
            assert_never(engine.kind)


def hits_of(engine: SearchEngine, answer: bytes, count: int) -> list[SearchHit]:
    """Return the results in an answer, without those that lead to no page of the web. Raises
    `Permanent` for an answer that is not understood."""
    try:
        if engine.kind == "brave":
            found = (msgspec.json.decode(answer, type=_BraveAnswer).web or _Results()).results
        else:
            found = msgspec.json.decode(answer, type=_Results).results
    except (msgspec.MsgspecError, RecursionError) as error:
        if engine.kind == "searxng" and answer.lstrip()[:1] == b"<":
            raise Permanent(_NO_JSON) from error
        raise Permanent(
            f"the answer of {engine.endpoint} is not understood; the operator of the gateway "
            "checks [tools.search] kind and url"
        ) from error
    hits = (_hit(each) for each in found if _is_page(each.url))
    return [hit for hit, _ in zip(hits, range(count), strict=False)]


def refused_search(
    engine: SearchEngine, status: int, headers: Mapping[str, str], answer: bytes
) -> PerdureError:
    """Return the error for an answer that is no success."""
    said = _detail(answer)
    if engine.api_key is not None and engine.api_key.reveal():
        said = said.replace(engine.api_key.reveal(), "[key]")  # some servers repeat what they got
    if status in (401, 403) or "TOKEN_INVALID" in said:
        # SearXNG has no keys: it answers so if a format is not allowed.
        return Permanent(_NO_JSON if engine.kind == "searxng" and status == 403 else _WRONG_KEY)
    if status == 429:
        return _too_many(engine, headers)
    if status in _LIMITS_USED_UP:
        return Permanent(f"the search server's account has no searches left (status {status})")
    if status in (400, 422):
        return Rejected(f"the search server did not accept the search: {said or status}")
    if 300 <= status < 400:
        where = headers.get("Location", "")[:_ADDRESS_MAX]
        return Permanent(
            f"{engine.endpoint} leads to {where or 'nowhere'}; the operator of the gateway sets "
            "[tools.search] url to its address"
        )
    if status >= 500 or status == 408:
        return Transient(f"the search server has a fault of its own (status {status})")
    return Permanent(
        f"{engine.endpoint} answered with status {status}; the operator of the gateway checks "
        "[tools.search] url"
    )


def _too_many(engine: SearchEngine, headers: Mapping[str, str]) -> Transient:
    """Return the error for a server that was asked too often, with the wait that it names."""
    # Brave names the wait for each of its limits, the shortest first.
    named = headers.get("Retry-After") or headers.get("X-RateLimit-Reset", "").partition(",")[0]
    words = "the search server was asked too often"
    if engine.kind == "searxng":
        words += "; its operator lets the gateway through in its limiter"
    try:
        wait_s = float(named)
    except ValueError:
        return Transient(words)
    if not math.isfinite(wait_s) or not 0 <= wait_s < 86_400:
        return Transient(words)
    return Transient(f"{words}; wait {wait_s:g} s", retry_after_s=wait_s)


def _hit(found: _Found) -> SearchHit:
    url = (found.url or "").strip()
    snippet = _line(found.content or found.description or "", SNIPPET_MAX)
    return SearchHit(title=_line(found.title or "", TITLE_MAX) or url, url=url, snippet=snippet)


def _is_page(url: str | None) -> bool:
    url = (url or "").strip()
    is_whole = url.startswith(("http://", "https://")) and len(url) <= _ADDRESS_MAX
    return is_whole and not any(char.isspace() or not char.isprintable() for char in url)


def _line(text: str, length: int) -> str:
    """Return a text on one line, cut if it is too long."""
    # Only the beginning is looked at, because an answer may hold megabytes.
    line = " ".join(without_references(text[: 8 * length]).split())
    return line if len(line) <= length else f"{line[:length]}…"


def _detail(answer: bytes) -> str:
    """Return what an error says, in its first words. Each engine has another form, so all texts in
    it are taken."""
    try:
        value = msgspec.json.decode(answer[:10_000])
    except (msgspec.DecodeError, RecursionError):
        return ""
    texts: list[str] = []
    left = [value]
    while left:
        each = left.pop(0)
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
    return _line(" ".join(texts), _DETAIL_MAX)
