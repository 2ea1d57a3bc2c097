"""Checks Telegram's updates as arrivals: who said what, where, and whether it was said to the
bot."""

from typing import Any

import msgspec
import pytest

from perdure.adapters.telegram.hearing.updates import TelegramUpdate, User
from perdure.adapters.telegram.inbound import arrival_of
from perdure.domain.content.forwards import Forward, ForwardOrigin
from perdure.domain.content.stickers import Sticker
from perdure.domain.inbound.arrivals import (
    Arrival,
    FileReference,
    PlaceKind,
    Sender,
    departure,
    relocation,
)
from perdure.domain.kinds import UpdateKind

ME = User(id=700, is_bot=True, username="perdure_bot")
ADA = {"id": 42, "is_bot": False, "first_name": "Ada", "last_name": "Lovelace", "username": "ada"}
BOT = {"id": 700, "is_bot": True, "first_name": "Perdure", "username": "perdure_bot"}
PRIVATE = {"id": 42, "type": "private", "first_name": "Ada"}
GROUP = {"id": -100123, "type": "supergroup", "title": "Club", "is_forum": True}


def arrived(**kinds: Any) -> Arrival | None:
    raw = msgspec.json.encode({"update_id": 9, **kinds})
    return arrival_of(msgspec.json.decode(raw, type=TelegramUpdate), ME)


def message(chat: dict[str, Any] = PRIVATE, **fields: Any) -> Arrival:
    arrival = maybe(chat, **fields)
    assert arrival is not None
    return arrival


def maybe(chat: dict[str, Any] = PRIVATE, **fields: Any) -> Arrival | None:
    return arrived(message={"message_id": 5, "date": 1, "chat": chat, "from": ADA, **fields})


def mark(kind: str, text: str, piece: str, **more: Any) -> dict[str, Any]:
    """Make an entity on a piece of a text, counted as Telegram counts."""
    before = text[: text.index(piece)].encode("utf-16-le")
    length = len(piece.encode("utf-16-le")) // 2
    return {"type": kind, "offset": len(before) // 2, "length": length, **more}


def test_a_private_message_is_an_arrival() -> None:
    assert message(text="hello") == Arrival(
        kind=UpdateKind.MESSAGE,
        external_id="42/5",
        place="42",
        place_kind=PlaceKind.PRIVATE,
        sender=Sender(id="42", name="Ada Lovelace"),
        label="Ada",
        text="hello",
    )


def test_people_who_talk_to_each_other_do_not_address_the_bot() -> None:
    arrival = message(GROUP, text="see you at @other_bot", entities=[])
    assert (arrival.place, arrival.place_kind) == ("-100123", PlaceKind.GROUP)
    assert (arrival.label, arrival.is_addressed) == ("Club", False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@perdure_bot hello", "hello"),
        ("@Perdure_Bot, hello", "hello"),
        ("hello @perdure_bot", "hello"),
        ("👩‍👩‍👧 hey @perdure_bot how are you", "👩‍👩‍👧 hey how are you"),
        ("@perdure_bot /stop", "/stop"),
    ],
)
def test_the_bots_name_addresses_it_and_is_no_part_of_what_is_said(text: str, said: str) -> None:
    name = next(word.rstrip(",") for word in text.split() if word.lower().startswith("@perdure"))
    arrival = message(GROUP, text=text, entities=[mark("mention", text, name)])
    assert (arrival.text, arrival.is_addressed) == (said, True)


def test_a_mention_in_a_caption_counts() -> None:
    caption = "@perdure_bot what is this?"
    marks = [mark("mention", caption, "@perdure_bot")]
    photo = [{"file_id": "p", "width": 1, "height": 1}]
    arrival = message(GROUP, caption=caption, caption_entities=marks, photo=photo)
    assert (arrival.text, arrival.is_addressed) == ("what is this?", True)


def test_an_answer_to_the_bot_is_said_to_it_and_brings_what_it_answers() -> None:
    ours = {"message_id": 3, "chat": GROUP, "from": BOT, "text": "Shall I?"}
    arrival = message(GROUP, text="yes", reply_to_message=ours)
    assert (arrival.is_addressed, arrival.quote) == (True, "Shall I?")
    assert arrival.reply_to == "-100123/3"

    theirs = {**ours, "from": {**ADA, "id": 43}}
    other = message(GROUP, text="yes", reply_to_message=theirs)
    assert (other.is_addressed, other.reply_to) == (False, "-100123/3")


def test_a_quoted_part_is_the_quote() -> None:
    ours = {"message_id": 3, "chat": PRIVATE, "from": BOT, "text": "One. Two."}
    assert message(text="why?", reply_to_message=ours, quote={"text": "Two."}).quote == "Two."


def test_the_words_of_a_rich_answer_are_quoted() -> None:
    blocks = [
        {"type": "heading", "size": 1, "text": "Prices"},
        {"type": "paragraph", "text": ["a ", {"type": "bold", "text": "fair"}, " deal"]},
        {"type": "table", "cells": [[{"text": "tea"}, {"text": "2"}]]},
        {"type": "list", "items": [{"blocks": [{"type": "paragraph", "text": "last"}]}]},
    ]
    rich = {"message_id": 3, "chat": PRIVATE, "from": BOT, "rich_message": {"blocks": blocks}}
    arrival = message(text="why?", reply_to_message=rich)
    assert arrival.quote.splitlines() == ["Prices", "a fair deal", "tea", "2", "last"]


def test_topics_are_threads_and_chains_of_replies_are_not() -> None:
    topic = message(GROUP, text="hi", message_thread_id=77, is_topic_message=True)
    assert topic.thread == "77"
    assert message(GROUP, text="hi", message_thread_id=77).thread == ""


def test_what_opens_a_topic_is_not_answered_by_everything_in_it() -> None:
    opening = {"message_id": 77, "chat": GROUP, "from": BOT, "forum_topic_created": {"name": "T"}}
    arrival = message(
        GROUP, text="hi", message_thread_id=77, is_topic_message=True, reply_to_message=opening
    )
    assert (arrival.is_addressed, arrival.reply_to) == (False, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/stop", "/stop"),
        ("/stop@perdure_bot", "/stop"),
        ("/stop@Perdure_bot all", "/stop all"),
        ("/start", "/help"),
        ("/start campaign", "/help"),
    ],
)
def test_commands_of_the_menu_are_commands(text: str, said: str) -> None:
    arrival = message(GROUP, text=text, entities=[mark("bot_command", text, text.split()[0])])
    assert arrival.text == said
    assert arrival.is_addressed is (said != "/help" or "@" in text)


def test_a_command_for_another_bot_is_none_of_ours() -> None:
    text = "/stop@other_bot"
    assert maybe(GROUP, text=text, entities=[mark("bot_command", text, text)]) is None


def test_a_command_that_nobody_declared_is_not_said_to_us_in_a_group() -> None:
    text = "/weather"
    marks = [mark("bot_command", text, text)]
    assert message(GROUP, text=text, entities=marks).is_addressed is False


def test_an_address_behind_a_word_is_not_lost() -> None:
    text = "read 🙂 this page now"
    marks = [mark("text_link", text, "this page", url="https://example.org/a")]
    arrival = message(text=text, entities=marks)
    assert arrival.text == "read 🙂 [this page](https://example.org/a) now"
    assert arrival.is_addressed is False


def test_an_edit_names_its_message_and_each_edit_is_one_of_its_own() -> None:
    edited = {"message_id": 5, "chat": PRIVATE, "from": ADA, "edit_date": 7, "text": "hullo"}
    first, again = arrived(edited_message=edited), arrived(edited_message=edited)
    second = arrived(edited_message={**edited, "text": "hello"})
    assert first is not None
    assert second is not None
    assert (first.kind, first.target, first.text) == (UpdateKind.EDIT, "42/5", "hullo")
    assert first == again
    assert first.external_id.startswith("42/5/edit/7/")
    assert first.external_id != second.external_id


def test_a_position_that_moves_is_no_edit() -> None:
    moving = {"latitude": 52.0, "longitude": 4.0, "live_period": 60}
    edited = {"message_id": 5, "chat": PRIVATE, "from": ADA, "edit_date": 7, "location": moving}
    assert arrived(edited_message=edited) is None


def test_a_click_is_the_word_on_the_button() -> None:
    keyboard = {"inline_keyboard": [[{"text": "Yes", "callback_data": "Yes"}]]}
    ours = {
        "message_id": 8,
        "chat": GROUP,
        "from": BOT,
        "reply_markup": keyboard,
        "message_thread_id": 77,
        "is_topic_message": True,
    }
    click = {"id": "c1", "from": ADA, "message": ours, "data": "Yes", "chat_instance": "1"}
    arrival = arrived(callback_query=click)
    assert arrival is not None
    assert (arrival.text, arrival.external_id) == ("Yes", "-100123/click/c1")
    assert (arrival.place, arrival.thread, arrival.is_addressed) == ("-100123", "77", True)
    assert arrival.sender.id == "42"


def test_a_click_on_a_long_word_says_all_of_it() -> None:
    word = "w" * 100
    keyboard = {"inline_keyboard": [[{"text": word, "callback_data": "0 " + "w" * 62}]]}
    ours = {"message_id": 8, "chat": PRIVATE, "from": BOT, "reply_markup": keyboard}
    arrival = arrived(
        callback_query={"id": "c", "from": ADA, "message": ours, "data": "0 " + "w" * 62}
    )
    assert arrival is not None
    assert arrival.text == word


def test_the_stop_button_is_the_command() -> None:
    arrival = arrived(stopped_message_generation={"chat": PRIVATE, "draft_id": 12})
    assert arrival is not None
    assert (arrival.text, arrival.place, arrival.sender.id) == ("/stop", "42", "42")
    assert arrival.external_id == "42/stop/12/9"


def file(name: str, **more: Any) -> dict[str, Any]:
    return {"file_id": name, "file_unique_id": f"u{name}", **more}


@pytest.mark.parametrize(
    ("fields", "reference"),
    [
        (
            {"document": file("d", file_name="a.pdf", mime_type="application/pdf", file_size=9)},
            FileReference(reference="d", mime="application/pdf", name="a.pdf", size=9),
        ),
        (
            {"voice": file("v", duration=3, mime_type="audio/ogg", file_size=7)},
            FileReference(reference="v", mime="audio/ogg", name="voice.ogg", size=7, is_voice=True),
        ),
        (
            {"audio": file("a", mime_type="audio/mpeg", file_name="song.mp3")},
            FileReference(reference="a", mime="audio/mpeg", name="song.mp3"),
        ),
        ({"video": file("m")}, FileReference(reference="m", mime="video/mp4", name="video.mp4")),
        (
            {"video_note": file("n")},
            FileReference(reference="n", mime="video/mp4", name="video-note.mp4"),
        ),
        (
            {"animation": file("g"), "document": file("g")},
            FileReference(reference="g", mime="video/mp4", name="animation.mp4"),
        ),
    ],
)
def test_files_come_along(fields: dict[str, Any], reference: FileReference) -> None:
    assert message(**fields).files == (reference,)


def test_a_sticker_is_known_by_its_id_and_told_by_its_emoji_and_set() -> None:
    still = file("s", file_unique_id="AgAD1", emoji="🙂", set_name="Cats", file_size=9)
    arrival = message(sticker=still)
    (known,) = arrival.files
    assert (arrival.text, known.reference, known.mime, known.size) == ("", "s", "image/webp", 9)
    assert known.sticker == Sticker(id="AgAD1", emoji="🙂", set_name="Cats")
    (nameless,) = message(sticker=file("s", file_unique_id="AgAD2")).files
    assert nameless.sticker == Sticker(id="AgAD2")


@pytest.mark.parametrize("how", ["is_animated", "is_video"])
def test_of_a_sticker_that_moves_the_thumbnail_is_looked_at(how: str) -> None:
    moving = file("s", file_unique_id="AgAD1", emoji="🙂", **{how: True})
    (shown,) = message(sticker={**moving, "thumbnail": file("t")}).files
    (unseen,) = message(sticker=moving).files
    assert (shown.reference, unseen.reference) == ("t", "")
    assert shown.sticker == unseen.sticker == Sticker(id="AgAD1", emoji="🙂")


def test_of_a_photo_the_largest_size_is_taken_and_its_caption_is_what_is_said() -> None:
    sizes = [file("s", width=90, height=60), file("l", width=900, height=600, file_size=5)]
    arrival = message(photo=[sizes[1], sizes[0]], caption="look", media_group_id="g1")
    assert (arrival.text, arrival.album) == ("look", "g1")
    assert arrival.files == (
        FileReference(reference="l", mime="image/jpeg", name="photo.jpg", size=5),
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"location": {"latitude": 52.1, "longitude": 4.3}}, "[location 52.1, 4.3]"),
        (
            {
                "location": {"latitude": 52.1, "longitude": 4.3},
                "venue": {"title": "Pier", "address": "Sea 1", "location": {}},
            },
            "[location Pier, Sea 1 (52.1, 4.3)]",
        ),
        (
            {"contact": {"phone_number": "+31", "first_name": "Bo", "user_id": 4}},
            "[contact Bo, +31]",
        ),
        (
            {"poll": {"question": "Tea?", "options": [{"text": "yes"}, {"text": "no"}]}},
            "[poll Tea?: yes / no]",
        ),
        ({"dice": {"emoji": "🎲", "value": 4}}, "[🎲 4]"),
        (
            {
                "checklist": {
                    "title": "Do",
                    "tasks": [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}],
                }
            },
            "[checklist Do: a / b]",
        ),
        ({"story": {"chat": PRIVATE, "id": 1}}, "[a story]"),
    ],
)
def test_what_has_no_words_is_described(fields: dict[str, Any], said: str) -> None:
    assert message(**fields).text == said


@pytest.mark.parametrize(
    "fields",
    [
        {"new_chat_members": [ADA]},
        {"pinned_message": {"message_id": 1, "chat": GROUP, "date": 1}},
        {"text": "my own", "from": BOT},
        {"text": ""},
    ],
)
def test_what_nobody_said_to_us_is_no_arrival(fields: dict[str, Any]) -> None:
    assert maybe(GROUP, **fields) is None


def test_other_kinds_of_updates_are_let_go() -> None:
    reaction = {"chat": PRIVATE, "message_id": 1, "date": 1, "old_reaction": [], "new_reaction": []}
    assert arrived(message_reaction=reaction) is None
    assert arrived(my_chat_member={"chat": PRIVATE}) is None
    assert arrived(something_new={"a": 1}) is None


def test_bots_are_said_to_be_bots() -> None:
    assert message(GROUP, text="beep", **{"from": {**ADA, "is_bot": True}}).sender.is_bot is True


def test_who_writes_in_the_name_of_a_channel_is_that_channel() -> None:
    stand_in = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    arrival = message(GROUP, text="hi", sender_chat=GROUP, **{"from": stand_in})
    assert arrival.sender == Sender(id="-100123", name="Club")

    channel = {"id": -100555, "type": "channel", "title": "News"}
    post = arrived(channel_post={"message_id": 2, "chat": channel, "text": "hi", "date": 1})
    assert post is not None
    assert (post.sender.id, post.place_kind) == ("-100555", PlaceKind.GROUP)


BOB = {"id": 43, "is_bot": False, "first_name": "Bob"}
NEWS = {"id": -100500, "type": "channel", "title": "News"}


@pytest.mark.parametrize(
    ("fields", "origin", "name"),
    [
        ({"forward_origin": {"type": "user", "sender_user": BOB}}, ForwardOrigin.PERSON, "Bob"),
        ({"forward_origin": {"type": "user", "sender_user": BOT}}, ForwardOrigin.BOT, "Perdure"),
        (
            {"forward_origin": {"type": "hidden_user", "sender_user_name": "B."}},
            ForwardOrigin.HIDDEN,
            "B.",
        ),
        ({"forward_origin": {"type": "chat", "sender_chat": GROUP}}, ForwardOrigin.GROUP, "Club"),
        ({"forward_origin": {"type": "chat", "sender_chat": NEWS}}, ForwardOrigin.CHANNEL, "News"),
        ({"forward_date": 1, "forward_from_chat": GROUP}, ForwardOrigin.GROUP, "Club"),
        (
            {"forward_origin": {"type": "channel", "chat": NEWS, "message_id": 7}},
            ForwardOrigin.CHANNEL,
            "News",
        ),
        ({"forward_origin": {"type": "something new"}}, ForwardOrigin.HIDDEN, ""),
        ({"forward_date": 1, "forward_from": BOB}, ForwardOrigin.PERSON, "Bob"),
        ({"forward_date": 1, "forward_sender_name": "B."}, ForwardOrigin.HIDDEN, "B."),
        ({"forward_date": 1, "forward_from_chat": NEWS}, ForwardOrigin.CHANNEL, "News"),
    ],
)
def test_a_forward_is_what_its_origin_wrote(
    fields: dict[str, Any], origin: ForwardOrigin, name: str
) -> None:
    text = "/new @perdure_bot"
    marks = [mark("bot_command", text, "/new"), mark("mention", text, "@perdure_bot")]
    arrival = message(GROUP, text=text, entities=marks, **fields)
    assert arrival.forwards == (Forward(origin=origin, name=name, text=text),)
    assert (arrival.text, arrival.is_addressed) == ("", False)
    assert arrival.sender.id == "42"


@pytest.mark.parametrize("text", ["/start", "/new@other_bot"])
def test_a_forwarded_command_is_only_words(text: str) -> None:
    marks = [mark("bot_command", text, text)]
    origin = {"type": "user", "sender_user": BOB}
    (forward,) = message(text=text, entities=marks, forward_origin=origin).forwards
    assert forward.text == text


def test_a_forwarded_album_is_an_album_of_forwards() -> None:
    photo = [{"file_id": "f1", "width": 1, "height": 1}]
    origin = {"type": "user", "sender_user": BOB}
    arrival = message(photo=photo, caption="us", media_group_id="g", forward_origin=origin)
    assert (arrival.album, len(arrival.files), arrival.text) == ("g", 1, "")
    assert [forward.text for forward in arrival.forwards] == ["us"]


def test_the_edit_of_a_forward_is_still_a_forward() -> None:
    # A channel's post is also edited in the places it was forwarded to.

    def edited(text: str) -> Arrival:
        origin = {"type": "channel", "chat": NEWS, "message_id": 7}
        told = {"message_id": 5, "chat": GROUP, "from": ADA, "edit_date": 3, "text": text}
        arrival = arrived(edited_message={**told, "forward_origin": origin})
        assert arrival is not None
        return arrival

    first, second = edited("/new"), edited("/undo")
    assert (first.kind, first.text, first.target) == (UpdateKind.EDIT, "", "-100123/5")
    assert first.forwards == (Forward(origin=ForwardOrigin.CHANNEL, name="News", text="/new"),)
    assert first.external_id != second.external_id


@pytest.mark.parametrize(
    ("fields", "move"),
    [
        ({"migrate_to_chat_id": -100999}, ("-100123", "-100999")),
        ({"migrate_from_chat_id": -99}, ("-99", "-100123")),
    ],
)
def test_a_group_that_becomes_a_supergroup_is_told_from_both(
    fields: dict[str, Any], move: tuple[str, str]
) -> None:
    assert maybe(GROUP, **fields) == relocation(*move)


@pytest.mark.parametrize(
    ("status", "is_gone"), [("left", True), ("kicked", True), ("member", False)]
)
def test_that_the_bot_has_left_a_group_is_told(status: str, *, is_gone: bool) -> None:
    chat = {"id": -5, "type": "group", "title": "Club"}
    change = {"chat": chat, "from": {"id": 1}, "new_chat_member": {"status": status}}
    assert arrived(my_chat_member=change) == (departure("-5") if is_gone else None)


def test_a_reply_brings_the_picture_and_the_author_of_what_it_answers() -> None:
    photo = [{"file_id": "f9", "width": 2, "height": 2}]
    earlier = {"message_id": 3, "chat": GROUP, "from": BOB, "photo": photo, "caption": "see"}
    arrival = message(GROUP, text="@my_bot what is it?", reply_to_message=earlier)
    assert (arrival.quote, [each.reference for each in arrival.quoted_files]) == ("see", ["f9"])
    assert arrival.quoted_from.startswith("Bob")
    passed_on = {**earlier, "forward_origin": {"type": "hidden_user", "sender_user_name": "Eve"}}
    assert (
        "forwarded from Eve" in message(GROUP, text="and?", reply_to_message=passed_on).quoted_from
    )
    ours = {**earlier, "from": {"id": ME.id, "is_bot": True}}
    answer = message(GROUP, text="more", reply_to_message=ours)
    assert (answer.quoted_from, answer.quoted_files) == ("", ())


def test_what_mentions_or_answers_another_bot_is_for_that_bot() -> None:
    other = "@other_bot hello"
    named = message(GROUP, text=other, entities=[mark("mention", other, "@other_bot")])
    assert (named.is_addressed, named.is_for_another) == (False, True)
    robot = {"message_id": 3, "chat": GROUP, "from": {"id": 5, "is_bot": True}, "text": "beep"}
    command = message(
        GROUP,
        text="/stop",
        entities=[mark("bot_command", "/stop", "/stop")],
        reply_to_message=robot,
    )
    assert (command.is_addressed, command.is_for_another) == (False, True)
    both = f"{other} @{ME.username}"
    marks = [mark("mention", both, "@other_bot"), mark("mention", both, f"@{ME.username}")]
    assert message(GROUP, text=both, entities=marks).is_addressed
    person = "@bobby hello"
    assert not message(
        GROUP, text=person, entities=[mark("mention", person, "@bobby")]
    ).is_for_another


def test_a_bare_mention_is_a_message_in_a_group() -> None:
    name = f"@{ME.username}"
    bare = message(GROUP, text=name, entities=[mark("mention", name, name)])
    assert (bare.text, bare.is_addressed) == ("", True)
