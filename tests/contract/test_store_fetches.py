"""Checks the `Fetches` port: a turn waits for its files, other turns wait behind it, and nothing
comes twice."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

from perdure.domain.address import Address
from perdure.domain.errors import Conflict, NotFound, Permanent
from perdure.domain.inbound.updates import Accepted, Update, UpdateEffect
from perdure.domain.journal.attachments import in_words
from perdure.domain.journal.events import (
    Attachment,
    MediaFetched,
    MediaLost,
    MessageJoined,
    NoticePosted,
    TurnQueued,
)
from perdure.domain.journal.transcript import entries_of
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy
from perdure.domain.prompt.prompt import MediaBlock, messages_of
from perdure.domain.reading.texts import FileReading
from perdure.ports.records.media import SHARDS, Fetch, FetchedFile, Late
from perdure.store.operations.turns import queueing
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    GO_ON,
    Person,
    assert_sound,
    claim_one,
    next_request,
    only,
    settle,
    turn_of,
)
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
CHAT = "chat"
FILE = Attachment(reference="ref-1", name="report.txt", size=5)


async def send(
    store: Store,
    person: Person,
    text: str,
    *attachments: Attachment,
    update: str,
    album: str = "",
    busy: Busy = Busy.QUEUE,
) -> Accepted:
    """Send a message from a platform. Its turn begins at once if it can, as in a gateway with room
    for it."""
    received = await store.inbox.accept_and_start(
        Update(
            address=Address(adapter=CHAT, account="bot", place="room"),
            external_id=update,
            kind=UpdateKind.MESSAGE,
            principal=person.id,
            text=text,
            attachments=attachments,
            album=album,
            busy=busy,
        ),
        queue_max=10,
    )
    return received.accepted


async def change(
    store: Store, person: Person, kind: UpdateKind, target: str, text: str = ""
) -> Accepted:
    update = Update(
        address=Address(adapter=CHAT, account="bot", place="room"),
        external_id=f"{kind} of {target}",
        kind=kind,
        principal=person.id,
        text=text,
        target=target,
    )
    return await store.inbox.accept(update, queue_max=10)


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 3):
        yield data[start : start + 3]


async def bring(store: Store, fetch: Fetch, text: str = "hello") -> list[object]:
    kept = await store.media.keep(pieces(text.encode()), bytes_max=100)
    found = FetchedFile(
        mime="text/plain",
        name=fetch.attachment.name,
        size=kept.size,
        digest=kept.digest,
        reading=FileReading(text=text),
    )
    return [each.event for each in await store.fetches.done(fetch, found)]


async def take(store: Store, *adapters: str) -> list[Fetch]:
    return await store.fetches.take(adapters=adapters or ("", CHAT), limit=10)


async def files_told(store: Store, turn: str) -> list[Attachment]:
    (events,) = await store.conversations.chain(turn, limit=1)  # type: ignore[arg-type]
    return [
        block.attachment
        for message in messages_of(events)
        for block in message.blocks
        if isinstance(block, MediaBlock)
    ]


async def test_a_turn_waits_for_its_files_and_others_behind_it(store: Store, ada: Person) -> None:
    first = await send(store, ada, "read this", FILE, update="u1")
    second = await send(store, ada, "and answer", update="u2")
    assert await store.turns.claim(limit=10) == []
    await assert_sound(store, first.session)

    (fetch,) = await take(store)

    assert (fetch.turn, fetch.message, fetch.index) == (first.turn, first.message, 0)
    assert (fetch.adapter, fetch.attachment.reference) == (CHAT, "ref-1")
    assert fetch.principal == ada.id
    assert await take(store) == []
    (fetched,) = await bring(store, fetch)
    assert isinstance(fetched, MediaFetched)
    assert await store.media.read(fetched.media) == b"hello"
    assert (await store.media.get(fetched.media, principal=ada.id)).name == "report.txt"
    await assert_sound(store, first.session)
    claimed = await claim_one(store)
    assert claimed.lease.turn == first.turn
    (attachment,) = await files_told(store, turn_of(first))
    assert (attachment.media, attachment.text) == (fetched.media, "hello")
    await next_request(store, claimed)
    await settle(store, claimed)
    assert (await claim_one(store)).lease.turn == second.turn
    await assert_sound(store, first.session)


async def test_what_is_not_ours_to_fetch_is_left(store: Store, ada: Person) -> None:
    await send(store, ada, "", FILE, update="u1")
    await ada.says("no file")
    other = Attachment(url="http://files.example/a.txt")
    web = Update(
        address=Address(adapter="http", account=ada.id, place="web"),
        external_id="w1",
        kind=UpdateKind.MESSAGE,
        principal=ada.id,
        text="",
        attachments=(other,),
    )
    await store.inbox.accept(web, queue_max=10)

    (from_web,) = await take(store, "")
    (from_chat,) = await take(store, CHAT)

    assert (from_web.adapter, from_web.attachment.url) == ("", other.url)
    assert from_chat.attachment.reference == "ref-1"


async def test_pictures_that_are_here_are_not_waited_for(store: Store, ada: Person) -> None:
    picture = await store.media.put(b"...", mime="image/png", name="a.png", principal=ada.id)
    document = await store.media.put(b"words", mime="text/plain", name="a.txt", principal=ada.id)

    accepted = await send(
        store, ada, "see", Attachment(media=picture.id, mime="image/png"), update="u1"
    )
    turn = await store.archive.turn(turn_of(accepted), principal=None)
    assert turn.state == "running"

    await store.inbox.stop(turn.id, by=None)
    await send(store, ada, "read", Attachment(media=document.id, mime="text/plain"), update="u2")
    (fetch,) = await take(store)
    assert (fetch.adapter, fetch.attachment.media) == ("", document.id)
    found = FetchedFile(mime="text/plain", name="a.txt", size=5, reading=FileReading(text="words"))
    (recorded,) = await store.fetches.done(fetch, found)
    assert isinstance(recorded.event, MediaFetched)
    assert recorded.event.media == document.id, "it is the same file, not another one"


async def test_the_turn_begins_with_the_last_of_its_files(store: Store, ada: Person) -> None:
    another = Attachment(reference="ref-2", name="b.txt")
    accepted = await send(store, ada, "both", FILE, another, update="u1")
    one, two = await take(store)

    await bring(store, two, "second")
    assert await store.turns.claim(limit=10) == []
    await assert_sound(store, accepted.session)
    await bring(store, one, "first")

    claimed = await claim_one(store)
    assert claimed.lease.turn == accepted.turn
    told = await files_told(store, turn_of(accepted))
    assert [each.text for each in told] == ["first", "second"]


async def test_a_lost_file_is_named_and_the_turn_goes_on(store: Store, ada: Person) -> None:
    accepted = await send(store, ada, "read this", FILE, update="u1")
    (fetch,) = await take(store)

    recorded = await store.fetches.lost(fetch, "it is gone; send it again")

    assert only(MediaLost, recorded)[0].reason == "it is gone; send it again"
    (notice,) = only(NoticePosted, recorded)
    assert notice.text == "The file report.txt could not be read: it is gone; send it again."
    (part,) = await store.outbox.take(adapter=CHAT, limit=10)
    assert part.text == notice.text
    claimed = await claim_one(store)
    (attachment,) = await files_told(store, turn_of(accepted))
    assert (attachment.media, attachment.problem) == (None, "it is gone; send it again")
    (user,) = [entry for entry in entries_of(claimed.events) if entry.role == "user"]
    assert user.attachments[0].problem == "it is gone; send it again"
    assert user.attachments[0].reference == ""
    await assert_sound(store, accepted.session)


async def test_what_is_said_again_after_a_lost_answer_changes_nothing(
    store: Store, ada: Person
) -> None:
    accepted = await send(store, ada, "", FILE, Attachment(reference="2"), update="u1")
    one, two = await take(store)
    await bring(store, one)
    await store.fetches.lost(two, "gone")

    assert await bring(store, one) == []
    assert await store.fetches.lost(two, "gone") == []

    record = await store.diagnostics.record(accepted.session)
    assert len(only(MediaFetched, record.events)) == len(only(MediaLost, record.events)) == 1
    await assert_sound(store, accepted.session)


async def test_a_try_that_failed_is_made_again_when_it_is_due(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await send(store, ada, "", FILE, update="u1")
    (fetch,) = await take(store)

    await store.fetches.again(fetch, error="busy", due_in_s=30)

    assert await take(store) == []
    assert await store.fetches.next_due_ms() == clock.now_ms() + 30_000
    clock.advance(30)
    (again,) = await take(store)
    assert (again.id, again.attempts) == (fetch.id, 2)
    with pytest.raises(Conflict):
        await bring(store, fetch)  # from a reader that was away since the first try
    assert len(await bring(store, again)) == 1


async def test_each_file_is_taken_once(peers: list[Store], ada: Person) -> None:
    files = [Attachment(reference=f"r{n}") for n in range(9)]
    await send(peers[0], ada, "", *files, update="u1")

    taken = await asyncio.gather(
        *(each.fetches.take(adapters=["", CHAT], limit=2) for each in islice(cycle(peers), 6))
    )
    taken.append(await take(peers[0]))

    ids = [fetch.id for some in taken for fetch in some]
    assert len(ids) == len(set(ids)) == 9


async def test_what_the_dead_had_taken_is_taken_again(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await send(store, ada, "", FILE, update="u1")
    (fetch,) = await take(store)

    store = await restart()

    assert await take(store) == []
    assert await store.fetches.recover(attempts_max=5) == []
    (again,) = await take(store)
    assert (again.id, again.attempts) == (fetch.id, 2)
    await bring(store, again)
    assert (await claim_one(store)).lease.turn == accepted.turn


async def test_a_file_that_ends_its_readers_is_given_up(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await send(store, ada, "", FILE, update="u1")
    await take(store)
    store = await restart()
    assert await store.fetches.recover(attempts_max=2) == []
    await take(store)
    store = await restart()

    lost = only(MediaLost, await store.fetches.recover(attempts_max=2))

    assert [each.turn for each in lost] == [accepted.turn]
    assert (await claim_one(store)).lease.turn == accepted.turn
    await assert_sound(store, accepted.session)


async def test_what_we_let_go_of_is_free_at_once(store: Store, ada: Person) -> None:
    await send(store, ada, "", FILE, update="u1")
    await take(store)

    assert await store.fetches.release() == 1
    assert len(await take(store)) == 1


async def test_what_is_under_way_is_kept_when_the_rest_is_let_go_of(
    store: Store, ada: Person
) -> None:
    await send(store, ada, "", FILE, update="u1")
    (under_way,) = await take(store)
    await send(store, ada, "", FILE, update="u2")
    (unknown,) = await take(store)

    assert await store.fetches.release(keep=(under_way,)) == 1

    (again,) = await take(store)
    assert (again.id, again.attempts) == (unknown.id, 2)
    assert await store.fetches.release(keep=(under_way, unknown)) == 1, "that try was let go of"


async def test_a_late_word_about_an_earlier_try_changes_nothing(store: Store, ada: Person) -> None:
    await send(store, ada, "", FILE, update="u1")
    (first,) = await take(store)
    await store.fetches.release()
    (second,) = await take(store)
    assert second.id == first.id

    await store.fetches.again(first, error="too slow", due_in_s=0)

    assert await take(store) == [], "the second try is under way"


async def test_what_another_node_has_taken_is_not_ours_to_let_go(
    peers: list[Store], ada: Person
) -> None:
    await send(peers[0], ada, "", FILE, update="u1")
    await take(peers[0])

    released = [await each.fetches.release() for each in reversed(peers)]

    assert released == [0] * (len(peers) - 1) + [1]


async def test_a_file_belongs_to_the_one_who_sent_it(
    store: Store, ada: Person, bob: Person
) -> None:
    # The sender owns the file even if another person has opened the conversation.
    first = await send(store, ada, "hello", update="u1")
    await store.inbox.stop(turn_of(first), by=None)
    await send(store, bob, "", FILE, update="u2")

    (fetch,) = await take(store)

    assert fetch.principal == bob.id


async def test_what_turns_wait_for_is_listed_whoever_has_taken_it(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    first = await send(store, ada, "", FILE, update="u1")
    clock.advance(3)
    second = await send(store, ada, "", Attachment(reference="2"), update="u2")
    (fetch, _) = await store.fetches.take(adapters=[CHAT], limit=2)
    await store.fetches.again(fetch, error="busy", due_in_s=30)

    waiting = await store.fetches.waiting()

    assert [each.fetch.turn for each in waiting] == [first.turn, second.turn]
    ages = [clock.now_ms() - each.fetch.created_at for each in waiting]
    assert ages == [3_000, 0]
    assert waiting[0].address == Address(adapter=CHAT, account="bot", place="room")
    await store.inbox.stop(turn_of(first), by=None)
    assert [each.fetch.turn for each in await store.fetches.waiting()] == [second.turn]


async def test_people_are_told_once_that_a_file_takes_long(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await send(store, ada, "", FILE, Attachment(reference="2"), update="u1")
    await take(store)

    recorded = await store.fetches.tell_slow(turn_of(accepted), "still fetching")

    (notice,) = only(NoticePosted, recorded)
    assert (notice.text, notice.about) == ("still fetching", accepted.turn)
    assert await store.fetches.tell_slow(turn_of(accepted), "still fetching") == []
    store = await restart()
    assert [each.is_told for each in await store.fetches.waiting()] == [True, True]
    assert await store.fetches.tell_slow(turn_of(accepted), "still fetching") == []
    (part,) = await store.outbox.take(adapter=CHAT, limit=10)
    assert part.text == "still fetching"
    await store.fetches.recover(attempts_max=5)
    for fetch in await take(store):
        await bring(store, fetch)
    claimed = await claim_one(store)
    told = repr(await next_request(store, claimed))
    assert "still fetching" not in told, "it is no business of the model's"
    await assert_sound(store, accepted.session)


async def test_nobody_is_told_of_files_that_are_here(store: Store, ada: Person) -> None:
    accepted = await send(store, ada, "", FILE, update="u1")
    (fetch,) = await take(store)
    await bring(store, fetch)

    assert await store.fetches.tell_slow(turn_of(accepted), "still fetching") == []


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_turn_goes_on_without_the_files_that_are_late(
    store: Store, ada: Person, is_taken: bool
) -> None:
    other = Attachment(reference="2", name="b.txt")
    accepted = await send(store, ada, "read these", FILE, other, update="u1")
    taken = await take(store) if is_taken else []
    late = [Late(fetch=each.fetch) for each in await store.fetches.waiting()]

    recorded = await store.fetches.expire(late)

    reasons = [each.reason for each in only(MediaLost, recorded)]
    assert reasons == ["it did not arrive in time; send it again"] * 2
    (notice,) = only(NoticePosted, recorded)
    assert notice.text == (
        "The files report.txt and b.txt did not arrive in time, so the answer begins without them. "
        "Send them again."
    )
    assert await store.fetches.expire(late) == []
    assert await store.fetches.waiting() == []
    for fetch in taken:
        with pytest.raises(Conflict):
            await bring(store, fetch)
    claimed = await claim_one(store)
    assert claimed.lease.turn == accepted.turn
    words = [in_words(each) for each in await files_told(store, turn_of(accepted))]
    assert words[0] == "[attached file: report.txt: it did not arrive in time; send it again]"
    await assert_sound(store, accepted.session)


async def test_what_came_at_the_last_moment_stays(store: Store, ada: Person) -> None:
    accepted = await send(store, ada, "", FILE, Attachment(reference="2"), update="u1")
    one, two = await take(store)
    await bring(store, one)

    recorded = await store.fetches.expire([Late(fetch=one), Late(fetch=two)])

    assert [each.index for each in only(MediaLost, recorded)] == [two.index]
    told = await files_told(store, turn_of(accepted))
    assert [(each.text, bool(each.problem)) for each in told] == [("hello", False), ("", True)]


async def test_a_file_that_is_only_not_read_in_time_is_kept(store: Store, ada: Person) -> None:
    voice = Attachment(reference="v", is_voice=True)
    accepted = await send(store, ada, "", voice, update="u1")
    (fetch,) = await take(store)
    kept = await store.media.keep(pieces(b"sounds"), bytes_max=100)
    found = FetchedFile(mime="audio/ogg", name="", size=kept.size, digest=kept.digest)

    recorded = await store.fetches.expire([Late(fetch=fetch, found=found)])

    (fetched,) = only(MediaFetched, recorded)
    assert await store.media.read(fetched.media) == b"sounds"
    (notice,) = only(NoticePosted, recorded)
    assert notice.text.startswith("The voice message could not be read in time, so the answer")
    (told,) = await files_told(store, turn_of(accepted))
    assert in_words(told) == "[voice message, it could not be read in time; send it again]"
    await claim_one(store)
    await assert_sound(store, accepted.session)


@pytest.mark.parametrize("is_taken", [False, True])
async def test_nobody_brings_files_to_what_was_stopped(
    store: Store, ada: Person, is_taken: bool
) -> None:
    accepted = await send(store, ada, "", FILE, update="u1")
    taken = await take(store) if is_taken else []

    await store.inbox.stop(turn_of(accepted), by=None)

    for fetch in taken:
        with pytest.raises(Conflict):
            await bring(store, fetch)
    assert await take(store) == []
    assert await store.fetches.recover(attempts_max=5) == []
    assert await store.turns.claim(limit=10) == []
    await assert_sound(store, accepted.session)


async def test_a_reset_lets_go_of_waiting_files(store: Store, ada: Person) -> None:
    accepted = await send(store, ada, "", FILE, update="u1")
    later = await send(store, ada, "/new", update="u2")

    assert await take(store) == []
    await assert_sound(store, accepted.session, later.session)


async def test_files_find_their_turn_where_it_has_moved(store: Store, ada: Person) -> None:
    # When the session is suspended, one file is here and the other is still on its way.
    first = await send(store, ada, "deadly", update="u1")
    behind = await send(store, ada, "", FILE, FILE, update="u2")
    one, two = await take(store)
    await bring(store, one)
    await store.nodes.reclaim(known=(), attempts_max=1)
    live = (await store.conversations.snapshot(first.conversation)).view.standing.session
    assert live != first.session
    assert await store.turns.claim(limit=10) == []
    await assert_sound(store, first.session, live)

    await bring(store, two)

    (claimed,) = await store.turns.claim(limit=10)
    assert (claimed.lease.turn, claimed.lease.session) == (behind.turn, live)
    assert len(only(MediaFetched, claimed.events)) == 2
    await assert_sound(store, first.session, live)


async def test_a_message_with_a_file_supersedes_at_once(store: Store, ada: Person) -> None:
    first = await send(store, ada, "long story", update="u1")

    second = await send(store, ada, "this", FILE, update="u2", busy=Busy.INTERRUPT)

    assert (second.effect, second.ended) == (UpdateEffect.SUPERSEDED, (first.turn,))
    assert await store.turns.claim(limit=10) == []
    (fetch,) = await take(store)
    await bring(store, fetch)
    assert (await claim_one(store)).lease.turn == second.turn


async def test_a_steer_with_a_file_becomes_a_turn(store: Store, ada: Person) -> None:
    first = await send(store, ada, "long story", update="u1")

    second = await send(store, ada, "this", FILE, update="u2", busy=Busy.STEER)

    assert second.effect is UpdateEffect.QUEUED
    assert second.turn != first.turn
    await assert_sound(store, first.session)


async def test_asking_again_keeps_what_was_fetched_and_tries_what_was_lost(
    store: Store, ada: Person
) -> None:
    lost = Attachment(reference="ref-2", name="lost.txt")
    await send(store, ada, "both", FILE, lost, update="u1")
    one, two = await take(store)
    await bring(store, one)
    await store.fetches.lost(two, "busy")
    await settle(store, await claim_one(store))

    again = await send(store, ada, "/retry", update="u3")

    assert await store.turns.claim(limit=10) == []
    (fetch,) = await take(store)
    assert (fetch.turn, fetch.attachment.reference) == (again.turn, "ref-2")
    await bring(store, fetch, "found")
    claimed = await claim_one(store)
    told = await files_told(store, claimed.lease.turn)
    assert [each.text for each in told] == ["hello", "found"]
    await assert_sound(store, again.session)


async def test_a_retry_waits_for_its_file_ahead_of_what_is_ready(store: Store, ada: Person) -> None:
    # The retry goes to the front of the line, so the turn that could be claimed a moment ago now
    # waits.
    await send(store, ada, "this", FILE, update="u1")
    (fetch,) = await take(store)
    await store.fetches.lost(fetch, "busy")
    await settle(store, await claim_one(store))
    later = await store.inbox.accept(
        Update(
            address=Address(adapter=CHAT, account="bot", place="room"),
            external_id="u2",
            kind=UpdateKind.MESSAGE,
            principal=ada.id,
            text="later",
        ),
        queue_max=10,
    )

    again = await send(store, ada, "/retry", update="u3")

    assert await store.turns.claim(limit=10) == []
    await assert_sound(store, again.session)
    (fetch,) = await take(store)
    await bring(store, fetch)
    claimed = await claim_one(store)
    assert claimed.lease.turn == again.turn
    await settle(store, claimed)
    assert (await claim_one(store)).lease.turn == later.turn


async def test_a_background_errand_waits_for_its_file(store: Store, ada: Person) -> None:
    await send(store, ada, "/background summarise", FILE, update="u1")
    assert await store.turns.claim(limit=10) == []
    (fetch,) = await take(store)
    await bring(store, fetch)

    errand = await claim_one(store)
    await settle(store, errand, "short")

    result = await claim_one(store)
    (queued,) = only(TurnQueued, result.events)
    assert (queued.kind, queued.attachments[0].text) == ("result", "hello")
    await assert_sound(store, errand.lease.session, result.lease.session)


async def test_pieces_of_an_album_are_one_turn(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    first = await send(store, ada, "our garden", FILE, update="u1", album="a")
    clock.advance(0.5)
    second = await send(
        store, ada, "", Attachment(reference="ref-2", name="b.txt"), update="u2", album="a"
    )
    later = await send(store, ada, "and now?", update="u3")

    assert (second.effect, second.turn) == (UpdateEffect.JOINED, first.turn)
    assert second.message != first.message
    assert len(only(MessageJoined, second.recorded)) == 1
    for fetch in await take(store):
        await bring(store, fetch, f"text of {fetch.attachment.name}")
    assert await store.turns.claim(limit=10) == [], "more of it may come"
    assert await store.turns.next_claim_ms() == clock.now_ms() + 800
    clock.advance(0.8)
    claimed = await claim_one(store)
    told = await files_told(store, turn_of(first))
    assert [each.text for each in told] == ["text of report.txt", "text of b.txt"]
    assert len(messages_of(claimed.events)) == 1
    entries = entries_of(claimed.events)
    assert [entry.id for entry in entries if entry.role == "user"] == [
        first.message,
        second.message,
    ]
    await settle(store, claimed)
    assert (await claim_one(store)).lease.turn == later.turn
    explained = await store.diagnostics.explain("u2", principal=None)
    assert explained.turn is not None
    assert explained.turn.id == first.turn
    assert [each.external_id for each in explained.updates] == ["u1", "u2"]
    await assert_sound(store, first.session)


async def test_the_same_piece_again_is_the_same_piece(store: Store, ada: Person) -> None:
    first = await send(store, ada, "", FILE, update="u1", album="a")
    one = await send(store, ada, "", FILE, update="u2", album="a")

    again = await send(store, ada, "", FILE, update="u2", album="a")
    signed_anew = Attachment(reference="ref-1?sig=2", name="report.txt", size=5)
    once_more = await send(store, ada, "", signed_anew, update="u2", album="a")

    assert (again.is_duplicate, again.turn, again.message) == (True, first.turn, one.message)
    assert once_more.is_duplicate
    assert len(await take(store)) == 2


async def test_an_album_without_files_begins_when_its_time_is_over(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    first = await send(store, ada, "one", update="u1", album="a")
    assert await store.turns.claim(limit=10) == []
    clock.advance(0.7)
    await send(store, ada, "two", update="u2", album="a")
    clock.advance(0.7)
    assert await store.turns.claim(limit=10) == []
    clock.advance(0.1)
    assert (await claim_one(store)).lease.turn == first.turn


@pytest.mark.parametrize("busy", [Busy.QUEUE, Busy.INTERRUPT])
async def test_what_comes_too_late_is_a_turn_and_ends_nothing(
    store: Store, ada: Person, clock: VirtualClock, busy: Busy
) -> None:
    first = await send(store, ada, "one", update="u1", album="a")
    clock.advance(1)
    await claim_one(store)

    late = await send(store, ada, "two", update="u2", album="a", busy=busy)

    assert (late.effect, late.ended) == (UpdateEffect.QUEUED, ())
    assert late.turn != first.turn


async def test_an_album_is_one_persons(
    store: Store, ada: Person, bob: Person, clock: VirtualClock
) -> None:
    first = await send(store, ada, "one", update="u1", album="a")
    second = await send(store, bob, "two", update="u2", album="a")
    third = await send(store, ada, "three", update="u3", album="b")
    fourth = await send(store, ada, "four", update="u4", album="a")

    turns = [each.turn for each in (first, second, third, fourth)]
    assert len(set(turns)) == 4, "of another person, another album, or no longer the last in line"


async def test_a_caption_can_be_changed_and_a_piece_not_removed_alone(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await send(store, ada, "one", FILE, update="u1", album="a")
    first = await send(store, ada, "two", update="u2", album="a")

    assert (
        await change(store, ada, UpdateKind.EDIT, "u2", "two, better")
    ).effect is UpdateEffect.AMENDED
    kept = await change(store, ada, UpdateKind.DELETE, "u2")

    assert kept.effect is UpdateEffect.IGNORED
    (notice,) = only(NoticePosted, kept.recorded)
    assert "/stop" in notice.text
    (fetch,) = await take(store)
    await bring(store, fetch)
    clock.advance(1)
    claimed = await claim_one(store)
    (message,) = messages_of(claimed.events)
    texts = [block.text for block in message.blocks if not isinstance(block, MediaBlock)]  # type: ignore[union-attr]
    assert texts == ["one", "two, better"]
    await settle(store, claimed)
    again = await send(store, ada, "/retry", update="u9")
    (repeated,) = only(TurnQueued, again.recorded)
    assert repeated.text == "one\n\ntwo, better"
    assert [each.text for each in repeated.attachments] == ["hello"]
    await assert_sound(store, first.session)


async def test_a_restart_forgets_no_window(
    store: Store, ada: Person, restart: OpenStore, clock: VirtualClock
) -> None:
    first = await send(store, ada, "one", FILE, update="u1", album="a")
    store = await restart()
    await store.nodes.resume(GO_ON, limit=10)
    joined = await send(store, ada, "two", update="u2", album="a")

    assert joined.turn == first.turn
    (fetch,) = await take(store)
    await bring(store, fetch)
    clock.advance(1)
    assert (await claim_one(store)).lease.turn == first.turn


async def test_bytes_are_kept_once_and_bounded(store: Store, tmp_path: Path) -> None:
    kept = await store.media.keep(pieces(b"hello"), bytes_max=5)
    again = await store.media.keep(pieces(b"hello"), bytes_max=5)

    assert kept == again
    assert (kept.size, kept.head) == (5, b"hello")
    assert await store.media.read_kept(kept.digest) == b"hello"
    with pytest.raises(Permanent, match="larger than 4 bytes"):
        await store.media.keep(pieces(b"hello"), bytes_max=4)
    files = [path for path in (tmp_path / "media").rglob("*") if path.is_file()]
    assert [path.name for path in files] == [kept.digest], "nothing unfinished is left"


async def test_what_belongs_to_nothing_is_swept_after_a_day(
    store: Store, ada: Person, clock: VirtualClock, tmp_path: Path
) -> None:
    folder = tmp_path / "media"
    orphan = await store.media.keep(pieces(b"orphan"), bytes_max=100)
    found_again = await store.media.keep(pieces(b"found again"), bytes_max=100)
    owned = await store.media.put(b"owned", mime="a/b", name="", principal=ada.id)
    (folder / ".left.part").write_bytes(b"half")
    for path in folder.rglob("*"):
        os.utime(path, (clock.now_ms() / 1000, clock.now_ms() / 1000))
    clock.advance(86_000)
    assert [await store.media.sweep(shard) for shard in range(SHARDS)] == [0] * SHARDS
    await store.media.keep(pieces(b"found again"), bytes_max=100)
    clock.advance(1_000)

    assert sum([await store.media.sweep(shard) for shard in range(SHARDS)]) == 2

    with pytest.raises(NotFound):
        await store.media.read_kept(orphan.digest)
    assert await store.media.read_kept(found_again.digest) == b"found again"
    assert await store.media.read(owned.id) == b"owned"
    assert not (folder / ".left.part").exists()


async def test_a_search_finds_what_files_say(store: Store, ada: Person) -> None:
    await send(store, ada, "read this", FILE, update="u1")
    (fetch,) = await take(store)
    await bring(store, fetch, "zucchini")
    await settle(store, await claim_one(store))

    hits = await store.archive.search("zucchini", principal=ada.id, before=None, limit=10)

    assert [(hit.role, "zucchini" in hit.text) for hit in hits] == [("user", True)]


async def test_the_words_beside_a_file_may_be_removed(store: Store, ada: Person) -> None:
    await send(store, ada, "look at this", FILE, update="u1")

    blank = await change(store, ada, UpdateKind.EDIT, "u1", "")

    assert blank.effect is UpdateEffect.AMENDED


async def test_an_album_without_end_becomes_several_turns(
    store: Store, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing, "ALBUM_EVENTS_MAX", 3)

    pieces = [await send(store, ada, f"{n}", update=f"u{n}", album="a") for n in range(4)]

    turns = [each.turn for each in pieces]
    assert turns[0] == turns[1] == turns[2] != turns[3]
