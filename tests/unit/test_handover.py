"""Checks the hand-over between a turn's preview and the delivery of its final words."""

import asyncio

import pytest

from perdure.domain.errors import Transient
from perdure.domain.ids import TurnId
from perdure.engine.delivery import handover as handover_module
from perdure.engine.delivery.handover import Handovers, ShownPreview

TURN = TurnId("trn_1")


async def waits_still(task: "asyncio.Task[str]") -> bool:
    done, _ = await asyncio.wait({task}, timeout=0.01)
    return not done


async def test_final_words_of_a_turn_without_a_preview_wait_for_nothing() -> None:
    handovers = Handovers()

    assert handovers.expected(TURN) is None
    assert await handovers.receive(TURN, "m1") == ""


async def test_final_words_wait_until_the_preview_hands_over() -> None:
    handovers = Handovers()
    handover = handovers.expect(TURN)
    waiting = asyncio.ensure_future(handovers.receive(TURN, "m1"))
    assert await waits_still(waiting)

    handovers.hand_over(handover, ShownPreview({"m1": "one two"}))

    assert await waiting == "one two"
    assert handovers.expected(TURN) is None


async def test_what_a_stream_was_given_is_told_once_for_each_receipt() -> None:
    handovers = Handovers()
    handovers.hand_over(handovers.expect(TURN), ShownPreview({"m1": "one", "m2": "two"}))

    told = [await handovers.receive(TURN, receipt) for receipt in ("m2", "m2", "m1", "m3")]

    assert told == ["two", "", "one", ""]


async def test_a_later_attempt_hands_over_for_the_earlier_one_too() -> None:
    # The preview of the first attempt still has a call under way when the second attempt begins.
    handovers = Handovers()
    first = handovers.expect(TURN)
    second = handovers.expect(TURN)

    handovers.hand_over(first, ShownPreview({"m1": "one", "m2": "begun"}))
    assert first.is_over.done()
    assert handovers.expected(TURN) is second
    handovers.hand_over(second, ShownPreview({"m2": "two"}))

    assert await handovers.receive(TURN, "m1") == "one"
    assert await handovers.receive(TURN, "m2") == "two"


async def test_a_preview_that_hangs_does_not_hold_up_its_part_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover_module, "WAIT_S", 0.01)
    handovers = Handovers()
    handovers.expect(TURN)

    with pytest.raises(Transient, match="still under way"):
        await handovers.receive(TURN, "m1")


async def test_what_nobody_asks_for_is_forgotten_at_some_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover_module, "KEPT_MAX", 2)
    handovers = Handovers()
    turns = [TurnId(f"trn_{number}") for number in range(3)]
    for turn in turns:
        handovers.hand_over(handovers.expect(turn), ShownPreview({turn: "text"}))

    assert [await handovers.receive(turn, turn) for turn in turns] == ["", "text", "text"]
