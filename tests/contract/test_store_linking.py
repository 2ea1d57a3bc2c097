"""Checks one conversation in several places: `/link`, on both databases."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from perdure.domain.address import HTTP, Address
from perdure.domain.checking.checker import violations
from perdure.domain.delivery import PartState
from perdure.domain.errors import NotFound
from perdure.domain.ids import ConversationId, PrincipalId, SessionId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import NoticePosted
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.journal.transcript import Entry
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Interruption
from perdure.domain.turn.watching import Position, StateNews
from perdure.engine.watching.feed import Feed
from perdure.engine.watching.watch import LiveWatchers
from perdure.ports.people.places import OutgoingMessage
from perdure.ports.records.history import Page, Snapshot
from perdure.store.operations.commands.linking import (
    CODE_MS,
    IN_A_GROUP,
    NOT_LINKED,
    OWN_CODE,
    TOO_OFTEN,
    WRONG,
    WRONG_MAX,
)
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, only, settle, turn_of
from perdure.testkit.simulator.system import VirtualClock
from perdure.testkit.simulator.watching import one_by_one

CHAT = "scripted"
_CODE = re.compile(r"The code is ([0-9A-Z]{8}),")


@pytest.fixture(autouse=True)
async def _everything_is_sound(store: Store) -> AsyncIterator[None]:
    yield
    page = Page(limit=1000, with_unlisted=True)
    sessions = await store.archive.sessions(principal=None, page=page)
    records = [await store.diagnostics.record(session.id) for session in sessions]
    assert [problem for record in records for problem in violations(record)] == []


class Spot:
    """Plays one person in one place."""

    def __init__(
        self, store: Store, who: PrincipalId, place: str, *, adapter: str = CHAT, kind: str = ""
    ) -> None:
        self.store = store
        self.who = who
        account = who if adapter == HTTP else "bot"
        self.address = Address(adapter=adapter, account=account, place=place)
        self._kind = kind or ("" if adapter == HTTP else "private")
        self._said = 0

    async def say(self, text: str) -> Accepted:
        self._said += 1
        update = Update(
            address=self.address,
            external_id=f"{self.address.place}-{self._said}",
            kind=UpdateKind.MESSAGE,
            principal=self.who,
            text=text,
            place_kind=self._kind,
        )
        return await self.store.inbox.accept(update, queue_max=100)

    async def code(self) -> str:
        found = _CODE.match((await self.say("/link")).reply)
        assert found is not None
        return found.group(1)

    async def exchange(self, text: str) -> SessionId:
        await self.say(text)
        claimed = await claim_one(self.store)
        await settle(self.store, claimed, f"on {text}", parts=(f"on {text}",))
        return claimed.lease.session

    async def snapshot(self) -> Snapshot:
        return await self.store.conversations.find(self.address.place, principal=self.who)


async def told(store: Store) -> list[tuple[str, str]]:
    """Send everything to people. Returns texts by place; each part waits for the one before it."""
    parts = []
    while taken := await store.outbox.take(adapter=CHAT, limit=100):
        for part in taken:
            await store.outbox.record(part.id, PartState.SENT, receipt=part.id)
            parts.append((part.address.place, part.text))
    return parts


@pytest.fixture
def phone(store: Store, ada: Person) -> Spot:
    return Spot(store, ada.id, "phone")


@pytest.fixture
def tablet(store: Store, bob: Person) -> Spot:
    """Return another account of Ada's. The gateway cannot know that before she links it."""
    return Spot(store, bob.id, "tablet")


@pytest.fixture
def browser(store: Store, bob: Person) -> Spot:
    return Spot(store, bob.id, "main", adapter=HTTP)


async def test_what_is_said_there_continues_the_conversation_and_is_answered_there(
    store: Store, phone: Spot, tablet: Spot
) -> None:
    session = await phone.exchange("I grow beans")
    own = await tablet.exchange("who am I")
    await told(store)

    linked = await tablet.say(f"/link {await phone.code()}")

    assert linked.reply.startswith("Linked. What is said here continues scripted:phone")
    notices = dict(await told(store))
    assert "scripted:tablet is linked to this conversation" in notices["phone"]
    assert notices["tablet"] == linked.reply
    said = await tablet.say("what do I grow?")
    claimed = await claim_one(store)
    assert said.session == claimed.lease.session == session != own
    assert (claimed.principal, claimed.address) == (phone.who, tablet.address)
    await settle(store, claimed, "beans", parts=("beans",))
    assert await told(store) == [("tablet", "beans")]
    assert await phone.exchange("and?") == session
    assert await told(store) == [("phone", "on and?")]


async def test_off_gives_the_place_its_own_conversation_back(
    store: Store, phone: Spot, tablet: Spot
) -> None:
    own = await tablet.exchange("before")
    await tablet.say(f"/link {await phone.code()}")
    again = await tablet.say("/link")
    await told(store)

    ended = await tablet.say("/link off")

    assert again.reply == "What is said here continues scripted:phone. /link off ends that."
    assert ended.reply == "This place has its own conversation again."
    assert dict(await told(store)) == {
        "tablet": ended.reply,
        "phone": "scripted:tablet is no longer linked to this conversation.",
    }
    assert await tablet.exchange("after") == own
    assert (await tablet.say("/link off")).reply == NOT_LINKED


async def test_the_first_place_may_end_it_too(store: Store, phone: Spot, tablet: Spot) -> None:
    own = await tablet.exchange("before")
    await tablet.say(f"/link {await phone.code()}")
    await told(store)

    ended = await phone.say("/link off")

    assert ended.reply == "No longer linked to here: scripted:tablet."
    assert dict(await told(store)) == {
        "phone": ended.reply,
        "tablet": "scripted:phone has ended the link. This place has its own conversation again.",
    }
    assert ended.moved == ((await conversation_of(store, tablet), own),)
    assert await tablet.exchange("after") == own


async def conversation_of(store: Store, spot: Spot) -> str:
    found = await store.places.known(principal=None, page=Page())
    return next(view.id for view in found if view.address == spot.address.name)


async def test_reads_over_http_show_what_goes_on_there(
    store: Store, phone: Spot, browser: Spot
) -> None:
    session = await phone.exchange("hello")
    own = await browser.exchange("hello from here")
    before = await browser.snapshot()

    linked = await browser.say(f"/link {await phone.code()}")

    during = await browser.snapshot()
    assert (during.view.name, during.view.linked_name) == ("main", "scripted:phone")
    assert during.view.standing.session == session == linked.session
    assert linked.moved == ((during.view.id, session),)
    assert during.view.generation > before.view.generation
    await phone.say("/new")
    rotated = await browser.snapshot()
    assert rotated.view.generation > during.view.generation
    await browser.say("/link off")
    after = await browser.snapshot()
    assert (after.view.standing.session, after.view.linked_name) == (own, "")
    assert after.view.generation > rotated.view.generation
    views = await store.conversations.recent(principal=browser.who, page=Page())
    assert [view.name for view in views] == ["main"]


async def heard(store: Store, conversation: ConversationId, after: Position) -> list[str]:
    """Return what was said after a position, as a watcher of the conversation hears it."""
    said = []
    watchers = LiveWatchers(Feed(), store.conversations, store.archive)
    async for each in one_by_one(watchers.conversation(conversation, after=after)):
        assert each is not None
        assert each[0] > after
        after = each[0]
        if isinstance(each[1], StateNews):
            watchers.close()
        elif isinstance(each[1], Entry) and each[1].role != "notice":
            said.append(each[1].text)
    return said


async def test_whoever_watches_a_place_follows_where_it_is_linked_to(
    store: Store, phone: Spot, browser: Spot
) -> None:
    await phone.exchange("before the link")
    await browser.exchange("here")
    before = await browser.snapshot()
    last = Position(before.view.generation, before.last_seq)
    await browser.say(f"/link {await phone.code()}")
    await phone.exchange("linked")
    await phone.say("/new")
    await phone.exchange("anew")
    during = await browser.snapshot()
    await browser.say("/link off")
    await phone.exchange("alone")
    await browser.exchange("here again")

    ours, own = ["linked", "on linked", "anew", "on anew"], ["here again", "on here again"]
    assert await heard(store, before.view.id, last) == [*ours, *own]
    at = Position(during.view.generation, during.last_seq)
    assert await heard(store, before.view.id, at) == own
    at = Position(1, 0)
    assert await heard(store, before.view.id, at) == ["here", "on here", *ours, *own]


async def test_what_a_linked_place_has_of_its_own_moves_nobody(
    store: Store, phone: Spot, browser: Spot
) -> None:
    # The place's own answer is given up meanwhile, and the message behind it goes on in another
    # session.
    await phone.exchange("hello")
    await browser.say("deadly")
    claimed = await claim_one(store)
    await browser.say("I wait")
    await browser.say(f"/link {await phone.code()}")
    during = await browser.snapshot()

    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

    after = await browser.snapshot()
    assert after.view.generation == during.view.generation
    await settle(store, await claim_one(store), "served")
    await phone.say("/new")
    await phone.exchange("anew")
    at = Position(during.view.generation, during.last_seq)
    assert await heard(store, after.view.id, at) == ["anew", "on anew"]


async def test_who_is_linked_may_see_and_stop_what_runs(
    store: Store, phone: Spot, browser: Spot
) -> None:
    await phone.exchange("hello")
    stranger = await store.principals.ensure("carol", role="member")
    await browser.say(f"/link {await phone.code()}")
    asked = turn_of(await browser.say("go on"))

    with pytest.raises(NotFound):
        await store.archive.turn(asked, principal=stranger.id)
    with pytest.raises(NotFound):
        await store.inbox.stop(asked, by=stranger.id)
    assert (await store.archive.turn(asked, principal=browser.who)).state == "queued"
    await store.inbox.stop(asked, by=browser.who)
    await browser.say("/link off")
    with pytest.raises(NotFound):
        await store.archive.turn(asked, principal=browser.who)


async def test_a_code_is_good_once_and_for_ten_minutes(
    store: Store, phone: Spot, tablet: Spot, browser: Spot, clock: VirtualClock
) -> None:
    used = await phone.code()
    await tablet.say(f"/link {used}")
    assert (await browser.say(f"/link {used}")).reply == WRONG

    old = await phone.code()
    fresh = await phone.code()
    assert (await browser.say(f"/link {old}")).reply == WRONG, "the next one takes its place"
    clock.advance(CODE_MS / 1000)
    assert (await browser.say(f"/link {fresh}")).reply == WRONG


async def test_a_code_is_typed_as_people_type(store: Store, phone: Spot, tablet: Spot) -> None:
    code = await phone.code()
    typed = f"{code[:4]}-{code[4:]}".lower().replace("0", "o").replace("1", "l")

    assert (await tablet.say(f"/link {typed}")).reply.startswith("Linked.")


async def test_guessing_is_stopped_for_an_hour(
    store: Store, phone: Spot, tablet: Spot, browser: Spot, clock: VirtualClock
) -> None:
    for number in range(WRONG_MAX):
        guessing = tablet if number % 2 else browser  # guesses count per person, not per place
        assert (await guessing.say(f"/link GUESS{number:03}")).reply == WRONG

    assert (await tablet.say(f"/link {await phone.code()}")).reply == TOO_OFTEN
    clock.advance(3601)
    assert (await tablet.say(f"/link {await phone.code()}")).reply.startswith("Linked.")


async def test_no_code_is_kept(store: Store, phone: Spot, tablet: Spot) -> None:
    code = await phone.code()
    await tablet.say("/link WRONG123")
    linked = await tablet.say(f"/link {code}")

    record = await store.diagnostics.record(linked.session)
    given = [event.arguments for event in only(CommandTaken, record.events)]
    assert given == ["", "(code)"]
    assert len(only(NoticePosted, record.events)) == 1


async def test_groups_are_not_linked(store: Store, ada: Person, phone: Spot) -> None:
    group = Spot(store, ada.id, "club", kind="group")

    assert (await group.say("/link")).reply == IN_A_GROUP
    assert (await group.say(f"/link {await phone.code()}")).reply == IN_A_GROUP
    assert await group.exchange("hi") != await phone.exchange("hi")


async def test_a_place_is_not_linked_to_itself(store: Store, phone: Spot, tablet: Spot) -> None:
    code = await phone.code()

    assert (await phone.say(f"/link {code}")).reply == OWN_CODE
    assert (await tablet.say(f"/link {code}")).reply.startswith("Linked."), "it is still good"


async def test_a_code_of_a_place_that_is_linked_leads_to_where_that_goes_on(
    store: Store, phone: Spot, tablet: Spot, browser: Spot
) -> None:
    of_tablet = await tablet.code()
    session = await phone.exchange("hello")
    await tablet.say(f"/link {await phone.code()}")

    linked = await browser.say(f"/link {of_tablet}")

    assert linked.reply.startswith("Linked. What is said here continues scripted:phone")
    assert await browser.exchange("me too") == session


async def test_what_others_are_linked_to_is_not_linked_on(
    store: Store, phone: Spot, tablet: Spot, browser: Spot
) -> None:
    session = await phone.exchange("hello")
    await tablet.say(f"/link {await phone.code()}")

    refused = await phone.say(f"/link {await browser.code()}")

    assert refused.reply.startswith("scripted:tablet: linked to here, so this cannot be linked on")
    assert "scripted:tablet: linked to here already" in (await phone.say("/link")).reply
    assert await tablet.exchange("still there") == session


async def test_of_two_that_link_each_other_at_once_one_does(
    peers: list[Store], phone: Spot, tablet: Spot
) -> None:
    await phone.exchange("hello")
    await tablet.exchange("hello")
    codes = await phone.code(), await tablet.code()
    tablet.store = peers[-1]

    replies = await asyncio.gather(phone.say(f"/link {codes[1]}"), tablet.say(f"/link {codes[0]}"))

    linked = [accepted for accepted in replies if accepted.reply.startswith("Linked.")]
    assert len(linked) == 1
    assert await phone.exchange("one") == await tablet.exchange("conversation")


async def test_home_is_where_it_was_said(store: Store, phone: Spot, browser: Spot) -> None:
    # The place itself becomes the home, and not the conversation it is linked to, which may be one
    # that only a client over HTTP reads.
    session = await browser.exchange("hello")
    await phone.say(f"/link {await browser.code()}")
    await phone.say("/home")
    owner = await store.principals.ensure("bob", role="member")
    sending = OutgoingMessage(
        to="home", text="hi", external_id="s", by=owner, accounts={CHAT: "bot"}
    )

    sent = await store.places.send(sending, queue_max=9)

    assert (sent.address, sent.accepted.session) == ("scripted:phone", session)
    assert (await claim_one(store)).address == phone.address


async def test_a_linked_place_that_became_a_group_speaks_for_nobody(
    store: Store, ada: Person, phone: Spot, tablet: Spot
) -> None:
    # A person who was invited to the group must not go on with somebody else's conversation.
    private = await phone.exchange("my secret")
    own = await tablet.exchange("before")
    await tablet.say(f"/link {await phone.code()}")
    guest = await store.principals.ensure("carol", role="member")

    for who in (guest.id, tablet.who):
        group = Spot(store, who, "tablet", kind="group")
        group._said = 100 if who == guest.id else 200
        whoami = await group.say("/whoami")
        asked = await group.say("what did she say?")
        claimed = await claim_one(store)
        await settle(store, claimed, "nothing", parts=("nothing",))

        assert whoami.session == asked.session == own != private
        assert (claimed.principal, claimed.is_shared) == (who, True)
        assert "ada" not in whoami.reply


async def test_two_conversations_may_put_words_into_one_place_at_once(
    peers: list[Store], ada: Person, phone: Spot, tablet: Spot
) -> None:
    # A question that came through a link is answered in its place, even if the link has ended
    # meanwhile.
    store, other = peers[0], peers[-1]
    for number in range(12):
        await tablet.say(f"/link {await phone.code()}")
        await tablet.say("question")
        claimed = await claim_one(store)
        await tablet.say("/link off")
        await told(store)
        elsewhere = Spot(other, tablet.who, "tablet")
        elsewhere._said = 1_000 + number

        _, status = await asyncio.gather(
            settle(store, claimed, "answer in parts", parts=("answer ", "in ", "parts")),
            elsewhere.say("/status"),
        )

        texts = [text for place, text in await told(store) if place == "tablet"]
        assert texts.count(status.reply) == 1
        assert [text for text in texts if text != status.reply] == ["answer ", "in ", "parts"]
