"""Checks the limit of requests in a minute: per person, and given back evenly."""

import pytest

from perdure.domain.ids import PrincipalId
from perdure.domain.people.quotas import OverQuota, Quota, QuotaKind
from perdure.engine.people.quotas import RequestGate
from perdure.testkit.simulator.system import VirtualClock

ADA, BOB = PrincipalId("ada"), PrincipalId("bob")


def test_requests_beyond_the_quota_of_a_minute_are_refused() -> None:
    clock = VirtualClock()
    gate = RequestGate(clock, Quota(requests_per_minute=30))
    for _ in range(30):
        gate.admit(ADA, is_operator=False)

    with pytest.raises(OverQuota) as caught:
        gate.admit(ADA, is_operator=False)

    assert caught.value.kind is QuotaKind.REQUESTS
    assert caught.value.retry_after_s == pytest.approx(2)
    gate.admit(BOB, is_operator=False)
    for _ in range(100):
        gate.admit(ADA, is_operator=True)
    clock.advance(2)
    gate.admit(ADA, is_operator=False)
    with pytest.raises(OverQuota):
        gate.admit(ADA, is_operator=False)
    clock.advance(60)
    for _ in range(30):
        gate.admit(ADA, is_operator=False)


def test_without_a_quota_nobody_is_refused() -> None:
    gate = RequestGate(VirtualClock())
    for _ in range(10_000):
        gate.admit(ADA, is_operator=False)


def test_a_flood_is_told_once_a_minute() -> None:
    clock = VirtualClock()
    gate = RequestGate(clock, Quota(requests_per_minute=1))
    told = 0
    for _ in range(100):
        try:
            gate.admit(ADA, is_operator=False)
        except OverQuota as error:
            gate.note(error)
            told += gate.may_tell(ADA, error)
    assert (told, gate.refused["requests"]) == (1, 99)
