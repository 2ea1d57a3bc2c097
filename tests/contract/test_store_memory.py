"""Checks memories: those of one person never reach another, they are bounded, and erased ones are
gone."""

import asyncio
from functools import partial

import pytest
from tests.untyped_rows import rows

from perdure.domain.address import Address
from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.kinds import UpdateKind
from perdure.domain.people.memory import COUNT_MAX, TEXT_MAX, Memory, MemoryId, memory_section
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, only, settle
from perdure.testkit.simulator.system import VirtualClock

CANARY = "canary-7391"


class Rememberer:
    """Plays a person in one conversation who reads and changes memories."""

    def __init__(self, store: Store, principal: PrincipalId, conversation: ConversationId) -> None:
        self._store = store
        self.id = principal
        self.conversation = conversation

    async def add(self, text: str, *, key: str, is_here: bool = False) -> Memory:
        conversation = self.conversation if is_here else None
        return await self._store.memory.add(
            text, key=key, principal=self.id, conversation=conversation
        )

    async def recalls(self) -> list[str]:
        return [memory.text for memory in await self.memories()]

    async def memories(self) -> list[Memory]:
        return await self._store.memory.recall(principal=self.id, conversation=self.conversation)

    async def edit(self, memory: MemoryId, text: str) -> Memory:
        return await self._store.memory.edit(
            memory, text, principal=self.id, conversation=self.conversation
        )

    async def forget(self, memory: MemoryId) -> None:
        await self._store.memory.forget(memory, principal=self.id, conversation=self.conversation)


async def rememberer(store: Store, person: Person) -> Rememberer:
    accepted = await person.says("/whoami")
    return Rememberer(store, person.id, accepted.conversation)


async def stored_texts(store: Store) -> list[str]:
    found = await store._driver.read(partial(rows, "SELECT text FROM memories"))
    return [text for (text,) in found]


async def reply_to(person: Person, command: str) -> str:
    return (await person.says(command)).reply


async def test_what_is_added_is_recalled_in_order_even_if_the_clock_goes_back(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    here = await rememberer(store, ada)
    texts = [f"fact {number}" for number in range(5)]

    for text in texts:
        await here.add(text, key=f"mem_{text}")
        clock.jump(-60)

    assert await here.recalls() == texts


async def test_the_same_key_again_changes_nothing(store: Store, ada: Person) -> None:
    here = await rememberer(store, ada)
    first = await here.add("likes tea", key="call_1")
    edited = await here.edit(first.id, "likes coffee")

    again = await here.add("likes tea", key="call_1")

    assert again == edited
    assert await here.recalls() == ["likes coffee"]


async def test_the_same_text_again_changes_nothing(store: Store, ada: Person) -> None:
    # A call that was cut short is made again under another id.
    here = await rememberer(store, ada)
    first = await here.add("Likes tea", key="call_1")

    again = await here.add(" likes\n tea ", key="call_2")
    narrower = await here.add("likes tea", key="call_3", is_here=True)

    assert again == narrower == first
    assert await here.recalls() == ["Likes tea"]


async def test_a_memory_of_one_conversation_is_not_known_in_another(
    store: Store, ada: Person
) -> None:
    home = await rememberer(store, ada)
    work = await rememberer(store, Person(store, ada.id, place="work"))
    await home.add("everywhere", key="k1")
    kept = await home.add("at home", key="k2", is_here=True)

    assert await home.recalls() == ["everywhere", "at home"]
    assert await work.recalls() == ["everywhere"]
    with pytest.raises(NotFound):
        await work.edit(kept.id, "at work")
    with pytest.raises(NotFound):
        await work.forget(kept.id)
    assert await home.recalls() == ["everywhere", "at home"]


async def test_two_people_never_see_each_others_memories(
    store: Store, ada: Person, bob: Person
) -> None:
    hers, his = await rememberer(store, ada), await rememberer(store, bob)
    everywhere = await hers.add(CANARY, key="k1")
    here = await hers.add(f"{CANARY} here", key="k2", is_here=True)
    await his.add(CANARY, key="k3")
    intruder = Rememberer(store, bob.id, hers.conversation)

    assert [memory.id for memory in await intruder.memories()] == ["k3"]
    for memory in (everywhere, here):
        with pytest.raises(NotFound):
            await intruder.edit(memory.id, "changed")
        with pytest.raises(NotFound):
            await intruder.forget(memory.id)
    with pytest.raises(Conflict):
        await his.add("another fact", key="k1")
    assert CANARY not in await reply_to(Person(store, bob.id, place="other"), "/memory forget all")
    assert await store.memory.forget_all(principal=bob.id) == 0
    assert await hers.memories() == [everywhere, here]


async def test_what_is_forgotten_or_replaced_is_in_no_row(store: Store, ada: Person) -> None:
    here = await rememberer(store, ada)
    one = await here.add(f"{CANARY} one", key="k1")
    two = await here.add(f"{CANARY} two", key="k2", is_here=True)
    await here.add("stays", key="k3")

    await here.forget(one.id)
    await here.edit(two.id, "harmless")

    assert sorted(await stored_texts(store)) == ["harmless", "stays"]
    assert await store.memory.forget_all(principal=ada.id) == 2
    assert await stored_texts(store) == []


async def test_limits_are_said_and_keep_what_is_there(store: Store, ada: Person) -> None:
    here = await rememberer(store, ada)
    longest = "x" * TEXT_MAX
    await here.add(longest, key="k0")
    for number in range(1, COUNT_MAX):
        await here.add(f"fact {number}", key=f"k{number}")

    for text, code in (
        ("y" * (TEXT_MAX + 1), "memory_too_long"),
        (" \n ", "memory_empty"),
        ("one too many", "memory_full"),
    ):
        with pytest.raises(Rejected) as refused:
            await here.add(text, key="more")
        assert refused.value.code == code

    assert (await here.add(longest, key="again")).id == "k0"
    assert len(await here.recalls()) == COUNT_MAX


async def test_the_last_place_is_given_once(peers: list[Store], ada: Person) -> None:
    here = await rememberer(peers[0], ada)
    for number in range(COUNT_MAX - 1):
        await here.add(f"fact {number}", key=f"k{number}")

    async def is_added(store: Store, number: int) -> bool:
        try:
            await Rememberer(store, ada.id, here.conversation).add(
                f"last {number}", key=f"last{number}"
            )
        except Rejected:
            return False
        return True

    # Connections are made when they are first needed. Without this warm-up the first racer would
    # always win.
    await asyncio.gather(
        *(Rememberer(store, ada.id, here.conversation).recalls() for store in peers * 12)
    )
    racers = [is_added(store, number) for number, store in enumerate(peers * 12)]
    assert sum(await asyncio.gather(*racers)) == 1
    assert len(await here.recalls()) == COUNT_MAX


async def test_what_no_store_can_hold_is_replaced(store: Store, ada: Person) -> None:
    here = await rememberer(store, ada)

    await here.add("nul \x00 and \ud800", key="k1")

    assert await here.recalls() == ["nul \ufffd and \ufffd"]


async def test_the_command_lists_numbers_and_says_how_to_change(store: Store, ada: Person) -> None:
    assert (await reply_to(ada, "/memory")).startswith("Nothing is remembered about you.")

    added = await reply_to(ada, "/memory add I drink tea.\nNo sugar.")
    here = await reply_to(ada, "/memory HERE speak French")
    listed = await reply_to(ada, "/memory")

    assert "everywhere" in added
    assert "in this conversation" in here
    assert "tea" not in added
    assert "French" not in here
    first, second, how = listed.splitlines()
    assert first == "1. I drink tea. No sugar."
    assert second == "2. speak French (here only)"
    assert all(word in how for word in ("/memory add", "/memory here", "edit N", "forget N"))
    elsewhere = await reply_to(Person(store, ada.id, place="work"), "/memory")
    assert "French" not in elsewhere
    assert "1 more for other conversations" in elsewhere


async def test_the_command_corrects_and_erases_by_number(store: Store, ada: Person) -> None:
    here = await rememberer(store, ada)
    for text in ("one", "two", "three"):
        await here.add(text, key=text)

    assert await reply_to(ada, "/memory edit 2 second") == "Number 2 is corrected."
    assert "Number 1 is forgotten" in await reply_to(ada, "/memory forget 1")
    assert await here.recalls() == ["second", "three"]
    assert "all 2 things" in await reply_to(ada, "/memory forget all")
    assert await here.recalls() == []
    assert "nothing to forget" in await reply_to(ada, "/memory forget all")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/memory add", "nothing to remember"),
        ("/memory here", "nothing to remember"),
        (f"/memory add {'x' * (TEXT_MAX + 1)}", f"{TEXT_MAX} characters at most"),
        ("/memory edit", "/memory edit N TEXT"),
        ("/memory edit one two", "by its number"),
        ("/memory edit 1", "nothing to remember"),
        ("/memory edit 3 x", "no number 3, 1 to 2"),
        ("/memory edit 0 x", "no number 0"),
        ("/memory forget", "/memory forget N, or /memory forget all"),
        ("/memory forget 1 2", "by its number"),
        ("/memory forget ²", "by its number"),
        ("/memory forget 99999", "no number 99999"),
        ("/memory forgt 1", "Did you mean /memory forget?"),
        ("/memory whatever this is", "/memory add TEXT"),
    ],
)
async def test_a_wrong_word_or_number_is_answered_and_changes_nothing(
    store: Store, ada: Person, command: str, said: str
) -> None:
    here = await rememberer(store, ada)
    for text in ("one", "two"):
        await here.add(text, key=text)

    assert said in await reply_to(ada, command)
    assert await here.recalls() == ["one", "two"]


async def test_a_full_memory_is_said_by_the_command(store: Store, ada: Person) -> None:
    here = await rememberer(store, ada)
    for number in range(COUNT_MAX):
        await here.add(f"fact {number}", key=f"k{number}")

    assert "which is the limit" in await reply_to(ada, "/memory add one more")


async def test_the_journal_and_the_outbox_hold_none_of_the_words(store: Store, ada: Person) -> None:
    accepted = await ada.says(f"/memory add {CANARY} a")
    for command in (
        f"/memory here {CANARY} b",
        f"/memory edit 1 {CANARY} c",
        f"/memory {CANARY}",
        f"/memory edit {CANARY} 1",
        f"/memory forget {CANARY}",
        "/memory forget 1",
        "/memory forget all",
    ):
        await ada.says(command)

    journal = await store.archive.journal(accepted.session, after=0, limit=100)
    taken = [event.arguments for event in only(CommandTaken, journal)]
    assert taken == ["add", "here", "edit 1", "", "edit", "forget", "forget 1", "forget all"]
    for table in ("journal", "inbox", "outbox", "memories"):
        found = await store._driver.read(partial(rows, f"SELECT * FROM {table}"))
        assert CANARY not in repr([tuple(each) for each in found]), table


async def test_a_repeated_command_adds_once(store: Store, ada: Person) -> None:
    # The second delivery of an update is answered like the first.
    here = await rememberer(store, ada)
    first = await ada.says("/memory add likes tea")
    twin = Person(store, ada.id)
    await twin.says("/whoami")
    again = await twin.says("/memory add likes tea")

    assert again.is_duplicate
    assert again.reply == first.reply
    assert await here.recalls() == ["likes tea"]


def test_the_told_section_is_stable_and_marked_as_facts() -> None:
    memories = [
        Memory(id=MemoryId(f"m{n}"), text=f"fact {n}", is_here=False, created_at=n, changed_at=n)
        for n in range(3)
    ]

    section = memory_section(memories)

    assert section == memory_section(reversed(memories))
    assert section.splitlines()[1:] == ["- fact 0", "- fact 1", "- fact 2"]
    assert "not instructions" in section.splitlines()[0]
    assert memory_section([]) == ""


@pytest.mark.parametrize("is_begun_at_once", [True, False], ids=["at once", "later"])
async def test_a_place_that_became_a_group_is_told_no_private_memories(
    store: Store, ada: Person, is_begun_at_once: bool
) -> None:
    # A third person was invited to a private place.

    def said(name: str, kind: str) -> Update:
        address = Address(adapter="scripted", account="bot", place="room")
        return Update(
            address=address,
            external_id=name,
            kind=UpdateKind.MESSAGE,
            principal=ada.id,
            text="hello",
            place_kind=kind,
        )

    await store.memory.add("a secret", key="mem_1", principal=ada.id, conversation=None)
    await store.inbox.accept(said("m1", "private"), queue_max=9)
    alone = await claim_one(store)
    await settle(store, alone)

    if is_begun_at_once:
        among_others = (
            await store.inbox.accept_and_start(said("m2", "group"), queue_max=9)
        ).claimed
        assert among_others is not None
    else:
        await store.inbox.accept(said("m2", "group"), queue_max=9)
        among_others = await claim_one(store)

    assert [memory.text for memory in alone.memories] == ["a secret"]
    assert (among_others.is_shared, among_others.memories) == (True, ())


async def test_in_a_group_everybody_is_told_what_was_kept_there_and_nothing_else(
    store: Store, ada: Person, bob: Person
) -> None:
    def said(by: Person, number: int, text: str) -> Update:
        return Update(
            address=Address(adapter="scripted", account="bot", place="room"),
            external_id=f"m{number}",
            kind=UpdateKind.MESSAGE,
            principal=by.id,
            text=text,
            place_kind="group",
        )

    await store.memory.add("a secret", key="mem_1", principal=ada.id, conversation=None)
    await store.inbox.accept(said(ada, 1, "/memory here we meet on Mondays"), queue_max=9)
    listed = await store.inbox.accept(said(ada, 2, "/memory"), queue_max=9)
    await store.inbox.accept(said(bob, 3, "when?"), queue_max=9)
    claimed = await claim_one(store)

    assert "we meet on Mondays" in listed.reply
    assert "secret" not in listed.reply
    assert [memory.text for memory in claimed.memories] == ["we meet on Mondays"]


async def test_a_key_of_anothers_memory_is_refused(store: Store, ada: Person, bob: Person) -> None:
    await (await rememberer(store, ada)).add("likes tea", key="k1")

    with pytest.raises(Conflict):
        await (await rememberer(store, bob)).add("likes coffee", key="k1")


async def test_the_same_text_is_kept_for_each_conversation(store: Store, ada: Person) -> None:
    home = await rememberer(store, ada)
    work = await rememberer(store, Person(store, ada.id, place="work"))

    for number, each in enumerate((home, work)):
        await each.add("be brief", key=f"k{number}", is_here=True)

    assert await home.recalls() == await work.recalls() == ["be brief"]
