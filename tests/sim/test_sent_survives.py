"""Checks that what is sent to a place from elsewhere, and what is said in a linked place, survives
a death, a lost answer or a refusal at every instant."""

from functools import partial

import pytest

from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.content.speech import SPEECH_NAME
from perdure.domain.inbound.updates import Update
from perdure.domain.kinds import UpdateKind
from perdure.ports.people.places import OutgoingMessage
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.stores import admitted
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import PLATFORM, Life, World, patiently, rest

pytestmark = pytest.mark.timeout(100)


def texts(world: World, place: str) -> list[str]:
    return [shown.text.strip() for shown in world.platform.shown if shown.place == place]


async def says(life: Life, place: str, text: str) -> str:
    """Say something under an id that is the same in every life. Returns the reply."""
    ensure = partial(life.store.principals.ensure, f"scripted:{place}", role="member")
    person = await patiently(ensure)
    update = Update(
        address=Address(adapter=PLATFORM, account="bot", place=place),
        external_id=f"{place}: {text}",
        kind=UpdateKind.MESSAGE,
        principal=person.id,
        text=text,
        place_kind="private",
    )
    return (await life.accept(update)).reply


async def sends(life: Life, to: str, text: str) -> None:
    root = await life.store.principals.ensure("root", role="operator")
    await admitted(life.store, "root", role="operator")
    sending = OutgoingMessage(
        to=to, text=text, external_id=text, by=root, accounts={PLATFORM: "bot"}
    )
    await patiently(partial(life.parts.door.send, sending))


async def send(life: Life) -> None:
    """Send to a person who talks, and to one who never did."""
    await says(life, "room", "hello")
    await sends(life, "scripted:room", "a note")
    await says(life, "room", "what was that")
    await sends(life, "scripted:door", "somebody is at the door")
    await life.rest()


def check_sent(world: World) -> None:
    room = texts(world, "room")
    assert [text for text in room if text == "a note"] == ["a note"]
    assert room == ["echo: hello", "a note", "echo: what was that"]
    assert texts(world, "door") == ["somebody is at the door"]


async def link(life: Life) -> None:
    """Link a second place by a code. A code that was given out before a crash must be valid after
    it."""
    await says(life, "phone", "hello")
    reply = await says(life, "phone", "/link")
    code = reply.split()[3].rstrip(",")
    await says(life, "tablet", f"/link {code}")
    await says(life, "tablet", "me again")
    await life.rest()  # the next line is in another conversation, which would not wait for this one
    await says(life, "tablet", "/link off")
    await says(life, "tablet", "somebody else")
    await life.rest()


def check_linked(world: World) -> None:
    assert [text for text in texts(world, "tablet") if text.startswith("echo")] == [
        "echo: me again",
        "echo: somebody else",
    ]
    assert sum("is linked to this conversation" in text for text in texts(world, "phone")) == 1
    assert sum("no longer linked" in text for text in texts(world, "phone")) == 1
    assert sum(text.startswith("Linked.") for text in texts(world, "tablet")) == 1


async def speak(life: Life) -> None:
    """Let answers be spoken for a while."""
    await says(life, "room", "/voice on")
    await says(life, "room", "hello")
    await life.rest()
    await says(life, "room", "/voice off")
    await says(life, "room", "and now?")
    await life.rest()


def check_spoken(world: World) -> None:
    # The platform shows what it gets twice under one key only once.
    spoken = {(file.key, file.data, file.is_voice) for file in world.platform.files}
    assert [each[1:] for each in spoken] == [(b"echo: hello.", True)]
    said = [text for text in texts(world, "room") if text.startswith("echo") or ".ogg" in text]
    assert said == ["echo: hello", SPEECH_NAME, "echo: and now?"]


SCRIPTS = {
    "send": (send, check_sent),
    "link": (link, check_linked),
    "speak": (speak, check_spoken),
}


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
@pytest.mark.parametrize("script", SCRIPTS)
async def test_no_instant_loses_or_repeats_it(
    script: str, nemesis: Nemesis, simulator: Simulator
) -> None:
    # A person who talks to a gateway that died says everything again.
    act, check = SCRIPTS[script]

    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        await world.live(act, fuse)
        records = await world.tell(act if fuse.is_dead else rest)
        check(world)
        assert world.platform.repeated() == []
        return [each for record in records for each in violations(record)]

    await simulator.strike(run, nemesis, every=4 if nemesis is Nemesis.DIE else 8)
