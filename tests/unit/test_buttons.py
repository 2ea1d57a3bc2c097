"""Checks how each platform carries a question: what stands on its buttons, what a press brings
back, and what is made of data that no button of ours has."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.discord import bodies
from perdure.adapters.discord import inbound as discord
from perdure.adapters.discord.payloads import Interaction
from perdure.adapters.slack import inbound as slack
from perdure.adapters.slack import render
from perdure.adapters.slack.payloads import Click
from perdure.adapters.telegram import inbound as telegram
from perdure.adapters.telegram import payloads
from perdure.adapters.telegram.hearing.updates import TelegramUpdate, User
from perdure.domain.ids import QuestionId, mint
from perdure.domain.inbound.arrivals import Arrival, Press, envelope_of
from perdure.ports.platform.buttons import button_data, button_label, press_in
from perdure.testkit.contract.adapter_suite_asking import LONG, MALFORMED
from perdure.testkit.peers.telegram.bot_api_rules import keyboard_problem

QUESTION: Final = QuestionId("qst_01hzx4")
ME: Final = User(id=700, is_bot=True, username="perdure_bot")
PRESSED: Final = Press(question=QUESTION, choice=1)
Both = tuple[Arrival | None, Arrival | None]
Labels = list[tuple[str, str]]


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10), st.integers(0, 99))
def test_the_data_of_every_button_is_read_again(
    now_ms: int, randomness: bytes, choice: int
) -> None:
    question = QuestionId(mint("qst", now_ms=now_ms, randomness=randomness))
    data = button_data(question, choice)
    assert press_in(data) == Press(question=question, choice=choice)
    assert len(data.encode()) <= 64


@given(st.text() | st.from_regex(r"qst_[0-9a-z]{0,40}:\d{0,4}"))
def test_what_is_read_as_a_press_is_the_data_of_a_button(data: str) -> None:
    press = press_in(data)
    if press is not None:
        assert button_data(press.question, press.choice) == data


@pytest.mark.parametrize("data", [*MALFORMED, "", None, "qst_01h:1\n", "\nqst_01h:1", "q" * 99_999])
def test_other_data_is_no_press(data: str | None) -> None:
    assert press_in(data) is None


@pytest.mark.parametrize(
    ("question", "choice"), [("trn_1", 0), ("qst_1", 100), ("qst_1", -1), (f"qst_{'0' * 37}", 0)]
)
def test_a_button_that_could_not_be_read_again_is_never_made(question: str, choice: int) -> None:
    with pytest.raises(AssertionError):
        button_data(QuestionId(question), choice)


def test_a_label_is_cut_between_characters_and_never_empty() -> None:
    assert button_label("yes", 0, 75) == "yes"
    assert button_label("a" * 80, 0, 75) == "a" * 75
    assert button_label("👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 0, 8) == "👩‍👩‍👧‍👦"
    assert button_label(" \n", 1, 75) == "2"
    assert button_label("👩‍👩‍👧‍👦", 4, 3) == "5"


def by_telegram(data: str) -> Both:
    message = {"message_id": 8, "chat": {"id": 42}}
    click = {"id": "c1", "from": {"id": 42, "first_name": "Ada"}, "message": message, "data": data}
    update = msgspec.convert({"update_id": 9, "callback_query": click}, TelegramUpdate)
    return telegram.envelope_of(update, ME), telegram.arrival_of(update, ME)


def by_slack(data: str, action: str = "perdure_question_1") -> Both:
    pressed = {"action_id": action, "value": data, "action_ts": "5.5"}
    raw = {"user": {"id": "U1"}, "channel": {"id": "C1"}, "actions": [pressed]}
    click = msgspec.convert(raw, Click)
    return slack.click_envelope(click), slack.of_click(click)


def by_discord(data: str, kind: int = 3) -> Both:
    raw = {"id": "4", "token": "t", "application_id": "a", "type": kind, "channel_id": "20"}
    user = {"id": "1", "username": "eve"}
    pressed = msgspec.convert({**raw, "data": {"custom_id": data}, "user": user}, Interaction)
    place = discord.ChannelPlace(place="20", label="#general")
    envelope = discord.interaction_envelope(pressed, place=place)
    return envelope, discord.interaction_of(pressed, place=place)


PRESSES: Final[dict[str, Callable[[str], Both]]] = {
    "Telegram": by_telegram,
    "Slack": by_slack,
    "Discord": by_discord,
}


@pytest.mark.parametrize("platform", PRESSES)
def test_a_press_has_no_words_and_is_whole_in_its_envelope(platform: str) -> None:
    envelope, whole = PRESSES[platform](button_data(QUESTION, 1))
    assert envelope is not None
    assert whole is not None
    assert (whole.press, whole.text, whole.is_addressed) == (PRESSED, "", True)
    assert envelope_of(whole) == envelope


@pytest.mark.parametrize("data", MALFORMED)
@pytest.mark.parametrize("platform", PRESSES)
def test_what_no_button_of_ours_has_is_no_press_and_no_failure(platform: str, data: str) -> None:
    envelope, whole = PRESSES[platform](data)
    for arrival in (envelope, whole):
        assert arrival is None or arrival.press is None


def test_a_word_of_slack_and_a_command_of_discord_press_nothing() -> None:
    data = button_data(QUESTION, 1)
    _, said = by_slack(data, action="perdure_choice_1")
    assert said is not None
    assert (said.press, said.text) == (None, data)
    commanded, _ = by_discord(data, kind=2)
    assert commanded is not None
    assert commanded.press is None


def on_telegram(choices: tuple[str, ...], question: QuestionId | None) -> Labels:
    keyboard: Any = payloads.keyboard(choices, question)
    assert keyboard_problem(keyboard["reply_markup"]) == ""
    rows = keyboard["reply_markup"]["inline_keyboard"]
    return [(button["text"], button["callback_data"]) for row in rows for button in row]


def on_slack(choices: tuple[str, ...], question: QuestionId | None) -> Labels:
    (actions,) = render.buttons(choices, question)
    assert len({each.action_id for each in actions.elements}) == len(choices)
    return [(each.text.text, each.value) for each in actions.elements]


def on_discord(choices: tuple[str, ...], question: QuestionId | None) -> Labels:
    body = bodies.changed_message("?", choices=choices, question=question)
    return [(each.label, each.custom_id) for row in body.components for each in row.components]


OFFERS: Final[dict[str, Callable[[tuple[str, ...], QuestionId | None], Labels]]] = {
    "Telegram": on_telegram,
    "Slack": on_slack,
    "Discord": on_discord,
}
LABELS_MAX: Final = {"Telegram": 100, "Slack": 75, "Discord": 80}


@pytest.mark.parametrize("platform", OFFERS)
def test_the_buttons_of_a_question_have_its_id_and_their_number(platform: str) -> None:
    offered = OFFERS[platform](("yes", "no", LONG, LONG, " "), QUESTION)
    assert [data for _, data in offered] == [f"{QUESTION}:{number}" for number in range(5)]
    cut = LONG[: LABELS_MAX[platform]].rstrip()
    assert [label for label, _ in offered] == ["yes", "no", cut, cut, "5"]


@pytest.mark.parametrize("platform", OFFERS)
def test_a_word_that_looks_like_a_press_is_told_apart_from_one(platform: str) -> None:
    ((_, asked),) = OFFERS[platform](("yes",), QUESTION)
    ((label, data),) = OFFERS[platform]((asked,), None)
    assert label == asked
    # On Slack, the kind of the button tells them apart; elsewhere the data does.
    assert (data != asked) == (platform != "Slack")
