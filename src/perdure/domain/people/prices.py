"""What tokens cost.

A price is money per million tokens, so tokens times price is the cost in millionths. In a `Usage`
the tokens read from a provider's cache and written to it are part of `input_tokens`, whichever way
the wire counts them; they are taken out again here, because each has a price of its own.
"""

import msgspec

from perdure.domain.journal.events import Usage


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Money per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's tokens cost, if that is known, and the most it writes at once, if that is
    limited."""

    prices: Prices | None = None
    output_max: int | None = None


def cost(prices: Prices, usage: Usage) -> int:
    """In millionths."""
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    fresh = max(usage.input_tokens - read - written, 0)
    return round(
        fresh * prices.input
        + read * prices.cache_read
        + written * prices.cache_write
        + usage.output_tokens * prices.output
    )


def money_text(millionths: int) -> str:
    """An amount as people read it, in whatever currency the prices are given in."""
    if 0 < millionths < 10_000:
        return f"{millionths / 1_000_000:.6f}".rstrip("0")
    return f"{millionths / 1_000_000:,.2f}"
