"""Checks the storm's own judgement: it names what cannot be explained, and nothing else."""

import pytest
from tests.fault.storm.judgement import Seen, Verdict, judge
from tests.fault.storm.model import Word
from tests.fault.storm.platform import Sent, Spot
from tests.fault.storm.stored import Part, Stored, Turn

from perdure.testkit.processes.faulty_proxy import PlatformRequest, ProxiedCall

HERE = Spot("here")
ONE = Sent(number=1, spot=HERE, person="ada", name="here/1")
TWO = Sent(number=2, spot=HERE, person="ada", name="here/2")


def words(number: int, *indices: int) -> tuple[Word, ...]:
    return tuple(Word(number, 0, number, index) for index in indices)


def part(state: str, said: tuple[Word, ...], receipt: str = "", step: str = "post") -> Part:
    return Part(f"{receipt}.{step}", step, state, said, receipt, "")


def turn(number: int, *parts: Part, outcome: str = "done") -> Turn:
    said = list(words(number, 0, 1, 2))
    return Turn(
        id=f"t{number}",
        state="settled",
        outcome=outcome,
        number=number,
        said=said if outcome == "done" else [],
        parts=list(parts),
    )


SENT_ONE = part("sent", words(1, 0, 1, 2), "r1")
SENT_TWO = part("sent", words(2, 0, 1, 2), "r2")
SHOWN_ONE = Seen("r1", list(words(1, 0, 1, 2)))
SHOWN_TWO = Seen("r2", list(words(2, 0, 1, 2)))


def call(at: float, *said: Word) -> ProxiedCall:
    asked = PlatformRequest(verb="send", is_act=True, place="here", text=" ".join(map(str, said)))
    return ProxiedCall(at=at, life=0, asked=asked)


def judged(
    turns: list[Turn], shown: list[Seen], *calls: ProxiedCall, sent: tuple[Sent, ...]
) -> Verdict:
    inbox: dict[str, str | None] = {f"here/{each.number}": each.id for each in turns}
    stored = Stored(inbox, set(), set(), {each.id: each for each in turns})
    return judge(sent, stored, {HERE: shown}, calls)


@pytest.mark.parametrize(
    ("parts", "shown", "line"),
    [
        ([SENT_ONE], [SHOWN_ONE], "visible once and whole"),
        (
            [part("unknown", words(1, 0, 1, 2))],
            [Seen("r9", list(words(1, 0, 1, 2)))],
            "visible once and whole",
        ),
        (
            [part("unknown", words(1, 0), step="bubble"), SENT_ONE],
            [Seen("r9", list(words(1, 0))), SHOWN_ONE],
            "twice, with the stray parked",
        ),
        (
            [part("sent", words(1, 0), "r1"), part("failed", words(1, 1, 2))],
            [Seen("r1", list(words(1, 0)))],
            "missing and parked",
        ),
    ],
)
def test_an_explained_answer_is_counted(parts: list[Part], shown: list[Seen], line: str) -> None:
    verdict = judged([turn(1, *parts)], shown, sent=(ONE,))
    assert verdict.broken == []
    assert verdict.counts == {line: 1}


@pytest.mark.parametrize(
    ("parts", "shown", "named"),
    [
        ([SENT_ONE], [], "is missing, and not parked"),
        ([SENT_ONE], [SHOWN_ONE, Seen("r9", list(words(1, 0)))], "without a receipt"),
        ([SENT_ONE], [Seen("r1", list(words(1, 1, 0, 2)))], "are shown as"),
        ([SENT_ONE], [Seen("r1", list(words(1, 0, 1, 2, 3)))], "is not stored"),
    ],
    ids=["missing", "twice", "scrambled", "not stored"],
)
def test_what_nobody_can_explain_is_named(parts: list[Part], shown: list[Seen], named: str) -> None:
    verdict = judged([turn(1, *parts)], shown, sent=(ONE,))
    assert named in verdict.broken[0]


def test_a_message_that_is_nowhere_is_named() -> None:
    assert "has 0 ends" in judged([], [], sent=(ONE,)).broken[0]


def test_a_message_that_was_taken_twice_is_named() -> None:
    again = turn(1, SENT_ONE)
    again.id = "t9"
    verdict = judged([turn(1, SENT_ONE), again], [SHOWN_ONE], sent=(ONE,))
    assert verdict.broken == ["n1 has 2 turns"]


def test_a_change_that_is_lost_is_named() -> None:
    sent = Sent(number=1, spot=HERE, person="ada", name="here/1", changes=["here/1/edit"])
    assert "is lost" in judged([turn(1, SENT_ONE)], [SHOWN_ONE], sent=(sent,)).broken[0]


def test_a_turn_that_ends_without_a_word_is_named() -> None:
    verdict = judged([turn(1, outcome="superseded")], [], sent=(ONE,))
    assert "superseded): nobody is told of it" in verdict.broken[0]


def test_answers_that_stand_or_grow_in_the_wrong_order_are_named() -> None:
    turns = [turn(1, SENT_ONE), turn(2, SENT_TWO)]
    one, two = words(1, 0), words(2, 0)
    calm = judged(turns, [SHOWN_ONE, SHOWN_TWO], call(1, *one), call(2, *two), sent=(ONE, TWO))
    assert calm.broken == []
    early = judged(turns, [SHOWN_TWO, SHOWN_ONE], call(1, *two), call(2, *one), sent=(ONE, TWO))
    assert early.broken == [
        "n2 was shown 1.0 s before the end of n1",
        "n2 stands before n1",
    ]
