"""Checks that the walks of ARCHITECTURE.md are true: a real gateway notes which functions it calls,
and a message passes those that are named, in that order."""

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import aiohttp
import pytest

import perdure
from perdure.app.wiring.system import SystemClock
from perdure.testkit.models.model_script import by_words, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(120)
Start = Callable[..., Awaitable[GatewayProcess]]

ARCHITECTURE: Final = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"
PACKAGE: Final = Path(perdure.__file__).parent
CLOCK: Final = SystemClock()
ADA: Final = 42
WORDS: Final = "one two three four five six seven eight nine ten eleven twelve"
HTTP, TELEGRAM, KILL = "A message over HTTP", "A message on Telegram", "A kill"
# More files than this were on each way when a reader first counted them.
FILES_MAX: Final = {HTTP: 53, TELEGRAM: 73, KILL: 29}
# The steps of a message over HTTP that one on Telegram does not take.
ONLY_HTTP: Final = {"the connection and who it is", "the request", "tell the watcher"}
NAMED: Final = re.compile(r"`([\w/]+\.py:[\w.]+)`")

# Python runs this in a process before the program. It notes each call of one of our functions, in
# any thread, and writes the sequence down at the end. A coroutine that goes on is no call.
NOTING: Final = """
import atexit, dis, os, sys, threading
package, noted, starts = os.environ["WALK_PACKAGE"], [], {}

def start_of(code):
    if code not in starts:
        resumes = (each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")
        starts[code] = next(resumes)
    return starts[code]

def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(package):
        if frame.f_lasti <= start_of(code):
            noted.append(code)

def write():
    names = (f"{code.co_filename[len(package) + 1:]}:{code.co_qualname}" for code in noted)
    with open(os.environ["WALK_FILE"], "w") as file:
        file.write("\\n".join(names))

atexit.register(write)
threading.setprofile(note)
sys.setprofile(note)
"""


def walk(name: str) -> dict[str, list[str]]:
    """Return the steps of a walk, each with its functions. What follows an `or` is left out,
    because not every message passes it."""
    _, _, rest = ARCHITECTURE.read_text(encoding="utf-8").partition(f"\n**{name}**")
    rows = re.findall(r"^\| ([^|]+) \| (`[^|]+) \|$", rest.partition("\n**")[0], re.MULTILINE)
    return {step: NAMED.findall(functions.partition(" or, ")[0]) for step, functions in rows}


def calls_in(path: Path) -> list[str]:
    """Return the calls that a gateway made, in order. A nested function counts as the function that
    it is in, and a comprehension as no call."""
    lines = path.read_text().splitlines()
    return [each.partition(".<locals>")[0] for each in lines if ".<locals>.<" not in each]


def not_passed(steps: Mapping[str, list[str]], calls: list[str]) -> list[str]:
    """Return the steps that no message has passed: the functions of a step are called in their
    order, before the first of them is called again. Steps may happen side by side."""
    return [
        step
        for step, (first, *others) in steps.items()
        if not any(is_in_order(others, span) for span in spans(first, calls))
    ]


def spans(first: str, calls: list[str]) -> Iterator[list[str]]:
    """Return what was called between each call of a function and the next call of it."""
    places = [place for place, each in enumerate(calls) if each == first]
    return (calls[begin:end] for begin, end in pairwise([*places, len(calls)]))


def is_in_order(functions: list[str], calls: list[str]) -> bool:
    rest = iter(calls)
    return all(each in rest for each in functions)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which a gateway notes its calls."""
    (tmp_path / "noting").mkdir()
    (tmp_path / "noting" / "sitecustomize.py").write_text(NOTING)
    return {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "noting"), str(PACKAGE.parent)]),
        "WALK_PACKAGE": str(PACKAGE),
        "WALK_FILE": str(tmp_path / "calls"),
    }


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer(lambda _: say(chunks=by_words(WORDS), delay_ms=100)) as server:
        yield server


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi(CLOCK) as server:
        yield server


def toml(model: ModelServer, api: BotApi | None = None) -> str:
    agent = f'[agents.main]\nkind = "chat"\nbase_url = "{model.openai_url}"\nmodel = "scripted"\n'
    if api is None:
        return agent
    bot = f'token = "{api.token}"\napi_url = "{api.url}"\nallow = ["{ADA}"]\n'
    return f"{agent}[adapters.telegram]\n{bot}"


def is_whole(shown: list[ShownMessage]) -> bool:
    return bool(shown) and shown[-1].text.endswith(WORDS)


async def test_a_message_over_http_passes_its_walk(
    gateway_factory: Start, environ: dict[str, str], model: ModelServer
) -> None:
    gateway = await gateway_factory(toml=toml(model), environ=environ)
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        await client.settled((await client.say("main", "hello"))["turn"])
        async with client.events("main") as events:
            turn = (await client.say("main", "hello again"))["turn"]
            async for _, kind, data in events:
                if kind == "outcome" and data["turn"] == turn:
                    break
    await gateway.terminate()

    assert not_passed(walk(HTTP), calls_in(Path(environ["WALK_FILE"]))) == []


async def test_a_message_on_telegram_passes_its_walk(
    gateway_factory: Start, environ: dict[str, str], model: ModelServer, api: BotApi
) -> None:
    gateway = await gateway_factory(toml=toml(model, api), environ=environ)
    api.write(ADA, "hello")
    await api.wait_shown(ADA, is_whole)
    await gateway.terminate()

    assert not_passed(walk(TELEGRAM), calls_in(Path(environ["WALK_FILE"]))) == []


async def test_the_start_after_a_kill_passes_its_walk(
    gateway_factory: Start, environ: dict[str, str], model: ModelServer, api: BotApi
) -> None:
    gateway = await gateway_factory(toml=toml(model, api), environ=environ)
    api.write(ADA, "hello")
    await api.wait(lambda: bool(api.chats.drafts))
    await gateway.kill()
    await gateway.start()
    await api.wait_shown(ADA, is_whole)
    await gateway.terminate()

    assert not_passed(walk(KILL), calls_in(Path(environ["WALK_FILE"]))) == []


@pytest.mark.parametrize("name", FILES_MAX)
def test_a_walk_leads_through_no_more_files_than_a_reader_keeps_in_mind(name: str) -> None:
    steps = walk(name)
    if name == TELEGRAM:
        steps |= {step: each for step, each in walk(HTTP).items() if step not in ONLY_HTTP}
    files = {each.partition(":")[0] for functions in steps.values() for each in functions}
    assert 10 < len(files) <= FILES_MAX[name]
