"""Checks that everything that reads other people's text takes time linear in the text.

Each reader is given texts that are made to hurt it, at two lengths. The measured time is the
processor time of this thread, so a busy machine changes nothing. For four times the text a linear
reader needs four times as long, a quadratic one sixteen times, which soon means minutes.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pytest

from perdure.adapters.discord import inbound as discord_inbound
from perdure.adapters.discord import render as discord
from perdure.adapters.discord.payloads import Message as DiscordMessage
from perdure.adapters.matrix import inbound as matrix_inbound
from perdure.adapters.matrix import render as matrix
from perdure.adapters.matrix.events import MatrixEvent, decoded, raw_of
from perdure.adapters.slack import inbound as slack_inbound
from perdure.adapters.slack import render as slack
from perdure.adapters.slack.payloads import SlackEvent
from perdure.adapters.telegram import inbound as telegram_inbound
from perdure.adapters.telegram import render as telegram
from perdure.adapters.telegram.hearing.updates import TelegramUpdate as TelegramUpdate
from perdure.adapters.telegram.hearing.updates import User
from perdure.agents.chat.answer.thoughts import ThoughtScanner
from perdure.agents.chat.complaints import complaint
from perdure.domain.content.attribution import in_a_file, in_own_words
from perdure.domain.content.forwards import ForwardedText
from perdure.domain.delivery import without_promise
from perdure.domain.inbound.arrivals import PlaceKind
from perdure.domain.inbound.commands import command_in
from perdure.domain.markdown.heal import heal
from perdure.domain.markdown.split import split, stretches
from perdure.web.openai import responses_wire
from perdure.web.openai.checks import check_messages
from perdure.web.openai.frontend_tasks import answer
from perdure.web.openai.responses_wire import ResponseIn

_SIZES: Final = (3_000, 12_000)
_SUSPECT_S: Final = 0.25
_GROWTH_MAX: Final = 9
_TRIES: Final = 3

BOT: Final = "@bot:example.org"
SCENE: Final = matrix_inbound.Scene(
    place="!room", kind=PlaceKind.GROUP, label="", me=BOT, my_names=("Bot",), sender_name="Eve"
)
REPLY: Final = {"m.in_reply_to": {"event_id": "$other"}}


def _from_matrix(text: str, **more: Any) -> None:
    content = {"msgtype": "m.text", "body": text, "formatted_body": text, **more}
    raw = {"type": "m.room.message", "sender": "@eve:x", "event_id": "$1", "content": content}
    event = decoded(raw_of(raw), MatrixEvent)
    assert event is not None
    matrix_inbound.understood(event, SCENE, None)


def _from_matrix_with_pill(text: str) -> None:
    _from_matrix(text, **{"m.mentions": {"user_ids": [BOT]}, "m.relates_to": REPLY})


def _from_slack(text: str) -> None:
    raw = {"type": "message", "channel": "C1", "user": "U1", "ts": "1.1", "text": text}
    event = msgspec.convert(raw, SlackEvent)
    slack_inbound.people_in(event)
    slack_inbound.of_event(event, slack_inbound.Bot(team="T1", user="A"), {})


def _from_telegram(text: str) -> None:
    mark = {"type": "mention", "offset": 0, "length": 4}
    chat = {"id": -1, "type": "group", "title": "Club"}
    said = {"message_id": 1, "date": 1, "chat": chat, "text": text, "entities": [mark] * 1_000}
    update = msgspec.convert({"update_id": 1, "message": said}, TelegramUpdate)
    telegram_inbound.arrival_of(update, User(id=1, is_bot=True, username="bot"))


def _from_discord(text: str) -> None:
    eve = {"id": "1", "username": "eve"}
    said = {"id": "3", "type": 0, "content": text, "channel_id": "2", "author": eve}
    people = [{"id": str(number), "username": "A"} for number in range(100)]
    message = msgspec.convert({**said, "mentions": people}, DiscordMessage)
    discord_inbound.arrival_of(message, account="9", place=discord_inbound.ChannelPlace(place="2"))


def _thoughts(text: str) -> None:
    scanner = ThoughtScanner()
    scanner.feed(text)
    scanner.rest(is_finished=True)


READERS: Final[dict[str, Callable[[str], object]]] = {
    "Matrix": _from_matrix,
    "Matrix, with a pill": _from_matrix_with_pill,
    "Slack": _from_slack,
    "Telegram": _from_telegram,
    "Discord": _from_discord,
    "chores": answer,
    "complaints": lambda text: complaint(text.encode()),
    "thoughts": _thoughts,
    "commands": command_in,
    "promises": without_promise,
    "own words": lambda text: in_own_words(ForwardedText(text)),
    "files": in_a_file,
}
# Each text as its beginning, the piece that is repeated, and its end.
TEXTS: Final = [
    ("@bot x", " ", "x"),
    ("@bot x", " ", "@bot"),
    ("", " ", "@bot x"),
    ("x @bot", "!", "x"),
    ("", "@bot ", "x"),
    ("", "bot,", ""),
    ("", "> ", ""),
    ("### Task: title\n<chat_history>", "\n", ""),
    ("### Task: title\n<chat_history>", "USER:", ""),
    ("### Task: title\n<chat_history>", "USER:\n", ""),
    ('### Task: { "prompt": \n<chat_history>', " \nUSER: a", ""),
    ("### Task: ", '{ "', ""),
    ("", "<@A|", ""),
    ("", "<@A>", ""),
    ("", "<@A>", "x"),
    ("x", "<@A|b> ", ""),
    ("", " ", ""),
    ("", "<@1>", ""),
    ("", "<a:b:", ""),
    ("", "<", ""),
    ("", "<script ", ""),
    ("", "<script>", "</style>"),
    ("", "<title>", ""),
    ("", "<title", ""),
    ("", "</style", ""),
    ("", "<think>", ""),
    ("", "```", "`"),
    ("/new", " ", "\n"),
    ("", "; it is tried again", ";"),
    ("", "[", ""),
    ("", "\n[end of ", ""),
    ("", "\u200b", "[end of a]"),
]
SPLIT_AT: Final = 2_000
RENDERERS: Final[dict[str, Callable[[str], object]]] = {
    "Matrix": matrix.message,
    "Slack": slack.content,
    "Slack, plain": slack.plain_content,
    "Telegram": telegram.rendered,
    "Discord": discord.render,
    "heal": heal,
    "stretches": lambda text: stretches(text, least=1_000),
    # The limits are smaller than the short text too: otherwise only the long one would be divided.
    "split for Matrix": lambda text: split(text, size=matrix.size, limit=SPLIT_AT),
    "split for Discord": lambda text: split(text, size=discord.size, limit=SPLIT_AT),
}
WIDE: Final = "|a" * 256 + "\n" + "|-" * 256 + "\n"
MARKDOWN: Final = [
    ("", "|-|-\n", ""),
    ("", "|-|-", ""),
    (WIDE, "|\n", ""),
    ("", "`", "x"),
    ("`", "\\", "x"),
    ("", "*a_ ", ""),
    ("", "[a](", ""),
    ("", "> ", ""),
    ("", "- ", ""),
    ("", "<!--", ""),
]


def _spent_s(act: Callable[[], object]) -> float:
    began = time.thread_time()
    act()
    return time.thread_time() - began


def _cost_s(read: Callable[[str], object], text: str) -> float:
    return _spent_s(partial(read, text))


def _assert_linear(
    read: Callable[[str], object], text: tuple[str, str, str], most_s: float
) -> None:
    lead, pump, end = text
    short, long = (lead + pump * (size // len(pump)) + end for size in _SIZES)
    at_short_s = _cost_s(read, short)
    assert at_short_s < most_s, "too slow for a short text already"
    bound_s = min(most_s, max(_GROWTH_MAX * at_short_s, _SUSPECT_S))
    costs_s = (_cost_s(read, long) for _ in range(_TRIES))
    assert any(cost_s < bound_s for cost_s in costs_s), f"a short text takes {at_short_s:.3f} s"


@pytest.mark.parametrize("text", TEXTS, ids=repr)
@pytest.mark.parametrize("reader", READERS)
def test_a_text_is_read_in_linear_time(reader: str, text: tuple[str, str, str]) -> None:
    _assert_linear(READERS[reader], text, 0.5)


@pytest.mark.parametrize("text", MARKDOWN, ids=lambda text: repr(text[1]))
@pytest.mark.parametrize("renderer", RENDERERS)
def test_a_text_is_rendered_in_linear_time(renderer: str, text: tuple[str, str, str]) -> None:
    _assert_linear(RENDERERS[renderer], text, 4.0)


def _calling(ids: Sequence[str]) -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "look"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _answering(ids: Iterable[str]) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": each, "content": ""} for each in ids]


def _answered_backwards(count: int) -> Callable[[], object]:
    ids = [f"call_{number}" for number in range(count)]
    said = [_calling(ids), *_answering(reversed(ids))]
    return lambda: check_messages(said)


def _calls_of_a_response(count: int) -> Callable[[], object]:
    calls = [
        {"type": "function_call", "call_id": f"call_{number}", "name": "look", "arguments": "{}"}
        for number in range(count)
    ]
    body = ResponseIn(model="main", input=calls)
    return lambda: responses_wire.messages(body)


@pytest.mark.parametrize("made", [_answered_backwards, _calls_of_a_response])
def test_a_body_with_many_calls_is_read_in_linear_time(
    made: Callable[[int], Callable[[], object]],
) -> None:
    # A body of ten megabytes holds more calls than these.
    read = made(60_000)
    assert any(_spent_s(read) < 1.0 for _ in range(_TRIES))


@pytest.mark.parametrize("size", [15_000, 60_000])
def test_a_long_table_is_measured_a_few_times_only(size: int) -> None:
    # Measuring a table means rendering it, which takes most of the time.
    rows = "".join(f"|{number}|-\n" for number in range(size // 8))
    measured = 0

    def measure(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return matrix.size(text)

    pieces = split(f"|a|b\n|-|-\n{rows}", size=measure, limit=matrix.TEXT_BYTES_MAX)
    assert len(pieces) > 4
    assert measured < 4 * len(rows)
