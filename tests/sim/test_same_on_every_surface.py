"""Checks that one script leaves the same journals behind, whether it is said over HTTP or on a chat
platform.

Both run on a whole node with a real store, against an agent that answers by rule. Only names may
differ: ids, times, and where the conversation is.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import pytest
from aiohttp import web
from tests.databases import sqlite_on

from perdure.app.config.loading import Config
from perdure.app.life.node import RunningNode, running_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import HTTP, Address
from perdure.domain.checking.checker import violations
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.codec import encode
from perdure.domain.journal.records import SessionRecord
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentEvent, AgentText
from perdure.engine.models.roster import Backend, Roster
from perdure.ports.people.principals import Principal
from perdure.ports.records.history import Page
from perdure.ports.turns.agent import Work
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent, said
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.web.server import application

pytestmark = pytest.mark.timeout(100)
TOKEN: Final = "a token of hers"
PLACE: Final = "room"
DEADLINE_S: Final = 20.0
# /why also lists the parts that were sent. Over HTTP there are none.
_DELIVERY: Final = re.compile(r"\\npart \d+: \w+")
_ID: Final = re.compile(r"\b[a-z]{3,4}_[0-9a-z]{26}")


class Until(StrEnum):
    """Names what a person waits for before the next line."""

    REST = "everything is answered"
    WORK = "an answer has begun"
    TAKEN = "it is taken"


class Line(NamedTuple):
    text: str
    until: Until = Until.REST


SCRIPT: Final = (
    Line("hello"),
    Line("/title Plans"),
    Line("tool look"),
    Line("/status"),
    Line("/undo"),
    Line("/redo"),
    Line("/retry"),
    Line("long story", Until.WORK),
    Line("/queue milk", Until.TAKEN),
    Line("and bread", Until.TAKEN),
    Line("/stop"),
    Line("long walk", Until.WORK),
    Line("/steer rather north", Until.TAKEN),
    Line("/undo"),
    Line("long way", Until.WORK),
    Line("/retry", Until.WORK),
    Line("/stop all"),
    Line("/undo 2"),
    Line("/branch side"),
    Line("in the branch"),
    Line("/resume"),
    Line("where were we"),
    Line("/new another thing"),
    Line("hello again"),
    Line("/sessions"),
    Line("/sessions branch"),
    Line("/agent"),
    Line("/agent nobody"),
    Line("/agent spare"),
    Line("who is it"),
    Line("/persona"),
    Line("/think"),
    Line("/think high"),
    Line("/memory"),
    Line("/usage"),
    Line("/background count"),
    Line("/compact"),
    Line("/home"),
    Line("/link off"),
    Line("/why"),
    Line("/whoami"),
    Line("/help"),
    Line("/nonsense"),
    Line("/undo many"),
    Line("/approve"),
    Line("/usr/bin is a path"),
    Line("bye"),
)


class PatientAgent(ScriptedAgent):
    """Leaves the answer to a question that begins with "long" without an end."""

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        async for event in super().run(request, work):
            yield event
            if isinstance(event, AgentText) and said(request).startswith("long "):
                await asyncio.Event().wait()


Say = Callable[[str, str], Awaitable[str]]


@asynccontextmanager
async def a_node(
    folder: Path, platform: ScriptedPlatform
) -> AsyncIterator[tuple[Store, RunningNode]]:
    clock, entropy = SystemClock(), SystemEntropy()
    driver = sqlite_on(folder / "perdure.db")
    store = Store(driver, clock=clock, entropy=entropy, media=folder / "media")
    await store.open()
    try:
        backends = {
            name: Backend(name=name, kind="s", agent=PatientAgent(), tools=CountingTools([]))
            for name in ("main", "spare")
        }
        dependencies = NodeDependencies(
            store=store,
            roster=Roster(backends),
            clock=clock,
            entropy=entropy,
            adapters={platform.name: platform},
        )
        async with running_node(dependencies, Config()) as running:
            yield store, running
    finally:
        await store.close()


@asynccontextmanager
async def over_http(running: RunningNode) -> AsyncIterator[Say]:
    runner = web.AppRunner(application(running.services, running.tally))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    headers = {"Authorization": f"Bearer {TOKEN}"}

    async def say(message: str, text: str) -> str:
        url = f"http://127.0.0.1:{port}/api/conversations/{PLACE}/messages"
        async with client.post(url, json={"text": text, "id": message}) as response:
            body = await response.json()
            assert response.status == 202, body
            return str(body.get("reply", ""))

    try:
        async with aiohttp.ClientSession(headers=headers) as client:
            yield say
    finally:
        await runner.cleanup()


@asynccontextmanager
async def on_a_platform(
    running: RunningNode, platform: ScriptedPlatform, person: Principal
) -> AsyncIterator[Say]:
    async def say(message: str, text: str) -> str:
        platform.say(message, PLACE, text)
        update = Update(
            address=Address(adapter=platform.name, account="bot", place=PLACE),
            external_id=message,
            kind=UpdateKind.MESSAGE,
            principal=person.id,
            text=text,
            busy=Busy(Config().server.busy),
        )
        accepted = await running.services.door.accept(update)
        await platform.acknowledge(message)
        return accepted.reply

    yield say


async def wait(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not await condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"{what} never happened")


async def is_at_rest(store: Store) -> bool:
    counts = await store.diagnostics.counts()
    return counts.queued == counts.running == 0


async def is_at_work(store: Store) -> bool:
    """Tell whether some of the answer is stored, so that a stop will keep it."""
    session = (await store.archive.sessions(principal=None, page=Page(limit=1)))[0]
    return bool((await store.diagnostics.record(session.id)).partials)


async def play(store: Store, say: Say) -> list[str]:
    """Say each line of the script. Returns the immediate replies."""
    replies = []
    for number, line in enumerate(SCRIPT):
        replies.append(await say(f"m{number}", line.text))
        if line.until is Until.WORK:
            await wait(lambda: is_at_work(store), f"{line.until} after {line.text!r}")
        if line.until is Until.REST:
            await wait(lambda: is_at_rest(store), f"{line.until} after {line.text!r}")
    return replies


async def records_of(store: Store) -> list[SessionRecord]:
    page = Page(limit=1000, with_unlisted=True)
    sessions = await store.archive.sessions(principal=None, page=page)
    records = [await store.diagnostics.record(session.id) for session in sessions]
    assert [each for record in records for each in violations(record)] == []
    return records


def journals(records: list[SessionRecord], here: str) -> list[list[str]]:
    """Return each session's events with its names taken out: ids are numbered in their order."""
    return sorted(_nameless(record, here) for record in records)


def _nameless(record: SessionRecord, here: str) -> list[str]:
    known: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return known.setdefault(found[0], f"{found[0][:3]}{len(known)}")

    lines = [" ".join(encode(recorded.event)) for recorded in record.events]
    plain = [_DELIVERY.sub("", line.replace(here, "HERE")) for line in lines]
    return [_ID.sub(number, line) for line in plain]


class Played(NamedTuple):
    """Holds what the script has left on one surface."""

    journals: list[list[str]]
    commands: list[str]
    replies: list[str]


async def play_on(surface: str, folder: Path, platform: ScriptedPlatform) -> Played:
    folder.mkdir()
    async with a_node(folder, platform) as (store, running):
        person = await store.principals.ensure("ada", role="operator")
        await store.principals.grant(person.id, TOKEN)
        is_http = surface == HTTP
        way = over_http(running) if is_http else on_a_platform(running, platform, person)
        async with way as say:
            replies = await play(store, say)
        await wait(lambda: has_sent_everything(store), "the last reply")
        records = await records_of(store)
    account = person.id if is_http else "bot"
    here = Address(adapter=surface, account=account, place=PLACE).name
    events = [recorded.event for record in records for recorded in record.events]
    commands = sorted(event.command for event in events if isinstance(event, CommandTaken))
    return Played(journals(records, here), commands, replies)


async def test_the_same_script_leaves_the_same_journals(tmp_path: Path) -> None:
    platform = ScriptedPlatform()

    http = await play_on(HTTP, tmp_path / "http", platform)
    assert platform.shown == []
    chat = await play_on(platform.name, tmp_path / "chat", platform)

    assert len(http.commands) == sum(line.text.startswith("/") for line in SCRIPT) - 1, "a path"
    assert chat.commands == http.commands
    for one, other in zip(chat.journals, http.journals, strict=True):
        assert one == other
    assert set(chat.replies) - {""} <= {shown.text for shown in platform.visible}


async def has_sent_everything(store: Store) -> bool:
    return not (await store.diagnostics.counts()).outbox_pending
