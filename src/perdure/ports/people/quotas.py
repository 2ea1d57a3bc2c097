"""How often people may ask, and how often they were refused for having too much."""

from collections.abc import Mapping
from typing import Protocol

from perdure.domain.ids import PrincipalId
from perdure.domain.people.quotas import OverQuota


class QuotaGate(Protocol):
    """Where every request and every message passes.

    Guarantees: `admit` counts one request of a member; operators are let through. `note` counts a
    refusal, whoever has refused; `may_tell` is False where a person was told less than a minute ago
    that they ask too often: a flood is not answered by a flood. `refused` are the refusals so far,
    by the kind of quota.
    Requires: nothing.
    Raises: `admit` raises `OverQuota` with how long to wait.
    After a crash: the counts begin anew.
    """

    @property
    def refused(self) -> Mapping[str, int]: ...

    def admit(self, principal: PrincipalId, *, is_operator: bool) -> None: ...

    def may_tell(self, principal: PrincipalId, error: OverQuota) -> bool: ...

    def note(self, error: OverQuota) -> None: ...
