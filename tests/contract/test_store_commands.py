"""Checks every command on both databases, through the door that people use.

After each test everything stored must be sound. The speaker sends every update twice, and the
second delivery must change nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec
import pytest

from perdure.domain.address import Address
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.inbound.updates import Accepted, UpdateEffect
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    NoticePosted,
    Recorded,
    SenderTraits,
    TurnQueued,
)
from perdure.domain.journal.model.options import NONE, Options
from perdure.domain.journal.session_events import (
    CommandTaken,
    Compacted,
    CompactionDropped,
    CompactionFailed,
    HeadMoved,
    SessionClosed,
    TitleSet,
)
from perdure.domain.journal.transcript import entries_of
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Busy, Interruption, Outcome
from perdure.domain.people.menu import AgentOffer, Menu
from perdure.domain.prompt.compaction import KEEP_TURNS_MAX, background
from perdure.domain.prompt.prompt import TextBlock, messages_of
from perdure.ports.records.history import Page, Snapshot
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    GO_ON,
    Person,
    claim_one,
    flush,
    message,
    only,
    problems_of,
    reply_id,
    settle,
    turn_of,
)
from perdure.testkit.simulator.system import VirtualClock

MENU = Menu(
    agents={"main": AgentOffer(), "backup": AgentOffer(), "keeper": AgentOffer(has_memory=True)},
    personas=("terse", "kind"),
)


class Alive(Protocol):
    """Names the processes that are running, newest last."""

    alive: list[Store]


@pytest.fixture(autouse=True)
async def _everything_is_sound(store: Store, lives: Alive) -> AsyncIterator[None]:
    yield
    assert await problems(lives.alive[-1]) == []


async def problems(store: Store) -> list[str]:
    page = Page(limit=1000, with_unlisted=True)
    sessions = await store.archive.sessions(principal=None, page=page)
    found = [problem for each in sessions for problem in await problems_of(store, each.id)]
    return found + list(await store.audit.suspects())


class Talk:
    """Plays one person in one conversation, and the runner that answers."""

    def __init__(
        self, store: Store, person: Person, clock: VirtualClock, *, place: str = "home"
    ) -> None:
        self.store = store
        self.person = person
        self._clock = clock
        self._place = place
        self._sent = 0
        self.menu = MENU

    async def picture(self, name: str) -> Attachment:
        """Upload a picture that no message names yet."""
        media = await self.store.media.put(
            name.encode(), mime="image/png", name=name, principal=self.person.id
        )
        return Attachment(media=media.id, mime=media.mime, name=media.name)

    async def say(
        self,
        text: str,
        *,
        busy: Busy = Busy.QUEUE,
        attachments: tuple[Attachment, ...] = (),
        options: Options = NONE,
    ) -> Accepted:
        """Send a message twice, as platforms may deliver it. Checks that the second delivery
        changes nothing."""
        self._sent += 1
        self._clock.advance(1)
        external_id = f"{self._place}-{self._sent}"
        update = message(self.person.id, text, external_id=external_id, place=self._place)
        update = msgspec.structs.replace(
            update, busy=busy, attachments=attachments, options=options
        )
        accepted = await self.store.inbox.accept(update, queue_max=100, menu=self.menu)
        before = await self._everything()
        again = await self.store.inbox.accept(update, queue_max=100, menu=self.menu)
        assert again.is_duplicate
        first = (accepted.session, accepted.turn, accepted.message, accepted.reply)
        assert (again.session, again.turn, again.message, again.reply) == first
        assert (again.command, again.effect) == (accepted.command, accepted.effect)
        assert await self._everything() == before
        return accepted

    async def _everything(self) -> list[tuple[str, int, str, str | None]]:
        page = Page(limit=1000, with_unlisted=True)
        sessions = await self.store.archive.sessions(principal=None, page=page)
        records = [await self.store.diagnostics.record(each.id) for each in sessions]
        return [(r.session.id, r.session.events, r.session.state, r.head) for r in records]

    async def exchange(self, *questions: str) -> list[TurnId]:
        return [(await self.answer(await self.say(question))) for question in questions]

    async def answer(self, accepted: Accepted | None = None, text: str = "") -> TurnId:
        claimed = await claim_one(self.store)
        assert accepted is None or claimed.lease.turn == accepted.turn
        await settle(self.store, claimed, text or f"on {queued(claimed).text}")
        return claimed.lease.turn

    async def snapshot(self) -> Snapshot:
        return await self.store.conversations.find(self._place, principal=self.person.id)

    async def session(self) -> SessionId:
        return (await self.snapshot()).view.standing.session

    async def head(self) -> TurnId | None:
        return (await self.snapshot()).view.standing.head

    async def waiting(self) -> list[str]:
        turns = (await self.snapshot()).view.standing.open_turns
        found = [await self.store.diagnostics.explain(t.id, principal=None) for t in turns]
        return [only(TurnQueued, each.events)[0].text for each in found]

    async def transcript(self) -> list[str]:
        tip = (await self.snapshot()).view.standing.tip
        if tip is None:
            return []
        chain = await self.store.conversations.chain(tip, limit=1000)
        return [entry.text for turn in chain for entry in entries_of(turn)]

    async def told(self) -> list[str]:
        """Return what the model would be told of the conversation."""
        head = await self.head()
        if head is None:
            return []
        turns = await self.store.conversations.window(head, limit=1000)
        messages = [message for turn in turns for message in messages_of(turn)]
        blocks = [block for message in messages for block in message.blocks]
        return [block.text for block in blocks if isinstance(block, TextBlock)]

    async def outcome(self, turn: TurnId) -> str | None:
        return (await self.store.archive.turn(turn, principal=None)).outcome


def queued(claimed: Claimed) -> TurnQueued:
    return only(TurnQueued, claimed.events)[0]


@pytest.fixture
def talk(store: Store, ada: Person, clock: VirtualClock) -> Talk:
    return Talk(store, ada, clock)


@pytest.fixture
async def one(talk: Talk) -> TurnId:
    return (await talk.exchange("one"))[0]


class TestUndo:
    async def test_the_last_turn_is_taken_back_with_its_message(self, talk: Talk) -> None:
        first, second = await talk.exchange("one", "two")

        undone = await talk.say("/undo")

        assert (undone.command, undone.turn, undone.effect) == (
            "undo",
            None,
            UpdateEffect.COMMANDED,
        )
        assert undone.reply == "Undone:\n\ntwo"
        assert await talk.head() == first
        assert await talk.transcript() == ["one", "on one"]
        assert await talk.told() == ["one", "on one"]
        assert await talk.outcome(second) == "done"

    async def test_several_turns_are_undone_at_once(self, talk: Talk) -> None:
        await talk.exchange("one", "two", "three")

        undone = await talk.say("/undo 2")

        assert undone.reply == "Undone, 2 turns:\n\ntwo\n\nthree"
        assert await talk.transcript() == ["one", "on one"]

    async def test_an_undo_of_more_turns_than_there_are_undoes_all(self, talk: Talk) -> None:
        await talk.exchange("one", "two")

        undone = await talk.say("/undo 1000")

        assert undone.reply == "Undone, 2 turns:\n\none\n\ntwo"
        assert await talk.head() is None
        assert (await talk.say("/undo")).reply == "Nothing to undo."

    async def test_an_undo_at_the_beginning_finds_nothing(self, talk: Talk) -> None:
        assert (await talk.say("/undo")).reply == "Nothing to undo."
        assert not only(HeadMoved, await recorded_in(talk))

    async def test_a_running_turn_is_stopped_and_counts_as_one(self, talk: Talk) -> None:
        await talk.exchange("one")
        running = await talk.say("two")
        claimed = await claim_one(talk.store)
        await flush(talk.store, claimed.lease, "half an ans")

        undone = await talk.say("/undo")

        assert undone.reply == "Undone:\n\ntwo"
        assert undone.ended == (running.turn,)
        assert await talk.outcome(turn_of(running)) == "stopped"
        assert await talk.transcript() == ["one", "on one"]
        assert (await talk.say("/redo")).reply == "Brought back."
        assert await talk.transcript() == ["one", "on one", "two", "half an ans"]

    async def test_what_waits_stays_and_goes_on_from_there(self, talk: Talk) -> None:
        await talk.exchange("one")
        await talk.say("two")
        await claim_one(talk.store)
        later = await talk.say("three")

        await talk.say("/undo")

        assert await talk.waiting() == ["three"]
        await talk.answer(later)
        assert await talk.transcript() == ["one", "on one", "three", "on three"]

    async def test_an_interrupted_turn_counts_as_one(self, talk: Talk) -> None:
        await talk.exchange("one")
        cut = await talk.say("two")
        claimed = await claim_one(talk.store)
        await talk.store.turns.interrupt(claimed.lease, Interruption.SHUTDOWN, attempts_max=3)

        assert (await talk.say("/undo")).reply == "Undone:\n\ntwo"
        assert await talk.outcome(turn_of(cut)) == "interrupted"
        assert await talk.transcript() == ["one", "on one"]

    async def test_the_reply_repeats_the_words_as_they_stand(self, talk: Talk) -> None:
        await talk.say("one")
        claimed = await claim_one(talk.store)
        await talk.say("and also", busy=Busy.STEER)
        await talk.store.turns.take_steers(claimed.lease)
        await settle(talk.store, claimed)

        assert (await talk.say("/undo")).reply == "Undone:\n\none\n\nand also"

    @pytest.mark.parametrize("count", ["0", "x", "-1", "1001", "1 2"])
    async def test_a_bad_count_changes_nothing(self, talk: Talk, count: str) -> None:
        running = await talk.say("one")
        await claim_one(talk.store)

        refused = await talk.say(f"/undo {count}")

        assert "1 to 1,000" in refused.reply
        assert refused.ended == ()
        assert await talk.outcome(turn_of(running)) is None


class TestRedo:
    async def test_undos_are_redone_the_last_first(self, talk: Talk) -> None:
        await talk.exchange("one", "two", "three", "four")
        await talk.say("/undo")
        await talk.say("/undo 2")

        assert (await talk.say("/redo")).reply == "Brought back."
        assert (await talk.transcript())[-1] == "on three"
        assert (await talk.say("/redo")).reply == "Brought back."
        assert (await talk.transcript())[-1] == "on four"
        assert (await talk.say("/redo")).reply == "Nothing to redo."

    async def test_an_undo_after_a_redo_can_be_redone_too(self, talk: Talk) -> None:
        await talk.exchange("one", "two")
        for command in ("/undo", "/undo", "/redo", "/undo"):
            await talk.say(command)

        await talk.say("/redo")
        await talk.say("/redo")

        assert (await talk.transcript())[-1] == "on two"

    async def test_a_turn_that_waits_does_not_forget_one_that_starts_does(self, talk: Talk) -> None:
        await talk.exchange("one", "two")
        await talk.say("/undo")
        await talk.say("three")

        assert (await talk.say("/redo")).reply == "Brought back."
        await talk.say("/undo")
        running = await claim_one(talk.store)
        told = await talk.say("/redo")
        assert told.reply == "Nothing to redo. What was running is stopped; /retry asks again."
        assert told.ended == (running.lease.turn,)
        assert await talk.transcript() == ["one", "on one", "three", ""]

    async def test_a_redo_survives_a_restart(
        self, talk: Talk, restart: Callable[[], Awaitable[Store]]
    ) -> None:
        await talk.exchange("one", "two")
        await talk.say("/undo")

        talk.store = await restart()

        assert (await talk.say("/redo")).reply == "Brought back."
        assert (await talk.transcript())[-1] == "on two"


class TestRetry:
    async def test_the_same_message_is_asked_again_in_its_place(self, talk: Talk) -> None:
        _, second = await talk.exchange("one", "two")

        asked = await talk.say("/retry")

        assert asked.reply == "Asking again."
        assert await talk.answer(asked, "better") == asked.turn
        assert await talk.transcript() == ["one", "on one", "two", "better"]
        again = only(TurnQueued, await recorded_in(talk))[-1]
        assert (again.origin, again.text, again.kind) == (second, "two", "message")
        assert again.message != asked.message

    async def test_steers_and_media_are_asked_again_as_one_message(self, talk: Talk) -> None:
        picture, sketch = await talk.picture("a.png"), await talk.picture("b.png")
        await talk.say("what is this", attachments=(picture,))
        claimed = await claim_one(talk.store)
        await talk.say("and that", busy=Busy.STEER, attachments=(sketch,))
        await talk.store.turns.take_steers(claimed.lease)
        await settle(talk.store, claimed)

        await talk.say("/retry")

        again = queued(await claim_one(talk.store))
        assert again.text == "what is this\n\nand that"
        assert again.attachments == (picture, sketch)

    async def test_a_failed_turn_can_be_retried(self, talk: Talk) -> None:
        await talk.say("one")
        await settle(talk.store, await claim_one(talk.store), "", outcome=Outcome.FAILED)

        await talk.answer(await talk.say("/retry"))

        assert await talk.transcript() == ["one", "on one"]

    async def test_a_running_turn_is_ended_and_asked_again(self, talk: Talk) -> None:
        running = await talk.say("one")
        await claim_one(talk.store)

        asked = await talk.say("/retry")

        assert asked.ended == (running.turn,)
        await talk.answer(asked)
        assert await talk.transcript() == ["one", "on one"]

    async def test_a_retry_runs_before_everything_that_waits(self, talk: Talk) -> None:
        await talk.say("one")
        claimed = await claim_one(talk.store)
        await talk.say("two")
        await talk.say("a word to it", busy=Busy.STEER)
        await settle(talk.store, claimed)

        asked = await talk.say("/retry")

        assert await talk.waiting() == ["one", "two", "a word to it"]
        await talk.answer(asked)
        await talk.answer(text="on two")
        assert await talk.transcript() == ["one", "on one", "two", "on two"]

    async def test_a_retry_of_a_shared_turn_runs_first_too(self, talk: Talk) -> None:
        await talk.exchange(*(f"earlier {n}" for n in range(5)))
        await talk.say("/branch")
        await talk.say("waits")

        asked = await talk.say("/retry")

        assert await talk.waiting() == ["earlier 4", "waits"]
        await talk.answer(asked, "anew")
        assert (await talk.transcript())[-2:] == ["earlier 4", "anew"]

    async def test_a_retry_that_is_repeated_goes_back_once(self, talk: Talk) -> None:
        await talk.exchange("one", "two")
        first = await talk.say("/retry")

        second = await talk.say("/retry")

        assert second.ended == (first.turn,)
        assert await talk.waiting() == ["two"]
        await talk.answer(second)
        assert await talk.transcript() == ["one", "on one", "two", "on two"]

    async def test_a_retry_that_has_not_begun_can_be_undone(self, talk: Talk) -> None:
        await talk.exchange("one", "two")
        await talk.say("/retry")

        undone = await talk.say("/undo")

        assert undone.reply == "Undone:\n\ntwo"
        assert await talk.waiting() == []
        assert await talk.transcript() == ["one", "on one"]
        await talk.say("/redo")
        assert await talk.transcript() == ["one", "on one", "two", "on two"]

    async def test_a_retry_asks_the_agent_that_is_chosen_now(self, talk: Talk, one: TurnId) -> None:
        await talk.say("/agent backup")
        await talk.say("/retry")

        assert queued(await claim_one(talk.store)).agent == "backup"

    async def test_a_retry_of_nothing_is_answered_in_words(self, talk: Talk) -> None:
        asked = await talk.say("/retry")

        assert (asked.reply, asked.turn) == ("Nothing to retry.", None)


class TestBranch:
    async def test_turns_are_shared_and_the_transcript_goes_on(self, talk: Talk) -> None:
        _, second = await talk.exchange("one", "two")
        old = await talk.session()

        branched = await talk.say("/branch elsewhere")

        assert branched.session == await talk.session() != old
        assert await talk.head() == second
        assert await talk.transcript() == ["one", "on one", "two", "on two"]
        await talk.exchange("three")
        assert (await talk.transcript())[-2:] == ["three", "on three"]
        view = await talk.store.archive.session(branched.session, principal=None)
        assert (view.title, view.parent) == ("elsewhere", old)
        assert (await talk.store.archive.session(old, principal=None)).state == "closed"
        assert len((await talk.store.diagnostics.record(branched.session)).turns) == 1

    async def test_the_old_session_stays_as_it_was(self, talk: Talk) -> None:
        await talk.exchange("one", "two")
        old = await talk.session()
        await talk.say("/branch")
        await talk.say("/undo")
        await talk.exchange("another")

        await talk.say(f"/resume {old}")

        assert await talk.transcript() == ["one", "on one", "two", "on two"]

    async def test_undo_goes_back_into_what_is_shared(self, talk: Talk) -> None:
        await talk.exchange("one", "two")
        await talk.say("/branch")

        assert (await talk.say("/undo")).reply == "Undone:\n\ntwo"
        assert await talk.transcript() == ["one", "on one"]
        await talk.say("/redo")
        await talk.answer(await talk.say("/retry"), "again")
        assert await talk.transcript() == ["one", "on one", "two", "again"]

    async def test_what_runs_is_stopped_and_part_of_the_branch(self, talk: Talk) -> None:
        running = await talk.say("one")
        claimed = await claim_one(talk.store)
        await flush(talk.store, claimed.lease, "half")
        waits = await talk.say("two")

        branched = await talk.say("/branch")

        assert branched.ended == (running.turn, waits.turn)
        assert "2 turns were stopped" in branched.reply
        assert await talk.transcript() == ["one", "half"]
        assert await talk.store.turns.claim(limit=5) == []

    async def test_a_titled_session_has_titled_branches(self, talk: Talk, one: TurnId) -> None:
        await talk.say("/title A trip")
        branched = await talk.say("/branch")

        view = await talk.store.archive.session(branched.session, principal=None)
        assert view.title == "A trip (branch)"

    async def test_a_branch_of_nothing_is_an_empty_session(self, talk: Talk) -> None:
        await talk.say("/branch")

        assert await talk.transcript() == []
        await talk.exchange("one")


class TestRotation:
    @pytest.mark.parametrize("command", ["/new", "/reset"])
    async def test_a_new_session_knows_nothing_and_the_old_one_stays(
        self, talk: Talk, one: TurnId, command: str
    ) -> None:
        old = await talk.session()

        begun = await talk.say(command)

        assert begun.session == await talk.session() != old
        assert await talk.transcript() == []
        claimed = await claim_one_of(talk, "two")
        assert claimed.parent is None
        closed = only(SessionClosed, await recorded_in(talk, old))[-1]
        assert (closed.reason, closed.successor) == (command[1:], begun.session)

    async def test_what_ran_and_what_waited_is_stopped_and_counted(self, talk: Talk) -> None:
        running = await talk.say("one")
        claimed = await claim_one(talk.store)
        waits = await talk.say("two")
        await talk.say("a word to it", busy=Busy.STEER)
        old = await talk.session()

        begun = await talk.say("/new")

        assert begun.ended[:2] == (running.turn, waits.turn)
        assert "3 turns were stopped" in begun.reply
        assert len(begun.ended) == 3
        assert {await talk.outcome(turn) for turn in begun.ended} == {"stopped"}
        assert await talk.store.turns.claim(limit=5) == []
        await talk.say(f"/resume {old}")
        assert await talk.waiting() == []
        assert await flush(talk.store, claimed.lease, "late") == [claimed.lease]

    async def test_a_title_may_be_given_at_once(self, talk: Talk) -> None:
        begun = await talk.say("/new   A  trip ")

        view = await talk.store.archive.session(begun.session, principal=None)
        assert view.title == "A trip"
        assert (await talk.say("/title")).reply == "A trip"

    async def test_reset_takes_nothing_after_it(self, talk: Talk, one: TurnId) -> None:
        old = await talk.session()

        assert "/reset" in (await talk.say("/reset now")).reply
        assert await talk.session() == old

    async def test_resume_goes_back_to_the_session_before(self, talk: Talk, one: TurnId) -> None:
        old = await talk.session()
        new = (await talk.say("/new")).session
        await talk.exchange("two")

        assert (await talk.say("/resume")).session == old
        assert await talk.transcript() == ["one", "on one"]
        await talk.exchange("three")
        assert (await talk.say("/resume")).session == new
        assert await talk.transcript() == ["two", "on two"]

    async def test_resume_finds_a_session_by_title_and_by_id(self, talk: Talk, one: TurnId) -> None:
        await talk.say("/title The Trip")
        old = await talk.session()
        other = (await talk.say("/new")).session
        await talk.say("/new")

        back = await talk.say("/resume the trip")

        assert back.session == old == await talk.session()
        assert "(The Trip)" in back.reply
        assert (await talk.say(f"/resume {other}")).session == other

    async def test_resume_of_what_is_not_here_stops_nothing(
        self, talk: Talk, store: Store, ada: Person, clock: VirtualClock
    ) -> None:
        elsewhere = Talk(store, ada, clock, place="work")
        await elsewhere.exchange("other")
        foreign = await elsewhere.session()
        running = await talk.say("one")
        await claim_one(store)

        assert "no other session nowhere" in (await talk.say("/resume nowhere")).reply
        assert "no other session" in (await talk.say(f"/resume {foreign}")).reply
        assert "no earlier session" in (await talk.say("/resume")).reply
        own = await talk.session()
        assert "no other session" in (await talk.say(f"/resume {own}")).reply
        assert await talk.outcome(turn_of(running)) is None

    async def test_a_suspended_session_is_resumed_with_a_clean_slate(self, talk: Talk) -> None:
        await talk.say("one")
        old = await talk.session()
        claimed = await claim_one(talk.store)
        await talk.store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

        assert (await talk.say("/resume")).session == old
        assert (await talk.store.diagnostics.record(old)).strikes == 0
        await talk.exchange("two")

    async def test_a_title_holds_nothing_that_cannot_be_shown(self, talk: Talk) -> None:
        named = await talk.say("/title A\u202e \x1b]0;trip\x07")
        assert named.reply == "This session is now called: A ]0;trip"
        assert "nothing in that title" in (await talk.say("/title \u202e\x07")).reply
        assert (await talk.say("/title")).reply == "A ]0;trip"

    @pytest.mark.parametrize(
        "command", ["new", "branch", "title", "resume", "sessions", "why", "agent", "background"]
    )
    async def test_no_reply_repeats_what_cannot_be_shown(
        self, talk: Talk, one: TurnId, command: str
    ) -> None:
        reply = (await talk.say(f"/{command} \x1b]0;pwn\x07 t\u202e")).reply

        assert reply
        assert all(c.isprintable() for line in reply.split("\n") for c in line), ascii(reply)

    async def test_a_new_session_is_told_with_the_title_it_has(self, talk: Talk) -> None:
        begun = await talk.say("/new \x1b]0;pwn\x07 t")
        view = await talk.store.archive.session(begun.session, principal=None)
        assert begun.reply.startswith(f"A new session about {view.title}.")
        assert (await talk.say("/new \x07")).reply.startswith("A new session.")

    async def test_a_title_is_given_shown_and_bounded(self, talk: Talk) -> None:
        assert "no title" in (await talk.say("/title")).reply
        named = await talk.say("/title  A trip\nto Oslo")

        assert "A trip to Oslo" in named.reply
        assert only(TitleSet, named.recorded)[0].by == talk.person.id
        assert (await talk.say("/title")).reply == "A trip to Oslo"
        await talk.say("/title " + "x" * 200)
        assert len((await talk.say("/title")).reply) == 80

    async def test_an_agent_with_a_memory_is_asked_what_to_keep(self, talk: Talk) -> None:
        await talk.say("/agent keeper")
        await talk.exchange("one")
        old = await talk.session()
        await talk.say("/new")
        held = await talk.say("two")

        errand = await claim_one(talk.store)

        assert queued(errand).kind == "memory"
        assert errand.parent is not None
        view = await talk.store.archive.session(errand.lease.session, principal=None)
        assert view.parent == old
        assert await talk.store.turns.claim(limit=5) == []
        await settle(talk.store, errand, "done")
        await talk.answer(held)

    async def test_memories_are_not_waited_for_for_ever(
        self, talk: Talk, clock: VirtualClock
    ) -> None:
        await talk.say("/agent keeper")
        await talk.exchange("one")
        await talk.say("/new")
        held = await talk.say("two")
        await claim_one(talk.store)

        clock.advance(MENU.hold_ms / 1000)

        await talk.answer(held)

    async def test_a_memory_that_failed_is_told(self, talk: Talk) -> None:
        await talk.say("/agent keeper")
        await talk.exchange("one")
        await talk.say("/new")

        await settle(talk.store, await claim_one(talk.store), "", outcome=Outcome.FAILED)

        assert "could not be saved" in only(NoticePosted, await recorded_in(talk))[0].text


class TestTheLine:
    async def test_queue_waits_whatever_the_mode(self, talk: Talk) -> None:
        running = await talk.say("one")
        await claim_one(talk.store)

        added = await talk.say("/queue two", busy=Busy.INTERRUPT)

        assert added.reply == "Queued; 1 before it."
        assert added.turn is not None
        assert await talk.outcome(turn_of(running)) is None
        assert await talk.waiting() == ["one", "two"]
        taken = only(CommandTaken, await recorded_in(talk))[-1]
        assert (taken.command, taken.turn) == ("queue", added.turn)

    async def test_queue_with_nothing_before_it_is_answered_now(self, talk: Talk) -> None:
        added = await talk.say("/queue one")

        assert "answering now" in added.reply
        await talk.answer(added)
        assert await talk.transcript() == ["one", "on one"]

    async def test_steer_reaches_the_turn_that_runs(self, talk: Talk) -> None:
        running = await talk.say("one")
        claimed = await claim_one(talk.store)

        steered = await talk.say("/steer rather this")

        assert (steered.reply, steered.turn) == ("Passed on.", running.turn)
        assert steered.effect is UpdateEffect.STEERED
        await talk.store.turns.take_steers(claimed.lease)
        await settle(talk.store, claimed, "fine")
        assert await talk.transcript() == ["one", "rather this", "fine"]

    async def test_a_steer_that_is_never_taken_is_a_turn_of_its_own(self, talk: Talk) -> None:
        await talk.say("one")
        claimed = await claim_one(talk.store)
        await talk.say("/steer rather this")

        await settle(talk.store, claimed, "fine")

        assert await talk.waiting() == ["rather this"]
        await talk.answer()

    @pytest.mark.parametrize("command", ["queue", "steer", "background"])
    async def test_queue_steer_and_background_need_words(self, talk: Talk, command: str) -> None:
        refused = await talk.say(f"/{command}")

        assert "needs something after it" in refused.reply
        assert refused.turn is None
        assert await talk.waiting() == []

    async def test_stop_takes_the_running_one_and_counts_the_rest(self, talk: Talk) -> None:
        running = await talk.say("one")
        await claim_one(talk.store)
        await talk.say("two")
        await talk.say("/steer a word")

        stopped = await talk.say("/stop")

        assert stopped.reply == "Stopped. 2 more messages wait."
        assert stopped.ended == (running.turn,)
        assert await talk.waiting() == ["two", "a word"]

    async def test_stop_all_takes_everything(self, talk: Talk) -> None:
        await talk.say("one")
        await claim_one(talk.store)
        await talk.say("two")
        await talk.say("/steer a word")
        await talk.say("/background beside")

        stopped = await talk.say("/stop all")

        assert stopped.reply == "Stopped 4 turns."
        assert await talk.waiting() == ["beside"]  # the result says that it was stopped

    async def test_stop_of_an_interrupted_turn_is_a_stop(self, talk: Talk) -> None:
        cut = await talk.say("one")
        claimed = await claim_one(talk.store)
        await talk.store.turns.interrupt(claimed.lease, Interruption.SHUTDOWN, attempts_max=3)

        assert (await talk.say("/stop")).ended == (cut.turn,)
        assert await talk.outcome(turn_of(cut)) == "stopped"
        assert (await talk.store.nodes.resume(GO_ON, limit=5)).recorded == []

    async def test_stop_takes_the_oldest_that_waits(self, talk: Talk) -> None:
        first = await talk.say("one")
        await talk.say("two")

        assert (await talk.say("/stop")).reply == "Stopped. 1 more message waits."
        assert await talk.outcome(turn_of(first)) == "stopped"

    async def test_stop_takes_the_newest_errand(self, talk: Talk, one: TurnId) -> None:
        await talk.say("/background first")
        newest = await talk.say("/background second")
        await talk.say("/new")

        stopped = await talk.say("/stop")

        assert (stopped.reply, stopped.ended) == ("Stopped.", (newest.turn,))

    async def test_stop_of_nothing_or_of_nonsense_stops_nothing(self, talk: Talk) -> None:
        assert (await talk.say("/stop")).reply == "Nothing is running here."
        running = await talk.say("one")
        await claim_one(talk.store)
        assert "/stop all" in (await talk.say("/stop everything")).reply
        assert await talk.outcome(turn_of(running)) is None


class TestBackground:
    async def test_the_result_comes_back_as_one_turn(self, talk: Talk, one: TurnId) -> None:
        picture = await talk.picture("a.png")
        sent = await talk.say("/background look it up", attachments=(picture,))
        errand = await claim_one(talk.store)

        assert (errand.lease.turn, errand.parent) == (sent.turn, one)
        assert queued(errand).attachments == (picture,)
        await settle(talk.store, errand, "It is so.")

        result = await claim_one(talk.store)
        assert result.lease.session == await talk.session()
        came = queued(result)
        assert (came.kind, came.origin, came.text) == (TurnKind.RESULT, sent.turn, "look it up")
        assert came.answer == "In the background: look it up\n\nIt is so."
        await settle(talk.store, result, came.answer)
        assert await talk.transcript() == ["one", "on one", "look it up", came.answer]
        assert await talk.store.turns.claim(limit=5) == []

    async def test_nobody_waits_for_an_errand(self, talk: Talk) -> None:
        await talk.say("one")
        running = await claim_one(talk.store)

        sent = await talk.say("/background beside")

        assert "beside what is running" in sent.reply
        errand = await claim_one(talk.store)
        await settle(talk.store, errand, "done so")
        assert await talk.waiting() == ["one", "beside"]
        await settle(talk.store, running, "fine")
        assert queued(await claim_one(talk.store)).kind == TurnKind.RESULT

    async def test_a_failure_comes_back_with_what_was_said(self, talk: Talk) -> None:
        await talk.say("/background try")
        errand = await claim_one(talk.store)
        failed = Settlement(
            outcome=Outcome.FAILED,
            reason="provider_error",
            detail="http://10.0.0.7 said no",
            message=reply_id(errand.lease),
            text="half",
        )

        await talk.store.turns.settle(errand.lease, failed)

        answer = queued(await claim_one(talk.store)).answer
        assert answer == (
            "In the background: try\n\nhalf\n\n(It ended as failed: the model's server failed, "
            f"or has too much to do ({errand.lease.turn}))"
        )

    async def test_a_stop_comes_back_too(self, talk: Talk) -> None:
        await talk.say("/background try")
        errand = await claim_one(talk.store)

        await talk.say("/stop")

        assert "ended as stopped" in queued(await claim_one(talk.store)).answer
        assert await flush(talk.store, errand.lease, "late") == [errand.lease]

    async def test_an_errand_that_crashed_too_often_comes_back(self, talk: Talk) -> None:
        await talk.say("/background try")
        errand = await claim_one(talk.store)

        await talk.store.turns.interrupt(errand.lease, Interruption.CRASH, attempts_max=1)

        assert "interrupted too often" in queued(await claim_one(talk.store)).answer

    async def test_an_errand_survives_a_crash(
        self, talk: Talk, restart: Callable[[], Awaitable[Store]]
    ) -> None:
        sent = await talk.say("/background try")
        await claim_one(talk.store)
        talk.store = await restart()
        await talk.store.nodes.reap(attempts_max=3, limit=10)
        await talk.store.nodes.resume(GO_ON, limit=10)

        errand = await claim_one(talk.store)

        assert (errand.lease.turn, errand.lease.attempt) == (sent.turn, 2)
        await settle(talk.store, errand, "fine")
        assert queued(await claim_one(talk.store)).origin == sent.turn

    @pytest.mark.parametrize("command", ["/new", "/branch", "/resume"])
    async def test_a_result_comes_to_the_session_that_is_live_then(
        self, talk: Talk, command: str
    ) -> None:
        await talk.exchange("one")
        await talk.say("/new")
        await talk.exchange("two")
        await talk.say("/background try")
        await talk.say(command)

        await settle(talk.store, await claim_one(talk.store), "It is so.")

        assert (await claim_one(talk.store)).lease.session == await talk.session()

    @pytest.mark.parametrize("command", ["/new", "/branch", "/resume"])
    async def test_a_result_that_waits_is_not_left_behind(self, talk: Talk, command: str) -> None:
        await talk.exchange("one")
        await talk.say("/new")
        await talk.say("/background try")
        await settle(talk.store, await claim_one(talk.store), "It is so.")

        await talk.say(command)

        result = await claim_one(talk.store)
        assert result.lease.session == await talk.session()
        assert queued(result).answer.endswith("It is so.")
        assert await talk.store.turns.claim(limit=5) == []

    async def test_where_the_live_session_is_suspended_a_new_one_says_it(self, talk: Talk) -> None:
        await talk.say("/background try")
        errand = await claim_one(talk.store)
        await talk.say("one")
        claimed = await claim_one(talk.store)
        await talk.store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

        await settle(talk.store, errand, "It is so.")

        result = await claim_one(talk.store)
        assert result.lease.session == await talk.session() != claimed.lease.session

    async def test_an_errands_session_is_not_listed_and_cannot_be_resumed(
        self, talk: Talk, one: TurnId
    ) -> None:
        await talk.say("/background try")
        errand = (await claim_one(talk.store)).lease.session

        assert errand not in (await talk.say("/sessions")).reply
        assert "no other session" in (await talk.say(f"/resume {errand}")).reply
        listed = await talk.store.archive.sessions(principal=talk.person.id, page=Page())
        assert errand not in {view.id for view in listed}


class TestChoices:
    async def test_an_agent_is_chosen_for_one_conversation(
        self, talk: Talk, store: Store, ada: Person, clock: VirtualClock
    ) -> None:
        other = Talk(store, ada, clock, place="work")

        assert (await talk.say("/agent")).reply.startswith("main answers here.")
        assert "backup answers here" in (await talk.say("/agent backup")).reply
        assert (await talk.say("/model")).reply.startswith("backup answers here.")
        await talk.say("one")
        assert queued(await claim_one(store)).agent == "backup"
        await talk.say("/new")
        await talk.say("two")
        assert queued(await claim_one(store)).agent == "backup"
        await other.say("three")
        assert queued(await claim_one(store)).agent == ""

    async def test_the_other_agents_are_offered_as_buttons(self, talk: Talk) -> None:
        taken = await talk.say("/agent")

        offered = only(CommandTaken, taken.recorded)[0].choices
        assert offered == tuple(f"/agent {name}" for name in MENU.agents if name != "main")
        assert "/agent main" not in offered
        chosen = await talk.say(offered[0])
        assert "answers here from now on" in chosen.reply
        assert only(CommandTaken, chosen.recorded)[0].choices == ()

    async def test_an_agent_that_is_gone_is_not_said_to_answer(self, talk: Talk) -> None:
        await talk.say("/agent backup")
        left = {name: offer for name, offer in MENU.agents.items() if name != "backup"}
        talk.menu = msgspec.structs.replace(MENU, agents=left)

        reply = (await talk.say("/agent")).reply

        assert reply.startswith("main answers here: backup was chosen, and is gone. Available:")
        assert "agent main" in (await talk.say("/status")).reply

    async def test_the_choice_stops_what_runs_a_mistake_does_not(self, talk: Talk) -> None:
        running = await talk.say("one")
        await claim_one(talk.store)

        assert "no agent 'nobody'" in (await talk.say("/agent nobody")).reply
        assert (await talk.say("/agent")).ended == ()
        assert await talk.outcome(turn_of(running)) is None
        assert (await talk.say("/agent backup")).ended == (running.turn,)

    async def test_a_persona_is_chosen_for_one_conversation(
        self, talk: Talk, store: Store, ada: Person, clock: VirtualClock
    ) -> None:
        other = Talk(store, ada, clock, place="work")

        assert "Persona here: none. Available: terse, kind." in (await talk.say("/persona")).reply
        await talk.say("/persona terse")
        assert "no persona 'rude'" in (await talk.say("/persona rude")).reply
        await talk.say("one")
        assert queued(await claim_one(store)).persona == "terse"
        await talk.say("/background two")
        assert queued(await claim_one(store)).persona == "terse"
        await other.say("three")
        assert queued(await claim_one(store)).persona == ""
        await talk.say("/persona none")
        assert "none" in (await talk.say("/persona")).reply

    async def test_people_are_answered_in_the_language_of_their_platform(
        self, store: Store, ada: Person
    ) -> None:
        async def say(text: str, language: str, *, kind: str = "private") -> str:
            place = Address(adapter="chat", account="bot", place=kind)
            update = msgspec.structs.replace(
                message(ada.id, text),
                address=place,
                external_id=f"{kind} {text}",
                traits=SenderTraits(language=language),
                place_kind=kind,
            )
            return (await store.inbox.accept(update, queue_max=10, menu=MENU)).reply

        assert await say("/undo", "de") == "Nichts zurückzunehmen."
        assert await say("/redo", "") == "Nichts wiederherzustellen.", "it is remembered"
        assert await say("/stop", "fr") == "Nothing is running here.", "not spoken here"
        assert await say("/title", "en") == "This session has no title yet."
        assert await say("/undo", "", kind="group") == "Nothing to undo."

    async def test_answers_are_spoken_where_there_is_somebody_to_speak(
        self, talk: Talk, store: Store, ada: Person
    ) -> None:
        async def say(text: str, *, adapter: str, can_speak: bool) -> str:
            place = Address(adapter=adapter, account="bot", place="room")
            update = msgspec.structs.replace(
                message(ada.id, text), address=place, external_id=f"{adapter} {text}"
            )
            menu = msgspec.structs.replace(MENU, can_speak=can_speak)
            return (await store.inbox.accept(update, queue_max=10, menu=menu)).reply

        assert "can only be read" in (await talk.say("/voice on")).reply
        assert "add [speech]" in await say("/voice on", adapter="chat", can_speak=False)
        told = await say("/voice  ON", adapter="chat", can_speak=True)
        assert told == "Answers here are spoken too, from the next one on."
        assert await say("/voice", adapter="chat", can_speak=True) == "Answers here are spoken too."
        assert "Say /voice on" in await say("/voice loud", adapter="chat", can_speak=True)
        assert "only written" in await say("/voice off", adapter="chat", can_speak=False)

    async def test_thinking_is_chosen_for_one_conversation(
        self, talk: Talk, store: Store, ada: Person, clock: VirtualClock
    ) -> None:
        other = Talk(store, ada, clock, place="work")

        assert (await talk.say("/think HIGH")).reply.endswith("thinking high, chosen with /think.")
        assert "/think low" in (await talk.say("/think very hard")).reply
        await talk.say("one")
        claimed = await claim_one(store)
        assert queued(claimed).asking.reasoning_effort == "high"
        await settle(store, claimed, "on one")
        await talk.say("/background two")
        errand = await claim_one(store)
        assert queued(errand).effort == "high"
        await settle(store, errand, "on two")
        await settle(store, await claim_one(store), "It is so.")

        assert "Thinking stays high, as /think set it." in (await talk.say("/new")).reply
        await talk.say("three")
        claimed = await claim_one(store)
        assert queued(claimed).effort == "high"
        await settle(store, claimed, "on three")
        await talk.say("/think off")
        await talk.say("/retry")
        assert queued(await claim_one(store)).asking.reasoning_effort == "none"
        await other.say("four")
        assert queued(await claim_one(store)).effort == ""

    async def test_a_call_says_itself_how_much_its_model_reasons(self, talk: Talk) -> None:
        await talk.say("/think high")
        await talk.say("one", options=Options(reasoning_effort="low"))

        assert queued(await claim_one(talk.store)).asking == Options(reasoning_effort="low")

    async def test_the_words_for_thinking_are_offered_as_buttons(self, talk: Talk) -> None:
        agents = {"main": msgspec.structs.replace(MENU.agents["main"], reasoning="low")}
        plain = await talk.say("/think")
        assert plain.reply.startswith("Thinking as the model does. Available: low, medium, high")
        assert "thinking as the model does" in (await talk.say("/status")).reply

        talk.menu = msgspec.structs.replace(MENU, agents=agents)
        assert (await talk.say("/think")).reply.startswith("Thinking low, as configured. ")
        offered = only(CommandTaken, plain.recorded)[0].choices
        assert offered == ("/think low", "/think medium", "/think high", "/think off")
        await talk.say(offered[2])
        assert "thinking high, chosen with /think" in (await talk.say("/status")).reply
        again = only(CommandTaken, (await talk.say("/think")).recorded)[0].choices
        assert ("/think high" in again, "/think default" in again) == (False, True)
        assert "low, as configured" in (await talk.say("/think default")).reply
        assert "Thinking stays" not in (await talk.say("/new")).reply

    async def test_home_is_set_by_its_command(self, talk: Talk) -> None:
        assert "home" in (await talk.say("/home")).reply


class TestCompaction:
    async def test_a_summary_stands_for_older_turns_for_the_model_alone(self, talk: Talk) -> None:
        turns = await talk.exchange("one", "two", "three", "four")

        begun = await talk.say("/compact the names")
        errand = await claim_one(talk.store)

        assert errand.lease.turn == begun.turn
        assert (queued(errand).kind, queued(errand).text) == ("summary", "the names")
        assert errand.parent == turns[1]
        await settle(talk.store, errand, "They counted.")
        kept = ["three", "on three", "four", "on four"]
        assert await talk.told() == [background("They counted."), *kept]
        assert (await talk.transcript())[:2] == ["one", "on one"]
        notice = only(NoticePosted, await recorded_in(talk))[-1]
        assert notice.text.startswith("Compacted: 2 turns")
        assert only(Compacted, await recorded_in(talk))[0].upto == turns[1]

    async def test_a_compaction_changes_the_view(self, talk: Talk) -> None:
        await talk.exchange("one", "two", "three")
        before = (await claim_one_of(talk, "four")).view
        await talk.say("/stop")
        await compacted(talk)

        assert (await claim_one_of(talk, "five")).view != before

    async def test_compact_off_shows_everything_again(self, talk: Talk) -> None:
        await talk.exchange("one", "two", "three", "four")
        await compacted(talk, "first")
        await talk.exchange(*(f"more {n}" for n in range(KEEP_TURNS_MAX + 2)))
        await compacted(talk, "second")
        assert (await talk.told())[0] == background("second")

        dropped = await talk.say("/compact OFF")

        assert "in full again" in dropped.reply
        assert len(only(CompactionDropped, dropped.recorded)) == 2
        assert (await talk.told())[0] == "one"
        assert "Nothing is compacted" in (await talk.say("/compress off")).reply

    async def test_a_branch_shares_the_summary(self, talk: Talk) -> None:
        await talk.exchange("one", "two", "three", "four")
        await compacted(talk)
        await talk.say("/branch")

        assert (await talk.told())[0] == background("brief")
        await talk.say("/compact off")
        assert (await talk.told())[0] == "one"

    async def test_a_summary_whose_turns_are_undone_is_out_of_force(self, talk: Talk) -> None:
        await talk.exchange("one", "two", "three", "four")
        await compacted(talk)

        await talk.say("/undo 3")

        assert await talk.told() == ["one", "on one"]
        await talk.say("/redo")
        assert (await talk.told())[0] == background("brief")

    async def test_little_is_not_compacted(self, talk: Talk) -> None:
        await talk.exchange("one", "two")

        nothing = await talk.say("/compact")

        assert (nothing.reply, nothing.turn) == ("There is nothing to compact yet.", None)

    async def test_a_second_compaction_is_refused_while_one_runs(self, talk: Talk) -> None:
        await talk.exchange("one", "two", "three")
        await talk.say("/compact")

        again = await talk.say("/compact")

        assert ("already" in again.reply, again.turn) == (True, None)

    @pytest.mark.parametrize(
        ("outcome", "text", "why"),
        [
            (Outcome.FAILED, "half", "ended as failed"),
            (Outcome.DONE, "  ", "the summary was empty"),
        ],
    )
    async def test_what_cannot_be_compacted_is_told_and_left(
        self, talk: Talk, outcome: Outcome, text: str, why: str
    ) -> None:
        await talk.exchange("one", "two", "three")
        await talk.say("/compact")

        await settle(talk.store, await claim_one(talk.store), text, outcome=outcome)

        assert why in only(CompactionFailed, await recorded_in(talk))[0].reason
        assert why in only(NoticePosted, await recorded_in(talk))[-1].text
        assert (await talk.told())[0] == "one"

    async def test_a_summary_that_is_no_shorter_is_refused(self, talk: Talk) -> None:
        for text in ("one", "two", "three"):
            await measured(talk, text, tokens=100)
        await talk.say("/compact")

        await settle(talk.store, await claim_one(talk.store), "long " * 200)

        assert "not shorter" in only(CompactionFailed, await recorded_in(talk))[0].reason

    async def test_a_summary_that_comes_too_late_is_left(self, talk: Talk) -> None:
        await talk.exchange("one", "two", "three", "four")
        await talk.say("/compact")
        errand = await claim_one(talk.store)
        await talk.say("/undo 3")

        await settle(talk.store, errand, "brief")

        assert "another way" in only(CompactionFailed, await recorded_in(talk))[0].reason

    async def test_as_many_turns_stay_as_fit(self, talk: Talk) -> None:
        talk.menu = Menu(agents={"main": AgentOffer(keep_tokens=1000)})
        sizes = [500, 1_000, 5_000, 5_300, 5_600, 5_900, 6_000]
        turns = [await measured(talk, f"n{n}", tokens=size) for n, size in enumerate(sizes)]

        await talk.say("/compact")

        # 6000 - 5000 fits; the large third turn would not.
        assert (await claim_one(talk.store)).parent == turns[2]

    async def test_a_turn_that_was_cut_short_is_no_measure(self, talk: Talk) -> None:
        talk.menu = Menu(agents={"main": AgentOffer(keep_tokens=1000)})
        turns = [await measured(talk, f"n{n}", tokens=100 * n + 100) for n in range(6)]
        await talk.say("stopped")
        await claim_one(talk.store)
        await talk.say("/stop")

        await talk.say("/compact")

        errand = await claim_one(talk.store)
        assert errand.parent == turns[4]
        await settle(talk.store, errand, "brief")
        assert (await talk.told())[0] == background("brief")

    async def test_a_compaction_can_be_stopped(self, talk: Talk) -> None:
        await talk.exchange("one", "two", "three")
        await talk.say("/compact")

        await talk.say("/stop")

        assert "ended as stopped" in only(NoticePosted, await recorded_in(talk))[-1].text


class TestAsking:
    async def test_sessions_are_listed(self, talk: Talk, one: TurnId) -> None:
        await talk.say("/title A trip")
        old = await talk.session()
        new = (await talk.say("/new")).session

        listed = (await talk.say("/sessions")).reply.splitlines()

        assert listed[0].startswith("1. ")
        assert new in listed[0]
        assert "here" in listed[0]
        assert listed[1].startswith("2. A trip")
        assert old in listed[1]

    async def test_a_listed_session_is_resumed_by_its_number(self, talk: Talk, one: TurnId) -> None:
        old = await talk.session()
        new = (await talk.say("/new")).session

        assert "the one you are in" in (await talk.say("/resume 1")).reply
        assert "no other session 3" in (await talk.say("/resume 3")).reply
        assert "no other session 0" in (await talk.say("/resume 0")).reply
        assert await talk.session() == new
        assert (await talk.say("/resume 2")).session == old

    async def test_a_session_that_is_called_like_a_number_is_found_by_its_title(
        self, talk: Talk, one: TurnId
    ) -> None:
        await talk.say("/title 1")
        old = await talk.session()
        await talk.say("/new")

        assert (await talk.say("/resume 1")).session == old

    async def test_a_status_names_the_model_the_window_and_what_is_beside(self, talk: Talk) -> None:
        talk.menu = Menu(agents={"main": AgentOffer(model="llama-9", context_tokens=1000)})
        await measured(talk, "one", tokens=250)
        await talk.say("/background dig")

        status = (await talk.say("/status")).reply

        assert "agent main (llama-9)" in status
        assert "1 in the background" in status
        assert "about 250 tokens of context, 25% of the 1,000 that the model takes" in status
        await settle(talk.store, await claim_one(talk.store), "found")
        assert "background" not in (await talk.say("/status")).reply

    async def test_words_are_found_in_ones_own_messages_only(
        self, talk: Talk, bob: Person, store: Store, clock: VirtualClock
    ) -> None:
        other = Talk(store, bob, clock, place="work")
        await talk.exchange("a heron by the lake")
        await other.exchange("a heron of mine")

        found = (await talk.say("/sessions heron")).reply

        assert "by the lake" in found
        assert "of mine" not in found
        assert "No message of yours" in (await talk.say("/sessions crocodile")).reply

    async def test_what_was_undone_can_still_be_found(self, talk: Talk) -> None:
        await talk.exchange("a heron by the lake")
        await talk.say("/undo")

        assert "by the lake" in (await talk.say("/sessions heron")).reply

    async def test_why_explains_a_turn_a_message_or_a_command(
        self, talk: Talk, bob: Person, store: Store, clock: VirtualClock
    ) -> None:
        assert "Nothing has happened" in (await talk.say("/why")).reply
        (turn,) = await talk.exchange("one")

        told = (await talk.say("/why")).reply
        assert told.startswith(f"turn {turn}: done (stop)")
        assert (await talk.say(f"/why {turn}")).reply == told
        asked = only(TurnQueued, await recorded_in(talk))[0].message
        assert (await talk.say(f"/why {asked}")).reply == told
        assert "give a message" in (await talk.say("/why nonsense")).reply
        retried = await talk.say("/retry")
        assert (await talk.say(f"/why {retried.message}")).reply.startswith("/retry: Asking again.")
        who = await talk.say("/whoami")
        assert (await talk.say(f"/why {who.message}")).reply == f"/whoami: {who.reply}"

    async def test_what_is_anothers_is_as_unknown_as_what_is_not_there(
        self, talk: Talk, bob: Person, store: Store, clock: VirtualClock
    ) -> None:
        asked = await talk.say("one")
        command = await talk.say("/whoami")
        await talk.answer()
        said = only(AssistantSaid, await recorded_in(talk))[0].message
        other = Talk(store, bob, clock, place="work")
        unknown = (await other.say("/why nonsense")).reply

        for any_id in (turn_of(asked), asked.message, command.message, said, "home-1", "trn_none"):
            reply = (await other.say(f"/why {any_id}")).reply
            assert reply == unknown.replace("nonsense", any_id)

    async def test_status_help_and_whoami_stop_nothing(self, talk: Talk) -> None:
        running = await talk.say("one")
        await claim_one(talk.store)
        await talk.say("two")

        assert (await talk.say("/status")).reply.startswith("running, 1 waiting")
        assert "/undo [N]" in (await talk.say("/help")).reply
        assert (await talk.say("/whoami")).reply == "You are ada (member)."
        assert (await talk.say("/usage")).reply
        assert await talk.outcome(turn_of(running)) is None

    async def test_restart_is_for_operators(self, talk: Talk) -> None:
        refused = await talk.say("/restart")

        assert (refused.reply, refused.effect) == (
            "/restart is for operators.",
            UpdateEffect.COMMANDED,
        )

    async def test_a_restart_is_known_again_by_who_gave_which_command(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # Each command is delivered twice, and the second delivery must be reported with the effect
        # of the first.
        root = await store.principals.ensure("root", role="operator")
        talk = Talk(store, Person(store, root.id), clock, place="console")

        assert (await talk.say("/restart")).effect is UpdateEffect.RESTARTING
        assert (await talk.say("/restart now")).effect is UpdateEffect.COMMANDED
        assert (await talk.say("/status")).effect is UpdateEffect.COMMANDED

    async def test_an_unknown_command_is_no_message(self, talk: Talk) -> None:
        running = await talk.say("one")
        await claim_one(talk.store)

        unknown = await talk.say("/sotp")

        assert "Did you mean /stop?" in unknown.reply
        assert (unknown.turn, unknown.ended, unknown.command) == (None, (), "sotp")
        assert await talk.outcome(turn_of(running)) is None
        assert await talk.waiting() == ["one"]

    async def test_a_path_is_a_message(self, talk: Talk) -> None:
        assert (await talk.say("/usr/bin is full")).turn is not None


async def recorded_in(talk: Talk, session: SessionId | None = None) -> list[Recorded]:
    session = session or await talk.session()
    return await talk.store.archive.journal(session, after=0, limit=1000)


async def claim_one_of(talk: Talk, text: str) -> Claimed:
    said = await talk.say(text)
    claimed = await claim_one(talk.store)
    assert claimed.lease.turn == said.turn
    return claimed


async def compacted(talk: Talk, summary: str = "brief") -> None:
    begun = await talk.say("/compact")
    errand = await claim_one(talk.store)
    assert errand.lease.turn == begun.turn
    await settle(talk.store, errand, summary)


async def measured(talk: Talk, text: str, *, tokens: int) -> TurnId:
    """Run an exchange after which the model reads this many tokens."""
    await talk.say(text)
    claimed = await claim_one(talk.store)
    settlement = Settlement(
        outcome=Outcome.DONE,
        reason="stop",
        message=reply_id(claimed.lease),
        text=f"on {text}",
        context_tokens=tokens,
    )
    await talk.store.turns.settle(claimed.lease, settlement)
    return claimed.lease.turn


class TestAskingAgainInOtherWords:
    async def test_the_last_message_is_asked_in_other_words(self, talk: Talk) -> None:
        first, second = await talk.exchange("one", "two")
        edited = await talk.say("/edit  the\nother two ")
        assert (edited.command, edited.reply) == ("edit", "Asking again.")
        assert await talk.answer(edited) not in (first, second)
        assert await talk.transcript() == [
            "one",
            "on one",
            "the\nother two",
            "on the\nother two",
        ]
        assert (await talk.say("/edit")).reply.startswith("/edit needs something")
        assert "missing" in (await talk.say(f"/edit {first}")).reply

    async def test_an_earlier_turn_is_asked_again_and_what_came_later_leaves(
        self, talk: Talk
    ) -> None:
        first, second, third = await talk.exchange("one", "two", "three")
        running = await talk.say("four")
        await claim_one(talk.store)

        again = await talk.say(f"/retry {second}")

        assert running.turn is not None
        assert await talk.outcome(running.turn) == "stopped"
        await talk.answer(again)
        assert await talk.transcript() == ["one", "on one", "two", "on two"]
        refused = await talk.say(f"/retry {third}")
        assert "There is no turn" in refused.reply
        assert refused.turn is None
        assert "Only the id" in (await talk.say(f"/retry {first} now")).reply

    async def test_a_turn_that_is_not_on_the_way_here_costs_no_running_one(
        self, talk: Talk
    ) -> None:
        await talk.exchange("one")
        running = await talk.say("two")
        await claim_one(talk.store)
        assert "There is no turn" in (await talk.say("/edit trn_none other words")).reply
        assert running.turn is not None
        assert await talk.outcome(running.turn) is None

    async def test_a_branch_begins_at_an_earlier_turn_also_at_one_that_was_left(
        self, talk: Talk
    ) -> None:
        first, second = await talk.exchange("one", "two")
        branched = await talk.say(f"/branch {first} aside")
        assert branched.reply.startswith("A branch from that turn.")
        assert await talk.transcript() == ["one", "on one"]
        assert (await talk.snapshot()).view.title == "aside"
        await talk.say(f"/branch {second}")
        assert await talk.transcript() == ["one", "on one", "two", "on two"]
        assert "There is no turn" in (await talk.say("/branch trn_none")).reply

    async def test_versions_are_told_apart_by_their_words(self, talk: Talk) -> None:
        (one,) = await talk.exchange("one")
        again = await talk.answer(await talk.say("/retry"))
        other = await talk.answer(await talk.say("/edit uno"))
        back = await talk.answer(await talk.say(f"/edit {other} one"))
        (alone,) = await talk.exchange("two")

        found = await talk.store.archive.versions([one, again, other, back, alone])

        assert alone not in found
        assert found[one].answers == found[back].answers == (one, again, back)
        assert found[other].answers == ()
        assert found[one].wordings == (one, other)
        assert found[other].wordings == (back, other)

    async def test_a_turn_that_has_not_begun_is_no_version(self, talk: Talk) -> None:
        (one,) = await talk.exchange("one")
        again = await talk.say("/retry")
        assert again.turn is not None
        assert await talk.store.archive.versions([one, again.turn]) == {}
        assert await talk.store.archive.versions([]) == {}
