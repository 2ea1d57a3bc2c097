"""Checks how Slack's events are turned into arrivals."""

from typing import Any

import msgspec
import pytest

from perdure.adapters.slack.hooks import is_genuine, signature
from perdure.adapters.slack.inbound import Bot, of_click, of_command, of_event, people_in
from perdure.adapters.slack.payloads import Click, SlackEvent, SlashCommand
from perdure.adapters.slack.receive import Hearing
from perdure.adapters.slack.text.reading import read
from perdure.domain.content.forwards import Forward, ForwardOrigin
from perdure.domain.inbound.arrivals import Arrival, FileReference, PlaceKind, Sender, departure
from perdure.domain.kinds import UpdateKind
from perdure.domain.secret import Secret

BOT = Bot(team="T01", user="U0BOT", bot_id="B0BOT", name="perdure")
NAMES = {"U01": "Alice", "U02": "Bob", "U0BOT": "perdure"}
TS, LATER = "1700000000.000100", "1700000009.000900"


def heard(event: dict[str, Any]) -> Arrival | None:
    base = {"type": "message", "channel": "C01", "user": "U01", "ts": TS, "event_ts": TS}
    return of_event(msgspec.convert({**base, **event}, SlackEvent), BOT, NAMES)


def taken(event: dict[str, Any]) -> Arrival:
    arrival = heard(event)
    assert arrival is not None
    return arrival


def test_a_private_message_is_an_arrival() -> None:
    assert taken({"channel": "D01", "channel_type": "im", "text": "hi"}) == Arrival(
        external_id=f"D01/{TS}",
        place="D01",
        place_kind=PlaceKind.PRIVATE,
        sender=Sender(id="U01", name="Alice"),
        text="hi",
    )


def test_a_private_thread_is_the_persons_own() -> None:
    assert taken({"channel": "D01", "thread_ts": "1.2", "text": "hi"}).thread == "1.2"
    assert taken({"channel": "D01", "thread_ts": TS, "text": "has replies"}).thread == ""


def test_a_mention_begins_a_thread_and_comes_twice_as_one() -> None:
    message = taken({"text": "<@U0BOT> hi", "channel_type": "channel"})
    mention = taken({"type": "app_mention", "text": "<@U0BOT> hi"})

    assert message == mention
    assert (message.text, message.thread, message.is_addressed) == ("hi", TS, True)
    assert message.place_kind is PlaceKind.GROUP


def test_talk_in_a_channel_is_not_addressed() -> None:
    arrival = taken({"text": "hi all"})
    assert (arrival.is_addressed, arrival.thread) == (False, "")


def test_a_thread_below_a_message_of_ours_is_addressed() -> None:
    reply = {"text": "and?", "thread_ts": "1.2"}
    below_ours = taken({**reply, "parent_user_id": "U0BOT"})
    assert (below_ours.is_addressed, below_ours.reply_to) == (True, "C01/1.2")
    broadcast = {**reply, "subtype": "thread_broadcast", "root": {"ts": "1.2", "user": "U0BOT"}}
    assert (taken(broadcast).is_addressed, taken(broadcast).reply_to) == (True, "C01/1.2")
    below_theirs = taken({**reply, "parent_user_id": "U02"})
    assert (below_theirs.is_addressed, below_theirs.reply_to) == (False, "")
    assert (taken(reply).thread, taken(reply).reply_to) == ("1.2", "")


@pytest.mark.parametrize(
    "event",
    [
        {"user": "U0BOT", "text": "mine"},
        {"user": None, "bot_id": "B0BOT", "subtype": "bot_message", "text": "mine"},
        {"subtype": "channel_join", "text": "<@U01> has joined"},
        {"subtype": "message_replied"},
        {"user": None, "text": "nobody"},
    ],
)
def test_what_no_other_person_said_is_no_arrival(event: dict[str, Any]) -> None:
    assert heard(event) is None


def test_other_bots_are_bots() -> None:
    new = taken({"bot_id": "B02", "text": "beep"})
    old = taken({"user": None, "bot_id": "B03", "subtype": "bot_message", "username": "cron"})
    assert new.sender == Sender(id="U01", name="Alice", is_bot=True)
    assert old.sender == Sender(id="B03", name="cron", is_bot=True)


def changed(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    base = {"type": "message", "user": "U01", "ts": TS}
    return {
        "subtype": "message_changed",
        "ts": LATER,
        "user": None,
        "message": {**base, **now},
        "previous_message": {**base, **before},
    }


def test_an_edit_is_an_arrival() -> None:
    edited = {"user": "U01", "ts": LATER}
    before = {"text": "<@U0BOT> helo", "thread_ts": TS}

    arrival = taken(changed({"text": "<@U0BOT> hello", "edited": edited}, before))

    assert (arrival.kind, arrival.text, arrival.thread) == (UpdateKind.EDIT, "hello", TS)
    assert (arrival.target, arrival.external_id) == (f"C01/{TS}", f"C01/{TS}/{LATER}")


def test_an_edit_that_takes_the_mention_away_stays_where_the_message_was() -> None:
    edited = {"user": "U01", "ts": LATER}
    arrival = taken(changed({"text": "never mind", "edited": edited}, {"text": "<@U0BOT> hi"}))
    assert (arrival.thread, arrival.is_addressed) == (TS, False)


def test_a_change_that_nobody_made_is_no_edit() -> None:
    edited = {"user": "U01", "ts": LATER}
    assert heard(changed({"text": "a link", "attachments": [{}]}, {"text": "a link"})) is None
    assert heard(changed({"text": "a", "edited": edited}, {"text": "a", "edited": edited})) is None
    ours = {"user": "U0BOT", "text": "more", "edited": edited}
    assert heard(changed(ours, {"user": "U0BOT", "text": "mo"})) is None


def test_a_deletion_is_an_arrival() -> None:
    arrival = taken(
        {
            "subtype": "message_deleted",
            "user": None,
            "ts": LATER,
            "deleted_ts": TS,
            "previous_message": {"type": "message", "user": "U01", "ts": TS, "text": "<@U0BOT> x"},
        }
    )
    assert (arrival.kind, arrival.target, arrival.thread) == (UpdateKind.DELETE, f"C01/{TS}", TS)
    assert arrival.external_id != arrival.target
    assert arrival.sender.id == "U01"


def test_a_deleted_message_with_replies_leaves_a_tombstone() -> None:
    now = {"user": "USLACKBOT", "subtype": "tombstone", "text": "This message was deleted."}
    arrival = taken(changed(now, {"text": "hi"}))
    assert (arrival.kind, arrival.target) == (UpdateKind.DELETE, f"C01/{TS}")


def test_files_come_along() -> None:
    voice = {
        "id": "F1",
        "name": "audio.webm",
        "mimetype": "audio/webm",
        "size": 9,
        "subtype": "slack_audio",
        "url_private": "https://files.slack.com/f1",
    }
    elsewhere = {"id": "F2", "mode": "hosted", "file_access": "check_file_info"}
    gone = {"id": "F3", "mode": "tombstone"}

    arrival = taken({"subtype": "file_share", "text": "", "files": [voice, elsewhere, gone]})

    assert arrival.files == (
        FileReference(
            reference="https://files.slack.com/f1",
            mime="audio/webm",
            name="audio.webm",
            size=9,
            is_voice=True,
        ),
        FileReference(reference="file:F2"),
    )


def test_a_shared_message_is_what_its_author_wrote() -> None:
    shared = {"is_share": True, "author_id": "U02", "text": "the <@U02> plan of <@U0BOT>"}
    linked = {"is_msg_unfurl": True, "author_name": "Deploys", "bot_id": "B2", "text": "/new"}
    nameless = {"is_share": True, "fallback": "[yesterday] somebody: no text"}
    preview = {"text": "a page's description"}
    arrival = taken({"text": "look", "attachments": [shared, linked, nameless, preview]})
    assert (arrival.text, arrival.quote) == ("look", "")
    assert arrival.forwards == (
        Forward(origin=ForwardOrigin.PERSON, name="Bob", text="the @Bob plan of @perdure"),
        Forward(origin=ForwardOrigin.BOT, name="Deploys", text="/new"),
        Forward(text="[yesterday] somebody: no text"),
    )


def test_a_shared_message_that_names_the_bot_is_not_said_to_it() -> None:
    shared = {"is_share": True, "text": "<@U0BOT> /new"}
    assert not taken({"text": "look", "attachments": [shared]}).is_addressed
    assert taken({"text": "<@U0BOT> look", "attachments": [shared]}).is_addressed


def test_the_files_of_a_shared_message_come_with_it() -> None:
    theirs = {"id": "F2", "name": "plan.pdf", "url_private": "https://files.slack.com/f2"}
    shared = {"is_share": True, "text": "", "files": [theirs, {"id": "F3", "mode": "tombstone"}]}
    arrival = taken({"text": "", "attachments": [shared]})
    assert [file.name for file in arrival.files] == ["plan.pdf"]
    assert len(arrival.forwards) == 1


def test_an_edit_keeps_what_the_message_passes_on() -> None:
    shared = {"is_share": True, "author_id": "U02", "text": "the plan"}
    now = {
        "ts": "1.000001",
        "user": "U01",
        "text": "look here",
        "edited": {"ts": "2.0"},
        "attachments": [shared],
    }
    arrival = taken({"subtype": "message_changed", "message": now})
    assert (arrival.text, arrival.kind) == ("look here", UpdateKind.EDIT)
    assert arrival.forwards == (Forward(origin=ForwardOrigin.PERSON, name="Bob", text="the plan"),)


def test_the_names_of_a_shared_message_are_asked_for() -> None:
    shared = {"is_share": True, "author_id": "U02", "text": "ask <@U03>"}
    told = {"type": "message", "user": "U01", "text": "<@U04> look", "attachments": [shared]}
    asked = people_in(msgspec.convert(told, SlackEvent))
    assert set(asked) == {"U01", "U02", "U03", "U04"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<@U0BOT>: hello", "hello"),
        ("hello <@U0BOT>", "hello"),
        ("<@U0BOT|perdure> /stop all", "/stop all"),
        ("does <@U0BOT> know <@U02>?", "does @perdure know @Bob?"),
        ("<@U99|carol> and <@U98>", "@carol and @U98"),
        ("in <#C02|random> or <#C03>", "in #random or #C03"),
        ("<!here> <!subteam^S1|@team> <!date^1^{date}|today>", "@here @team today"),
        ("<https://x.org> <https://x.org|x.org>", "https://x.org https://x.org"),
        ("<https://x.org/?a=1&amp;b=2|the page>", "[the page](https://x.org/?a=1&b=2)"),
        ("<mailto:a@x.org|a@x.org>", "a@x.org"),
        ("a &lt; b &amp;&amp; c &gt; d &amp;lt;", "a < b && c > d &lt;"),
        ("<@U0BOT>", ""),
        ("a <|label> of nothing", "a <|label> of nothing"),
    ],
)
def test_text_is_read_as_people_see_it(text: str, expected: str) -> None:
    assert read(text, bot="U0BOT", names=NAMES) == expected


def test_names_are_asked_of_whoever_appears() -> None:
    event = SlackEvent(type="message", user="U01", text="<@U02> and <@U02|bob> and <@U0BOT>")
    assert people_in(event) == ("U01", "U02", "U0BOT")


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("/stop", "", "/stop"),
        ("/stop", "all", "/stop all"),
        ("/perdure", "stop all", "/stop all"),
        ("/perdure", "/stop", "/stop"),
        ("/perdure", "what is new?", "what is new?"),
        ("/perdure", "", "/help"),
    ],
)
def test_slash_commands_are_arrivals(command: str, text: str, expected: str) -> None:
    arrival = of_command(
        SlashCommand(
            command=command, text=text, channel_id="D01", user_id="U01", trigger_id="1.2.x"
        )
    )
    assert (arrival.text, arrival.is_addressed, arrival.kind) == (
        expected,
        True,
        UpdateKind.MESSAGE,
    )
    assert arrival.external_id == "D01/command/1.2.x"


def click(**fields: Any) -> Click:
    action = {"type": "button", "action_id": "perdure_choice_0", "value": "Yes", "action_ts": "5.5"}
    base: dict[str, Any] = {
        "user": {"id": "U01", "name": "alice"},
        "channel": {"id": "C01", "name": "general"},
        "message": {"type": "message", "ts": LATER, "thread_ts": TS},
        "actions": [action],
    }
    return msgspec.convert({**base, **fields}, Click)


def test_a_click_is_a_message_of_its_word() -> None:
    arrival = of_click(click())
    assert arrival is not None
    assert (arrival.text, arrival.thread, arrival.place) == ("Yes", TS, "C01")
    assert arrival.external_id == f"C01/click/{LATER}/U01/5.5"
    assert arrival.is_addressed


def test_two_people_who_click_at_the_same_instant_are_two_messages() -> None:
    hers, his = of_click(click()), of_click(click(user={"id": "U02", "name": "bob"}))
    assert hers is not None
    assert his is not None
    assert hers.external_id != his.external_id


def test_buttons_of_others_are_none_of_our_business() -> None:
    assert of_click(click(actions=[{"action_id": "approve", "value": "1"}])) is None
    assert of_click(click(channel=None)) is None


def genuine(**headers: str) -> bool:
    now_ms, body = 1_700_000_000_000, b'{"type":"event_callback"}'
    signed = {
        "x-slack-request-timestamp": "1700000000",
        "x-slack-signature": signature("shh", "1700000000", body),
    }
    return is_genuine(Secret("shh"), {**signed, **headers}, body, now_ms=now_ms)


def test_only_fresh_and_right_signatures_are_accepted() -> None:
    old = str(1_700_000_000 - 301)
    body = b'{"type":"event_callback"}'

    assert genuine()
    assert not genuine(**{"x-slack-signature": "v0=bad"})
    assert not genuine(**{"x-slack-signature": "v0=bäd"})
    assert not genuine(**{"x-slack-signature": "v0=\udcff"})
    assert not genuine(**{"x-slack-request-timestamp": "1700000001"})
    assert not genuine(**{"x-slack-request-timestamp": "soon"})
    replayed = {
        "x-slack-request-timestamp": old,
        "x-slack-signature": signature("shh", old, body),
    }
    assert not genuine(**replayed)
    assert not is_genuine(Secret("other"), {}, body, now_ms=0)


def test_the_signature_is_slacks_own() -> None:
    # The example of Slack's guide to verifying requests.
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
        b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    expected = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert signature("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", body) == expected


@pytest.mark.parametrize(
    ("event", "is_gone"),
    [
        ({"type": "member_left_channel", "user": "U0BOT", "channel": "C01"}, True),
        ({"type": "member_left_channel", "user": "U01", "channel": "C01"}, False),
        ({"type": "channel_left", "channel": "C01"}, True),
        ({"type": "channel_deleted", "channel": "C01"}, True),
    ],
)
def test_that_the_bot_has_left_a_channel_is_told(event: dict[str, str], *, is_gone: bool) -> None:
    nobody: Any = None
    offer = Hearing(nobody, nobody).event(msgspec.Raw(msgspec.json.encode(event)), BOT)
    assert (offer is not None) is is_gone
    assert offer is None or offer.envelope == departure("C01")


def test_what_was_said_before_a_thread_began_was_said_in_the_channel() -> None:
    assert taken({"text": "<@U0BOT> hi"}).begins_thread
    assert not taken({"text": "<@U0BOT> hi", "thread_ts": "1.2"}).begins_thread
    assert not taken({"channel": "D01", "text": "<@U0BOT> hi"}).begins_thread


def test_a_message_in_a_channel_could_begin_a_thread() -> None:
    assert taken({"text": "hi"}).own_thread == TS
    assert taken({"text": "hi", "thread_ts": "1.2"}).own_thread == ""
    assert taken({"channel": "D01", "text": "hi"}).own_thread == ""
