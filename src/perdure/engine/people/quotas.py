"""Counts requests by person: each member has a number of them per minute, which comes back evenly.

The counts are in the memory of one process. What must be exact (bytes, files, turns) is counted by
the store, in the transactions that store it.
"""

from collections import Counter, OrderedDict
from typing import Final

from perdure.domain.ids import PrincipalId
from perdure.domain.people.quotas import NO_QUOTA, OverQuota, Quota, QuotaKind, requests_used_up
from perdure.ports.system.clock import Clock

MINUTE_S: Final = 60.0
# How many people are remembered. The one whose last request is oldest is forgotten first.
KNOWN_MAX: Final = 10_000


class RequestGate:
    """Counts requests and refusals of one process. It is the `QuotaGate` port."""

    def __init__(self, clock: Clock, quota: Quota = NO_QUOTA) -> None:
        self._clock = clock
        self._quota = quota
        # When all requests of a person will be forgotten, in the order of their last request.
        self._until: OrderedDict[PrincipalId, float] = OrderedDict()
        # Until when a person is not told again that they ask too often.
        self._told: OrderedDict[PrincipalId, float] = OrderedDict()
        self.refused: Counter[str] = Counter({kind.value: 0 for kind in QuotaKind})

    def admit(self, principal: PrincipalId, *, is_operator: bool) -> None:
        """Count one request. Raises `OverQuota` if a member has used up the requests of a
        minute."""
        allowed = self._quota.requests_per_minute
        if is_operator or not allowed:
            return
        each_s, now_s = MINUTE_S / allowed, self._clock.monotonic_s()
        until_s = max(self._until.get(principal, now_s), now_s) + each_s
        wait_s = until_s - now_s - MINUTE_S
        if wait_s > each_s / 2:  # the clock is a float: less than half a request is none
            raise requests_used_up(self._quota, wait_s=wait_s)
        self._until[principal] = until_s
        self._until.move_to_end(principal)
        if len(self._until) > KNOWN_MAX:
            self._until.popitem(last=False)

    def may_tell(self, principal: PrincipalId, error: OverQuota) -> bool:
        """Tell whether the person may be told about this refusal. That they ask too often is told
        once a minute."""
        now_s = self._clock.monotonic_s()
        if error.kind is not QuotaKind.REQUESTS:
            return True
        if self._told.get(principal, now_s) > now_s:
            return False
        self._told[principal] = now_s + MINUTE_S
        self._told.move_to_end(principal)
        if len(self._told) > KNOWN_MAX:
            self._told.popitem(last=False)
        return True

    def note(self, error: OverQuota) -> None:
        """Count a refusal."""
        self.refused[error.kind] += 1
