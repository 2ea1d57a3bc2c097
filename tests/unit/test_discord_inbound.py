"""Checks how Discord's events are read and turned into arrivals."""

import json
from typing import Any

import msgspec
import pytest

from perdure.adapters.discord.inbound import (
    ChannelPlace,
    arrival_of,
    deletion_of,
    interaction_of,
    message_at,
)
from perdure.adapters.discord.payloads import (
    BulkDeleted,
    Changed,
    ChannelGone,
    Deleted,
    GuildCame,
    GuildGone,
    Interaction,
    Message,
    Ready,
    event_of,
)
from perdure.domain.content.forwards import Forward
from perdure.domain.content.stickers import Sticker
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.kinds import UpdateKind

BOT = "900"
CHANNEL = ChannelPlace(place="20", label="#general (Harbour)", own_role="77", role_names=("crew",))

# A message as Discord's gateway sends it, with more fields than the adapter reads.
SAID: dict[str, Any] = {
    "id": "300",
    "type": 0,
    "content": "hello",
    "channel_id": "20",
    "channel_type": 0,
    "author": {
        "id": "1",
        "username": "ada",
        "discriminator": "0",
        "global_name": "Ada L.",
        "avatar": None,
        "public_flags": 0,
    },
    "member": {"roles": ["50", "51"], "nick": None, "joined_at": "2024-01-01T00:00:00+00:00"},
    "guild_id": "10",
    "attachments": [],
    "embeds": [],
    "mentions": [],
    "mention_roles": [],
    "mention_everyone": False,
    "pinned": False,
    "tts": False,
    "timestamp": "2026-01-01T00:00:00.000000+00:00",
    "edited_timestamp": None,
    "flags": 0,
    "components": [],
    "nonce": "123",
}


def frame(event: str, data: object) -> str:
    return json.dumps({"op": 0, "s": 5, "t": event, "d": data})


def told(event: str, **changes: object) -> Any:
    return event_of(frame(event, {**SAID, **changes}))


def arrival(**changes: object) -> Arrival:
    found = arrival_of(told("MESSAGE_CREATE", **changes), account=BOT, place=CHANNEL)
    assert found is not None
    return found


def test_a_message_in_a_channel_is_an_arrival() -> None:
    assert arrival() == Arrival(
        kind=UpdateKind.MESSAGE,
        external_id="20/300",
        place="20",
        place_kind=PlaceKind.GROUP,
        sender=Sender(id="1", name="Ada L.", roles=("50", "51", "crew")),
        own_thread="300",
        label="#general (Harbour)",
        text="hello",
    )


def test_a_nickname_is_the_name_and_a_webhook_a_bot() -> None:
    assert arrival(member={"nick": "Captain", "roles": []}).sender.name == "Captain"
    assert arrival(webhook_id="8").sender.is_bot
    assert arrival(author={"id": "2", "username": "b", "bot": True}).sender.is_bot


@pytest.mark.parametrize(
    ("content", "more", "is_addressed", "text"),
    [
        (f"<@{BOT}> hi", {}, True, "hi"),
        (f"hi <@!{BOT}>", {}, True, "hi"),
        (f"hi <@{BOT}9>", {}, False, f"hi <@{BOT}9>"),
        ("<@&77> hi", {"mention_roles": ["77"]}, True, "hi"),
        ("<@&78> hi", {"mention_roles": ["78"]}, False, "<@&78> hi"),
        ("@everyone hi", {"mention_everyone": True}, False, "@everyone hi"),
        ("<@5> hi", {"mentions": [{"id": "5", "username": r"bob\1"}]}, False, r"@bob\1 hi"),
        ("<:boat:123> <a:wave:5>", {}, False, ":boat: :wave:"),
    ],
)
def test_a_message_is_addressed_to_those_it_names(
    content: str, more: dict[str, object], is_addressed: bool, text: str
) -> None:
    found = arrival(content=content, **more)

    assert (found.is_addressed, found.text) == (is_addressed, text)


def test_a_reply_quotes_and_addresses_whom_it_answers() -> None:
    quoted = {"id": "299", "author": {"id": BOT, "username": "bot"}, "content": "I said"}
    to_bot = arrival(type=19, referenced_message=quoted)
    to_bob = arrival(type=19, referenced_message={**quoted, "author": {"id": "5"}})
    to_nothing = arrival(type=19, referenced_message=None)
    named = {"type": 0, "channel_id": "20", "message_id": "299", "guild_id": "10"}

    assert (to_bot.is_addressed, to_bot.quote) == (True, "I said")
    assert (to_bob.is_addressed, to_bob.quote) == (False, "I said")
    assert (to_nothing.is_addressed, to_nothing.quote) == (False, "")
    assert to_nothing.reply_to == ""
    assert arrival(type=19, message_reference=named).reply_to == "20/299"
    assert arrival(type=19, message_reference={"message_id": "299"}).reply_to == "20/299"
    # Forwards and announcements name another message too, and answer none.
    assert arrival(type=0, message_reference={**named, "type": 1}).reply_to == ""
    assert arrival(type=0, message_reference=named).reply_to == ""
    assert arrival(type=19, message_reference={**named, "message_id": None}).reply_to == ""


@pytest.mark.parametrize("kind", [1, 6, 7, 8, 18, 20, 21, 23, 46])
def test_what_nobody_wrote_is_no_arrival(kind: int) -> None:
    assert arrival_of(told("MESSAGE_CREATE", type=kind), account=BOT, place=CHANNEL) is None


def test_our_own_words_are_no_arrival() -> None:
    for event in ("MESSAGE_CREATE", "MESSAGE_UPDATE"):
        ours = told(event, author={"id": BOT, "username": "bot"}, edited_timestamp="now")
        assert arrival_of(ours, account=BOT, place=CHANNEL) is None


def test_files_come_along_also_in_forwards() -> None:
    file = {"id": "7", "filename": "a.ogg", "content_type": "audio/ogg; codecs=opus", "size": 9}
    spoken = arrival(content="", attachments=[file], flags=1 << 13)
    snapshot = {"content": "far away", "attachments": [file]}
    forwarded = arrival(content="", message_snapshots=[{"message": snapshot}])
    passed_on = arrival(content="", message_snapshots=[{"message": {**snapshot, "flags": 1 << 13}}])

    (voice,) = spoken.files
    assert (voice.reference, voice.mime, voice.name) == ("20/300/7", "audio/ogg", "a.ogg")
    assert voice.is_voice
    assert [each.reference for each in forwarded.files] == ["20/300/7"]
    assert not forwarded.files[0].is_voice
    assert passed_on.files[0].is_voice


@pytest.mark.parametrize(
    ("format_type", "reference"),
    [(1, "sticker/7.png"), (2, "sticker/7.png"), (3, ""), (4, "sticker/7.gif"), (9, "")],
)
def test_a_sticker_is_known_by_its_id(format_type: int, reference: str) -> None:
    # A sticker in Lottie's format has no picture.
    wave = {"id": "7", "name": "Wave", "format_type": format_type}
    sent = arrival(content="hi", sticker_items=[wave])
    passed_on = arrival(
        content="", message_snapshots=[{"message": {"content": "", "sticker_items": [wave]}}]
    )
    assert sent.text == "hi"
    assert [each.reference for each in sent.files] == [reference]
    assert sent.files == passed_on.files
    assert sent.files[0].sticker == Sticker(id="7", name="Wave")


def test_a_forward_is_what_somebody_else_wrote() -> None:
    # Discord does not tell who wrote a forwarded message.
    words = {
        "content": f"/new <@{BOT}> and <@5> <:blob:12>",
        "mentions": [{"id": "5", "username": "bob"}, {"id": BOT, "username": "perdure"}],
    }
    passed_on = arrival(
        content="",
        message_reference={"type": 1, "channel_id": "99", "message_id": "98"},
        message_snapshots=[{"message": words}],
        mention_roles=[],
    )
    assert (passed_on.text, passed_on.is_addressed) == ("", False)
    assert passed_on.forwards == (Forward(text="/new @perdure and @bob :blob:"),)


def test_an_edit_has_an_id_of_its_own_that_repeats() -> None:
    def edited(at: str | None) -> Arrival | None:
        changed = told("MESSAGE_UPDATE", edited_timestamp=at, content="hello!")
        assert isinstance(changed, Changed)
        return arrival_of(changed, account=BOT, place=CHANNEL)

    first, again, second = edited("10:00"), edited("10:00"), edited("10:01")

    assert first is not None
    assert second is not None
    assert (first.kind, first.target, first.text) == (UpdateKind.EDIT, "20/300", "hello!")
    assert first == again
    assert first.external_id != second.external_id
    assert edited(None) is None  # a link was unfurled


def test_deletions_come_one_by_one_and_in_bulk() -> None:
    one = event_of(frame("MESSAGE_DELETE", {"id": "300", "channel_id": "20", "guild_id": "10"}))
    many = event_of(frame("MESSAGE_DELETE_BULK", {"ids": ["300", "301"], "channel_id": "20"}))
    assert isinstance(one, Deleted)
    assert isinstance(many, BulkDeleted)

    gone = deletion_of(one, place=CHANNEL, sender=Sender(id="1"))

    assert (gone.kind, gone.target) == (UpdateKind.DELETE, "20/300")
    assert gone.external_id != gone.target
    assert [each.id for each in many.each] == ["300", "301"]


def interaction(**changes: object) -> Interaction:
    data = {
        "id": "400",
        "application_id": "901",
        "type": 2,
        "token": "t",
        "channel_id": "20",
        "guild_id": "10",
        "member": {"user": {"id": "1", "username": "ada"}, "roles": ["50"], "nick": "Captain"},
        "data": {"id": "1", "name": "undo", "type": 1, "options": [{"name": "count", "value": 3}]},
        "version": 1,
    }
    found = event_of(frame("INTERACTION_CREATE", {**data, **changes}))
    assert isinstance(found, Interaction)
    return found


def test_a_command_from_the_menu_is_its_text() -> None:
    found = interaction_of(interaction(), place=CHANNEL)

    assert found is not None
    assert (found.text, found.is_addressed) == ("/undo 3", True)
    assert (found.sender.id, found.sender.name) == ("1", "Captain")
    assert found.external_id == "20/i400"
    assert message_at(found.external_id) is None


def test_a_click_is_the_word_of_its_button() -> None:
    clicked = interaction(type=3, data={"custom_id": "1:deny: all", "component_type": 2})

    found = interaction_of(clicked, place=CHANNEL)

    assert found is not None
    assert found.text == "deny: all"


@pytest.mark.parametrize("changes", [{"type": 1}, {"type": 4}, {"type": 5}, {"member": None}])
def test_other_interactions_are_not_ours(changes: dict[str, object]) -> None:
    assert interaction_of(interaction(**changes), place=CHANNEL) is None


def test_external_ids_are_taken_apart_again() -> None:
    assert message_at("20/300") == ("20", "300")
    for other in ("", "20", "20/", "/300", "20/i400", "20/300/deleted", "a/b"):
        assert message_at(other) is None


def test_other_frames_are_ignored_and_broken_ones_refused() -> None:
    assert event_of('{"op":11,"d":null}') is None
    assert event_of('{"op":10,"d":{"heartbeat_interval":41250}}') is None
    assert event_of(frame("TYPING_START", {"user_id": "1"})) is None
    ready = event_of(frame("READY", {"application": {"id": "901", "flags": 0}, "user": {}}))
    assert isinstance(ready, Ready)
    assert isinstance(event_of(frame("GUILD_CREATE", {"id": "10", "channels": []})), GuildCame)
    assert isinstance(told("MESSAGE_CREATE"), Message)
    with pytest.raises(msgspec.DecodeError):
        event_of(frame("MESSAGE_CREATE", {"id": 300}))


def test_a_channel_that_is_gone_and_a_server_that_was_left_are_told() -> None:
    left = event_of(frame("GUILD_DELETE", {"id": "10"}))
    away = event_of(frame("GUILD_DELETE", {"id": "10", "unavailable": True}))
    assert isinstance(left, GuildGone)
    assert isinstance(away, GuildGone)
    channels = ("20", "21")
    assert msgspec.structs.replace(left, channels=channels).places == channels
    assert msgspec.structs.replace(away, channels=channels).places == (), "it comes back"
    gone = event_of(frame("CHANNEL_DELETE", {"id": "20", "type": 0}))
    assert isinstance(gone, ChannelGone)
    assert gone.places == ("20",)


def test_a_reply_brings_the_files_and_the_author_of_what_it_answers() -> None:
    attachment = {"id": "7", "filename": "a.png", "content_type": "image/png", "size": 3}
    bob = {"id": "2", "username": "bob", "global_name": "Bob"}
    quoted = {"author": bob, "content": "look", "attachments": [attachment]}
    named = {"type": 0, "channel_id": "20", "message_id": "299"}
    reply = arrival(type=19, message_reference=named, referenced_message=quoted)
    assert (reply.quote, reply.quoted_from) == ("look", "Bob")
    assert [each.reference for each in reply.quoted_files] == ["20/299/7"]
    ours = {**quoted, "author": {"id": BOT, "username": "me", "bot": True}}
    answer = arrival(type=19, message_reference=named, referenced_message=ours)
    assert (answer.quoted_from, answer.quoted_files) == ("", ())


def test_what_mentions_another_bot_is_for_that_bot() -> None:
    robot = {"id": "5", "username": "robot", "bot": True}
    assert arrival(content="<@5> hi", mentions=[robot]).is_for_another
    both = arrival(content=f"<@5> <@{BOT}> hi", mentions=[robot])
    assert (both.is_for_another, both.is_addressed) == (False, True)
    assert not arrival(mentions=[{"id": "2", "username": "bob"}]).is_for_another
