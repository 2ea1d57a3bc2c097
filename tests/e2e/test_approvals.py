"""Checks what a person does with the questions of an agent, at a real gateway: over HTTP, in the
conversation, and with the command line."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from tests.e2e.approving import LIST, answer, ask, asked, files, questions, result_of, toml

from perdure.testkit.processes.command import TRUSTS_NOBODY, Result, run_command
from perdure.testkit.processes.http import DEADLINE_S, POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
pytestmark = pytest.mark.timeout(90)
shared = pytest.mark.shared


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def shared_gateway(share_gateway: Callable[[str], GatewayProcess], folder: Path) -> GatewayProcess:
    return share_gateway(toml(folder))


@pytest.fixture
async def own(gateway_factory: StartGateway, tmp_path: Path) -> AsyncIterator[Client]:
    """Provide the operator of a gateway that belongs to this test alone."""
    work = tmp_path / "work"
    work.mkdir()
    gateway = await gateway_factory(toml=toml(work))
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


async def member(client: Client, name: str) -> Client:
    """Return another person at the same gateway."""
    other = Client(client.gateway, client.session)
    await other.become(name)
    return other


async def perdure(client: Client, *arguments: str) -> Result:
    around = {**os.environ, **TRUSTS_NOBODY, "PERDURE_HOME": str(client.gateway.home)}
    result = await run_command(arguments, environ=around)
    assert "Traceback" not in result.err, result.err
    return result


async def pending(client: Client, name: str) -> str:
    """Return the state of a conversation."""
    _, found = await client.call("GET", f"/api/conversations/{name}")
    state: str = found["state"]
    return state


@shared
async def test_a_call_runs_only_after_it_was_allowed(client: Client, folder: Path) -> None:
    question = await asked(client, "a", files("write", "allowed.txt", text="hello"))
    assert (question["kind"], question["tool"], question["state"]) == (
        "approval",
        "files",
        "pending",
    )
    assert '"path": "allowed.txt"' in question["arguments"]
    assert "+hello" in question["text"]
    assert await pending(client, "a") == "waiting"
    assert not (folder / "allowed.txt").exists()

    status, taken = await answer(client, question["id"], "allow")

    assert (status, taken["state"], taken["scope"]) == (200, "allowed", "call")
    assert taken["answered_by"].startswith("guest")
    await client.settled(question["turn"])
    assert (folder / "allowed.txt").read_text() == "hello"
    assert await questions(client, question["turn"]) == []


@shared
async def test_a_denied_call_does_not_run_and_the_model_is_told_why(
    client: Client, folder: Path
) -> None:
    question = await asked(client, "a", files("write", "denied.txt", text="hello"))
    status, taken = await answer(client, question["id"], "deny")
    assert (status, taken["state"]) == (200, "denied")
    told = await result_of(client, "a", question["turn"])
    assert told.startswith("The person denied this call")
    assert not (folder / "denied.txt").exists()


@shared
async def test_only_the_first_answer_counts_and_only_known_words_are_answers(
    client: Client,
) -> None:
    question = await asked(client, "a", LIST)
    for word, more, code in (
        ("yes", {}, "no_answer"),
        ("", {}, "no_answer"),
        ("allow", {"scope": "always"}, "invalid_scope"),
        ("allow", {"for_s": 0}, "invalid_scope"),
        ("allow", {"for_s": 60, "scope": "session"}, "invalid_scope"),
    ):
        status, body = await answer(client, question["id"], word, **more)
        assert (status, body["error"]["code"]) == (400, code), word
    assert await pending(client, "a") == "waiting"

    assert (await answer(client, question["id"], "deny"))[0] == 200
    status, body = await answer(client, question["id"], "allow")

    assert (status, body["error"]["code"]) == (409, "already_answered")
    assert "said deny" in body["error"]["message"]
    told = await result_of(client, "a", question["turn"])
    assert "denied" in told


@shared
async def test_a_member_neither_sees_nor_answers_the_question_of_another(client: Client) -> None:
    question = await asked(client, "a", LIST)
    other = await member(client, "a stranger")

    assert await questions(other, question["turn"]) == []
    status, body = await other.call("GET", f"/api/approvals/{question['id']}")
    assert (status, body["error"]["code"]) == (404, "not_found")
    assert (await answer(other, question["id"], "allow"))[0] == 404
    assert (await other.call("GET", f"/api/explain/{question['id']}"))[0] == 404
    said = await other.say("mine", f"/approve {question['id']}")
    assert said["reply"].startswith("Not taken: this question is for somebody else")
    assert await pending(client, "a") == "waiting"

    operator = Client(client.gateway, client.session)
    assert [each["id"] for each in await questions(operator, question["turn"])] == [question["id"]]
    assert (await answer(operator, question["id"], "allow"))[0] == 200
    assert (await client.settled(question["turn"]))["outcome"] == "done"


@shared
async def test_slash_commands_answer_at_once_and_say_what_came_of_it(client: Client) -> None:
    assert (await client.say("a", "/approve"))["reply"] == "Nothing waits for an approval here."
    first = await asked(client, "a", LIST)
    waiting = await client.say("a", "yes")  # plain words never allow a call
    assert await pending(client, "a") == "waiting"

    taken = await client.say("a", "/approve")

    assert taken["command"] == "approve"
    assert taken["reply"].startswith("✅ Allowed by guest")
    await client.settled(first["turn"])
    await client.settled(waiting["turn"])
    second = await asked(client, "a", LIST)
    wrong = await client.say("a", "/deny zzzzzz")
    assert "zzzzzz" in wrong["reply"]
    denied = await client.say("a", f"/deny {second['id'][-6:]}")
    assert denied["reply"].startswith("⛔ Denied by guest")
    assert "denied" in await result_of(client, "a", second["turn"])
    late = await client.say("a", f"/approve {second['id']}")
    assert late["reply"].startswith("Not taken: already answered: guest")


@shared
async def test_what_was_allowed_for_longer_is_listed_and_can_be_taken_back(
    client: Client,
) -> None:
    question = await asked(client, "a", LIST)
    allowed = await client.say("a", "/approve session")
    assert "From now on in this session: `memory" in allowed["reply"]
    await client.settled(question["turn"])

    again = await client.say("a", LIST)

    assert (await client.settled(again["turn"]))["outcome"] == "done"
    elsewhere = await asked(client, "b", LIST)  # another session
    await answer(client, elsewhere["id"], "allow", for_s=3600)
    await client.settled(elsewhere["turn"])
    _, body = await client.call("GET", "/api/grants")
    assert [each["scope"] for each in body["grants"]] == ["session", "time"]
    assert "memory" in (await client.say("a", "/grants"))["reply"]

    for grant in body["grants"]:
        revoked = await client.say("a", f"/grants revoke {grant['id'][-6:]}")
        assert revoked["reply"].startswith("Taken back: memory")

    assert (await client.call("GET", "/api/grants"))[1]["grants"] == []
    question = await asked(client, "a", LIST)
    await answer(client, question["id"], "allow", scope="forever")
    await client.settled(question["turn"])
    (grant,) = (await client.call("GET", "/api/grants"))[1]["grants"]
    other = await member(client, "not the owner of a grant")
    assert (await other.call("DELETE", f"/api/grants/{grant['id']}"))[0] == 404
    assert (await client.call("DELETE", f"/api/grants/{grant['id']}"))[0] == 200


@shared
async def test_a_question_of_the_agent_is_answered_by_a_choice_its_number_or_words(
    client: Client,
) -> None:
    question = await asked(client, "a", ask("Which day?", "Monday", "Tuesday"))
    assert (question["kind"], question["choices"]) == ("question", ["Monday", "Tuesday"])
    other = await client.say("a", "what is the weather?")
    assert await pending(client, "a") == "waiting"

    assert (await client.say("a", "2"))["command"] == "answer"

    assert await result_of(client, "a", question["turn"]) == "Tuesday"
    await client.settled(other["turn"])
    question = await asked(client, "a", ask("Which day?", "Monday", "Tuesday"))
    await client.say("a", "monday")
    assert await result_of(client, "a", question["turn"]) == "Monday"
    question = await asked(client, "a", ask("Which city?"))
    await client.say("a", "Lisbon, in May")
    assert await result_of(client, "a", question["turn"]) == "Lisbon, in May"
    question = await asked(client, "a", ask("Which city?"))
    assert (await answer(client, question["id"], "  "))[1]["error"]["code"] == "no_answer"
    assert (await answer(client, question["id"], "Porto"))[0] == 200
    assert await result_of(client, "a", question["turn"]) == "Porto"


@shared
async def test_a_stop_ends_the_wait_and_nothing_runs(client: Client, folder: Path) -> None:
    question = await asked(client, "a", files("write", "stopped.txt", text="x"))
    await client.say("a", "/stop")
    assert (await client.settled(question["turn"]))["outcome"] == "stopped"
    status, body = await answer(client, question["id"], "allow")
    assert (status, body["error"]["code"]) == (409, "already_answered")
    assert not (folder / "stopped.txt").exists()
    _, found = await client.call("GET", f"/api/approvals/{question['id']}")
    assert found["state"] == "withdrawn"


@shared
async def test_everybody_can_see_what_the_agent_may_do(client: Client) -> None:
    _, body = await client.call("GET", "/api/tools")
    states = {each["name"]: each["state"] for each in body["tools"]}
    assert states["memory"] == "ask"
    assert states["todo"] == "allow"
    assert states["files"] == "allow or ask"
    assert all(each["why"] for each in body["tools"])
    reply = (await client.say("a", "/tools"))["reply"]
    assert 'memory  ask: approve = "always"' in reply


async def test_a_question_that_nobody_answers_is_closed_at_its_deadline(
    gateway_factory: StartGateway, tmp_path: Path
) -> None:
    gateway = await gateway_factory(toml=toml(tmp_path, more="[tools]\nanswer_wait_s = 0.3\n"))
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        accepted = await client.say("a", files("write", "late.txt", text="x"))
        told = await result_of(client, "a", accepted["turn"])
        assert told == "The call was not run: nobody answered in time."
        _, body = await client.call("GET", "/api/approvals?state=all")
        (question,) = body["approvals"]
        assert question["state"] == "expired"

        status, late = await answer(client, question["id"], "allow")

        assert (status, late["error"]["code"]) == (409, "already_answered")
        assert "Nobody answered in time" in late["error"]["message"]
        assert not (tmp_path / "late.txt").exists()


async def test_an_answer_after_a_kill_lets_the_call_run_once(own: Client, tmp_path: Path) -> None:
    file = tmp_path / "work" / "note.txt"
    file.write_text("a")
    question = await asked(own, "a", files("edit", "note.txt", old="a", new="ab"))

    await own.gateway.restart()

    assert await pending(own, "a") == "waiting"
    (again,) = await questions(own, question["turn"])
    assert again == question
    assert (await answer(own, question["id"], "allow"))[0] == 200
    assert (await own.settled(question["turn"]))["outcome"] == "done"
    assert file.read_text() == "ab"
    await own.gateway.restart()
    assert (await answer(own, question["id"], "allow"))[0] == 409
    assert file.read_text() == "ab"


async def test_what_has_changed_since_it_was_shown_is_not_done(own: Client, tmp_path: Path) -> None:
    file = tmp_path / "work" / "note.txt"
    file.write_text("a")
    question = await asked(own, "a", files("write", "note.txt", text="b"))
    file.write_text("somebody else was here")
    await answer(own, question["id"], "allow")
    assert "changed since the call was approved" in await result_of(own, "a", question["turn"])
    assert file.read_text() == "somebody else was here"


async def test_the_command_line_answers_with_a_running_node(own: Client, tmp_path: Path) -> None:
    assert "nothing waits for an answer" in (await perdure(own, "approvals", "list")).out
    question = await asked(own, "a", files("write", "one.txt", text="x"))

    listed = await perdure(own, "approvals", "list")
    shown = await perdure(own, "approvals", "show", question["id"])

    assert question["id"] in listed.out
    assert question["arguments"] in shown.out
    (found,) = (await perdure(own, "--json", "approvals", "list")).json["approvals"]
    assert found == question
    allowed = await perdure(own, "approvals", "allow", question["id"], "--session")
    assert allowed.out.strip() == f"{question['id']} is allowed"
    await own.settled(question["turn"])
    assert (tmp_path / "work" / "one.txt").exists()
    question = await asked(own, "a", files("write", "two.txt", text="x"))
    # The question itself is shown with the end of its id.
    assert (await perdure(own, "approvals", "deny", question["id"][-6:])).code == 0
    assert "denied" in await result_of(own, "a", question["turn"])
    question = await asked(own, "a", ask("Which city?"))
    assert (await perdure(own, "approvals", "answer", question["id"], "Porto", "now")).code == 0
    assert await result_of(own, "a", question["turn"]) == "Porto now"
    late = await perdure(own, "approvals", "answer", question["id"], "Faro")
    assert late.code == 1
    assert "already answered" in late.err
    unknown = await perdure(own, "approvals", "allow", "qst_nothing")
    assert (unknown.code, unknown.out) == (1, "")
    every = (await perdure(own, "--json", "approvals", "list", "--all")).json["approvals"]
    assert [each["state"] for each in every] == ["allowed", "denied", "answered"]


async def test_the_command_line_answers_without_a_node(own: Client, tmp_path: Path) -> None:
    question = await asked(own, "a", files("write", "one.txt", text="x"))
    await own.gateway.kill()
    shown = await perdure(own, "--json", "approvals", "show", question["id"])
    assert (shown.json["state"], shown.json["arguments"]) == ("pending", question["arguments"])

    allowed = await perdure(own, "approvals", "allow", question["id"])

    assert allowed.out.strip() == f"{question['id']} is allowed"
    assert not (tmp_path / "work" / "one.txt").exists()
    await own.gateway.start()
    assert (await own.settled(question["turn"]))["outcome"] == "done"
    assert (tmp_path / "work" / "one.txt").read_text() == "x"


async def test_settings_of_tools_are_applied_live(own: Client, tmp_path: Path) -> None:
    file = own.gateway.home / "perdure.toml"
    written = file.read_text()
    denied = '[[agents.main.rules]]\ntool = "files.write"\ndo = "deny"\n'
    file.write_text(written.replace("[tools.files]", f"{denied}[tools.files]"))
    await reloaded(own, "configuration applied")

    accepted = await own.say("a", files("write", "ruled.txt", text="x"))

    told = await result_of(own, "a", accepted["turn"])
    assert "a rule for files.write does not allow this call" in told
    other = tmp_path / "other"
    other.mkdir()
    file.write_text(written.replace("/work", "/other"))
    await reloaded(own, "configuration applied")
    question = await asked(own, "a", files("write", "moved.txt", text="x"))
    await answer(own, question["id"], "allow")
    await own.settled(question["turn"])
    assert (other / "moved.txt").exists()
    assert "needs_restart=()" in own.gateway.output

    file.write_text(written.replace("/work", "/nowhere"))
    await reloaded(own, "configuration not applied")

    line = next(n for n, each in enumerate(file.read_text().splitlines(), 1) if "nowhere" in each)
    assert f"perdure.toml:{line}: [tools] files.roots[0] cannot be used" in own.gateway.output


async def reloaded(client: Client, words: str) -> None:
    """Have the gateway read its file again, and wait until it has said these words once more."""
    before = client.gateway.output.count(words)
    client.gateway.send_signal(signal.SIGHUP)
    async with asyncio.timeout(DEADLINE_S):
        while client.gateway.output.count(words) == before:
            await client.gateway.pause(POLL_S)
