"""Checks the native API of a real gateway: what it answers, refuses, streams and keeps."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from structlog.testing import capture_logs

from perdure.domain.errors import Ambiguous, PerdureError, Rejected, Transient
from perdure.testkit.processes.http import Client
from perdure.web.http.answers import errors_as_json

pytestmark = pytest.mark.timeout(60)
LONG = "demo words=2000 delay_ms=20"


@pytest.mark.shared
async def test_a_message_is_answered_and_stands_in_the_transcript(client: Client) -> None:
    accepted = await client.say("main", "hello there")
    assert accepted["duplicate"] is False

    turn = await client.settled(accepted["turn"])

    assert (turn["outcome"], turn["attempts"]) == ("done", 1)
    user, assistant = await client.transcript("main")
    assert (user["role"], user["text"], user["id"]) == ("user", "hello there", accepted["message"])
    assert assistant["role"] == "assistant"
    assert "hello there" in assistant["text"]
    assert assistant["outcome"] == "done"
    status, conversation = await client.call("GET", "/api/conversations/main")
    assert (status, conversation["state"], conversation["queued"]) == (200, "idle", 0)


@pytest.mark.shared
async def test_a_text_cut_within_a_character_is_taken(client: Client) -> None:
    path = "/api/conversations/main/messages"
    status, accepted = await client.call("POST", path, raw=b'{"text": "end \\ud83d"}')
    assert status == 202
    await client.settled(accepted["turn"])
    assert (await client.transcript("main"))[0]["text"] == "end \ufffd"


async def test_a_repeated_id_is_the_same_message_also_after_restarts(client: Client) -> None:
    first = await client.say("main", "once", id="a1")
    await client.settled(first["turn"])
    for _ in range(4):
        await client.gateway.kill()
        await client.gateway.start()
        again = await client.say("main", "once", id="a1")
        assert again == {**first, "duplicate": True}
    assert len(await client.transcript("main")) == 2

    status, body = await client.call(
        "POST", "/api/conversations/main/messages", body={"text": "other", "id": "a1"}
    )
    assert (status, body["error"]["code"]) == (409, "id_conflict")
    again = await client.say("elsewhere", "once", id="a1")
    assert again["duplicate"] is False


@pytest.mark.shared
async def test_events_tell_everything_once_and_resume_without_a_gap(client: Client) -> None:
    await client.settled((await client.say("main", "warm up"))["turn"])
    accepted = await client.say("main", "demo words=60 delay_ms=25")
    text, last, seen, places = "", None, [], []
    for pieces in (5, 7, 10_000):  # two connections are dropped on the way
        if ("outcome", accepted["turn"]) in seen:
            break
        async with client.events("main", last) as events:
            count = 0
            async for event_id, kind, data in events:
                assert last is None or event_id > last
                last = event_id
                seen.append((kind, data.get("turn")))
                if kind == "delta":
                    assert data["offset"] == len(text)
                    text += data["text"]
                    count += 1
                places.append((event_id, text))
                if seen[-1] == ("outcome", accepted["turn"]) or count == pieces:
                    break
        if pieces == 5:  # a waiting message that is taken back must not disturb the answer
            waiting = await client.say("main", "never mind")
            await client.call("POST", f"/api/turns/{waiting['turn']}/stop")
    assert seen[0][0] == "state"
    assert seen.count(("outcome", accepted["turn"])) == 1
    assert sorted(places) == places
    (*_, assistant) = await client.transcript("main")
    assert (assistant["turn"], assistant["text"]) == (accepted["turn"], text)
    assert len(text.split()) == 60
    for event_id, had in places[::5] + places[-4:]:
        assert await joined(client, event_id, had) == text


async def joined(client: Client, last: str, text: str) -> str:
    """Return the text of a watcher who has this much of it, and continues by the deltas alone."""
    async with client.events("main", last) as events:
        async for _, kind, data in events:
            if kind == "delta":
                assert data["offset"] == len(text)
                text += data["text"]
            if kind == "state":  # after all that was missed
                return text
    raise AssertionError("the stream has ended")


Told = list[tuple[str, str, dict[str, Any]]]


async def until_state(events: AsyncIterator[tuple[str, str, dict[str, Any]]], session: str) -> Told:
    """Return the events up to the first state of this session."""
    told: Told = []
    async for event_id, kind, data in events:
        assert not told or event_id > told[-1][0]
        told.append((event_id, kind, data))
        if kind == "state" and data["session"] == session:
            return told
    raise AssertionError("the stream has ended")


def whole(told: Told) -> Told:
    """Return the messages and outcomes. Missed texts come joined, and only the present state is
    told."""
    return [each for each in told if each[1] in ("message", "outcome")]


@pytest.mark.parametrize("command", ["/new", "/branch aside", "/resume"])
@pytest.mark.shared
async def test_a_turn_that_a_command_leaves_behind_is_heard_to_its_end(
    client: Client, command: str
) -> None:
    before = await client.say("main", "before")
    await client.settled(before["turn"])
    await client.say("main", "/new")
    asked = await client.say("main", LONG)
    async with client.events("main") as events:
        last, kind, _ = await anext(events)
        while kind != "delta":
            last, kind, _ = await anext(events)
        moved = await client.say("main", command)
        live = await until_state(events, moved["session"])
    async with client.events("main", last) as events:
        again = await until_state(events, moved["session"])

    (_, _, said), (_, _, outcome), (_, _, notice) = whole(live)
    assert (said["role"], said["turn"]) == ("assistant", asked["turn"])
    assert (outcome["turn"], outcome["outcome"]) == (asked["turn"], "stopped")
    assert (notice["role"], notice["id"]) == ("notice", moved["message"])
    head = {"/new": None, "/branch aside": asked["turn"], "/resume": before["turn"]}
    assert live[-1][2]["head"] == head[command]
    assert whole(again) == whole(live)


@pytest.mark.shared
async def test_who_comes_back_walks_through_the_sessions_in_between(client: Client) -> None:
    async def answered(text: str) -> None:
        await client.settled((await client.say("main", text))["turn"])

    await answered("one")
    async with client.events("main") as events:
        last, _, _ = await anext(events)
    await answered("two")
    await client.say("main", "/branch aside")
    await answered("three")
    await client.say("main", "/resume")
    await answered("four")
    back = await client.say("main", "/new")
    async with client.events("main", last) as events:
        told = await until_state(events, back["session"])

    said = [data["text"] for _, kind, data in told if kind == "message" and data["role"] == "user"]
    assert said == ["two", "three", "four"]
    outcomes = [data["outcome"] for _, kind, data in told if kind == "outcome"]
    assert outcomes == ["done"] * 3


@pytest.mark.shared
async def test_a_state_that_was_seen_does_not_come_again(client: Client) -> None:
    noted = await client.say("main", "/status")
    async with client.events("main") as events:
        ((last, _, _),) = await until_state(events, noted["session"])
    async with client.events("main", last) as events:
        said = await client.say("main", "hello")
        _, kind, data = await anext(events)
    assert (kind, data["id"]) == ("message", said["message"])


@pytest.mark.shared
async def test_watchers_hear_of_what_errands_bring_back(client: Client) -> None:
    await client.say("main", "demo words=20 delay_ms=20")
    heard: list[str] = []
    async with client.events("main") as events:
        async for _, kind, data in events:
            if kind == "state" and data.get("title"):
                break
        await client.say("main", "/background look it up")
        async for _, kind, data in events:
            heard += [data["role"]] if kind == "message" else []
            if kind == "state" and "assistant" in heard and data["state"] == "idle":
                break
    assert heard == ["notice", "user", "assistant"]


@pytest.mark.shared
async def test_messages_wait_in_arrival_order(client: Client) -> None:
    sent = [await client.say("main", f"demo words={n + 3} delay_ms=5") for n in range(5)]
    for each in sent:
        assert (await client.settled(each["turn"]))["outcome"] == "done"
    roles = [(m["role"], m["turn"]) for m in await client.transcript("main")]
    assert roles == [(role, s["turn"]) for s in sent for role in ("user", "assistant")]


@pytest.mark.shared
async def test_stop_keeps_what_was_shown_and_the_conversation_goes_on(client: Client) -> None:
    accepted = await client.say("main", "demo words=500 delay_ms=20")
    async with client.events("main") as events:
        async for _, kind, _data in events:
            if kind == "delta":
                break
    status, turn = await client.call("POST", f"/api/turns/{accepted['turn']}/stop")
    assert (status, turn["outcome"]) == (200, "stopped")
    status, body = await client.call("POST", f"/api/turns/{accepted['turn']}/stop")
    assert (status, body["error"]["code"]) == (409, "already_finished")
    (_, stopped) = await client.transcript("main")
    assert stopped["outcome"] == "stopped"
    assert 0 < len(stopped["text"].split()) < 500
    after = await client.say("main", "and now?")
    assert (await client.settled(after["turn"]))["outcome"] == "done"
    assert (await client.transcript("main"))[1]["text"] == stopped["text"]


@pytest.mark.shared
async def test_failures_of_the_agent_are_visible_and_harmless(client: Client) -> None:
    failed = await client.settled((await client.say("main", "demo fail"))["turn"])
    assert (failed["outcome"], failed["reason"]) == ("failed", "provider_error")
    cut = await client.settled((await client.say("main", "demo cut"))["turn"])
    assert (cut["outcome"], cut["reason"]) == ("failed", "provider_cut")
    assert (await client.settled((await client.say("main", "still there?"))["turn"]))[
        "outcome"
    ] == "done"
    entries = await client.transcript("main")
    assert [(e["role"], e.get("outcome")) for e in entries] == [
        ("user", None),
        ("assistant", "failed"),
        ("user", None),
        ("assistant", "failed"),
        ("user", None),
        ("assistant", "done"),
    ]
    assert entries[1]["text"] == ""
    assert entries[3]["text"]


async def test_a_turn_that_takes_too_long_says_which_setting_ended_it(gateway_factory: Any) -> None:
    gateway = await gateway_factory(toml="[turns]\ntimeout_s = 0.2\n")
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        turn = await client.settled((await client.say("main", LONG))["turn"])
    assert (turn["outcome"], turn["reason"]) == ("failed", "turn_timeout")
    assert "[turns] timeout_s" in turn["detail"]


async def test_a_kill_in_the_middle_of_a_stream_loses_nothing_shown(client: Client) -> None:
    accepted = await client.say("main", "demo words=80 delay_ms=15")
    shown = ""
    async with client.events("main") as events:
        async for _, kind, data in events:
            if kind == "delta":
                shown += data["text"]
            if len(shown.split()) > 10:
                break
    await client.gateway.kill()
    await client.gateway.start()
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 2)
    user, *said = await client.transcript("main")
    assert user["role"] == "user"
    assert said[0]["outcome"] == "interrupted"
    assert said[0]["text"].startswith(shown)
    assert said[-1]["outcome"] == "done"
    _, page = await client.call("GET", f"/api/explain/{accepted['message']}")
    kinds = [event["kind"] for event in page["events"]]
    assert kinds.count("attempt_interrupted") == 1
    assert kinds.count("interruption_acknowledged") == 1


CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


async def asked(client: Client, name: str, path: str, **body: object) -> tuple[int, str]:
    """Call `/v1`, with the conversation's name as the key. Returns the status and the body."""
    headers = {"Authorization": f"Bearer {client.token}", "Idempotency-Key": name}
    headers["X-Perdure-Conversation"] = name
    url = client.gateway.url + path
    async with client.session.post(url, json=body, headers=headers) as response:
        return response.status, await response.text()


async def spoken(client: Client, name: str) -> None:
    """Wait until some of the answer was told."""
    await waiting(client, name)
    async with client.events(name) as events:
        async for _, kind, _ in events:
            if kind == "delta":
                return


async def waiting(client: Client, name: str) -> None:
    """Wait until the call was accepted."""
    async with asyncio.timeout(20):
        while (await client.call("GET", f"/api/conversations/{name}"))[0] != 200:
            await client.gateway.pause(0.02)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.shared
async def test_a_repeat_of_what_was_stopped_says_so(client: Client, stream: bool) -> None:
    messages = [{"role": "user", "content": LONG}]
    async with asyncio.TaskGroup() as group:
        first = group.create_task(asked(client, "main", CHAT, messages=messages))
        await spoken(client, "main")
        _, conversation = await client.call("GET", "/api/conversations/main")
        await client.call("POST", f"/api/turns/{conversation['turn']}/stop")
    assert first.result()[0] == 200

    headers = {"Authorization": f"Bearer {client.token}", "Idempotency-Key": "main"}
    headers["X-Perdure-Conversation"] = "main"
    body = {"messages": messages, "stream": stream}
    url = client.gateway.url + CHAT
    async with client.session.post(url, json=body, headers=headers) as response:
        assert (response.status, response.headers["X-Perdure-Outcome"]) == (200, "stopped")
        assert "river" in await response.text()


async def test_a_drain_keeps_what_arrives_and_parks_what_runs(client: Client) -> None:
    running = await client.say("main", LONG)
    long, short = ([{"role": "user", "content": text}] for text in (LONG, "hello"))
    async with asyncio.TaskGroup() as group:
        calls = [
            group.create_task(asked(client, "whole", CHAT, messages=long)),
            group.create_task(asked(client, "streamed", CHAT, messages=long, stream=True)),
            group.create_task(asked(client, "events", RESPONSES, input=LONG, stream=True)),
        ]
        for name in ("whole", "streamed", "events"):
            await spoken(client, name)
        status, _ = await client.call("POST", "/api/drain")
        assert status == 202
        status, ready = await client.call("GET", "/readyz")
        assert (status, ready["error"]["code"]) == (503, "not_ready")
        queued = await client.say("other", "said while draining")
        calls.append(group.create_task(asked(client, "late", CHAT, messages=short)))
        await waiting(client, "late")
        assert await client.gateway.terminate() == 0  # a signal during a drain skips the wait
    assert_told_to_come_back(*[call.result() for call in calls])
    await client.gateway.start()
    assert (await client.settled(queued["turn"]))["outcome"] == "done"
    _, turn = await client.call("GET", f"/api/turns/{running['turn']}")
    assert turn["attempts"] == 2
    status, text = await asked(client, "late", CHAT, messages=short)
    assert (status, len(await client.transcript("late"))) == (200, 2)
    assert "hello" in json.loads(text)["choices"][0]["message"]["content"]


def assert_told_to_come_back(
    whole: tuple[int, str],
    streamed: tuple[int, str],
    events: tuple[int, str],
    late: tuple[int, str],
) -> None:
    for status, body in (whole, late):
        error = json.loads(body)["error"]
        assert (status, error["code"], error["retryable"]) == (503, "interrupted", True)
    for status, body in (streamed, events):
        (*chunks, last) = [line for line in body.splitlines() if line.startswith("data: ")]
        assert (status, "[DONE]" in body) == (200, False)
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "interrupted"
        assert len(chunks) > 1
        assert "response.failed" in chunks[-1] or "delta" in chunks[-1]


BAD = [
    ("POST", "/api/conversations/main/messages", b"{nonsense", 400, "malformed_json"),
    ("POST", "/api/conversations/main/messages", b'{"text": 5}', 400, "invalid_body"),
    ("POST", "/api/conversations/main/messages", b'{"txt": "hi"}', 400, "invalid_body"),
    ("POST", "/api/conversations/main/messages", b'{"text": "  "}', 400, "empty_message"),
    ("POST", "/api/conversations/main/messages", b'{"text":"a","agent":"x"}', 404, "no_agent"),
    ("POST", "/api/conversations/main/messages",
     b'{"text":"a","attachments":[{"media":"med_x"}]}', 404, "not_found"),
    ("POST", "/api/conversations/" + "n" * 201 + "/messages", b'{"text":"a"}', 400, "invalid_name"),
    ("POST", "/api/conversations/main/messages", b'{"text":"\xff"}', 400, "malformed_json"),
    ("POST", "/v1/chat/completions",
     b'{"messages":[{"role":"user","content":"\xff"}]}', 400, "malformed_json"),
    ("POST", "/v1/responses", b'{"input":"\xff"}', 400, "malformed_json"),
    ("GET", "/api/sessions?cursor=%C2%B2:x", None, 400, "invalid_query"),
    ("GET", "/api/conversations?cursor=" + "9" * 23 + ":x", None, 400, "invalid_query"),
    ("GET", "/api/conversations/nowhere", None, 404, "not_found"),
    ("GET", "/api/conversations/nowhere/transcript", None, 404, "not_found"),
    ("GET", "/api/conversations/nowhere/events", None, 404, "not_found"),
    ("GET", "/api/turns/trn_x", None, 404, "not_found"),
    ("GET", "/api/conversations?limit=0", None, 400, "invalid_query"),
    ("GET", "/api/search", None, 400, "invalid_query"),
    ("GET", "/api/explain/whatever", None, 404, "not_found"),
    ("GET", "/api/nothing", None, 404, "not_found"),
    ("DELETE", "/api/conversations", None, 405, "method_not_allowed"),
    ("POST", "/api/media", b"", 400, "empty_body"),
    ("POST", "/v1/chat/completions", b'{"messages": []}', 400, "invalid_messages"),
    ("POST", "/v1/chat/completions",
     b'{"messages":[{"role":"wizard","content":"x"},{"role":"user","content":"x"}]}',
     400, "invalid_messages"),
    ("POST", "/v1/chat/completions",
     b'{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"novel"}]}',
     400, "invalid_body"),
    ("POST", "/v1/responses",
     b'{"input":[{"type":"function_call_output","call_id":"a","output":"x"}]}',
     400, "invalid_messages"),
    ("POST", "/v1/chat/completions",
     b'{"model":"nope","messages":[{"role":"user","content":"x"}]}', 404, "no_agent"),
]  # fmt: skip


async def test_bad_input_gets_a_clear_error_and_stores_nothing(client: Client) -> None:
    for method, path, raw, status, code in BAD:
        got, body = await client.call(method, path, raw=raw)
        assert (got, body["error"]["code"]) == (status, code), (path, raw, body)
        assert body["error"]["message"]
        assert body["error"]["retryable"] in (True, False)
    for path in ("/api/conversations/main/messages", "/api/media", "/v1/responses"):
        headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain"}
        got, body = await client.call("POST", path, raw=b'{"text":"not packed"}', **headers)
        assert (got, body["error"]["code"]) == (400, "malformed_body"), path
    _, body = await client.call("GET", "/api/conversations")
    assert body["conversations"] == []
    _, body = await client.call("GET", "/api/verify")
    assert body["sessions"] == 0


async def test_what_nobody_foresaw_is_an_error_like_any_other() -> None:
    async def broken(_: web.Request) -> web.StreamResponse:
        raise ZeroDivisionError("the secret")

    async def broken_later(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise ZeroDivisionError("the secret")

    app = web.Application(middlewares=[errors_as_json])
    app.add_routes([web.get("/", broken), web.get("/later", broken_later)])
    with capture_logs() as logs:
        async with TestClient(TestServer(app)) as caller:
            async with caller.get("/") as response:
                assert (response.status, response.content_type) == (500, "application/json")
                text = await response.text()
            async with caller.post("/") as response:
                assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
            async with caller.get("/later") as response:
                assert await response.content.readexactly(4) == b"half"
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.content.read()
    error = json.loads(text)["error"]
    assert (error["code"], error["retryable"]) == ("internal", False)
    assert "secret" not in text
    assert any(each.get("exc_info") for each in logs)


TROUBLE: list[tuple[PerdureError, bool, bool]] = [
    (Rejected("no"), False, False),
    (Transient("later"), True, True),
    (Ambiguous("perhaps"), False, True),
]


@pytest.mark.parametrize(("error", "plain", "keyed"), TROUBLE, ids=str)
async def test_clients_are_told_when_a_repeat_could_be_a_second_message(
    error: PerdureError, plain: bool, keyed: bool
) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        raise error

    app = web.Application(middlewares=[errors_as_json])
    app.add_routes([web.post("/", refuse)])
    async with TestClient(TestServer(app)) as caller:
        for headers, may_repeat in (({}, plain), ({"Idempotency-Key": "k"}, keyed)):
            async with caller.post("/", headers=headers) as response:
                assert (response.headers.get("X-Should-Retry") != "false") == may_repeat


async def test_a_body_over_the_limit_is_refused(gateway_factory: Any) -> None:
    gateway = await gateway_factory(toml="[limits]\nbody_bytes = 1000\n")
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        status, body = await client.call(
            "POST", "/api/conversations/main/messages", body={"text": "x" * 2000}
        )
        assert (status, body["error"]["code"]) == (413, "body_too_large")
        head = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
        form = head + bytes(2000) + b"\r\n--x--\r\n"
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        status, body = await client.call("POST", "/api/media", raw=form, **kind)
        assert (status, body["error"]["code"]) == (413, "body_too_large")
        assert (await client.say("main", "short"))["turn"]


async def test_tokens_are_listed_in_pages(client: Client) -> None:
    for name in ("ada", "bob", "carol", "dave"):
        await client.call("POST", "/api/tokens", body={"name": name})

    _, first = await client.call("GET", "/api/tokens?limit=3")
    _, rest = await client.call("GET", f"/api/tokens?limit=3&cursor={first['next']}")
    _, whole = await client.call("GET", "/api/tokens")

    operator, *others = [each["principal"] for each in whole["tokens"]]
    assert (operator, sorted(others)) == ("operator", ["ada", "bob", "carol", "dave"])
    assert (len(first["tokens"]), rest["next"], whole["next"]) == (3, None, None)
    assert whole["tokens"] == [*first["tokens"], *rest["tokens"]]
    _, nobody = await client.call("GET", "/api/pairings?limit=3")
    assert nobody == {"pairings": [], "next": None}
    for path in ("/api/tokens", "/api/pairings"):
        status, body = await client.call("GET", f"{path}?cursor=yesterday")
        assert (status, body["error"]["code"]) == (400, "invalid_query")


async def test_wrong_tokens_are_refused_and_principals_are_apart(client: Client) -> None:
    operator = client.token
    await client.settled((await client.say("main", "the operator's secret"))["turn"])
    _, made = await client.call("POST", "/api/tokens", body={"name": "ada"})
    client.token = made["token"]
    for path in ("/api/conversations/main", "/api/conversations/main/transcript"):
        status, _ = await client.call("GET", path)
        assert status == 404
    mine = await client.say("main", "ada's own")
    await client.settled(mine["turn"])
    assert (await client.transcript("main"))[0]["text"] == "ada's own"
    _, hits = await client.call("GET", "/api/search?q=secret")
    assert hits["hits"] == []
    _, hits = await client.call("GET", "/api/search?q=own")
    assert len(hits["hits"]) >= 1
    _, listed = await client.call("GET", "/api/commands")
    undo = next(each for each in listed["commands"] if each["name"] == "undo")
    assert undo["aliases"] == []
    assert "restart" not in [each["name"] for each in listed["commands"]]
    for path in ("/api/parked", "/api/tokens"):
        status, body = await client.call("GET", path)
        assert (status, body["error"]["code"]) == (403, "forbidden")

    client.token = operator
    entries = await client.transcript("main")
    status, _ = await client.call("DELETE", f"/api/tokens/{made['id']}")
    assert status == 200
    client.token = made["token"]
    status, body = await client.call("GET", "/api/conversations")
    assert (status, body["error"]["code"]) == (401, "unauthorized")
    client.token = operator
    assert entries
    for theirs in (mine["message"], f"{mine['turn']}.end"):
        # The answer must not differ from that for a message which does not exist.
        pair = [
            await client.call("GET", f"/api/conversations/main/transcript?before={each}")
            for each in (theirs, "msg_x")
        ]
        told = [(status, json.dumps(body).replace(theirs, "msg_x")) for status, body in pair]
        assert told[0] == told[1]
        assert told[0][0] == 404


async def test_the_streams_of_a_revoked_token_end_at_once_and_no_others(client: Client) -> None:
    # They must not carry another word, although the person has a second token.
    made = [(await client.call("POST", "/api/tokens", body={"name": "bob"}))[1] for _ in range(2)]
    lost, kept = Client(client.gateway, client.session), Client(client.gateway, client.session)
    lost.token, kept.token = made[0]["token"], made[1]["token"]
    asked = await lost.say("main", LONG)
    call = {"model": "main", "stream": True, "messages": [{"role": "user", "content": LONG}]}
    url = f"{client.gateway.url}/v1/chat/completions"
    signed_in = {"Authorization": f"Bearer {lost.token}"}
    async with (
        lost.events("main") as revoked,
        kept.events("main") as others,
        client.session.post(url, json=call, headers=signed_in) as streamed,
    ):
        await anext(revoked)
        assert await streamed.content.readany()
        status, _ = await client.call("DELETE", f"/api/tokens/{made[0]['id']}")
        assert status == 200

        async with asyncio.timeout(5):
            with pytest.raises(aiohttp.ClientError):
                async for _ in revoked:
                    pass
            with pytest.raises(aiohttp.ClientError):
                async for _ in streamed.content.iter_any():
                    pass
            while (await anext(others))[1] != "delta":
                pass
    assert (await lost.call("GET", "/api/status"))[0] == 401
    assert (await kept.call("GET", f"/api/turns/{asked['turn']}"))[1]["state"] == "running"


@pytest.mark.shared
async def test_every_list_goes_on_from_its_cursor(client: Client) -> None:
    for n in range(2):
        await client.settled((await client.say("main", f"message {n}"))["turn"])
    session = (await client.call("GET", "/api/conversations/main"))[1]["session"]
    for path, what in (
        ("/api/conversations/main/transcript?", "messages"),
        (f"/api/sessions/{session}/journal?", "events"),
        ("/api/search?q=message&", "hits"),
    ):
        _, first = await client.call("GET", f"{path}limit=1")
        _, second = await client.call("GET", f"{path}limit=1&cursor={first['next']}")
        assert len(second[what]) == 1
        assert second[what] != first[what]
        status, _ = await client.call("GET", f"{path}cursor=yesterday")
        assert status in (400, 404)


@pytest.mark.shared
async def test_transcripts_come_in_pages(client: Client) -> None:
    for n in range(6):
        await client.settled((await client.say("main", f"message {n}"))["turn"])
    newest = await client.transcript("main", "?limit=4")
    assert [m["text"] for m in newest if m["role"] == "user"] == ["message 4", "message 5"]
    older = await client.transcript("main", f"?limit=100&before={newest[0]['id']}")
    assert len(older) == 8
    assert older[-1]["turn"] != newest[0]["turn"]

    await client.settled((await client.say("other", "elsewhere"))["turn"])
    theirs = await client.transcript("other")
    await client.say("main", "/undo")
    for entry in (theirs[0], theirs[-1], newest[-1], newest[-2]):
        path = f"/api/conversations/main/transcript?before={entry['id']}"
        status, body = await client.call("GET", path)
        assert (status, body["error"]["code"]) == (404, "not_found")
    again = await client.transcript("main", f"?limit=100&before={newest[0]['id']}")
    assert again == older


@pytest.mark.shared
async def test_media_go_in_and_come_out(client: Client) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(64)
    status, media = await client.call(
        "POST", "/api/media", raw=png, **{"Content-Type": "image/png", "X-Filename": "a%20b.png"}
    )
    assert (status, media["name"], media["size"]) == (201, "a b.png", len(png))
    headers = {"Authorization": f"Bearer {client.token}"}
    async with client.session.get(
        f"{client.gateway.url}/api/media/{media['id']}", headers=headers
    ) as response:
        assert await response.read() == png
        assert response.content_type == "image/png"
    accepted = await client.say("main", "look", attachments=[{"media": media["id"]}])
    assert (await client.settled(accepted["turn"]))["outcome"] == "done"
    assert (await client.transcript("main"))[0]["attachments"][0]["media"] == media["id"]


@pytest.mark.shared
async def test_a_form_with_one_file_is_that_file(client: Client) -> None:
    headers = {"Authorization": f"Bearer {client.token}"}
    url = f"{client.gateway.url}/api/media"

    async def posted(*names: str, data: bytes = b"beans") -> tuple[int, Any]:
        # In the same form as curl.
        form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
        form.add_field("note", "said beside it")
        for name in names:
            form.add_field("file", data, filename=name, content_type="text/plain; charset=utf-8")
        async with client.session.post(url, data=form, headers=headers) as response:
            return response.status, await response.json()

    status, media = await posted("Grüße 1.txt")
    assert (status, media["mime"]) == (201, "text/plain")
    assert (media["name"], media["size"]) == ("Grüße 1.txt", 5)
    async with client.session.get(f"{url}/{media['id']}", headers=headers) as response:
        assert (await response.read(), response.content_type) == (b"beans", "text/plain")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.content_disposition is not None
        assert response.content_disposition.type == "attachment"
        assert response.content_disposition.filename == "Grüße 1.txt"
    for names in ((), ("a", "b")):
        status, body = await posted(*names)
        assert (status, body["error"]["code"]) == (400, "invalid_body")
        assert f"has {len(names)}" in body["error"]["message"]
    status, body = await posted("a", data=b"")
    assert (status, body["error"]["code"]) == (400, "empty_body")
    for kind in ("multipart/form-data", "multipart/form-data; boundary=x"):
        status, body = await client.call("POST", "/api/media", raw=b"x", **{"Content-Type": kind})
        assert (status, body["error"]["code"]) == (400, "malformed_body")


async def test_a_caller_who_hangs_up_in_a_body_is_no_failure(client: Client) -> None:
    # This holds for each kind of body, with and without a known length.
    paths = (
        "/api/conversations/main/messages",
        "/v1/chat/completions",
        "/v1/responses",
        "/api/media",
        "/hooks/nobody/here",
    )
    heads = {
        "Content-Length: 5000\r\nContent-Type: application/json": b'{"text": "aaaa',
        "Transfer-Encoding: chunked": b'10\r\n{"text":"aaaaaaa\r\n',
        "Content-Length: 5000\r\nContent-Type: multipart/form-data; boundary=b": b"--b\r\nContent-",
    }
    for path in paths:
        for head, begun in heads.items():
            _, writer = await asyncio.open_connection("127.0.0.1", client.gateway.port)
            who = f"Host: here\r\nAuthorization: Bearer {client.token}"
            writer.write(f"POST {path} HTTP/1.1\r\n{who}\r\n{head}\r\n\r\n".encode() + begun)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
    assert (await client.call("GET", "/api/status"))[0] == 200
    assert "Traceback" not in client.gateway.output


async def test_health_metrics_and_the_api_document_are_served(client: Client) -> None:
    await client.settled((await client.say("main", "count me"))["turn"])
    async with client.session.get(client.gateway.url + "/healthz") as response:
        assert (response.status, (await response.json())["status"]) == (200, "serving")
    async with client.session.get(client.gateway.url + "/metrics") as response:
        text = await response.text()
    assert 'perdure_turns_settled_total{agent="main",outcome="done"} 1.0' in text
    _, document = await client.call("GET", "/api/openapi.json")
    assert "/api/conversations/{name}/messages" in document["paths"]
    assert "/api/commands" in document["paths"]
    _, status = await client.call("GET", "/api/status")
    assert status["agents"] == [{"name": "main", "kind": "demo"}]


async def test_what_a_model_was_asked_is_told_to_operators_only(client: Client) -> None:
    _, made = await client.call("POST", "/api/tokens", body={"name": "eve"})
    first = await client.settled((await client.say("told", "the first"))["turn"])
    turn = await client.settled((await client.say("told", "the second"))["turn"])

    status, explained = await client.call("GET", f"/api/explain/{turn['id']}?request=true")
    _, without = await client.call("GET", f"/api/explain/{turn['id']}")
    answer = (await client.transcript("told"))[1]["text"]
    client.token = made["token"]
    refused, error = await client.call("GET", f"/api/explain/{first['id']}?request=true")

    said = [
        (message["role"], block["text"])
        for message in explained["request"]["messages"]
        for block in message["blocks"]
    ]
    assert status == 200
    assert said == [("user", "the first"), ("assistant", answer), ("user", "the second")]
    assert len(explained["request"]["encoded"]) == 3
    assert without["request"] is None
    assert (refused, error["error"]["code"]) == (403, "forbidden")


async def test_why_an_answer_failed_is_told_in_full_to_operators_only(client: Client) -> None:
    internals = "the demo agent was asked to fail"
    _, made = await client.call("POST", "/api/tokens", body={"name": "eve"})

    for token, is_operator in ((client.token, True), (made["token"], False)):
        client.token = token
        turn = await client.settled((await client.say("told", "demo fail"))["turn"])
        (_, entry) = await client.transcript("told")
        _, journal = await client.call("GET", f"/api/sessions/{turn['session']}/journal")
        _, transcript = await client.call("GET", f"/api/sessions/{turn['session']}/transcript")
        _, explained = await client.call("GET", f"/api/explain/{turn['id']}")
        status, body = await client.call(
            "POST",
            "/v1/chat/completions",
            body={"model": "main", "messages": [{"role": "user", "content": "demo fail"}]},
        )
        async with client.events("told", "000001-0000000000-99-000000000") as events:
            async for _, kind, news in events:  # noqa: B007 - asked below
                if kind == "outcome":
                    break

        assert status == 502
        for shown in (turn, entry, journal, transcript, explained, body, news):
            assert (internals in json.dumps(shown)) == is_operator, shown
        assert body["error"]["message"]
        assert entry["reason"] == "provider_error"
