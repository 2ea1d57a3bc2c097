"""Checks on both databases that a page of a person's list or search costs the same, however many
conversations there are."""

import json
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from perdure.domain.ids import MessageId, PrincipalId, TurnId
from perdure.domain.journal.codec import encode
from perdure.domain.journal.events import TurnQueued
from perdure.ports.records.history import Page, Shelf
from perdure.store.statement import Op, run
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person

Read = Callable[[], Awaitable[object]]
MANY = pytest.mark.parametrize(
    "count", [10_000, pytest.param(100_000, marks=[pytest.mark.chaos, pytest.mark.timeout(900)])]
)
# How much more a page may cost with ten times as many conversations. A scan costs ten times more.
GROWTH_MAX = 3.0
TRIES = 15
# Numbers below this are of the small archive, which one person has; the others are another one's.
FIRST = 1_000_000_000
_NUMBERS = "WITH RECURSIVE n (i) AS (SELECT $1 + 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)"
_CONVERSATIONS = f"""
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
        session_id, generation, is_listed, created_at, active_at, active_span, archived_at)
    {_NUMBERS}
    SELECT 'cnv_' || i, 'http', $3, 'place-' || i, '', '', $3, 'ses_' || i, 1, 1, 1,
           (i - {FIRST}) * CAST(60000 AS BIGINT), (i - {FIRST}) / 10,
           CASE WHEN i % 2 = 0 THEN 1 ELSE NULL END FROM n"""
_SESSIONS = f"""
    INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, head_turn,
        kind, view, strikes, title, opened_at, active_at)
    {_NUMBERS}
    SELECT 'ses_' || i, 'cnv_' || i, $3, 'open', 1, 1, 'trn_' || i, '', '', 0, '', 1, i FROM n"""
_TURNS = f"""
    INSERT INTO turns (id, session_id, parent_id, message_id, kind, state, outcome, reason, detail,
        attempts, queued_seq, queued_at, started_at, settled_at, alive_at, context_tokens,
        principal_id)
    {_NUMBERS}
    SELECT 'trn_' || i, 'ses_' || i, NULL, 'msg_' || i, 'message', 'settled', 'done', 'stop', '', 1,
           1, 1, 1, 1, 1, 0, $3 FROM n"""
_JOURNAL = f"""
    INSERT INTO journal (session_id, seq, turn_id, message_id, kind, at, body)
    {_NUMBERS}
    SELECT 'ses_' || i, 1, 'trn_' || i, 'msg_' || i, $3, 1, $4 FROM n"""
_WAITING = f"INSERT INTO unindexed (turn_id, from_seq) {_NUMBERS} SELECT 'trn_' || i, 0 FROM n"


def _fill(principal: PrincipalId, first: int, end: int) -> Op[None]:
    """Give a person conversations, half of them put away."""
    for sql in (_CONVERSATIONS, _SESSIONS, _TURNS):
        yield from run(sql, first, end, principal)
    queued = TurnQueued(turn=TurnId("trn_x"), message=MessageId("msg_x"), text="plums are blue")
    kind, body = encode(queued)
    yield from run(_JOURNAL, first, end, kind, body)
    yield from run(_WAITING, first, end)


async def filled(store: Store, person: Person, first: int, count: int) -> None:
    await store._driver.write(partial(_fill, person.id, first, first + count))
    while await store.index.catch_up():
        pass
    if not store._driver.dialect.is_exclusive:
        # A server does this by itself, when many rows are new.
        await store._driver.write(partial(run, "ANALYZE"))


async def least_s(read: Read) -> float:
    """Return how long the quickest of several reads took."""
    took = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        await read()
        took.append(time.perf_counter() - begun)
    return min(took)


async def pages(store: Store, person: Person, shelf: Shelf) -> list[str]:
    """Read the first pages of a shelf, each from where the one before ended."""
    names: list[str] = []
    page = Page(limit=50)
    for _ in range(5):
        views = await store.conversations.recent(principal=person.id, page=page, shelf=shelf)
        names += [view.name for view in views]
        page = Page(limit=50, after=(views[-1].at, views[-1].id))
    return names


@MANY
@pytest.mark.slow
async def test_a_page_costs_the_same_however_many_conversations_there_are_and_none_is_lost(
    store: Store, ada: Person, bob: Person, count: int
) -> None:
    small, middle = count // 10, count // 2
    await bob.is_answered("quinces", "are yellow")
    await filled(store, ada, FIRST, small)
    await filled(store, bob, FIRST + small, count - small)

    def listed(who: Person, shelf: Shelf, after: int | None = None) -> Read:
        cursor = None if after is None else (after * 60_000, "")
        page = Page(limit=50, after=cursor)
        return lambda: store.conversations.recent(principal=who.id, page=page, shelf=shelf)

    def found(who: Person) -> Read:
        return lambda: store.archive.search("plums", principal=who.id, before=None, limit=20)

    cases = {
        "shown": (listed(ada, Shelf.SHOWN), listed(bob, Shelf.SHOWN)),
        "in the middle": (listed(ada, Shelf.SHOWN, small // 2), listed(bob, Shelf.SHOWN, middle)),
        "archived": (listed(ada, Shelf.ARCHIVED), listed(bob, Shelf.ARCHIVED)),
        "pinned": (listed(ada, Shelf.PINNED), listed(bob, Shelf.PINNED)),
        "found": (found(ada), found(bob)),
    }
    growth = {}
    for name, (few, many) in cases.items():
        # Few milliseconds may be noise: what takes less than one is as good as nothing.
        few_s, many_s = await least_s(few), await least_s(many)
        growth[name] = many_s / max(few_s, 0.001)
    assert max(growth.values()) < GROWTH_MAX, json.dumps(growth)

    last = FIRST + count - 1
    for shelf, newest in ((Shelf.SHOWN, last), (Shelf.ARCHIVED, last - 1)):
        expected = [f"place-{newest - 2 * number}" for number in range(250)]
        named = [name for name in await pages(store, bob, shelf) if name != "home"]
        assert named == expected[: len(named)]
        assert len(named) >= 249
    # What was said long ago is found behind everything that was said since.
    hits = await store.archive.search("quinces", principal=bob.id, before=None, limit=20)
    assert {hit.conversation for hit in hits} == {"home"}
