"""Checks that the texts of requests are kept once, by their digests, and are erased with what they
tell."""

from collections.abc import Awaitable, Callable
from itertools import count

import msgspec
import pytest
from tests.untyped_rows import rows

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.journal.codec import encode
from perdure.domain.outcomes import Outcome
from perdure.domain.people.memory import Memory, memory_section
from perdure.domain.prompt.prefix import (
    Basis,
    KeptText,
    RequestOrigin,
    kept_text,
    text_digest,
    written_basis,
)
from perdure.domain.turn.rebuilding import MEMORY, StoredRequest, spoken_in
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.known_texts import KNOWN_MAX, KnownTexts
from perdure.store.operations.reading import asking
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    claim_one,
    piece,
    reply_id,
    said,
    tool_call,
    turn_of,
)

NUMBERS = count()
OpenStore = Callable[[], Awaitable[Store]]
INSTRUCTIONS, TOOLS = "Speak of the sea.", '[{"name":"look"}]'


def asks(claimed: Claimed) -> Settlement:
    """Return a settlement after a request with everything that can be told."""
    memory = memory_section(claimed.memories)
    lines = tuple((each.id, each.changed_at) for each in claimed.memories)
    basis = Basis(
        agent="main",
        instructions=text_digest(INSTRUCTIONS),
        memory=text_digest(memory),
        tools=text_digest(TOOLS),
        upto=claimed.events[-1].seq,
    )
    of_person = kept_text(memory, owner=_owner(claimed), lines=lines)
    texts = (*kept_text(INSTRUCTIONS), *of_person, *kept_text(TOOLS))
    return Settlement(
        outcome=Outcome.DONE,
        reason="stop",
        message=reply_id(claimed.lease),
        text="fine",
        asked=RequestOrigin(prefix=written_basis(basis), texts=texts),
    )


def _owner(claimed: Claimed) -> str:
    return claimed.conversation if claimed.is_shared else claimed.principal


async def asked_by(store: Store, person: Person) -> StoredRequest:
    """Run one whole turn. Returns what is stored of its request."""
    turn = turn_of(await person.says())
    claimed = await claim_one(store)
    await store.turns.settle(claimed.lease, asks(claimed))
    return await store.diagnostics.asked(turn)


async def remember(store: Store, person: Person, text: str) -> Memory:
    return await store.memory.add(
        text, key=f"mem_{next(NUMBERS)}", principal=person.id, conversation=None
    )


async def bodies(store: Store) -> list[str]:
    found = await store._driver.read(lambda: rows("SELECT body FROM texts ORDER BY owner, digest"))
    return [body for (body,) in found]


async def test_each_text_is_kept_once(store: Store, ada: Person, bob: Person) -> None:
    for person in (ada, bob, ada):
        spoken = spoken_in(await asked_by(store, person))
        assert (spoken.instructions, spoken.memory, spoken.tools) == (INSTRUCTIONS, "", TOOLS)

    assert sorted(await bodies(store)) == sorted([INSTRUCTIONS, TOOLS])


async def test_another_process_keeps_them_no_second_time(
    store: Store, ada: Person, open_store: OpenStore
) -> None:
    await asked_by(store, ada)
    other = await open_store()

    await asked_by(other, Person(other, ada.id, place="elsewhere"))

    assert len(await bodies(other)) == 2


async def test_what_was_remembered_goes_with_its_memory(
    store: Store, ada: Person, bob: Person
) -> None:
    tea, rum = await remember(store, ada, "likes tea"), await remember(store, ada, "likes te")
    await remember(store, bob, "likes tea, too")
    with_both = await asked_by(store, ada)
    of_bob = await asked_by(store, bob)
    home = (await store.conversations.find("home", principal=ada.id)).view.id

    await store.memory.forget(tea.id, principal=ada.id, conversation=home)

    turn = with_both.queued.turn
    assert spoken_in(with_both).memory.endswith("- likes tea\n- likes te")
    assert spoken_in(await store.diagnostics.asked(turn)).missing == (MEMORY,)
    assert spoken_in(await store.diagnostics.asked(of_bob.queued.turn)).missing == ()
    after = await asked_by(store, ada)
    assert spoken_in(after).memory.endswith("- likes te")

    await store.memory.edit(rum.id, "hates tea", principal=ada.id, conversation=home)

    assert spoken_in(await store.diagnostics.asked(after.queued.turn)).missing == (MEMORY,)
    assert not [body for body in await bodies(store) if "likes te\n" in f"{body}\n"]

    await asked_by(store, ada)
    await store.memory.forget_all(principal=ada.id)

    assert not [body for body in await bodies(store) if "hates tea" in body]


async def test_a_memory_that_comes_again_is_kept_again(store: Store, ada: Person) -> None:
    for _ in range(2):
        await remember(store, ada, "likes tea")
        again = await asked_by(store, ada)
        assert spoken_in(again).missing == ()
        await store.memory.forget_all(principal=ada.id)


async def test_what_is_erased_while_it_is_told_is_not_kept(store: Store, ada: Person) -> None:
    await remember(store, ada, "likes tea")
    await ada.says()
    claimed = await claim_one(store)
    await store.memory.forget_all(principal=ada.id)

    await store.turns.settle(claimed.lease, asks(claimed))

    assert spoken_in(await store.diagnostics.asked(claimed.lease.turn)).missing == (MEMORY,)
    assert not [body for body in await bodies(store) if "likes tea" in body]


async def test_an_operator_is_told_why_there_is_no_request(store: Store, ada: Person) -> None:
    turn = turn_of(await ada.says())
    with pytest.raises(NotFound, match="not over yet"):
        await store.diagnostics.asked(turn)

    claimed = await claim_one(store)
    await store.inbox.stop(turn, by=None)
    with pytest.raises(NotFound, match="ended from outside"):
        await store.diagnostics.asked(turn)

    turn = turn_of(await ada.says())
    claimed = await claim_one(store)
    asked = RequestOrigin(prefix='["main","a1b2c3d4e5f6"]')
    old = Settlement(outcome=Outcome.DONE, reason="stop", asked=asked)
    await store.turns.settle(claimed.lease, old)
    with pytest.raises(NotFound, match=r"before version 0\.19"):
        await store.diagnostics.asked(turn)


async def test_a_request_that_is_too_long_is_not_shown(
    store: Store, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [await asked_by(store, ada) for _ in range(3)][-1]
    size = len(b"".join(await events_of(store, asked)))
    monkeypatch.setattr(asking, "ASKED_BYTES_MAX", size)
    await store.diagnostics.asked(asked.queued.turn)

    monkeypatch.setattr(asking, "ASKED_BYTES_MAX", size - 1)

    with pytest.raises(Rejected, match="page by page") as refused:
        await store.diagnostics.asked(asked.queued.turn)
    assert refused.value.code == "request_too_long"


async def events_of(store: Store, asked: StoredRequest) -> list[bytes]:
    """Return the bodies of all events that a request was made from."""
    chain = await store.conversations.window(asked.queued.turn, limit=9)
    return [encode(recorded.event)[1].encode() for turn in chain for recorded in turn]


async def begun(store: Store, person: Person) -> Claimed:
    """Begin a turn that has said its first words."""
    await person.says()
    claimed = await claim_one(store)
    first = msgspec.structs.replace(piece(claimed.lease, "So "), origin=asks(claimed).asked)
    await store.turns.flush([first, piece(claimed.lease, "far ", start=3)])
    return claimed


async def test_a_turn_that_is_stopped_in_its_words_keeps_what_it_answered(
    store: Store, ada: Person
) -> None:
    claimed = await begun(store, ada)

    await store.inbox.stop(claimed.lease.turn, by=None)

    asked = await store.diagnostics.asked(claimed.lease.turn)
    assert spoken_in(asked).instructions == INSTRUCTIONS
    assert asked.basis.upto == claimed.events[-1].seq


async def test_a_turn_that_is_stopped_in_a_tool_keeps_what_it_answered(
    store: Store, ada: Person
) -> None:
    claimed = await begun(store, ada)
    calls = said(claimed.lease, "So far", calls=(tool_call("look"),))
    await store.turns.append(claimed.lease, [calls], origin=asks(claimed).asked)

    await store.inbox.stop(claimed.lease.turn, by=None)

    assert spoken_in(await store.diagnostics.asked(claimed.lease.turn)).tools == TOOLS


async def test_a_turn_whose_owner_died_keeps_what_it_answered(
    store: Store, ada: Person, restart_peers: Callable[[], Awaitable[list[Store]]]
) -> None:
    claimed = await begun(store, ada)
    other = (await restart_peers())[0]
    await other.nodes.reap(attempts_max=1, limit=9)

    asked = await other.diagnostics.asked(claimed.lease.turn)

    assert spoken_in(asked).instructions == INSTRUCTIONS


def test_no_more_than_so_many_texts_are_known() -> None:
    known = KnownTexts()
    texts = [KeptText(digest=str(number), body="") for number in range(KNOWN_MAX + 1)]
    known.learn(texts[:-1])
    assert known.unknown(texts[:1]) == ()

    known.learn(texts[-1:])

    assert known.unknown(texts) == (texts[1],)
