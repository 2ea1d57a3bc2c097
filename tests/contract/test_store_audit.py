"""Checks the audit port, and `perdure verify`, which uses it to check every session."""

from functools import partial

import pytest
from tests.untyped_rows import rows

from perdure.app.operate.verify import VerifyVerdict, verify_store
from perdure.domain.ids import QuestionId, SessionId
from perdure.domain.journal.events import ToolStarted
from perdure.domain.tools.asking import ALLOW, DENY
from perdure.ports.records.audit import SessionMark
from perdure.ports.turns.questions import QuestionReply
from perdure.ports.turns.turns import Claimed
from perdure.store.operations.reading import auditing
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    claim_one,
    flush,
    question_about,
    said,
    settle,
    tool_call,
)

TALKS = 5


async def run(store: Store, sql: str, *values: str | int) -> None:
    await store._driver.write(partial(rows, sql, *values))


async def talked(store: Store, ada: Person) -> list[SessionId]:
    """Make sessions in which everything is answered. Returns them in the order of the walk."""
    for number in range(TALKS):
        person = Person(store, ada.id, place=f"room {number}")
        for text in ("one", "two"):
            await person.is_answered(text, f"on {text}", parts=(f"on {text}",))
    return [SessionId(each) for each in sorted(await batches(store))]


async def batches(store: Store, *, only_new: bool = False) -> list[SessionId]:
    found: list[SessionId] = []
    while batch := await store.audit.batch(after=found[-1] if found else None, only_new=only_new):
        found += batch
    return found


async def looked_at(store: Store, *, only_new: bool = False) -> VerifyVerdict:
    """Check everything and note the sound sessions, as `perdure verify` does."""
    verdict = await verify_store(store.audit, store.diagnostics, only_new=only_new)
    await store.audit.note(verdict.sound)
    return verdict


async def test_a_walk_meets_every_session_once(
    store: Store, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = await talked(store, ada)
    monkeypatch.setattr(auditing, "SESSIONS_AT_ONCE", 2)

    assert await batches(store) == sessions
    assert await store.audit.count(only_new=False) == TALKS
    records = await store.audit.records(sessions[1], sessions[3])
    assert [record.session.id for record in records] == sessions[1:4]
    assert {len(record.turns) for record in records} == {2}


async def test_a_long_session_is_a_batch_of_its_own(
    store: Store, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = await talked(store, ada)
    monkeypatch.setattr(auditing, "EVENTS_AT_ONCE", 1)

    assert await store.audit.batch(after=None, only_new=False) == sessions[:1]
    assert await batches(store) == sessions


async def test_what_is_sound_and_at_rest_is_not_new_any_more(store: Store, ada: Person) -> None:
    sessions = await talked(store, ada)
    waiting = await Person(store, ada.id, place="waiting").says("not yet")

    verdict = await looked_at(store)

    assert verdict.report.violations == []
    assert verdict.report.sessions == TALKS + 1
    assert {mark.session for mark in verdict.sound} == set(sessions)
    assert await batches(store, only_new=True) == [waiting.session]
    assert await store.audit.count(only_new=True) == 1


async def test_whatever_happens_in_a_session_makes_it_new_again(store: Store, ada: Person) -> None:
    await talked(store, ada)
    await looked_at(store)
    room = Person(store, ada.id, place="room 0", adapter="http")
    room._sent = 2

    said = await room.says("three")
    assert await batches(store, only_new=True) == [said.session]
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "on three")
    assert await batches(store, only_new=True) == [said.session]
    await settle(store, claimed, "on three")

    again = await looked_at(store, only_new=True)
    assert (again.report.sessions, again.report.violations) == (1, [])
    assert await batches(store, only_new=True) == []


async def test_a_broken_session_stays_new_until_it_is_mended(store: Store, ada: Person) -> None:
    broken, *others = await talked(store, ada)
    await run(store, "UPDATE sessions SET strikes = strikes + 1 WHERE id = $1", broken)

    first = await looked_at(store)
    second = await looked_at(store, only_new=True)

    assert len(first.report.violations) == 1
    assert first.report.violations == second.report.violations
    assert first.report.violations[0].startswith(broken)
    assert {mark.session for mark in first.sound} == set(others)
    await run(store, "UPDATE sessions SET strikes = strikes - 1 WHERE id = $1", broken)
    assert (await looked_at(store, only_new=True)).report.violations == []
    assert await batches(store, only_new=True) == []


async def test_a_journal_with_a_gap_is_found(store: Store, ada: Person) -> None:
    broken, *others = await talked(store, ada)
    shift = "UPDATE journal SET seq = seq + 10 WHERE session_id = $1 AND seq = $2"
    last = (await store.diagnostics.record(broken)).events[-1].seq
    await run(store, shift, broken, last)

    verdict = await looked_at(store)

    assert verdict.report.violations == [f"{broken}: the journal's numbers have a gap"]
    assert {mark.session for mark in verdict.sound} == set(others)


async def asked(store: Store, ada: Person, *, is_allowed: bool | None) -> Claimed:
    """Let a turn ask whether a call may run. Some answer may come, and then the call begins and is
    cut, so that nobody knows whether it has happened."""
    await ada.says("pay")
    claimed = await claim_one(store)
    lease, call = claimed.lease, tool_call("pay")
    await store.turns.append(lease, [said(lease, "", calls=(call,))])
    await store.turns.wait(lease, [question_about(lease, call)])
    if is_allowed is not None:
        answer = ALLOW if is_allowed else DENY
        reply = QuestionReply(question=QuestionId("qst_1"), answer=answer, by=ada.id)
        await store.questions.answer(reply)
        lease = (await claim_one(store)).lease
        began = [ToolStarted(turn=lease.turn, call=call.id)] if is_allowed else []
        await store.turns.append(lease, began)
        await store.inbox.stop(lease.turn, by=ada.id)
    return claimed


BROKEN_QUESTIONS = {
    "a row that nobody asked for": (
        None,
        "UPDATE questions SET id = 'qst_2'",
        "not in both",
    ),
    "an open question of a turn that is over": (
        True,
        "UPDATE questions SET state = 'pending', answered_at = NULL",
        "has an open question, and does not wait",
    ),
    "a turn that waits for nothing": (
        None,
        "UPDATE questions SET state = 'denied', answered_at = 1",
        "waits, and no question of it is open",
    ),
    "another verdict than the journal's": (
        True,
        "UPDATE questions SET state = 'denied'",
        "is denied, by the journal allowed",
    ),
    "another person than the journal's": (
        False,
        "UPDATE questions SET answered_by = 'prn_x'",
        "the row says",
    ),
    "another call than the journal's": (
        None,
        "UPDATE questions SET call_id = 'call_x'",
        "the row says",
    ),
    "a notice that never told it": (
        None,
        "UPDATE questions SET message_id = 'msg_x'",
        "was told by",
    ),
    "an answer that is not there": (
        True,
        "UPDATE journal SET kind = 'turn_went' WHERE kind = 'answer_received'",
        "",
    ),
    "a call that began unasked": (
        True,
        (
            "UPDATE journal SET body = REPLACE(body, '\"allow\"', '\"deny\"') "
            "WHERE kind = 'answer_received'"
        ),
        "began without being allowed",
    ),
    "an effect of a call that never began": (
        True,
        "UPDATE effects SET call_id = 'call_x'",
        "is kept as a call of unknown fate, and is none",
    ),
    "an effect that was told nowhere": (
        True,
        "UPDATE effects SET state = 'happened', marked_at = 1, told_turn_id = turn_id",
        "is told as",
    ),
}


@pytest.mark.parametrize("what", BROKEN_QUESTIONS)
async def test_what_is_wrong_with_a_question_or_an_effect_is_found(
    store: Store, ada: Person, what: str
) -> None:
    is_allowed, damage, words = BROKEN_QUESTIONS[what]
    claimed = await asked(store, ada, is_allowed=is_allowed)
    assert (await looked_at(store)).report.violations == []

    await run(store, damage)

    found = (await looked_at(store)).report.violations
    assert found, "nothing was found"
    assert any(words in each for each in found), found
    assert all(each.startswith(claimed.lease.session) for each in found)


async def test_a_session_that_cannot_be_read_is_named_and_the_others_are_judged(
    store: Store, ada: Person
) -> None:
    torn, broken, *others = await talked(store, ada)
    await run(store, "UPDATE journal SET body = '{' WHERE session_id = $1 AND seq = 3", torn)
    await run(store, "UPDATE sessions SET last_seq = last_seq + 1 WHERE id = $1", broken)

    verdict = await looked_at(store)

    assert {each.partition(":")[0] for each in verdict.report.violations} == {torn, broken}
    assert any("cannot be read" in each for each in verdict.report.violations)
    assert {mark.session for mark in verdict.sound} == set(others)


@pytest.mark.parametrize(
    "astray",
    ["UPDATE inbox SET turn_id = 'trn_nowhere' WHERE message_id = $1",
     "UPDATE inbox SET turn_id = 'trn_nowhere', message_id = 'msg_nowhere' WHERE message_id = $1"],
    ids=["of a message that is here", "of a message that nobody knows"],
)  # fmt: skip
async def test_an_update_whose_turn_is_not_there_is_found(
    store: Store, ada: Person, astray: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = await talked(store, ada)
    message = (await store.diagnostics.record(sessions[2])).updates[0][2]
    await run(store, astray, message)
    monkeypatch.setattr(auditing, "UPDATES_AT_ONCE", 3)

    verdict = await looked_at(store)

    (found,) = verdict.report.violations
    assert found.startswith(sessions[2])
    assert "trn_nowhere" in found


async def test_the_progress_of_a_check_is_told(
    store: Store, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talked(store, ada)
    monkeypatch.setattr(auditing, "SESSIONS_AT_ONCE", 2)
    told: list[tuple[int, int]] = []

    await verify_store(store.audit, store.diagnostics, tell=lambda *far: told.append(far))

    assert told == [(0, TALKS), (2, TALKS), (4, TALKS), (5, TALKS)]


async def test_a_mark_of_a_session_that_is_not_there_is_passed_over(store: Store) -> None:
    await store.audit.note([SessionMark(SessionId("ses_nowhere"), 1, 1)])

    assert await store.audit.count(only_new=True) == 0
