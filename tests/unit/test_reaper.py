"""Checks what the reaper does after it has found turns without an owner."""

from typing import cast

import pytest

from perdure.domain.ids import MessageId, SessionId
from perdure.domain.journal.events import NoticePosted, Recorded
from perdure.domain.turn.recovery import Policy
from perdure.engine.turns.reaper import Reaper
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.turns import Nodes, Resumed

FOUND = Recorded(
    session=SessionId("ses_1"),
    seq=1,
    at=1,
    event=NoticePosted(message=MessageId("msg_1"), text="an attempt has ended"),
)


class Rows:
    """Stands for the store: `ended` is what each look finds, and `resumed` what may go on."""

    def __init__(self, *ended: list[Recorded]) -> None:
        self.ended = list(ended)
        self.resumed = Resumed(recorded=[], is_holding_back=False)

    async def reap(self, *, attempts_max: int, limit: int) -> list[Recorded]:
        return self.ended.pop(0)

    async def resume(self, policy: Policy, *, limit: int) -> Resumed:
        return self.resumed


def reaper(rows: Rows, reviews: list[int]) -> Reaper:
    async def review() -> None:
        reviews.append(len(rows.ended))

    return Reaper(cast("Nodes", rows), Feed(), policy=Policy(), review=review)


async def test_who_may_speak_is_asked_at_the_start_and_whenever_an_attempt_has_ended() -> None:
    rows, reviews = Rows([], [], [FOUND], []), list[int]()
    reaps = reaper(rows, reviews)

    has_written = [await reaps.step() for _ in range(4)]

    assert reviews == [3, 1], "the first look, and the one that has found something"
    assert has_written == [False, False, True, False]


@pytest.mark.parametrize("is_holding_back", [False, True])
async def test_the_pump_is_told_whether_suspects_wait(is_holding_back: bool) -> None:
    rows = Rows([])
    rows.resumed = Resumed(recorded=[], is_holding_back=is_holding_back, look_again_ms=7)
    reaps = reaper(rows, [])

    await reaps.step()

    assert (reaps.is_holding_back, reaps.look_again_ms) == (is_holding_back, 7)
