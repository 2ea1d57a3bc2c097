"""Makes what reaches the web: the port that attachments and pages are read by, and the tools."""

from collections.abc import Iterator
from typing import Final

from perdure.app.config.loading import Config
from perdure.app.config.tool_values import (
    FETCH,
    SEARCH,
    ToolsConfig,
)
from perdure.app.config.values import (
    AgentConfig,
    LimitsConfig,
)
from perdure.app.network.outgoing import RoutedOutgoing
from perdure.app.network.public_web import RoutedWeb
from perdure.app.network.pushing import WebPushSender
from perdure.app.reading.file_reading import FileReader
from perdure.domain.tools.policy import ToolPolicy
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.ports.system.outgoing import Outgoing
from perdure.ports.system.web import PublicWeb
from perdure.tools.tool import Tool

# Whom push services can ask about a gateway without a public address: some refuse tokens that name
# nobody.
NOBODY: Final = "mailto:nobody@perdure.invalid"


def web_of(limits: LimitsConfig, outgoing: RoutedOutgoing) -> RoutedWeb:
    """Return the port by which addresses are read that somebody else has chosen."""
    return RoutedWeb(with_private=limits.private_urls, outgoing=outgoing)


def push_sender(
    settings: Config, outgoing: RoutedOutgoing, *, clock: Clock, entropy: Entropy
) -> WebPushSender:
    """Return what sends notifications to people's browsers. Push services are told the public
    address of this gateway, so that they know whom to ask about it."""
    public = settings.server.base_url or ""
    return WebPushSender(
        web_of(settings.limits, outgoing),
        clock=clock,
        entropy=entropy,
        contact=public if public.startswith("https://") else NOBODY,
        with_http=settings.limits.private_urls,
    )


def web_tools(
    settings: ToolsConfig,
    config: AgentConfig,
    policy: ToolPolicy,
    *,
    web: PublicWeb,
    outgoing: Outgoing,
) -> Iterator[Tool]:
    """Yield the tools of an agent that reach the web. Without a search engine there is none to
    search with. Their code is imported only for agents that have them."""
    if FETCH in config.tools:
        from perdure.tools.web.fetch import FetchTool  # noqa: PLC0415 - few agents need it

        yield FetchTool(web, FileReader(), denied=policy.denied(FETCH))
    engine = settings.search
    if SEARCH in config.tools and engine.kind is not None:
        from perdure.tools.web.engines import SearchEngine  # noqa: PLC0415 - few agents need it
        from perdure.tools.web.search import SearchTool  # noqa: PLC0415 - few agents need it

        asked = SearchEngine(kind=engine.kind, url=engine.url or "", api_key=engine.api_key)
        yield SearchTool(asked, outgoing)
