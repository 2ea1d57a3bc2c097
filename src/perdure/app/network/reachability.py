"""Tells the operator, soon after the start, which proxies are used and whether they answer.

A proxy that is away is no reason to refuse the start: it may come back, and what waits for it is
kept. But it is told at once, and not only by the first call that fails.
"""

import asyncio
from typing import Final

import structlog

from perdure.app.network.proxies import Proxies, Proxy
from perdure.ports.system.time_limits import time_limit

ANSWER_S: Final = 5.0
log = structlog.get_logger("network")


async def tell_of_proxies(proxies: Proxies) -> None:
    """Log each proxy, and warn of one that cannot be reached."""
    for entry in proxies.exemptions.unread:
        log.warning("NO_PROXY holds an entry that cannot be read; it exempts nothing", entry=entry)
    for proxy in proxies.named:
        why = await _trouble(proxy)
        if why:
            log.warning(
                "the proxy cannot be reached; check [network] proxy, or HTTPS_PROXY and HTTP_PROXY",
                proxy=proxy.shown,
                why=why,
            )
        else:
            log.info("other servers are reached over a proxy", proxy=proxy.shown)


async def _trouble(proxy: Proxy) -> str:
    """Return why no connection to a proxy can be opened, or an empty text."""
    try:
        async with time_limit(ANSWER_S):
            _, writer = await asyncio.open_connection(proxy.host, proxy.port)
    except TimeoutError:
        return f"no answer within {ANSWER_S:g} s"
    except OSError as error:
        return error.strerror or "no connection"
    writer.close()
    return ""
