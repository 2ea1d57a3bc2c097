"""Plays the model of the storm: long, slow and short answers in words that occur nowhere else.

Each word tells which message it answers, in which wording, by which request, and where it stands in
the answer. So every word that is seen anywhere tells where it belongs.
"""

import random
import re
from collections.abc import Iterator

import msgspec

from perdure.testkit.models.model_script import Reply, ScriptedRequest, say, slow, text_of
from perdure.testkit.models.model_server import ModelServer

_QUESTION = re.compile(r"\bn(\d+)v(\d+)\b")
_WORD = re.compile(r"\bn(\d+)v(\d+)r(\d+)w(\d+)\b")
PARAGRAPH = 60


class Word(msgspec.Struct, frozen=True, order=True):
    number: int
    version: int
    request: int
    index: int

    def __str__(self) -> str:
        return f"n{self.number}v{self.version}r{self.request}w{self.index}"


def question(number: int, version: int = 0) -> str:
    return f"n{number}v{version} please"


def words_in(text: str) -> list[Word]:
    return [Word(*map(int, found)) for found in _WORD.findall(text)]


def asked_in(text: str) -> int | None:
    """Return the number of the message that is in a text, or None if there is none."""
    found = _QUESTION.search(text)
    return int(found[1]) if found else None


class NumberedModel:
    def __init__(self, dice: random.Random, *, long_words: int) -> None:
        self.server = ModelServer(self._reply, requests_max=0)
        self._dice = dice
        self._long_words = long_words

    def _reply(self, request: ScriptedRequest) -> Reply:
        asked = next(_newest_first(request), None)
        if asked is None:
            return say("nothing was asked")
        dice, roll = self._dice, self._dice.random()
        if roll < 0.4:
            return say(_text(asked, request.number, dice.randrange(3, 25)), delay_ms=2)
        if roll < 0.75:
            words = _text(asked, request.number, dice.randrange(20, 50))
            return slow(dice.uniform(0, 1500), say(words, delay_ms=dice.choice((60, 120))))
        count = dice.randrange(self._long_words // 2, self._long_words)
        return say(_text(asked, request.number, count), delay_ms=dice.choice((0, 2, 5)))


def _newest_first(request: ScriptedRequest) -> Iterator[tuple[int, int]]:
    for message in reversed(request.messages):
        if message["role"] == "user":
            for number, version in reversed(_QUESTION.findall(text_of(message))):
                yield int(number), int(version)


def _text(asked: tuple[int, int], request: int, count: int) -> str:
    words = [str(Word(*asked, request, index)) for index in range(count)]
    lines = (words[at : at + PARAGRAPH] for at in range(0, count, PARAGRAPH))
    return "\n\n".join(" ".join(line) for line in lines)
