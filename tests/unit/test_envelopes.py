"""Checks what each adapter tells about a message before anybody has decided whether it may be read:
all that the decision needs, and none of the words."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from perdure.adapters.discord import inbound as discord
from perdure.adapters.discord.payloads import Changed, Interaction
from perdure.adapters.discord.payloads import Message as DiscordMessage
from perdure.adapters.matrix import inbound as matrix
from perdure.adapters.matrix.events import MatrixEvent, decoded, raw_of
from perdure.adapters.slack import inbound as slack
from perdure.adapters.slack.payloads import Click, SlackEvent, SlashCommand
from perdure.adapters.slack.render import ACTION
from perdure.adapters.telegram import inbound as telegram
from perdure.adapters.telegram.hearing.updates import TelegramUpdate, User
from perdure.domain.inbound.arrivals import SCANNED_MAX, Arrival, PlaceKind, envelope_of

WORD: Final = "xyzzy"
Both = tuple[Arrival | None, Arrival | None]

SLACK: Final = slack.Bot(team="T1", user="UBOT", bot_id="B1", name="perdure")
TELEGRAM: Final = User(id=700, is_bot=True, username="perdure_bot")
GROUP: Final = {"id": -5, "type": "group", "title": "Club"}
EVE: Final = {"id": 9, "is_bot": False, "first_name": "Eve"}
PLACE: Final = discord.ChannelPlace(place="20", label="#general")
MATRIX: Final = "@perdure:example.org"


def from_slack(**fields: Any) -> Both:
    base = {"type": "message", "channel": "C1", "user": "U1", "ts": "1.1", "text": WORD}
    event = msgspec.convert({**base, **fields}, SlackEvent)
    return slack.envelope_of(event, SLACK), slack.of_event(event, SLACK, {"U1": "Eve"})


def slack_edit() -> Both:
    now = {"ts": "1.1", "user": "U1", "text": f"<@UBOT> {WORD}", "edited": {"ts": "2.2"}}
    return from_slack(subtype="message_changed", message=now)


def slack_command() -> Both:
    command = SlashCommand(
        command="/perdure", text=WORD, channel_id="C1", user_id="U1", trigger_id="1.2"
    )
    return slack.command_envelope(command), slack.of_command(command)


def slack_click() -> Both:
    action = {"action_id": f"{ACTION}0", "value": WORD, "action_ts": "5.5"}
    raw = {"user": {"id": "U1"}, "channel": {"id": "C1"}, "actions": [action]}
    click = msgspec.convert(raw, Click)
    return slack.click_envelope(click), slack.of_click(click)


def from_telegram(kind: str = "message", **fields: Any) -> Both:
    said = {"message_id": 5, "date": 1, "chat": GROUP, "from": EVE, **fields}
    update = msgspec.convert({"update_id": 1, kind: said}, TelegramUpdate)
    return telegram.envelope_of(update, TELEGRAM), telegram.arrival_of(update, TELEGRAM)


def telegram_click() -> Both:
    message = {"message_id": 5, "chat": GROUP}
    click = {"id": "c", "from": EVE, "message": message, "data": WORD}
    update = msgspec.convert({"update_id": 1, "callback_query": click}, TelegramUpdate)
    return telegram.envelope_of(update, TELEGRAM), telegram.arrival_of(update, TELEGRAM)


def telegram_mention() -> Both:
    marks = [{"type": "mention", "offset": 0, "length": 12}]
    return from_telegram(text=f"@perdure_bot {WORD}", entities=marks)


def from_discord(kind: type[DiscordMessage] = DiscordMessage, **fields: Any) -> Both:
    author = {"id": "1", "username": "eve"}
    base = {"id": "3", "channel_id": "20", "author": author, "content": f"<@900> {WORD}"}
    message = msgspec.convert({**base, **fields}, kind)
    envelope = discord.envelope_of(message, account="900", place=PLACE)
    return envelope, discord.arrival_of(message, account="900", place=PLACE)


def discord_command() -> Both:
    raw = {"id": "4", "token": "t", "application_id": "a", "type": 2, "channel_id": "20"}
    chosen = {"name": "new", "options": [{"name": "o", "value": WORD}]}
    user = {"id": "1", "username": "eve"}
    interaction = msgspec.convert({**raw, "data": chosen, "user": user}, Interaction)
    envelope = discord.interaction_envelope(interaction, place=PLACE)
    return envelope, discord.interaction_of(interaction, place=PLACE)


def matrix_event(**content: Any) -> MatrixEvent:
    said = {"msgtype": "m.text", "body": WORD, **content}
    raw = {"type": "m.room.message", "sender": "@eve:x", "event_id": "$1", "content": said}
    event = decoded(raw_of(raw), MatrixEvent)
    assert event is not None
    return event


def scene(kind: PlaceKind) -> matrix.Scene:
    return matrix.Scene(
        place="!r", kind=kind, label="Club", me=MATRIX, my_names=("Bot",), sender_name="Eve"
    )


def from_matrix(known: matrix.EarlierEvent | None = None, **content: Any) -> Both:
    event, where = matrix_event(**content), scene(PlaceKind.GROUP)
    return matrix.envelope_of(event, where, known), matrix.understood(event, where, known)


def matrix_edit() -> Both:
    relation = {"rel_type": "m.replace", "event_id": "$0"}
    words = {"msgtype": "m.text", "body": f"@perdure {WORD}"}
    edit = {"m.relates_to": relation, "m.new_content": words}
    return from_matrix(matrix.EarlierEvent(author="@eve:x", text=WORD), **edit)


REPLY: Final = {"m.relates_to": {"m.in_reply_to": {"event_id": "$0"}}}
SHARED: Final = [{"is_share": True, "author_id": "U2", "text": WORD}]
CASES: Final[dict[str, Callable[[], Both]]] = {
    "Slack, a message": from_slack,
    "Slack, a mention": lambda: from_slack(text=f"<@UBOT> {WORD}"),
    "Slack, a forward": lambda: from_slack(text="", attachments=SHARED),
    "Slack, a file": lambda: from_slack(text="", files=[{"id": "F1", "name": WORD}]),
    "Slack, an edit": slack_edit,
    "Slack, a command": slack_command,
    "Slack, a click": slack_click,
    "Telegram, a message": lambda: from_telegram(text=WORD),
    "Telegram, a mention": telegram_mention,
    "Telegram, a command": lambda: from_telegram(text=f"/new {WORD}"),
    "Telegram, a forward": lambda: from_telegram(text=WORD, forward_date=1, forward_from=EVE),
    "Telegram, a poll": lambda: from_telegram(poll={"question": WORD}),
    "Telegram, a file": lambda: from_telegram(document={"file_id": "f", "file_name": WORD}),
    "Telegram, rich": lambda: from_telegram(rich_message={"blocks": [{"text": f"/new {WORD}"}]}),
    "Telegram, an edit": lambda: from_telegram("edited_message", text=WORD, edit_date=7),
    "Telegram, a click": telegram_click,
    "Discord, a message": from_discord,
    "Discord, a forward": lambda: from_discord(message_snapshots=[{"message": {"content": WORD}}]),
    "Discord, a file": lambda: from_discord(attachments=[{"id": "7", "filename": WORD}]),
    "Discord, an edit": lambda: from_discord(Changed, edited_timestamp="2026"),
    "Discord, a command": discord_command,
    "Matrix, a message": from_matrix,
    "Matrix, a mention": lambda: from_matrix(body=f"@perdure {WORD}"),
    "Matrix, a forward": lambda: from_matrix(None, **{"m.forwarded": {}}),
    "Matrix, a file": lambda: from_matrix(msgtype="m.file", url="mxc://x/y"),
    "Matrix, a reply": lambda: from_matrix(matrix.EarlierEvent(author=MATRIX, text=WORD), **REPLY),
    "Matrix, an edit": matrix_edit,
}


@pytest.mark.parametrize("case", CASES)
def test_an_envelope_has_all_that_the_decision_needs_and_none_of_the_words(case: str) -> None:
    envelope, whole = CASES[case]()
    assert envelope is not None
    assert whole is not None
    assert WORD not in str(envelope)
    assert WORD in str(whole)
    assert nameless(envelope) == envelope_of(nameless(whole))


def nameless(arrival: Arrival) -> Arrival:
    sender = msgspec.structs.replace(arrival.sender, name="")
    return msgspec.structs.replace(arrival, sender=sender)


FAR: Final = "x " * SCANNED_MAX
MARK: Final = {"type": "mention", "offset": len(FAR), "length": 12}
FAR_MENTIONS: Final[dict[str, Callable[[], Both]]] = {
    "Slack": lambda: from_slack(text=f"{FAR}<@UBOT>"),
    "Telegram": lambda: from_telegram(text=f"{FAR}@perdure_bot", entities=[MARK]),
    "Discord": lambda: from_discord(content=f"{FAR}<@900>"),
    "Matrix": lambda: from_matrix(body=f"{FAR}@perdure"),
}


@pytest.mark.parametrize("case", FAR_MENTIONS)
def test_a_text_is_looked_through_for_a_mention_only_so_far(case: str) -> None:
    # No platform takes messages of this length.
    envelope, _ = FAR_MENTIONS[case]()
    assert envelope is not None
    assert not envelope.is_addressed


@pytest.mark.parametrize(
    ("kind", "content", "is_needed"),
    [
        (PlaceKind.GROUP, {}, False),
        (PlaceKind.GROUP, REPLY, True),
        (PlaceKind.PRIVATE, REPLY, False),
        (PlaceKind.GROUP, {"m.relates_to": {"rel_type": "m.thread", "event_id": "$0"}}, False),
        (
            PlaceKind.GROUP,
            {"m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}},
            False,
        ),
    ],
)
def test_a_homeserver_is_asked_before_the_decision_only_where_that_depends_on_it(
    kind: PlaceKind, content: dict[str, Any], is_needed: bool
) -> None:
    assert matrix.needs_known(matrix_event(**content), scene(kind)) is is_needed
