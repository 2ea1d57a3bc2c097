"""Checks the tool `search` against the wires of three search engines, and everything that a search
engine may answer instead of results."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from perdure.domain.ids import CallId, ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.secret import Secret
from perdure.ports.system.outgoing import DIRECT
from perdure.ports.turns.tools import ToolCaller
from perdure.testkit.peers.search_engines import KEY, SearchEngines, SearchPage
from perdure.tools.toolbox import Toolbox
from perdure.tools.web.engines import COUNT_MAX, EngineKind, SearchEngine
from perdure.tools.web.search import ANSWER_BYTES_MAX, SearchTool

KINDS: tuple[EngineKind, ...] = ("searxng", "brave", "tavily")
CALLER = ToolCaller(
    principal=PrincipalId("prn_1"),
    conversation=ConversationId("cnv_1"),
    session=SessionId("ses_1"),
    turn=TurnId("trn_1"),
)
PAGES = [
    SearchPage(
        title=f"Bean &amp; pea {number}",
        url=f"https://garden.example/{number}",
        words=f"It&#x27;s page\n  {number}",
    )
    for number in range(1, 16)
]


@pytest.fixture
async def engines() -> AsyncIterator[SearchEngines]:
    async with SearchEngines(*PAGES) as running:
        yield running


def engine_at(url: str, kind: EngineKind, key: str = KEY) -> SearchEngine:
    return SearchEngine(kind=kind, url=url, api_key=Secret(key))


async def searched(
    engine: SearchEngine, *, seconds: float = 20.0, **arguments: object
) -> tuple[CallEnding, str]:
    call = ToolCall(
        id=CallId("call_1"),
        name="search",
        arguments=json.dumps({"query": "beans", **arguments}),
        repeat=Repeat.REPEATABLE,
    )
    result = await Toolbox([SearchTool(engine, DIRECT, seconds=seconds)]).call(call, CALLER)
    return result.ending, result.text


async def refusal(engine: SearchEngine, **arguments: object) -> str:
    ending, text = await searched(engine, **arguments)  # type: ignore[arg-type]
    assert ending is CallEnding.FAILED, text
    assert KEY not in text
    return text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["", "/", "whole"])
async def test_results_are_numbered_with_their_addresses_and_words(
    engines: SearchEngines, kind: EngineKind, path: str
) -> None:
    engine = engine_at(engines.url + path, kind)
    if path == "whole":
        engine = engine_at(engine_at(engines.url, kind).endpoint, kind)
    ending, text = await searched(engine, query="beans in May?", count=2)
    assert ending is CallEnding.RETURNED
    assert text == (
        "1. Bean & pea 1\n   https://garden.example/1\n   It's page 1\n"
        "2. Bean & pea 2\n   https://garden.example/2\n   It's page 2"
    )
    assert engines.asked == ["beans in May?"]


@pytest.mark.parametrize("kind", KINDS)
async def test_there_are_ten_results_unless_others_are_asked_for(
    engines: SearchEngines, kind: EngineKind
) -> None:
    _, text = await searched(engine_at(engines.url, kind))
    assert text.count("https://") == 10
    _, text = await searched(engine_at(engines.url, kind), count=COUNT_MAX)
    assert text.count("https://") == len(PAGES)


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_found_is_said(engines: SearchEngines, kind: EngineKind) -> None:
    engines.pages = []
    ending, text = await searched(engine_at(engines.url, kind))
    assert ending is CallEnding.RETURNED
    assert text == "Nothing was found for 'beans'. Try other words."


@pytest.mark.parametrize("kind", ["brave", "tavily"])
async def test_a_wrong_key_is_a_matter_of_the_operator(
    engines: SearchEngines, kind: EngineKind
) -> None:
    text = await refusal(engine_at(engines.url, kind, key="wrong"))
    assert "did not accept the key; the operator of the gateway checks [tools.search]" in text


async def test_a_searxng_server_without_json_says_what_to_configure(
    engines: SearchEngines,
) -> None:
    engines.has_json = False
    assert "adds json to search.formats" in await refusal(engine_at(engines.url, "searxng"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "headers", "body", "words"),
    [
        (429, {"Retry-After": "7"}, "{}", "asked too often"),
        (429, {"Retry-After": "7"}, "{}", "wait 7 s; you may call again"),
        (429, {"X-RateLimit-Reset": "1, 1419704"}, "{}", "wait 1 s"),
        (429, {"Retry-After": "nan"}, "garbage", "asked too often"),
        (432, {}, "{}", "no searches left"),
        (400, {}, '{"detail": {"error": "topic is wrong"}}', "topic is wrong"),
        (400, {}, f'{{"detail": "{KEY} is no topic"}}', "[key] is no topic"),
        (302, {"Location": "https://other.example/"}, "", "leads to https://other.example/; the"),
        (404, {}, "no", "answered with status 404; the operator of the gateway checks"),
        (500, {}, "oops", "fault of its own (status 500); you may call again"),
        (200, {}, "no json", "is not understood; the operator"),
        (200, {}, '{"results": 7, "web": 7}', "is not understood"),
        (200, {}, "[" * 100_000, "is not understood"),
    ],
)
async def test_whatever_else_an_engine_answers_is_told_in_words(
    engines: SearchEngines,
    kind: EngineKind,
    status: int,
    headers: dict[str, str],
    body: str,
    words: str,
) -> None:
    engines.answer = web.Response(status=status, headers=headers, text=body)
    assert words in await refusal(engine_at(engines.url, kind))


async def test_a_page_instead_of_json_says_what_to_configure(engines: SearchEngines) -> None:
    engines.answer = web.Response(text="<!doctype html>results", content_type="text/html")
    assert "adds json to search.formats" in await refusal(engine_at(engines.url, "searxng"))


@pytest.mark.parametrize("kind", KINDS)
async def test_results_that_lead_to_no_page_are_left_out_and_long_ones_are_cut(
    engines: SearchEngines, kind: EngineKind
) -> None:
    engines.pages = [
        SearchPage(title="x", url="javascript:alert(1)", words=""),
        SearchPage(title="x", url="https://h/\nIgnore", words=""),
        SearchPage(title="", url="https://h/1", words="word " * 200_000),
    ]
    _, text = await searched(engine_at(engines.url, kind))
    assert text.startswith("1. https://h/1\n   https://h/1\n   word word")
    assert len(text) < 600


async def test_an_endless_answer_is_cut_off() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b" " * 60_000)
                await writer.drain()
                sent += 60_000
        except OSError:
            writer.close()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert "more than 4,000,000 bytes" in await refusal(engine_at(url, "searxng"))
    assert sent < 10 * ANSWER_BYTES_MAX


async def test_a_silent_engine_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        _, text = await searched(engine_at(url, "tavily"), seconds=0.3)
    assert text == "the search server took longer than 0.3 s; you may call again"


async def test_an_engine_that_is_away_is_named() -> None:
    async with SearchEngines() as gone:
        url = gone.url
    assert f"{url}/search cannot be reached; you may" in await refusal(engine_at(url, "searxng"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"query": ""}, "length >= 1"),
        ({"query": "x" * 401}, "length <= 400"),
        ({"count": 0}, ">= 1"),
        ({"count": 21}, "<= 20"),
        ({"where": "x"}, "unknown field"),
    ],
)
def test_wrong_arguments_are_refused_before_anybody_is_asked(
    arguments: dict[str, object], words: str
) -> None:
    tools = Toolbox([SearchTool(engine_at("http://127.0.0.1:9", "searxng"))])
    traits = tools.traits("search", json.dumps({"query": "beans", **arguments}))
    assert words in traits.problem
