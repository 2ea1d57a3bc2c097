"""Says when daily budgets renew: at the beginning of each day of UTC."""

from typing import Final

from perdure.domain.outcomes import StopReason

DAY_MS: Final = 86_400_000


def renews_at(at_ms: int) -> int:
    """Return the instant at which the next day begins."""
    return (at_ms // DAY_MS + 1) * DAY_MS


def renewal_of(reason: str, at_ms: int) -> int:
    """Return when the budget renews that has refused a turn at this instant, or 0 if the turn ended
    for another reason."""
    return renews_at(at_ms) if reason == StopReason.BUDGET else 0
