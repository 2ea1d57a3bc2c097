"""Calculates what tokens cost.

A price is money per million tokens, so tokens times price is the cost in millionths. In a `Usage`,
the tokens read from a provider's cache and written to it are part of `input_tokens`, however the
wire counts them. They are subtracted here, because each of them has its own price.
"""

import msgspec

from perdure.domain.journal.model.usage import Usage


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Holds prices, as money per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what an agent's tokens cost, or None if that is not known, and how many it writes at
    most in one answer, or None if there is no limit."""

    prices: Prices | None = None
    output_max: int | None = None


def cost(prices: Prices, usage: Usage) -> int:
    """Return the cost of a usage in millionths."""
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    fresh = max(usage.input_tokens - read - written, 0)
    return round(
        fresh * prices.input
        + read * prices.cache_read
        + written * prices.cache_write
        + usage.output_tokens * prices.output
    )


def money_text(millionths: int) -> str:
    """Return an amount as people read it, in whatever currency the prices are given."""
    if 0 < millionths < 10_000:
        return f"{millionths / 1_000_000:.6f}".rstrip("0")
    return f"{millionths / 1_000_000:,.2f}"
