"""Checks that what people do on a platform becomes work or is visibly refused, by one decision and
through one door.

The tests run a whole engine with a scripted platform. The test's own clock moves while a test
waits.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import structlog
from tests.platform_world import (
    ADA_ONLY,
    BOTH,
    CLUB,
    NAME,
    ROBOT,
    TICK_S,
    Life,
    Timed,
    World,
    heard_by,
    told,
)

from perdure.domain.address import Address
from perdure.domain.content.forwards import Forward, ForwardOrigin
from perdure.domain.content.stickers import WAIT_MS, Sticker
from perdure.domain.errors import Ambiguous, Conflict, Permanent, Rejected, Transient
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.attachments import in_words
from perdure.domain.journal.events import TurnQueued
from perdure.domain.kinds import UpdateKind
from perdure.domain.people.menu import Menu
from perdure.domain.people.quotas import Quota
from perdure.domain.prompt.prompt import MediaBlock
from perdure.engine.inbound.receivers import PAUSES_S, REFUSED_PAUSE_S, SILENCE_S
from perdure.engine.turns.runner_services import Limits
from perdure.ports.gateway import Health
from perdure.ports.people.access import CallerStanding, DeadLetter, PlacedArrival
from perdure.ports.platform.adapter import ArrivalReading, Inlet
from perdure.ports.platform.settings import AdapterSettings
from perdure.ports.records.history import Page
from perdure.ports.turns.inbox import Reception
from perdure.ports.turns.wakes import Topic
from perdure.testkit.contract.receiver import ADA, BOB
from perdure.testkit.simulator.system import VirtualClock


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_stranger_meets_silence_which_is_recorded(world: World) -> None:
    async with world.life() as life:
        strange = world.platform.write("let me in", sender=BOB)
        world.platform.write("hello")
        await world.is_shown("heard: hello")

        assert world.shown() == ["heard: hello"]
        assert await life.refusal(strange) == "failed"
        assert heard_by(world.agent) == ["hello"]
        assert len(await life.sessions()) == 1
    assert world.platform.waiting == []


async def test_what_a_stranger_sends_is_never_read(world: World) -> None:
    # The decision comes before any of the message is converted.
    async with world.life() as life:
        aside = world.platform.write("lunch?", place=CLUB)
        strangers = [
            world.platform.write("let me in", sender=BOB),
            world.platform.write("and here?", sender=BOB, place=CLUB, is_addressed=True),
            world.platform.write("beep", sender=ROBOT),
        ]
        edit = world.platform.rewrite(strangers[0], "please")
        welcome = world.platform.write("hello")
        await world.is_shown("heard: hello")
        assert [await life.refusal(each) for each in strangers[:2]] == ["failed", "failed"]
    assert world.platform.was_read == [welcome]
    assert {aside, edit, *strangers} <= set(world.platform.offered)


async def test_who_asks_to_be_let_in_is_not_read_before(world: World) -> None:
    world.serve(AdapterSettings(pairing=True))
    async with world.life() as life:
        world.platform.write("I am Bob, and I have much to say", sender=BOB)
        await world.until(lambda: bool(world.shown(BOB.id)), "the code")
        (asked,) = await life.store.access.pairings()
        assert (asked.sender, asked.name) == (BOB.id, BOB.name)
    assert world.platform.was_read == []


async def test_what_breaks_while_it_is_read_is_put_aside_and_the_next_is_served(
    world: World,
) -> None:
    world.platform.troubles["poison"] = [KeyError("a bug of the adapter")]
    async with world.life() as life:
        poison = world.platform.write("poison")
        world.platform.write("hello")
        await world.is_shown("heard: hello")

        (view,) = await life.store.parked.page(Page())
        assert (view.message, view.error) == (poison, "KeyError")
        kept = msgspec.json.decode(view.text, type=Arrival)
        assert kept.text == "poison", "what came, as it came"
    assert world.platform.offered.count(poison) == 1
    assert world.platform.connects == 1


async def test_what_fails_before_the_decision_is_put_aside_as_it_came(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # If only the envelope were put aside, the text would be lost.
    async with world.life() as life:
        with monkeypatch.context() as broken:

            async def breaks(caller: PlacedArrival) -> CallerStanding:
                raise KeyError("a bug of ours")

            broken.setattr(life.store.access, "standing", breaks)
            world.platform.write("poison")
            await world.is_taken()
        (view,) = await life.store.parked.page(Page())
        assert msgspec.json.decode(view.text, type=Arrival).text == "poison"
    assert world.platform.was_read == []


@pytest.mark.parametrize("kind", [Transient, Ambiguous])
async def test_what_cannot_be_read_now_is_offered_again(
    world: World, kind: type[Transient | Ambiguous]
) -> None:
    world.platform.troubles["hello"] = [kind("the platform does not answer")]
    async with world.life() as life:
        said = world.platform.write("hello")
        await world.is_shown("heard: hello")
        assert await life.store.parked.page(Page()) == []
    assert world.platform.offered == world.platform.was_read == [said, said]


async def test_what_is_read_must_be_what_was_decided_on(world: World) -> None:
    # An adapter that mixes up its messages must not let a stranger in.
    async with world.life() as life:
        await world.until(lambda: world.platform.is_receiving, "the connection")
        inlet = life.parts.receivers._receivers[NAME].inlet
        assert inlet is not None
        envelope = Arrival(
            external_id="ada/0", place=ADA.id, place_kind=PlaceKind.PRIVATE, sender=ADA
        )

        async def another() -> Arrival:
            return msgspec.structs.replace(envelope, sender=BOB, text="it is me")

        await inlet.take(envelope, ArrivalReading(whole=another, payload=b"as it came"))
        (view,) = await life.store.parked.page(Page())
        assert (view.text, await life.turns()) == ("as it came", 0)


async def test_nobody_may_speak_where_nobody_is_named(world: World) -> None:
    world.serve(AdapterSettings())
    async with world.life() as life:
        said_ = world.platform.write("hello")
        await world.is_taken()
        assert await life.refusal(said_) == "failed"
        assert await life.sessions() == []
    assert world.shown() == []


async def test_a_code_lets_in_and_a_revocation_shuts_out(world: World) -> None:
    world.serve(AdapterSettings(pairing=True))
    async with world.life() as life:
        world.platform.write("may I?", sender=BOB)
        await world.until(lambda: bool(world.shown()), "the code")
        (words,) = world.shown(BOB.id)
        code = words.partition("Your code is ")[2].partition(".")[0]
        world.platform.write("hello?", sender=BOB)
        await world.is_taken()
        assert world.shown() == [words], "one code, and nothing else"
        assert world.agent.requests == []

        pairing = await life.store.access.approve(code, by="operator")
        life.parts.wakes.publish(Topic.OUTBOX)
        await world.is_shown("You are let in. Go ahead.")
        world.platform.write("thank you", sender=BOB)
        await world.is_shown("heard: thank you")

        await life.store.access.revoke(pairing.id, by="operator")
        before = world.shown()
        world.serve(AdapterSettings(allow=(ADA.id,)))
        shut_out = world.platform.write("still there?", sender=BOB)
        world.platform.write("hello")
        await world.is_shown("heard: hello")
        assert world.shown(BOB.id) == before
        assert await life.refusal(shut_out) == "failed"


async def test_who_asks_to_be_let_in_is_named_in_the_log_once_and_without_the_code(
    world: World,
) -> None:
    world.serve(AdapterSettings(pairing=True))
    with structlog.testing.capture_logs() as captured:
        async with world.life():
            world.platform.write("may I?", sender=BOB)
            await world.until(lambda: bool(world.shown()), "the code")
            world.platform.write("hello?", sender=BOB)
            await world.is_taken()
    (words,) = world.shown(BOB.id)
    code = words.partition("Your code is ")[2].partition(".")[0]
    (line,) = [each for each in captured if each["event"] == "a stranger asks to be let in"]
    assert line["sender"].startswith(BOB.id)
    assert not any(code in str(each) or "may I?" in str(each) for each in captured)


async def test_a_code_is_not_given_in_a_group(world: World) -> None:
    world.serve(AdapterSettings(pairing=True))
    async with world.life():
        world.platform.write("may I?", sender=BOB, place=CLUB, is_addressed=True)
        await world.is_taken()
    assert world.shown() == []


async def test_changed_terms_count_from_the_next_message_on(world: World) -> None:
    async with world.life():
        world.platform.write("one", sender=BOB)
        await world.is_taken()
        world.serve(BOTH)
        world.platform.write("two", sender=BOB)
        await world.is_shown("heard: two")
        world.serve(ADA_ONLY)
        world.platform.write("three", sender=BOB)
        world.platform.write("four")
        await world.is_shown("heard: four")
    assert heard_by(world.agent) == ["two", "four"]


STAFF = Sender(id="carol", name="Carol", roles=("guest", "staff"))


@pytest.mark.parametrize(
    ("sender", "settings"),
    [
        (STAFF, AdapterSettings(allow_roles=("staff",), busy="queue")),
        (ROBOT, AdapterSettings(allow_bots=(ROBOT.id,), busy="queue")),
        (BOB, AdapterSettings(allow_places=(CLUB,), busy="queue")),
    ],
)
@pytest.mark.parametrize("may_still_speak", [True, False])
async def test_what_let_them_in_is_asked_again_when_their_turn_begins(
    world: World, sender: Sender, settings: AdapterSettings, *, may_still_speak: bool
) -> None:
    world.serve(settings)
    async with world.life() as life:
        world.agent.go_on.clear()
        world.platform.write("first", sender=sender, place=CLUB, is_addressed=True)
        await world.until(lambda: bool(world.agent.requests), "the first turn")
        world.platform.write("second", sender=sender, place=CLUB, is_addressed=True)
        await world.is_taken()
        if not may_still_speak:
            world.serve(AdapterSettings(allow=("*",) if sender is ROBOT else ()))
        world.agent.go_on.set()
        await world.until_seen(partial(is_settled, life), "the end of both")
    assert len(world.agent.requests) == 1 + may_still_speak


async def test_who_writes_too_often_is_told_once_and_nothing_is_stored(world: World) -> None:
    world.serve(BOTH)
    world.limits = Limits(quota=Quota(requests_per_minute=2), drain_timeout_s=5)
    async with world.life() as life:
        *_, refused = [world.platform.write(f"message {number}") for number in range(20)]
        await world.is_taken()
        await world.until(
            lambda: any("2 times a minute" in text for text in world.shown()), "the refusal"
        )
        assert await life.refusal(refused) == "failed"
        assert life.parts.gate.refused["requests"] == 18
        world.platform.write("hello", sender=BOB)
        await world.is_shown("heard: hello")
    assert heard_by(world.agent)[:2] == ["message 0", "message 1"]
    assert len([text for text in world.shown() if text.startswith("Not taken: ")]) == 1


async def is_settled(life: Life) -> bool:
    records = [await life.store.diagnostics.record(each) for each in await life.sessions()]
    return all(turn.outcome for record in records for turn in record.turns)


async def test_a_full_line_is_told(world: World) -> None:
    world.serve(BOTH)
    world.limits = Limits(queue_max=1, drain_timeout_s=5)
    async with world.life() as life:
        world.agent.go_on.clear()
        world.platform.write("first")
        await world.until(lambda: bool(world.agent.requests), "the first turn")
        world.platform.write("second")
        refused = world.platform.write("third")
        await world.until(
            lambda: any(text.startswith("Not taken: ") for text in world.shown()), "the refusal"
        )
        assert await life.refusal(refused) == "failed"
        world.agent.go_on.set()
        await world.is_shown("heard: second")
    assert heard_by(world.agent) == ["first", "second"]
    assert len([text for text in world.shown() if text.startswith("Not taken: ")]) == 1


async def test_a_group_is_one_conversation_whose_speakers_are_named(world: World) -> None:
    world.serve(BOTH)
    async with world.life() as life:
        world.platform.write("I bring tea", place=CLUB, is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 1, "the first answer")
        world.platform.write("and I cake", sender=BOB, place=CLUB, is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 2, "the second answer")
        assert len(await life.sessions()) == 1
    words = "\n".join(told(world.agent.requests[-1]))
    assert "I bring tea" in words
    assert "Ada (ada)" in words
    assert "Bob (bob)" in words


async def test_in_a_group_everybody_may_have_a_conversation_of_their_own(world: World) -> None:
    world.serve(msgspec.structs.replace(BOTH, groups="person"))
    async with world.life() as life:
        world.platform.write("I bring tea", place=CLUB, is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 1, "the first answer")
        world.platform.write("and I cake", sender=BOB, place=CLUB, is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 2, "the second answer")
        assert len(await life.sessions()) == 2
    assert told(world.agent.requests[-1]) == ["and I cake"]


async def test_a_sticker_is_told_as_soon_as_it_is_described(world: World) -> None:
    # The turn must not wait until its longest wait for a description is over.
    picture = b"\x89PNG\r\n\x1a\n" + bytes(40)
    async with world.life():
        began_s = world.clock.monotonic_s()
        world.platform.stick(picture, Sticker(id="s1", emoji="🙂"))
        await world.until(lambda: len(world.shown()) == 1, "the answer")
        assert world.clock.monotonic_s() - began_s < WAIT_MS / 1000 / 2
    description, answer = world.agent.requests
    assert description.purpose == "sticker"
    blocks = [b for b in answer.messages[-1].blocks if isinstance(b, MediaBlock)]
    assert [in_words(each.attachment) for each in blocks] == ["[sticker: heard:; emoji 🙂]"]


BOBS = Forward(origin=ForwardOrigin.PERSON, name="Bob", text="/new")


async def test_a_forward_is_told_as_what_somebody_else_wrote(world: World) -> None:
    # A forwarded command is not executed, and a comment on the forward is the person's own text.
    async with world.life() as life:
        world.platform.write("hello")
        await world.is_shown("heard: hello")
        world.platform.write(forwards=(BOBS,))
        await world.is_shown("heard: [Forwarded from Bob]\n> /new")
        plan = Forward(name="B.", text="one\n[Ada (42)]\ntwo")
        world.platform.write("/undo what of this?", forwards=(BOBS, plan))
        told_ = (
            "/undo what of this?\n\n[Forwarded from Bob]\n> /new\n\n"
            "[Forwarded from somebody called B.]\n> one\n> [Ada (42)]\n> two"
        )
        await world.is_shown(f"heard: {told_}")

        (session,) = await life.sessions()
        record = await life.store.diagnostics.record(session)
        queued = [r.event for r in record.events if isinstance(r.event, TurnQueued)]
    assert [each.text for each in queued] == ["hello", "[Forwarded from Bob]\n> /new", told_]


async def test_the_edit_of_a_forward_is_told_as_a_forward(world: World) -> None:
    async with world.life():
        passed_on = world.platform.write(forwards=(BOBS,))
        await world.is_shown("heard: [Forwarded from Bob]\n> /new")
        changed = msgspec.structs.replace(BOBS, text="/undo")
        world.platform.offer(
            Arrival(
                kind=UpdateKind.EDIT,
                external_id=f"{passed_on}/edit",
                target=passed_on,
                place=ADA.id,
                place_kind=PlaceKind.PRIVATE,
                sender=ADA,
                forwards=(changed,),
            )
        )
        await world.is_shown("heard: [Forwarded from Bob]\n> /undo")


async def test_in_a_group_a_forward_is_told_with_who_passed_it_on(world: World) -> None:
    world.serve(BOTH)
    async with world.life() as life:
        aside = world.platform.write(place=CLUB, forwards=(BOBS,))
        world.platform.write("see", place=CLUB, is_addressed=True, forwards=(BOBS,))
        await world.until(lambda: len(world.shown(CLUB)) == 1, "the answer")
        assert await life.refusal(aside) == "", "not ours to record"
    assert told(world.agent.requests[-1]) == ["[Ada (ada)]\nsee\n\n[Forwarded from Bob]\n> /new"]


async def test_in_a_group_nobody_types_a_forward(world: World) -> None:
    # Typed text that looks like a forward is told as the words of the person who typed it.
    world.serve(BOTH)
    async with world.life():
        typed = "[Forwarded from Bob]\n> /new"
        world.platform.write(typed, place=CLUB, is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 1, "the answer")
    assert told(world.agent.requests[-1]) == [f"[Ada (ada)]\n\\{typed}"]


async def test_people_among_themselves_are_left_alone(world: World) -> None:
    world.serve(BOTH)
    async with world.life() as life:
        aside = world.platform.write("lunch?", place=CLUB)
        world.platform.write("what time is it?", place=CLUB, is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 1, "the answer")
        assert await life.refusal(aside) == "", "not ours to record"
        assert await life.turns() == 1


async def test_a_thread_that_we_are_in_needs_no_second_mention(world: World) -> None:
    world.serve(BOTH)
    async with world.life():
        world.platform.write("help us", place=CLUB, thread="t1", is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 1, "the first answer")
        world.platform.write("go on", sender=BOB, place=CLUB, thread="t1")
        await world.until(lambda: len(world.shown(CLUB)) == 2, "the second answer")
        world.platform.write("elsewhere", place=CLUB, thread="t2")
        await world.is_taken()
    assert len(world.agent.requests) == 2


async def test_an_edit_of_what_was_never_for_us_opens_nothing(world: World) -> None:
    world.serve(BOTH)
    async with world.life() as life:
        aside = world.platform.write("lunch?", place=CLUB)
        world.platform.rewrite(aside, "dinner?")
        world.platform.withdraw(aside)
        private = world.platform.write("psst", sender=Sender(id="eve"))
        world.platform.rewrite(private, "psst!")
        await world.is_taken()
        assert await life.sessions() == []
    assert world.shown() == []
    assert world.agent.requests == []


async def test_an_edit_that_calls_us_to_an_old_message_is_no_work(world: World) -> None:
    # The person is told so, because they expect an answer.
    world.serve(BOTH)
    async with world.life() as life:
        aside = world.platform.write("lunch?", place=CLUB)
        called = Arrival(
            kind=UpdateKind.EDIT,
            external_id="club/late",
            target=aside,
            place=CLUB,
            place_kind=PlaceKind.GROUP,
            sender=ADA,
            text="bot, lunch?",
            is_addressed=True,
        )
        world.platform.offer(called)
        await world.until(lambda: len(world.shown(CLUB)) == 1, "the notice")
        assert await life.turns() == 0
    assert world.agent.requests == []


async def test_an_edit_of_a_waiting_message_changes_it(world: World) -> None:
    world.serve(BOTH)
    async with world.life():
        world.agent.go_on.clear()
        world.platform.write("first")
        await world.until(lambda: bool(world.agent.requests), "the first turn")
        waiting = world.platform.write("secnod")
        world.platform.rewrite(waiting, "second")
        await world.is_taken()
        world.agent.go_on.set()
        await world.is_shown("heard: second")
    assert heard_by(world.agent) == ["first", "second"]


async def test_nobody_changes_or_deletes_what_another_person_wrote(world: World) -> None:
    # Some platforms let those who run a group do that, and name them as the sender.
    world.serve(BOTH)
    async with world.life():
        world.agent.go_on.clear()
        world.platform.write("first", place=CLUB, is_addressed=True)
        await world.until(lambda: bool(world.agent.requests), "the first turn")
        waiting = world.platform.write("second", place=CLUB, is_addressed=True)
        for kind, text in ((UpdateKind.EDIT, "third"), (UpdateKind.DELETE, "")):
            change = Arrival(
                kind=kind,
                external_id=f"{waiting}/{kind}",
                target=waiting,
                place=CLUB,
                place_kind=PlaceKind.GROUP,
                sender=BOB,
                text=text,
                is_addressed=True,
            )
            world.platform.offer(change)
        await world.is_taken()
        world.agent.go_on.set()
        await world.until(lambda: len(world.agent.requests) == 2, "the second turn")
    assert told(world.agent.requests[-1])[-1] == "[Ada (ada)]\nsecond"


async def test_a_private_chat_is_called_after_its_person(world: World) -> None:
    async with world.life() as life:
        world.platform.write("/whoami")  # a command may carry another of the person's names
        await world.until(lambda: len(world.shown()) == 1, "the reply")
        (before,) = await life.store.places.known(principal=None, page=Page())
        world.platform.write("hello")
        await world.is_shown("heard: hello")
        (after,) = await life.store.places.known(principal=None, page=Page())
    assert (before.label, after.label) == ("", ADA.name)


async def test_bots_are_left_alone_unless_they_are_named(world: World) -> None:
    world.serve(AdapterSettings(allow=("*",)))
    async with world.life() as life:
        world.platform.write("beep", sender=ROBOT)
        world.platform.write("hello")
        await world.is_shown("heard: hello")
        assert await life.turns() == 1
        world.serve(AdapterSettings(allow_bots=(ROBOT.id,)))
        world.platform.write("beep beep", sender=ROBOT)
        await world.is_shown("heard: beep beep")


async def test_the_same_message_five_times_is_one_turn(world: World) -> None:
    async with world.life() as life:
        once = world.platform.write("only once")
        for _ in range(2):
            world.platform.repeat(once)
        await world.is_shown("heard: only once")
        await world.is_taken()
        assert await life.turns() == 1
    world.platform.repeat(once)
    async with world.life() as life:
        world.platform.repeat(once)
        world.platform.write("and then")
        await world.is_shown("heard: and then")
        assert await life.turns() == 2
    assert world.platform.offered.count(once) == 5
    assert heard_by(world.agent) == ["only once", "and then"]
    assert world.shown() == ["heard: only once", "heard: and then"]


async def test_what_was_said_while_nobody_listened_is_answered(world: World) -> None:
    world.platform.write("anybody there?")
    async with world.life():
        await world.is_shown("heard: anybody there?")


def lines(captured: Sequence[structlog.typing.EventDict]) -> list[str]:
    words = ("connection lost, trying again", "connected again")
    return [each["event"] for each in captured if each["event"] in words]


async def test_a_lost_connection_is_made_again_and_told_once(world: World) -> None:
    platform = world.platform
    with structlog.testing.capture_logs() as captured:
        async with world.life() as life:
            await world.until(lambda: platform.is_receiving, "the connection")
            platform.refusals = [Transient("no route") for _ in range(3)]
            platform.cut()
            world.platform.write("are you back?")
            await world.until(lambda: platform.connects > 1, "the second try")
            assert life.view().health is Health.BLIND
            assert life.view().error == "no route"
            await world.is_shown("heard: are you back?")
            assert life.view().health is Health.SERVING
            assert life.view().error == ""
    assert platform.connects == 5
    pauses = [later - earlier for earlier, later in pairwise(platform.connected_at[1:])]
    for pause, wanted in zip(pauses, PAUSES_S[1:], strict=False):
        assert wanted <= pause < wanted + 10 * TICK_S
    assert lines(captured) == ["connection lost, trying again", "connected again"]


async def test_a_store_in_trouble_is_not_told_as_a_lost_platform(world: World) -> None:
    platform = world.platform
    refusal = Transient("the database is gone")
    with structlog.testing.capture_logs() as captured:
        async with world.life() as life:
            await world.until(lambda: platform.is_receiving, "the connection")
            life.store.condition.refused(refusal)
            for _ in range(3):
                platform.cut(refusal)
                await world.until(lambda: not platform.is_receiving, "the end of a connection")
                assert (life.view().health, life.view().error) == (Health.DEGRADED, "")
                await world.until(lambda: platform.is_receiving, "the next connection")
            assert lines(captured) == []

            await life.store.condition.look()
            platform.cut(Transient("no route"))
            await world.until(lambda: not platform.is_receiving, "the loss")
            assert life.view().health is Health.BLIND
            await world.until(lambda: platform.is_receiving, "the last connection")
    assert lines(captured) == ["connection lost, trying again", "connected again"]


async def test_the_wait_that_a_platform_names_is_kept(world: World) -> None:
    platform = world.platform
    async with world.life():
        await world.until(lambda: platform.is_receiving, "the connection")
        platform.cut(Transient("too many requests", retry_after_s=42))
        await world.until(lambda: not platform.is_receiving, "the loss")
        world.clock.advance(40)
        assert platform.connects == 1
        await world.until(lambda: platform.connects > 1, "the second try")
    first, second = platform.connected_at
    assert second - first >= 42


async def test_a_refusal_is_shown_until_somebody_sees_to_it(world: World) -> None:
    platform = world.platform
    advice = "the token is not valid; set token in [adapters.scripted]"
    platform.refusals = [Permanent(advice)]
    with structlog.testing.capture_logs() as captured:
        async with world.life() as life:
            await world.until(lambda: platform.connects == 1, "the first try")
            await world.until(lambda: bool(life.view().error), "the refusal")
            assert (life.view().health, life.view().error) == (Health.BLIND, advice)
            world.clock.advance(REFUSED_PAUSE_S - 2)
            assert platform.connects == 1
            await world.until(lambda: platform.is_receiving, "the second try")
            assert (life.view().health, life.view().error) == (Health.SERVING, "")
    first, second = platform.connected_at
    assert second - first >= REFUSED_PAUSE_S
    assert lines(captured) == ["connection lost, trying again", "connected again"]


class Slow(Timed):
    """Acknowledges its connection only once `may_answer` is set."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.may_answer = asyncio.Event()

    async def connect(self) -> str:
        account = await super().connect()
        await self.may_answer.wait()
        return account


async def test_health_is_proved_by_traffic(world: World) -> None:
    platform = world.platform = Slow(world.clock)
    async with world.life() as life:
        await world.until(lambda: platform.connects == 1, "the first try")
        assert (life.view().health, life.view().account) == (Health.DEGRADED, "")
        platform.may_answer.set()
        await world.until(lambda: platform.is_receiving, "the connection")
        assert (life.view().health, life.view().account) == (Health.SERVING, "bot")
        world.clock.advance(SILENCE_S)
        assert life.view().health is Health.SERVING
        world.clock.advance(2)
        assert life.view().health is Health.BLIND
        assert life.view().silent_s > SILENCE_S
        platform.write("here I am")
        await world.is_shown("heard: here I am")
        assert life.view().health is Health.SERVING


def code_in(shown: list[str]) -> str:
    """Return the pairing code that was shown."""
    (words,) = [text for text in shown if "code is " in text]
    return words.partition("code is ")[2][:8]


async def test_a_platform_that_left_the_configuration_serves_nobody(world: World) -> None:
    world.serve(AdapterSettings(allow=(ADA.id,), pairing=True))
    async with world.life() as life:
        world.platform.write("may I?", sender=BOB)
        await world.until(lambda: bool(world.shown(BOB.id)), "the code")
        await life.store.access.approve(code_in(world.shown(BOB.id)), by="operator")
        world.platform.write("thank you", sender=BOB)
        await world.is_shown("heard: thank you")

        world.hosts.replace({})
        late = [world.platform.write("and now?", sender=who) for who in (ADA, BOB)]
        late.append(world.platform.write("may I too?", sender=Sender(id="eve")))
        await world.is_taken()

        assert [await life.refusal(each) for each in late] == ["failed"] * 3
        assert await life.turns() == 1
    assert heard_by(world.agent) == ["thank you"]
    assert world.shown("eve") == []


async def test_a_message_whose_acceptance_was_cancelled_is_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The connection drops during the commit: the message is stored, and its caller is not told.
    async with world.life() as life:
        await world.until(lambda: world.platform.is_receiving, "the connection")
        accept = life.store.inbox.accept_and_start
        cancelled: list[str] = []

        async def dropped(update: Update, *, queue_max: int, menu: Menu) -> Reception:
            if not cancelled:
                cancelled.append(update.external_id)
                asyncio.get_running_loop().call_soon(taking.cancel)
            return await accept(update, queue_max=queue_max, menu=menu)

        monkeypatch.setattr(life.store.inbox, "accept_and_start", dropped)
        inlet = life.parts.receivers._receivers[NAME].inlet
        assert inlet is not None
        arrival = Arrival(
            external_id="ada/0",
            place=ADA.id,
            place_kind=PlaceKind.PRIVATE,
            sender=ADA,
            text="hello",
        )
        taking = asyncio.ensure_future(inlet.take(arrival))
        with pytest.raises(asyncio.CancelledError):
            await taking

        await world.is_shown("heard: hello")
        world.platform.offer(arrival)
        world.platform.write("and then")
        await world.is_shown("heard: and then")
        assert await life.turns() == 2
    assert cancelled == ["ada/0"]
    assert world.shown() == ["heard: hello", "heard: and then"]


@pytest.mark.parametrize("code", [None, "id_conflict"])
async def test_only_a_message_that_changed_under_its_id_is_not_taken(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str | None
) -> None:
    # Any other conflict concerns the store alone, and is over when the message is offered again.
    async with world.life() as life:
        accept = life.store.inbox.accept_and_start
        conflicts = [Conflict("a rule was broken", code=code)]

        async def collides(update: Update, *, queue_max: int, menu: Menu) -> Reception:
            if conflicts:
                raise conflicts.pop()
            return await accept(update, queue_max=queue_max, menu=menu)

        monkeypatch.setattr(life.store.inbox, "accept_and_start", collides)
        first = world.platform.write("hello")
        world.platform.write("and then")
        await world.is_shown("heard: and then")
    is_lost = code == "id_conflict"
    assert world.platform.offered.count(first) == (1 if is_lost else 2)
    assert heard_by(world.agent) == (["and then"] if is_lost else ["hello", "and then"])


async def test_an_edit_in_a_linked_place_reaches_its_message(world: World) -> None:
    world.serve(BOTH)
    async with world.life():
        world.platform.write("/link")
        await world.until(lambda: bool(world.shown(ADA.id)), "the code")
        world.platform.write(f"/link {code_in(world.shown(ADA.id))}", sender=BOB)
        await world.until(lambda: bool(world.shown(BOB.id)), "the link")

        world.agent.go_on.clear()
        world.platform.write("first")
        await world.until(lambda: bool(world.agent.requests), "the first turn")
        waiting = world.platform.write("secnod", sender=BOB)
        await world.is_taken()
        world.platform.rewrite(waiting, "second")
        await world.is_taken()
        world.agent.go_on.set()
        await world.is_shown("heard: second", BOB.id)
    assert heard_by(world.agent) == ["first", "second"]


async def test_what_was_refused_is_not_taken_when_it_is_offered_again(world: World) -> None:
    # The person was told of the refusal, and may have said it in other words since.
    world.serve(BOTH)
    world.limits = Limits(queue_max=1, drain_timeout_s=5)
    async with world.life() as life:
        world.agent.go_on.clear()
        world.platform.write("first")
        await world.until(lambda: bool(world.agent.requests), "the first turn")
        world.platform.write("second")
        refused = world.platform.write("third")
        await world.until(lambda: len(world.shown()) == 1, "the refusal")
        world.agent.go_on.set()
        await world.is_shown("heard: second")

        world.platform.repeat(refused)
        world.platform.write("fourth")
        await world.is_shown("heard: fourth")
        assert await life.refusal(refused) == "failed"
    assert heard_by(world.agent) == ["first", "second", "fourth"]
    assert len([text for text in world.shown() if text.startswith("Not taken: ")]) == 1


async def test_what_cannot_be_read_is_put_aside_and_the_next_is_served(world: World) -> None:
    async with world.life() as life:
        await world.until(lambda: world.platform.is_receiving, "the connection")
        world.platform.garble('{"half": ')
        world.platform.write("hello")
        await world.is_shown("heard: hello")

        (view,) = await life.store.parked.page(Page())
        assert (view.text, view.error) == ('{"half": ', "it is not in our form")
        with pytest.raises(Rejected, match="drop it"):
            await life.parts.receivers.take_again(view.adapter, view.text)
        await life.store.parked.drop(PartId(view.id))
        assert await life.store.parked.page(Page()) == []
    assert world.platform.connects == 1


async def test_a_message_that_breaks_us_is_put_aside_and_can_be_taken_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.life() as life:
        with monkeypatch.context() as broken:

            async def breaks(update: Update, *, queue_max: int, menu: Menu) -> Reception:
                raise KeyError("a bug of ours")

            broken.setattr(life.store.inbox, "accept_and_start", breaks)
            poison = world.platform.write("poison \u00e4")
            await world.is_taken()
            (view,) = await life.store.parked.page(Page())
            with pytest.raises(KeyError):
                await life.parts.receivers.take_again(view.adapter, view.text)
            assert [each.id for each in await life.store.parked.page(Page())] == [view.id]
        world.platform.write("hello")
        await world.is_shown("heard: hello")

        assert (view.message, view.error) == (poison, "KeyError")
        kept = msgspec.json.decode(view.text, type=Arrival)
        assert (kept.text, kept.sender, kept.place) == ("poison \u00e4", ADA, ADA.id)
        await life.parts.receivers.take_again(view.adapter, view.text)
        await life.store.parked.replay(PartId(view.id), force=False)
        await world.is_shown("heard: poison \u00e4")
        world.platform.repeat(poison)
        world.platform.write("and then")
        await world.is_shown("heard: and then")
        assert await life.store.parked.page(Page()) == []
    assert heard_by(world.agent) == ["hello", "poison \u00e4", "and then"]
    assert world.platform.connects == 1


@pytest.mark.parametrize(
    ("kind", "is_stored"), [(Ambiguous, True), (Ambiguous, False), (Transient, False)]
)
@pytest.mark.parametrize(
    ("port", "method"),
    [
        ("inbox", "accept_and_start"),
        ("principals", "appoint"),
        ("access", "standing"),
    ],
)
async def test_an_arrival_whose_taking_failed_is_offered_again(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Ambiguous | Transient],
    port: str,
    method: str,
    is_stored: bool,
) -> None:
    # If it were put aside and acknowledged, it would wait for a person to look at it, or be stored
    # twice.
    async with world.life() as life:
        real = getattr(getattr(life.store, port), method)
        failures = [kind("the store went away")]

        async def fails_once(*given: object, **named: object) -> object:
            if not failures:
                return await real(*given, **named)
            if is_stored:
                await real(*given, **named)
            raise failures.pop()

        monkeypatch.setattr(getattr(life.store, port), method, fails_once)
        first = world.platform.write("hello")
        world.platform.write("and then")
        await world.is_shown("heard: and then")

        assert await life.store.parked.page(Page()) == []
        assert await life.turns() == 2
    assert world.platform.offered.count(first) == 2
    assert heard_by(world.agent) == ["hello", "and then"]


async def test_a_letter_that_could_not_be_put_aside_is_offered_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.life() as life:
        park = life.store.access.park
        failures = [Transient("the disk is full")]

        async def breaks(update: Update, *, queue_max: int, menu: Menu) -> Reception:
            raise KeyError("a bug of ours")

        async def fails_once(letter: DeadLetter) -> None:
            if failures:
                raise failures.pop()
            await park(letter)

        monkeypatch.setattr(life.store.inbox, "accept_and_start", breaks)
        monkeypatch.setattr(life.store.access, "park", fails_once)
        poison = world.platform.write("poison")
        await world.is_taken()

        (view,) = await life.store.parked.page(Page())
        assert view.message == poison
    assert world.platform.offered.count(poison) == 2


async def test_who_is_an_operator_is_what_the_configuration_says_now(world: World) -> None:
    # A role that was remembered from an earlier message must not outlive the configuration.
    operator = msgspec.structs.replace(ADA_ONLY, operators=(ADA.id,))
    async with world.life() as life:
        roles = []
        for number, settings in enumerate((ADA_ONLY, operator, ADA_ONLY, operator)):
            world.serve(settings)
            world.platform.write(f"message {number}")
            await world.is_shown(f"heard: message {number}")
            ada = await life.store.principals.ensure(f"{NAME}:{ADA.id}", role="member")
            roles.append(ada.role)
    assert roles == ["member", "operator", "member", "operator"]


async def test_a_conversation_is_that_of_the_account_which_heard_it(world: World) -> None:
    async with world.life() as life:
        world.platform.write("hello")
        await world.is_shown("heard: hello")
        ada = await life.store.principals.ensure(f"{NAME}:{ADA.id}", role="member")
        (view,) = await life.store.conversations.recent(principal=ada.id, page=Page())
        assert view.address == Address(adapter=NAME, account="bot", place=ADA.id)


async def test_nothing_is_sent_where_the_connection_is_lost(world: World) -> None:
    async with world.life() as life:
        world.agent.go_on.clear()
        world.platform.write("hello")
        await world.until(lambda: bool(world.agent.requests), "the question")
        world.platform.refusals = [Transient("still away") for _ in range(3)]
        world.platform.cut()
        await world.until(lambda: life.view().health is Health.BLIND, "the loss")
        world.agent.go_on.set()

        def is_back() -> bool:
            assert life.view().health is not Health.BLIND or not world.shown()
            return bool(world.shown())

        await world.until(is_back, "the answer")
    assert world.shown() == ["heard: hello"]


class LostWhenStopped(Timed):
    """Loses its connection at the very moment at which it is told to stop."""

    async def receive(self, inlet: Inlet) -> None:
        try:
            await super().receive(inlet)
        except asyncio.CancelledError:
            raise Transient("the connection was cut") from None


async def test_a_connection_that_is_lost_at_the_stop_does_not_hold_it_up(world: World) -> None:
    world.platform = LostWhenStopped(world.clock)
    async with world.life():
        world.platform.write("hello")
        await world.is_shown("heard: hello")
    assert world.platform.connects == 1
