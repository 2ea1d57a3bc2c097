"""Checks Matrix events as arrivals: who said what, where, and whether it was said to the bot."""

from typing import Any

import msgspec
import pytest

from perdure.adapters.matrix.events import MatrixEvent, Sync, decoded, raw_of
from perdure.adapters.matrix.hearing.invitations import welcome
from perdure.adapters.matrix.hearing.rooms import Rooms
from perdure.adapters.matrix.inbound import (
    EarlierEvent,
    Scene,
    asks_about,
    looked_up,
    remembered,
    understood,
)
from perdure.adapters.matrix.manifest import MatrixSettings
from perdure.domain.content.forwards import Forward, ForwardOrigin
from perdure.domain.content.stickers import Sticker
from perdure.domain.inbound.arrivals import Arrival, FileReference, PlaceKind
from perdure.domain.kinds import UpdateKind

ME = "@perdure:example.org"
ADA = "@ada:example.org"
ROOM = "!roomwithoutserver"
SCENE = Scene(
    place=ROOM,
    kind=PlaceKind.GROUP,
    label="Club",
    me=ME,
    my_names=("Perdure Bot", ""),
    sender_name="Ada",
)


def event(content: dict[str, Any], kind: str = "m.room.message", **more: Any) -> MatrixEvent:
    raw = {"type": kind, "sender": ADA, "event_id": "$this", "content": content, **more}
    found = decoded(raw_of(raw), MatrixEvent)
    assert found is not None
    return found


def text(body: str, **more: Any) -> MatrixEvent:
    return event({"msgtype": "m.text", "body": body, **more})


def arrived(found: MatrixEvent, known: EarlierEvent | None = None) -> Arrival:
    arrival = understood(found, SCENE, known)
    assert arrival is not None
    return arrival


def test_a_message_is_an_arrival() -> None:
    arrival = arrived(text("hello"))
    assert (arrival.external_id, arrival.place, arrival.label) == ("$this", ROOM, "Club")
    assert (arrival.sender.id, arrival.sender.name) == (ADA, "Ada")
    assert (arrival.text, arrival.thread, arrival.is_addressed) == ("hello", "", False)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("@perdure:example.org: hello", "hello"),
        ("@perdure hello", "hello"),
        ("perdure: hello", "hello"),
        ("Perdure Bot, hello", "hello"),
        ("PERDURE BOT: hello", "hello"),
        ("hello @perdure", "hello"),
        ("hello, @perdure?", "hello?"),
        ("what does @perdure think of this", "what does @perdure think of this"),
        ("perdure: /stop", "/stop"),
        ("perdure: !stop", "/stop"),
        ("@perdure", ""),
    ],
)
def test_the_bot_is_addressed_by_name_and_the_name_is_left_out(body: str, said: str) -> None:
    arrival = arrived(text(body, **{"m.mentions": {}}))
    assert (arrival.text, arrival.is_addressed) == (said, True)


@pytest.mark.parametrize(
    "body",
    ["the perdure is broken", "perdured: no", "ask me@perdure.example about it", "Perdure Botany"],
)
def test_speaking_about_the_bot_is_not_speaking_to_it(body: str) -> None:
    arrival = arrived(text(body, **{"m.mentions": {}}))
    assert (arrival.text, arrival.is_addressed) == (body, False)


def test_a_client_that_tells_no_mentions_is_believed_by_its_words() -> None:
    assert arrived(text("is perdure there?")).is_addressed


def test_a_pill_leaves_only_the_name_in_the_words() -> None:
    mentions = {"m.mentions": {"user_ids": [ME]}}
    assert arrived(text("Perdure Bot hello", **mentions)).text == "hello"
    assert arrived(text("hello Perdure Bot", **mentions)).text == "hello"
    link = f'<a href="https://matrix.to/#/{ME}">Perdure Bot</a>: hello'
    arrival = arrived(text("Perdure Bot: hello", formatted_body=link, **{"m.mentions": {}}))
    assert (arrival.text, arrival.is_addressed) == ("hello", True)
    other = {"m.mentions": {"user_ids": ["@bob:example.org"]}}
    assert not arrived(text("Bob: ask perdure", **other)).is_addressed


def test_a_bang_begins_a_command_and_nothing_else() -> None:
    assert arrived(text("!stop all")).text == "/stop all"
    assert arrived(text("!important, read this")).text == "!important, read this"


def test_a_reply_has_its_quote_and_knows_whom_it_answers() -> None:
    relation = {"m.relates_to": {"m.in_reply_to": {"event_id": "$asked"}}}
    old = text(f"> <{ME}> It is noon.\n> Really.\n\nthanks", **relation)
    assert asks_about(old) == "$asked"
    arrival = arrived(old)  # the server did not send the quoted event, so the fallback text is read
    assert (arrival.text, arrival.quote) == ("thanks", "It is noon.\nReally.")
    assert arrival.is_addressed
    told = arrived(text("thanks", **relation), EarlierEvent(author=ME, text="It is noon."))
    assert (told.text, told.quote, told.is_addressed) == ("thanks", "It is noon.", True)
    assert (arrival.reply_to, told.reply_to) == ("$asked", "$asked")
    other = arrived(text("thanks", **relation), EarlierEvent(author="@bob:example.org", text="No."))
    assert (other.quote, other.is_addressed) == ("No.", False)


def test_words_that_begin_like_a_quote_stay_where_nothing_is_answered() -> None:
    assert arrived(text("> wisdom\n\nI agree")).text == "> wisdom\n\nI agree"


def test_a_thread_is_no_reply_unless_it_says_so() -> None:
    fallback = {
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$last"},
    }
    inside = text("hello", **{"m.relates_to": fallback})
    assert asks_about(inside) == ""
    assert (arrived(inside).thread, arrived(inside).reply_to) == ("$root", "")
    real = text("hello", **{"m.relates_to": {**fallback, "is_falling_back": False}})
    assert asks_about(real) == arrived(real).reply_to == "$last"
    assert arrived(real, EarlierEvent(author=ME, text="well?")).quote == "well?"


def edit(body: str, **more: Any) -> MatrixEvent:
    return text(
        f"* {body}",
        **{
            "m.new_content": {"msgtype": "m.text", "body": body},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$before"},
            **more,
        },
    )


def test_an_edit_is_its_authors() -> None:
    known = EarlierEvent(author=ADA, text="teh", thread="$root")
    assert asks_about(edit("the")) == "$before"
    arrival = arrived(edit("the"), known)
    assert (arrival.kind, arrival.target, arrival.external_id) == (
        UpdateKind.EDIT,
        "$before",
        "$this",
    )
    assert (arrival.text, arrival.thread) == ("the", "$root")
    assert understood(edit("the"), SCENE, EarlierEvent(author="@bob:example.org")) is None
    assert understood(edit("the"), SCENE, None) is None


@pytest.mark.parametrize("where", [{"redacts": "$before"}, {}])
def test_a_deletion_counts_as_its_authors_doing(where: dict[str, str]) -> None:
    # Moderators of the room may delete a message too, but its author is the one who counts.
    content = {} if where else {"redacts": "$before"}
    found = event(content, "m.room.redaction", sender="@keeper:example.org", **where)
    assert asks_about(found) == "$before"
    arrival = arrived(found, EarlierEvent(author=ADA, thread="$root"))
    assert (arrival.kind, arrival.target, arrival.thread) == (UpdateKind.DELETE, "$before", "$root")
    assert arrival.sender.id == ADA
    assert (
        understood(found, SCENE, EarlierEvent(author=ADA, is_message=False)) is None
    )  # a reaction
    assert understood(found, SCENE, EarlierEvent(author=ME)) is None


@pytest.mark.parametrize(
    "found",
    [
        event({"m.relates_to": {"rel_type": "m.annotation", "event_id": "$x"}}, "m.reaction"),
        event({"membership": "join"}, "m.room.member"),
        event({"msgtype": "m.text", "body": "mine"}, sender=ME),
        event({"msgtype": "m.key.verification.request", "body": "please verify"}),
        event({}),
        event({"msgtype": "m.text", "body": 7}),
        event({"msgtype": "m.text", "body": "x", "m.relates_to": []}),
        text(""),
    ],
)
def test_an_event_that_says_nothing_is_no_arrival(found: MatrixEvent) -> None:
    assert understood(found, SCENE, None) is None


def test_a_notice_is_a_bots() -> None:
    assert arrived(event({"msgtype": "m.notice", "body": "done"})).sender.is_bot


def test_an_edit_that_makes_a_notice_is_a_bots() -> None:
    edit = {
        "msgtype": "m.text",
        "body": "* done",
        "m.new_content": {"msgtype": "m.notice", "body": "done"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": "$first"},
    }

    assert arrived(event(edit), EarlierEvent(author=ADA)).sender.is_bot


def test_a_file_comes_with_its_caption() -> None:
    content = {
        "msgtype": "m.image",
        "body": "map.png",
        "url": "mxc://example.org/abc",
        "info": {"mimetype": "image/png", "size": "12"},
    }
    plain = arrived(event(content))
    expected = FileReference(
        reference="mxc://example.org/abc", mime="image/png", name="map.png", size=12
    )
    assert (plain.text, plain.files) == ("", (expected,))
    captioned = arrived(event({**content, "body": "our way", "filename": "map.png"}))
    assert (captioned.text, captioned.files) == ("our way", (expected,))
    spoken = {**content, "msgtype": "m.audio", "org.matrix.msc3245.voice": {}}
    assert arrived(event(spoken)).files[0].is_voice
    assert arrived(event({**content, "info": "nonsense"})).files[0].mime == ""


def test_a_sealed_file_brings_what_opens_it() -> None:
    sealed = {
        "url": "mxc://example.org/abc",
        "key": {"k": "secret", "alg": "A256CTR"},
        "iv": "iv",
        "hashes": {"sha256": "digest"},
    }
    (file,) = arrived(event({"msgtype": "m.file", "body": "a.pdf", "file": sealed})).files
    assert msgspec.json.decode(file.reference) == {
        "url": "mxc://example.org/abc",
        "key": {"k": "secret"},
        "iv": "iv",
        "hashes": {"sha256": "digest"},
    }


def test_what_is_known_of_an_edited_message_is_its_newest_words() -> None:
    first = event({"msgtype": "m.text", "body": "On"}, sender=ME)
    newest = edit("One, two, three")
    assert remembered(first, newest) == EarlierEvent(author=ME, text="One, two, three")


def test_a_message_taken_away_before_we_saw_it_is_nothing_to_take_away() -> None:
    gone = event({}, unsigned={"redacted_because": {"type": "m.room.redaction"}})
    assert not remembered(gone).is_message
    assert looked_up(gone).is_message  # an earlier process may have seen it
    mark = event({}, "m.reaction", unsigned={"redacted_because": {}})
    assert not looked_up(mark).is_message


def batch(**rooms: Any) -> Sync:
    raw = msgspec.json.encode({"next_batch": "s1", "rooms": rooms})
    return msgspec.json.decode(raw, type=Sync)


def member(user: str, membership: str, **more: Any) -> dict[str, Any]:
    content = {"membership": membership, **more}
    return {"type": "m.room.member", "sender": ADA, "state_key": user, "content": content}


def joined(*state: dict[str, Any], count: int) -> Sync:
    summary = {"m.joined_member_count": count, "m.heroes": [ADA]}
    return batch(join={ROOM: {"state": {"events": list(state)}, "summary": summary}})


def test_a_room_is_private_while_two_are_there() -> None:
    rooms = Rooms()
    rooms.me = ME
    found = joined(member(ADA, "join", displayname="Ada"), member(ME, "join"), count=2)
    room = rooms.fold(ROOM, found.rooms.join[ROOM])
    assert (rooms.kind(room), room.label()) == (PlaceKind.PRIVATE, "Ada")
    name = {"type": "m.room.name", "state_key": "", "content": {"name": "Club"}}
    rooms.fold(ROOM, joined(name, count=3).rooms.join[ROOM])
    assert (rooms.kind(room), room.label()) == (PlaceKind.GROUP, "Club")


def test_a_room_of_unknown_size_is_a_group() -> None:
    rooms = Rooms()
    room = rooms.fold(ROOM, batch(join={ROOM: {}}).rooms.join[ROOM])
    assert rooms.kind(room) is PlaceKind.GROUP


@pytest.mark.parametrize(
    ("settings", "is_direct", "is_taken"),
    [
        ({"allow": (ADA,)}, False, True),
        ({"operators": (ADA,)}, False, True),
        ({"allow": ("*",)}, False, True),
        ({"allow_places": (ROOM,)}, False, True),
        ({"allow": ("@bob:example.org",)}, True, False),
        ({"allow": (ADA,), "invites": "never"}, True, False),
        ({"pairing": True}, True, True),
        ({"pairing": True}, False, False),
        ({}, True, False),
    ],
)
def test_only_invitations_that_the_settings_allow_are_taken(
    settings: dict[str, Any], is_direct: bool, is_taken: bool
) -> None:
    configured = MatrixSettings(homeserver="http://127.0.0.1", user=ME, **settings)
    state = {"events": [member(ADA, "join"), member(ME, "invite", is_direct=is_direct)]}
    found = batch(invite={ROOM: {"invite_state": state}})
    assert welcome(found, configured, me=ME) == ([ROOM] if is_taken else [])


def test_a_forward_that_is_marked_is_what_its_author_wrote() -> None:
    marked = {"m.forwarded": {"sender": "@bob:example.org"}, "m.mentions": {"user_ids": [ME]}}
    arrival = arrived(text("perdure: !new", **marked))
    assert (arrival.text, arrival.is_addressed) == ("", False)
    wanted = Forward(origin=ForwardOrigin.PERSON, name="@bob:example.org", text="perdure: !new")
    assert arrival.forwards == (wanted,)


@pytest.mark.parametrize("facts", [{}, {"room_id": "!elsewhere"}, True, {"sender": 7}])
def test_a_forward_may_hide_its_author(facts: object) -> None:
    assert arrived(text("!new", **{"m.forwarded": facts})).forwards[0].text == "!new"


@pytest.mark.parametrize("command", ["!new", "/new"])
def test_a_forward_gives_no_command(command: str) -> None:
    arrival = arrived(text(command, **{"m.forwarded": {"sender": "@bob:example.org"}}))

    assert (arrival.text, [each.text for each in arrival.forwards]) == ("", [command])


def test_the_edit_of_a_forward_is_still_a_forward() -> None:
    first = text("!new", **{"m.forwarded": {"sender": "@bob:example.org"}})
    edit = event(
        {
            "msgtype": "m.text",
            "body": "* !undo",
            "m.new_content": {"msgtype": "m.text", "body": "!undo"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$this"},
        }
    )
    arrival = arrived(edit, remembered(first))
    assert (arrival.kind, arrival.text) == (UpdateKind.EDIT, "")
    assert [forward.text for forward in arrival.forwards] == ["!undo"]


def sticker(**more: Any) -> FileReference:
    content = {"body": "Wave", "url": "mxc://example.org/wave", "info": {"size": 9}, **more}
    arrival = arrived(event(content, "m.sticker"))
    assert arrival.text == ""
    (file,) = arrival.files
    return file


def test_a_sticker_is_known_by_its_address() -> None:
    file = sticker()
    assert (file.reference, file.size) == ("mxc://example.org/wave", 9)
    assert file.sticker == Sticker(id="mxc://example.org/wave", name="Wave")


def test_of_a_sticker_that_no_model_sees_the_thumbnail_is_looked_at() -> None:
    moving = {"mimetype": "video/webm", "thumbnail_url": "mxc://example.org/still"}
    assert sticker(info=moving).reference == "mxc://example.org/still"
    assert sticker(info={"mimetype": "video/webm"}).reference == ""
    assert sticker(info={"mimetype": "image/webp"}).reference == "mxc://example.org/wave"


def test_who_has_only_the_address_of_a_sealed_sticker_does_not_know_it() -> None:
    sealed = {
        "url": "mxc://example.org/wave",
        "key": {"k": "k1"},
        "iv": "i",
        "hashes": {"sha256": "h"},
    }
    one = sticker(url=None, file=sealed)
    other = sticker(url=None, file={**sealed, "key": {"k": "k2"}})
    assert one.sticker is not None
    assert other.sticker is not None
    assert len({one.sticker.id, other.sticker.id, "mxc://example.org/wave"}) == 3
    assert one.sticker.is_describable
