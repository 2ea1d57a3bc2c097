"""Defines the port that limits how often people may ask, and counts refusals."""

from collections.abc import Mapping
from typing import Protocol

from perdure.domain.ids import PrincipalId
from perdure.domain.people.quotas import OverQuota


class QuotaGate(Protocol):
    """Admits requests and messages, as often as each person's quota allows.

    Guarantees: counts are kept by person, in this process only.
    Requires: every request and every message passes `admit`.
    Raises: `OverQuota` from `admit`; nothing else.
    After a crash: the counts begin anew.
    """

    @property
    def refused(self) -> Mapping[str, int]:
        """Return the number of refusals so far, by the kind of quota."""

    def admit(self, principal: PrincipalId, *, is_operator: bool) -> None:
        """Count one request of a member. Operators are always admitted. Raises `OverQuota` with how
        long to wait."""

    def may_tell(self, principal: PrincipalId, error: OverQuota) -> bool:
        """Tell whether to tell a person of this refusal. A person who asks too often is told once a
        minute, so that a flood of messages is not answered by a flood."""

    def note(self, error: OverQuota) -> None:
        """Count a refusal, whichever part has refused."""
