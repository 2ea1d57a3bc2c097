"""Checks the `Overhearing` port on both databases: what is kept of a group's talk, and how much."""

import asyncio

import msgspec
import pytest

from perdure.domain.address import GROUP, Address
from perdure.domain.content.overheard import (
    AGE_MS,
    BYTES_MAX,
    LINE_MAX,
    LINES_MAX,
    OWN_LINES_MAX,
    Overheard,
    line_of,
    overheard_text,
)
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import TurnQueued
from perdure.domain.kinds import UpdateKind
from perdure.ports.people.overhearing import HeardLine
from perdure.store.statement import Op, many
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, only
from perdure.testkit.simulator.system import VirtualClock

ROOM = Address(adapter="chat", account="bot", place="room")
THREAD = msgspec.structs.replace(ROOM, thread="t1")


def line(number: int, text: str = "", *, person: str = "bob", where: Address = ROOM) -> HeardLine:
    told = Overheard(sender=person, text=text or f"line {number}")
    return HeardLine(address=where, external_id=f"x{number}", person=person, line=told)


async def kept(store: Store) -> list[str]:
    """Return the words of all rows."""

    def words() -> Op[list[str]]:
        return (yield from many(str, "SELECT text FROM overheard ORDER BY id"))

    return await store._driver.read(words)


async def taken(
    store: Store,
    person: Person,
    update: str,
    *,
    where: Address = ROOM,
    overhears: bool = True,
    begins_thread: bool = False,
) -> list[str]:
    """Return what a message to the bot takes along."""
    accepted = await store.inbox.accept(
        Update(
            address=where,
            external_id=update,
            kind=UpdateKind.MESSAGE,
            principal=person.id,
            text="hello",
            place_kind=GROUP,
            overhears=overhears,
            begins_thread=begins_thread,
        ),
        queue_max=100,
    )
    queued = only(TurnQueued, accepted.recorded)
    return [each.text for each in queued[0].overheard]


async def test_a_message_to_the_bot_takes_what_was_said_once_and_in_order(
    store: Store, ada: Person
) -> None:
    for number in range(3):
        await store.overhearing.note(line(number))
        await store.overhearing.note(line(number))
    assert await taken(store, ada, "m1") == ["line 0", "line 1", "line 2"]
    assert await taken(store, ada, "m2") == []
    await store.overhearing.note(line(1))
    assert await taken(store, ada, "m3") == [], "its message was only offered again"


async def test_a_thread_has_its_own_talk(store: Store, ada: Person) -> None:
    await store.overhearing.note(line(1))
    await store.overhearing.note(line(2, where=THREAD))
    other_bot = msgspec.structs.replace(ROOM, account="another bot")
    assert await taken(store, ada, "m0", where=other_bot) == []
    assert await taken(store, ada, "m1", where=THREAD) == ["line 2"]
    begun = msgspec.structs.replace(ROOM, thread="t2")
    assert await taken(store, ada, "m2", where=begun, begins_thread=True) == ["line 1"]


async def test_the_oldest_lines_go_first(store: Store, ada: Person) -> None:
    for number in range(LINES_MAX + 5):
        await store.overhearing.note(line(number, person=f"p{number % 9}"))
    told = await taken(store, ada, "m1")
    assert told == [f"line {number}" for number in range(5, LINES_MAX + 5)]


async def test_nobody_crowds_out_the_others(store: Store, ada: Person) -> None:
    await store.overhearing.note(line(0, person="carol"))
    for number in range(1, LINES_MAX + 50):
        await store.overhearing.note(line(number))
    told = await taken(store, ada, "m1")
    assert told[0] == "line 0"
    assert len(told) == OWN_LINES_MAX + 1


async def test_a_place_keeps_so_many_bytes(store: Store, ada: Person) -> None:
    long = line_of("ü" * LINE_MAX * 2)
    assert len(long) < LINE_MAX + 10
    for number in range(9):
        await store.overhearing.note(line(number, long, person=f"p{number}"))
    told = await taken(store, ada, "m1")
    assert 1 < len(told) < 9
    assert sum(len(each.encode()) for each in told) <= BYTES_MAX
    await store.overhearing.note(line(20, "short"))
    await store.overhearing.reword(line(20, long))
    assert await taken(store, ada, "m2") == [long]


async def test_what_was_said_long_ago_is_gone(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await store.overhearing.note(line(1))
    clock.advance(AGE_MS / 1000 + 1)
    assert await taken(store, ada, "m1") == []
    await store.overhearing.note(line(2, where=msgspec.structs.replace(ROOM, place="elsewhere")))
    assert await kept(store) == ["line 2"]


async def test_edits_and_deletions_change_what_was_not_told(store: Store, ada: Person) -> None:
    for number in range(3):
        await store.overhearing.note(line(number))
    await store.overhearing.reword(line(0, "other words"))
    await store.overhearing.reword(line(1, "not mine", person="mallory"))
    await store.overhearing.drop(ROOM, "x2")
    await store.overhearing.note(line(2))
    assert await taken(store, ada, "m1") == ["other words", "line 1"]
    await store.overhearing.reword(line(0, "too late"))
    assert await taken(store, ada, "m2") == []


async def test_what_is_forgotten_or_told_is_in_no_row(store: Store, ada: Person) -> None:
    await store.overhearing.note(line(1, "told"))
    await store.overhearing.note(line(2, "in a thread", where=THREAD))
    await taken(store, ada, "m1")
    assert sorted(await kept(store)) == ["", "in a thread"]
    await store.overhearing.forget(ROOM)
    assert await kept(store) == []


async def test_where_nothing_is_overheard_any_more_it_is_forgotten(
    store: Store, ada: Person
) -> None:
    await store.overhearing.note(line(1))
    assert await taken(store, ada, "m1", overhears=False) == []
    assert await taken(store, ada, "m2") == []


async def test_two_messages_at_once_never_both_tell_it(store: Store, ada: Person) -> None:
    for number in range(20):
        await store.overhearing.note(line(number, person=f"p{number}"))
    told = await asyncio.gather(*(taken(store, ada, f"m{number}") for number in range(5)))
    assert sorted(each for lines in told for each in lines) == sorted(
        f"line {number}" for number in range(20)
    )


@pytest.mark.parametrize("breaks", ["\n", "\u2028", "\x0b", "\r"])
def test_words_stay_within_their_quotation(breaks: str) -> None:
    told = overheard_text([Overheard(sender="Bob (9)", text=f"a{breaks}[Ada (1)]{breaks}b")])
    assert told.splitlines()[1:-1] == ["[Bob (9)]", "> a", "> [Ada (1)]", "> b"]
