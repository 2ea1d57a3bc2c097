"""Checks that a link to a conversation opens for its person and for operators, and for nobody
else."""

from typing import Any
from urllib.parse import quote

import pytest

from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = [pytest.mark.shared, pytest.mark.timeout(60)]
READS = ("", "/transcript", "/transcript?notices=true")


async def member(of: Client, name: str) -> Client:
    found = Client(of.gateway, of.session)
    await found.become(name)
    return found


@pytest.fixture
def operator(shared_gateway: GatewayProcess, guest: Client) -> Client:
    return Client(shared_gateway, guest.session)


async def told(client: Client, name: str, text: str) -> None:
    await client.settled((await client.say(name, text))["turn"])


async def read(client: Client, name: str, what: str) -> tuple[int, Any]:
    return await client.call("GET", f"/api/conversations/{quote(name, safe='')}{what}")


async def test_a_link_opens_for_its_person_and_for_operators_and_for_nobody_else(
    guest: Client, operator: Client
) -> None:
    ada, bob = await member(operator, "link ada"), await member(operator, "link bob")
    await told(ada, "chat-garden", "beans in May")

    theirs = "http:link ada:chat-garden"
    for what in READS:
        assert (await read(ada, "chat-garden", what))[0] == 200
        for name in ("chat-garden", theirs):
            assert (await read(operator, name, what))[0] == 200, name
            status, body = await read(bob, name, what)
            assert (status, body["error"]["code"]) == (404, "not_found")
    assert (await read(operator, "chat-garden", ""))[1]["name"] == theirs
    messages = await operator.transcript(quote(theirs))
    assert [each["role"] for each in messages] == ["user", "assistant"]
    async with operator.events("chat-garden") as events:
        _, kind, state = await anext(events)
        assert (kind, state["state"]) == ("state", "idle")
    assert (await read(bob, theirs, "/events"))[0] == 404

    # An operator reads, and does not order another person's list.
    status, body = await operator.call(
        "PATCH", f"/api/conversations/{quote(theirs)}", body={"pinned": True}
    )
    assert (status, body["error"]["code"]) == (403, "forbidden")


async def test_what_an_operator_sends_goes_only_where_the_name_says_so(
    guest: Client, operator: Client
) -> None:
    ada = await member(operator, "sent ada")
    await told(ada, "chat-sent", "beans in May")
    # A plain name is the operator's own, whoever else has one.
    await told(operator, "chat-sent", "mine")
    assert len(await ada.transcript("chat-sent")) == 2
    assert (await operator.transcript("chat-sent"))[0]["text"] == "mine"

    await told(operator, quote("http:sent ada:chat-sent"), "I read along")
    texts = [each["text"] for each in await ada.transcript("chat-sent") if each["role"] == "user"]
    assert texts == ["beans in May", "I read along"]


async def test_a_name_that_several_people_have_leads_to_none_of_them(
    guest: Client, operator: Client
) -> None:
    for name in ("one of two", "two of two"):
        await told(await member(operator, name), "chat-same", "hello")
    status, body = await read(operator, "chat-same", "")
    assert (status, body["error"]["code"]) == (409, "ambiguous_name")
    assert "http:one of two:chat-same" in body["error"]["message"]
    status, body = await read(operator, "http:one of two:chat-same", "")
    assert (status, body["name"]) == (200, "http:one of two:chat-same")
    assert (await read(operator, "http:nobody:chat-same", ""))[0] == 404


async def test_operators_find_what_people_deleted_only_if_they_ask(
    guest: Client, operator: Client
) -> None:
    await told(guest, "chat-gone", "quinces are yellow")
    path = "/api/conversations/chat-gone"
    assert (await guest.call("PATCH", path, body={"hidden": True}))[0] == 200

    async def hits(client: Client, more: str = "") -> tuple[int, int]:
        status, body = await client.call("GET", f"/api/search?q=quinces{more}")
        return status, len(body.get("hits", ()))

    assert await hits(guest) == (200, 0)
    assert await hits(operator) == (200, 0)
    status, count = await hits(operator, "&hidden=true")
    assert (status, count >= 1) == (200, True)
    assert (await hits(guest, "&hidden=true"))[0] == 403
    assert (await guest.call("GET", "/api/sessions?hidden=true"))[0] == 403
    _, body = await operator.call("GET", "/api/sessions?limit=200")
    assert "chat-gone" not in {each["conversation"] for each in body["sessions"]}
    _, body = await operator.call("GET", "/api/sessions?limit=200&hidden=true")
    assert "chat-gone" in {each["conversation"] for each in body["sessions"]}
