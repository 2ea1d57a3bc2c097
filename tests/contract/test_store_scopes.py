"""Checks where words are found: those of a shared place only there, those of a private place by its
person and only where nobody else reads. Operators find everything."""

from collections.abc import Sequence

import pytest

from perdure.domain.address import Address
from perdure.domain.errors import NotFound
from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.kinds import UpdateKind
from perdure.ports.records.history import Page
from perdure.store.operations.commands import asking
from perdure.store.operations.reading import search
from perdure.store.ports.records import history as reading
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, settle, turn_of


class Spot:
    """Plays one person in one place of a platform."""

    def __init__(
        self, store: Store, who: PrincipalId, place: str, *, kind: str = "group", person: str = ""
    ) -> None:
        self._store = store
        self._who = who
        self._address = Address(adapter="chat", account="bot", place=place, person=person)
        self._kind = kind
        self._said = 0

    @property
    def last(self) -> str:
        """Return the platform's id of the last message."""
        return f"{self._address.place}/{self._who}-{self._said}"

    async def say(self, text: str) -> Accepted:
        self._said += 1
        return await self._send(text, self.last)

    async def edit(self, target: str, text: str) -> Accepted:
        self._said += 1
        return await self._send(text, self.last, kind=UpdateKind.EDIT, target=target)

    async def _send(
        self,
        text: str,
        external_id: str,
        *,
        kind: UpdateKind = UpdateKind.MESSAGE,
        target: str = "",
    ) -> Accepted:
        update = Update(
            address=self._address,
            external_id=external_id,
            kind=kind,
            principal=self._who,
            text=text,
            place_kind=self._kind,
            target=target,
        )
        return await self._store.inbox.accept(update, queue_max=100)

    async def exchange(self, text: str, answer: str = "-") -> Accepted:
        accepted = await self.say(text)
        await settle(self._store, await claim_one(self._store), answer)
        return accepted

    async def finds(self, words: str) -> bool:
        """Search by the command, as people do."""
        reply = (await self.say(f"/sessions {words}")).reply
        found = not reply.startswith("No message")
        assert found == reply.startswith("ses_")
        return found


class Town:
    """Plays Ada, who opened the club, and Bob, who talks there too. Each of them also talks
    alone."""

    def __init__(self, store: Store, ada: Person, bob: Person) -> None:
        self.store = store
        self.ada_in_club = Spot(store, ada.id, "club")
        self.bob_in_club = Spot(store, bob.id, "club")
        self.ada_alone = Spot(store, ada.id, "with ada", kind="private")
        self.bob_alone = Spot(store, bob.id, "with bob", kind="private")

    @property
    def everywhere(self) -> Sequence[Spot]:
        return (self.ada_in_club, self.bob_in_club, self.ada_alone, self.bob_alone)


@pytest.fixture
async def town(store: Store, ada: Person, bob: Person) -> Town:
    town = Town(store, ada, bob)
    await town.ada_in_club.exchange("hello everybody")
    return town


async def hits(store: Store, words: str, principal: PrincipalId | None) -> int:
    return len(await store.archive.search(words, principal=principal, before=None, limit=9))


async def test_what_is_said_in_a_group_is_found_there_by_all_of_them_and_nowhere_else(
    store: Store, town: Town, ada: Person, bob: Person
) -> None:
    await town.bob_in_club.exchange("my pumpkin", "a fine gourd")
    elsewhere = Spot(store, bob.id, "another club")

    for words in ("pumpkin", "gourd"):
        assert [await spot.finds(words) for spot in town.everywhere] == [True, True, False, False]
        assert not await elsewhere.finds(words)
        assert await hits(store, words, ada.id) == await hits(store, words, bob.id) == 0
        assert await hits(store, words, None) == 1


async def test_what_is_said_in_private_is_found_by_its_person_where_nobody_reads_along(
    store: Store, town: Town, ada: Person, bob: Person
) -> None:
    await town.ada_alone.exchange("my plum")

    assert [await spot.finds("plum") for spot in town.everywhere] == [False, False, True, False]
    assert await Spot(store, ada.id, "elsewhere", kind="private").finds("plum")
    assert (await hits(store, "plum", ada.id), await hits(store, "plum", bob.id)) == (1, 0)


async def test_members_who_are_kept_apart_find_their_own(
    store: Store, ada: Person, bob: Person
) -> None:
    mine = Spot(store, ada.id, "hall", person="ada")
    await mine.exchange("my quince")

    assert await mine.finds("quince")
    assert not await Spot(store, bob.id, "hall", person="bob").finds("quince")
    assert await hits(store, "quince", ada.id) == 1


async def test_whoever_opened_a_group_cannot_read_it_from_elsewhere(
    store: Store, town: Town, ada: Person, bob: Person
) -> None:
    said = await town.bob_in_club.exchange("my pumpkin")
    turn = turn_of(said)

    for who in (ada.id, bob.id):
        for look in (
            store.archive.session(said.session, principal=who),
            store.archive.turn(turn, principal=who),
            store.diagnostics.explain(turn, principal=who),
            store.diagnostics.explain(said.message, principal=who),
            store.conversations.find("chat:club", principal=who),
        ):
            with pytest.raises(NotFound):
                await look
        assert await store.archive.sessions(principal=who, page=Page()) == []
        assert await store.conversations.recent(principal=who, page=Page()) == []
    assert (await store.archive.session(said.session, principal=None)).conversation == "chat:club"
    found = await store.conversations.find("chat:club", principal=ada.id, sees_all=True)
    assert found.view.standing.session == said.session


async def test_what_happened_is_explained_where_it_happened(store: Store, town: Town) -> None:
    def is_told(accepted: Accepted, turn: TurnId) -> bool:
        return accepted.reply.startswith(f"turn {turn}")

    in_club = turn_of(await town.bob_in_club.exchange("my pumpkin"))
    alone = turn_of(await town.ada_alone.exchange("my plum"))

    for spot in (town.ada_in_club, town.bob_in_club):
        assert is_told(await spot.say(f"/why {in_club}"), in_club)
        assert is_told(await spot.say("/why"), in_club)
        assert not is_told(await spot.say(f"/why {alone}"), alone)
    assert is_told(await town.ada_alone.say(f"/why {alone}"), alone)
    for spot in (town.ada_alone, town.bob_alone):
        assert not is_told(await spot.say(f"/why {in_club}"), in_club)


@pytest.mark.parametrize("is_indexed", [True, False])
async def test_a_late_edit_is_found_where_its_message_is_found(
    store: Store, town: Town, ada: Person, *, is_indexed: bool
) -> None:
    # This must hold whether or not the index has the words from before the edit.
    await town.bob_in_club.exchange("my pumpkin")
    in_club = town.bob_in_club.last
    await town.ada_alone.exchange("my plum")
    alone = town.ada_alone.last
    for spot in (town.bob_in_club, town.ada_alone):
        await spot.exchange("something newer")
    if is_indexed:
        assert await hits(store, "pumpkin", None) == await hits(store, "plum", None) == 1

    await town.bob_in_club.edit(in_club, "my melon")
    await town.ada_alone.edit(alone, "my mirabelle")

    assert [await spot.finds("melon") for spot in town.everywhere] == [True, True, False, False]
    assert [await spot.finds("mirabelle") for spot in town.everywhere] == [
        False,
        False,
        True,
        False,
    ]
    for words, found in (("melon", 0), ("mirabelle", 1)):
        assert await hits(store, words, ada.id) == found
        assert await hits(store, words, None) == 1
    assert await hits(store, "pumpkin", None) == await hits(store, "newer", ada.id) == 1


@pytest.mark.parametrize("is_indexed", [True, False])
async def test_what_is_asked_again_is_found_once(
    store: Store, town: Town, *, is_indexed: bool
) -> None:
    # It may be asked again by an edit of the last message, by a second edit, or by a command.
    spot = town.bob_in_club
    await spot.exchange("a toucan flew")
    said = spot.last
    if is_indexed:
        assert await hits(store, "toucan", None) == 1

    for words in ("a hoopoe flew", "a hoopoe sang"):
        await spot.edit(said, words)
        await settle(store, await claim_one(store), "indeed")
        if is_indexed:
            assert await hits(store, words, None) == 1
    await spot.say("/retry")
    await settle(store, await claim_one(store), "once more")

    assert (await spot.say("/sessions sang")).reply.count("a hoopoe sang") == 1
    for words in ("sang", "hoopoe flew", "toucan", "once more"):
        assert await hits(store, words, None) == 1


async def test_an_edit_of_what_is_being_answered_is_found_once(store: Store, town: Town) -> None:
    await town.bob_in_club.say("a toucan flew")
    await claim_one(store)

    await town.bob_in_club.edit(town.bob_in_club.last, "a hoopoe flew")
    await settle(store, await claim_one(store), "indeed")

    assert await hits(store, "hoopoe", None) == await hits(store, "toucan", None) == 1


async def test_a_search_in_a_chat_indexes_no_more_than_a_little_at_once(
    store: Store, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "INDEX_AT_ONCE", 2)
    for number in range(4):
        await town.ada_alone.exchange(f"plum {number}")

    first = (await town.ada_alone.say("/sessions plum")).reply
    second = (await town.ada_alone.say("/sessions plum")).reply
    third = (await town.ada_alone.say("/sessions plum")).reply

    assert [reply.count("plum") for reply in (first, second, third)] == [1, 3, 4]
    assert [reply.endswith(asking.NOT_ALL) for reply in (first, second, third)] == [
        True,
        True,
        False,
    ]


async def test_the_index_is_caught_up_a_bounded_step_at_a_time(
    store: Store, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "INDEX_AT_ONCE", 2)
    for number in range(4):
        await town.ada_alone.exchange(f"plum {number}")

    steps = [await store.index.catch_up() for _ in range(3)]

    assert steps == [True, True, False]
    reply = (await town.ada_alone.say("/sessions plum")).reply
    assert reply.count("plum") == 4
    assert asking.NOT_ALL not in reply


async def test_long_turns_are_indexed_one_at_a_time(
    store: Store, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "INDEXED_BYTES", 2_000)
    for number in range(3):
        await town.ada_alone.exchange(f"plum {number} " + "and so on " * 300)

    steps = [await store.index.catch_up() for _ in range(3)]

    assert steps == [True, True, False]
    assert len(await store.archive.search("plum", principal=None, before=None, limit=9)) >= 3
