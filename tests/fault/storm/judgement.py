"""Compares what was sent, stored and shown, and names everything that cannot be explained.

An answer is whole if the words that stand in the chat under receipts of its turn are those that the
model has said in it, once and in order, less the words of parts that are parked. A message of the
bot's that no receipt names is a stray: there must be a part of that turn whose fate is unknown.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec
from tests.fault.storm.model import Word, words_in
from tests.fault.storm.platform import Sent, Spot
from tests.fault.storm.stored import Stored, Turn

from perdure.testkit.processes.faulty_proxy import ProxiedCall


class Seen(msgspec.Struct, frozen=True):
    """Holds a message of the bot's that stands in a chat at the end."""

    receipt: str
    words: list[Word]


Shown = Mapping[Spot, Sequence[Seen]]


class Verdict:
    """Holds `counts` for the table, and `broken`, which must be empty."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    def count(self, what: str, why: Iterable[str] = ()) -> None:
        self.counts[what] += 1
        self.broken += why


def judge(
    sent: Sequence[Sent], stored: Stored, shown: Shown, calls: Sequence[ProxiedCall]
) -> Verdict:
    verdict = Verdict()
    for each in sent:
        _judge_end(each, stored, verdict)
        _judge_answer(each, stored, shown[each.spot], verdict)
    _judge_order(sent, stored, shown, calls, verdict)
    return verdict


def _judge_end(sent: Sent, stored: Stored, verdict: Verdict) -> None:
    """Check that each message ended in exactly one way. A deleted one may never have reached the
    gateway."""
    name, turn = f"n{sent.number}", stored.inbox.get(sent.name)
    ends = (sent.name in stored.inbox) + (sent.name in stored.ended)
    if ends != 1 and not (sent.is_deleted and not ends):
        verdict.count("lost or taken twice", [f"{name} has {ends} ends"])
    if turn is not None and stored.turns[turn].state != "settled":
        verdict.count("stuck", [f"{name}: {turn} is {stored.turns[turn].state}"])
    begun = stored.turns_of(sent.number)
    if len(begun) > 1 and not sent.is_edited:
        verdict.count("lost or taken twice", [f"{name} has {len(begun)} turns"])
    known = stored.changes | stored.ended
    for change in sent.changes if ends else ():
        if not any(each.startswith(change) for each in known):
            verdict.count("lost or taken twice", [f"{change}, a change of {name}, is lost"])


def _judge_answer(sent: Sent, stored: Stored, shown: Sequence[Seen], verdict: Verdict) -> None:
    name, turns = f"n{sent.number}", stored.turns_of(sent.number)
    if not turns:
        is_explained = sent.is_deleted or sent.name in stored.ended
        verdict.count("without a turn", [] if is_explained else [f"{name} has no turn"])
        return
    turn = turns[-1]
    seen = [each for each in shown if any(word.number == sent.number for word in each.words)]
    unsaid = {w for each in seen for w in each.words if w.number == sent.number} - {
        word for each in turns for word in each.said
    }
    if unsaid:
        verdict.count("shown and not stored", [f"{name}: {_brief(unsaid)} is not stored"])
    if turn.said:
        what, why = _compared(turn, seen, is_edited=sent.is_edited)
    else:
        is_told = sent.is_deleted or any(part.step != "react" for part in turn.parts)
        what, why = f"{turn.outcome} before a word", [] if is_told else ["nobody is told of it"]
    given_up = f", {turn.outcome}" if turn.said and turn.outcome != "done" else ""
    verdict.count(what + given_up, [f"{name} ({turn.id}, {turn.outcome}): {each}" for each in why])


def _compared(turn: Turn, seen: Sequence[Seen], *, is_edited: bool) -> tuple[str, list[str]]:
    """Return the line of the table that an answer belongs to, and what is wrong with it."""
    own = [word for each in seen if each.receipt in turn.receipts for word in each.words]
    strays = [each for each in seen if each.receipt not in turn.receipts]
    if is_edited:  # an answer that was taken back may still be shown
        strays = [each for each in strays if set(each.words) & set(turn.said)]
    visible = [word for each in seen for word in each.words if word in set(turn.said)]
    parked = {word for part in turn.parked for word in part.words if part.step != "bubble"}
    why = [] if len(strays) <= _unknown(turn) else [f"{_receipts(strays)} without a receipt"]
    missing = [word for word in turn.said if word not in set(own)]
    if own != [word for word in turn.said if word not in set(missing)]:
        why.append(f"its words are shown as {_brief(own)}")
    if set(missing) - parked:
        why.append(f"{_brief(set(missing) - parked)} is missing, and not parked")
    if why:
        return "unexplained", why
    if visible == turn.said:
        return "visible once and whole", []
    return ("missing and parked" if missing else "twice, with the stray parked"), []


def _unknown(turn: Turn) -> int:
    return sum(part.state == "unknown" for part in turn.parts)


def _judge_order(
    sent: Sequence[Sent],
    stored: Stored,
    shown: Shown,
    calls: Sequence[ProxiedCall],
    verdict: Verdict,
) -> None:
    """Check that the answers of one conversation were sent, and are shown, one after the other."""
    talks: dict[Spot, list[int]] = defaultdict(list)
    for each in sent:
        if not each.is_edited:
            talks[each.spot].append(each.number)
    first, last = _instants(calls)
    for spot, numbers in talks.items():
        begun = [number for number in numbers if number in first]
        for position, number in enumerate(begun):
            ahead = [each for each in begun[position + 1 :] if first[each] < last[number]]
            if ahead:
                early_s = last[number] - first[ahead[0]]
                words = f"n{ahead[0]} was shown {early_s:.1f} s before the end of n{number}"
                verdict.count("shown too early", [words])
        standing = [
            seen.words[0].number
            for seen in shown[spot]
            if seen.words and seen.words[0].number in numbers and _is_owned(seen, stored)
        ]
        for before, after in pairwise(standing):
            if before > after:
                verdict.count("out of order", [f"n{before} stands before n{after}"])


def _is_owned(seen: Seen, stored: Stored) -> bool:
    turns = stored.turns_of(seen.words[0].number)
    return any(seen.receipt in turn.receipts for turn in turns)


def _instants(calls: Sequence[ProxiedCall]) -> tuple[dict[int, float], dict[int, float]]:
    """Return the time of the first and of the last call that shows words of each answer."""
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for call in calls:
        for number in {word.number for word in words_in(call.asked.text)}:
            first.setdefault(number, call.at)
            last[number] = call.at
    return first, last


def _receipts(seen: Iterable[Seen]) -> str:
    return ", ".join(each.receipt for each in seen)


def _brief(words: Iterable[Word]) -> str:
    listed = list(map(str, words))
    return " ".join(listed) if len(listed) < 4 else f"{listed[0]} … {listed[-1]} ({len(listed)})"
