"""Checks the soak's own judgement: it names everything that breaks a promise, and nothing else."""

import pytest
from tests.fault.soak.gauges import Cost, excess
from tests.fault.soak.persistent_client import Acknowledged
from tests.fault.soak.rest import Stored, broken_promises

HELLO = Acknowledged(external_id="1\nroom", message="msg_1", turn="trn_1")
Rows = dict[tuple[str, str, str], tuple[str, str | None]]


def rows(message: str, turn: str) -> Rows:
    return {("http", "1\nroom", "message"): (message, turn)}


def stored(
    *,
    inbox: Rows | None = None,
    settled: set[str] | None = None,
    begun: dict[str, set[str]] | None = None,
) -> Stored:
    return Stored(
        inbox=rows("msg_1", "trn_1") if inbox is None else inbox,
        settled={"trn_1", "trn_2"} if settled is None else settled,
        begun=begun or {"msg_1": {"trn_1"}},
        said={},
    )


def test_a_message_that_was_answered_once_breaks_nothing() -> None:
    assert broken_promises([HELLO], stored()) == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (stored(inbox={}), "0 rows in the inbox"),
        (stored(inbox=rows("msg_1", "trn_2")), "became"),
        (stored(inbox=rows("msg_2", "trn_1")), "became"),
        (stored(settled=set()), "no settled turn"),
        (stored(begun={"msg_1": {"trn_1", "trn_2"}}), "asked in 2 turns"),
    ],
    ids=["lost", "another turn", "another message", "stuck", "twice"],
)
def test_a_broken_promise_is_named(wrong: Stored, named: str) -> None:
    (found,) = broken_promises([HELLO], wrong)
    assert named in found


def test_a_steer_may_be_answered_in_a_turn_of_its_own() -> None:
    steer = Acknowledged(external_id="1\nroom", message="msg_1", turn="trn_0", is_steer=True)
    assert broken_promises([steer], stored()) == []


def test_what_an_idle_process_has_kept_is_named() -> None:
    fresh = Cost(resident_mb=60.0, descriptors=30, threads=12)
    assert excess(Cost(resident_mb=79.0, descriptors=33, threads=14), fresh) == []
    grown = Cost(resident_mb=81.0, descriptors=60, threads=30, busy=0.99)
    assert [each.split(",")[0] for each in excess(grown, fresh)] == [
        "81 MB",
        "60 descriptors",
        "30 threads",
        "99 % of a core",
    ]
