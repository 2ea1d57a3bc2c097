"""Checks at a real gateway what an agent does on the web: people are asked about an address, may
allow its site, and rules decide about it."""

import json
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from tests.e2e.approving import answer, asked, questions, result_of

from perdure.testkit.peers.search_engines import SearchEngines, SearchPage
from perdure.testkit.processes.file_server import FileServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
pytestmark = pytest.mark.timeout(90)
PAGE = b"<!doctype html><title>Beans</title><p>Sow in <a href=may>May</a>."
TOML = """
[agents.main]
kind = "demo"
tools = ["fetch", "search"]
[[agents.main.rules]]
tool = "fetch"
match = "{url}/denied/**"
do = "deny"
[tools.search]
kind = "searxng"
url = "{engine}"
[limits]
private_urls = {private}
"""


def fetch(url: str) -> str:
    return f"demo tool fetch {json.dumps({'url': url})}"


async def test_a_page_is_read_after_its_site_was_allowed(gateway_factory: StartGateway) -> None:
    files = {"/a": PAGE, "/b": b"more beans", "/denied/c": b"secret"}
    async with FileServer(files) as server, aiohttp.ClientSession() as session:
        toml = TOML.format(url=server.url, engine="http://127.0.0.1:9", private="true")
        client = Client(await gateway_factory(toml=toml), session)

        question = await asked(client, "x", fetch(f"{server.url}/a#part"))
        assert f"fetch on {server.url}" in question["text"]
        assert server.asked == []
        await answer(client, question["id"], "allow", scope="session")
        text = await result_of(client, "x", question["turn"])
        assert f"Sow in [May]({server.url}/may)." in text

        again = await client.say("x", fetch(f"{server.url}/b"))
        assert "more beans" in await result_of(client, "x", again["turn"])
        assert await questions(client, again["turn"]) == []

        denied = await client.say("x", fetch(f"{server.url}/x/%2e%2e/denied/c"))
        assert "a rule for" in await result_of(client, "x", denied["turn"])
        assert server.asked == ["/a", "/b"]


async def test_the_network_of_the_gateway_is_not_reached_even_if_a_person_allows_it(
    gateway_factory: StartGateway,
) -> None:
    async with FileServer({"/a": PAGE}) as server, aiohttp.ClientSession() as session:
        toml = TOML.format(url=server.url, engine="http://127.0.0.1:9", private="false")
        client = Client(await gateway_factory(toml=toml), session)
        question = await asked(client, "x", fetch(f"{server.url}/a"))
        await answer(client, question["id"], "allow")
        assert "private network" in await result_of(client, "x", question["turn"])
        assert server.asked == []


async def test_a_search_is_asked_about_and_lists_what_was_found(
    gateway_factory: StartGateway,
) -> None:
    page = SearchPage(title="Beans", url="https://garden.example/beans", words="Sow in May.")
    async with SearchEngines(page) as engines, aiohttp.ClientSession() as session:
        toml = TOML.format(url="http://h", engine=engines.url, private="false")
        client = Client(await gateway_factory(toml=toml), session)
        question = await asked(client, "x", 'demo tool search {"query": "when to sow"}')
        assert engines.asked == []
        await answer(client, question["id"], "allow")
        text = await result_of(client, "x", question["turn"])
        assert "1. Beans\n   https://garden.example/beans\n   Sow in May." in text
        assert engines.asked == ["when to sow"]
