"""Checks `perdure acp` as editors use it: the real command, spoken to by the client of the official
package, at a real gateway."""

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import aiohttp
import pytest
from acp.exceptions import RequestError
from acp.schema import (
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ImageContentBlock,
)
from tests.contract.acp_client import WAIT_S, Spoken, spoken
from tests.e2e.approving import answer, ask, files, questions, toml

from perdure.app.editor.agent import OPEN_MAX
from perdure.testkit.peers.acp.published_acp import PublishedAcp
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.processes.command import TRUSTS_NOBODY, run_command
from perdure.testkit.processes.http import POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
pytestmark = pytest.mark.timeout(90)
shared = pytest.mark.shared

COMMAND = [sys.executable, "-m", "perdure", "acp"]
SLOW = "demo words=400 delay_ms=20"
BRIEF = "demo words=60 delay_ms=20"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def shared_gateway(share_gateway: Callable[[str], GatewayProcess], folder: Path) -> GatewayProcess:
    return share_gateway(toml(folder))


@asynccontextmanager
async def editing(
    home: Path, scratch: Path, *words: str, token: str = "", forms: bool = False
) -> AsyncIterator[Spoken]:
    """Start the command as an editor does, and shake hands."""
    environ = {**os.environ, **TRUSTS_NOBODY, "PERDURE_HOME": str(home), "PERDURE_TOKEN": token}
    form = ElicitationCapabilities(form=ElicitationFormCapabilities()) if forms else None
    async with spoken([*COMMAND, *words], scratch, **environ) as editor:
        async with asyncio.timeout(WAIT_S):
            await editor.connection.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_capabilities=ClientCapabilities(elicitation=form),
            )
        yield editor
    assert "Traceback" not in editor.errors.read_text()


@pytest.fixture
async def editor(client: Client, tmp_path: Path) -> AsyncIterator[Spoken]:
    """Provide an editor of the same person as `client`."""
    async with editing(client.gateway.home, tmp_path / "ed", token=client.token) as speaking:
        yield speaking


async def opened(editor: Spoken, folder: Path) -> str:
    return await editor.new(folder)


async def asked_at(client: Client, editor: Spoken, session: str) -> dict[str, Any]:
    """Wait until the editor is asked, and return the question as the gateway holds it."""
    await editor.person.until(lambda: editor.person.asked)
    turn = (await client.call("GET", f"/api/conversations/{session}"))[1]["turn"]
    (question,) = await questions(client, turn)
    return question


@shared
async def test_a_prompt_is_a_message_and_its_answer_streams(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    assert session.startswith(f"{folder.name}-")
    reason, said = await editor.ask(session, "demo words=60 delay_ms=5")

    entries = await client.transcript(session)
    assert [each["role"] for each in entries] == ["user", "assistant"]
    assert (reason, said) == ("end_turn", entries[-1]["text"])
    assert len(editor.person.kind(session, "agent_message_chunk")) > 3
    # The editor shows by itself what its person has typed, and nobody sees thoughts.
    assert editor.person.kind(session, "user_message_chunk", "agent_thought_chunk") == []
    (commands,) = editor.person.kind(session, "available_commands_update")
    assert "undo" in {each.name for each in commands.available_commands}


@shared
async def test_what_is_said_elsewhere_comes_into_the_editor(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    await editor.ask(session, "from the editor")
    await client.say(session, "from the page")

    await editor.person.until(lambda: 'said: "from the page"' in editor.person.said(session))
    (chunk,) = editor.person.kind(session, "user_message_chunk")
    assert chunk.content.text == "from the page"
    assert await editor.say(session, "and back") in (await client.transcript(session))[-1]["text"]


@shared
async def test_a_conversation_is_listed_and_loaded_with_its_past(
    client: Client, editor: Spoken, folder: Path
) -> None:
    todo = 'demo tool todo {"items": [{"text": "sow"}, {"text": "dig", "state": "done"}]}'
    for text in ("from the page", todo):
        await client.settled((await client.say("old garden", text))["turn"])

    listed = await editor.connection.list_sessions(cwd=str(folder))
    (info,) = [each for each in listed.sessions if each.session_id == "old garden"]
    assert info.cwd == str(folder)
    await editor.connection.load_session(cwd=str(folder), session_id="old garden", mcp_servers=[])

    told = [each.session_update for each in editor.person.updates["old garden"]]
    assert told == [
        *("user_message_chunk", "agent_message_chunk", "user_message_chunk", "tool_call"),
        *("plan", "tool_call_update", "agent_message_chunk", "available_commands_update"),
    ]
    (plan,) = editor.person.kind("old garden", "plan")
    assert [(each.content, each.status) for each in plan.entries] == [
        ("sow", "pending"),
        ("dig", "completed"),
    ]
    assert 'You said: "more"' in await editor.say("old garden", "more")


@shared
async def test_what_is_said_while_nobody_edits_is_there_after_loading(
    client: Client, folder: Path, tmp_path: Path
) -> None:
    home, token = client.gateway.home, client.token
    async with editing(home, tmp_path / "first", token=token) as first:
        session = await opened(first, folder)
        prompt = first.connection.prompt(session_id=session, prompt=[acp.text_block(BRIEF)])
        asking = asyncio.ensure_future(prompt)
        await first.person.until(lambda: first.person.said(session))
    with pytest.raises(ConnectionError):
        await asking
    async with editing(home, tmp_path / "second", token=token) as second:
        await second.connection.load_session(cwd=str(folder), session_id=session, mcp_servers=[])
        entries = await settled_entries(client, session)
        assert entries[-1]["outcome"] == "done"
        await second.person.until(lambda: second.person.said(session) == entries[-1]["text"])


async def settled_entries(client: Client, session: str) -> list[dict[str, Any]]:
    """Wait until a conversation is idle, and return its transcript."""
    async with asyncio.timeout(WAIT_S):
        while (await client.call("GET", f"/api/conversations/{session}"))[1]["state"] != "idle":
            await client.gateway.pause(POLL_S)
    return await client.transcript(session)


@shared
async def test_a_session_that_does_not_exist_cannot_be_loaded(editor: Spoken, folder: Path) -> None:
    with pytest.raises(RequestError) as caught:
        await editor.connection.load_session(cwd=str(folder), session_id="never", mcp_servers=[])
    assert caught.value.code == -32002
    with pytest.raises(RequestError, match="load it first"):
        await editor.ask("never", "hello")


@shared
async def test_a_call_is_allowed_in_the_editor_which_shows_its_change(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    editor.person.choice = "allow_once"
    reason, _ = await editor.ask(session, files("write", "ed.txt", text="one\ntwo\n"))

    assert reason == "end_turn"
    assert (folder / "ed.txt").read_text() == "one\ntwo\n"
    ((_, call),) = editor.person.asked
    assert (call.title, call.kind) == ("files write ed.txt", "edit")
    assert call.raw_input["text"] == "one\ntwo\n"
    diff, text = call.content
    assert (diff.path, diff.old_text, diff.new_text) == (
        str(folder / "ed.txt"),
        None,
        "one\ntwo\n",
    )
    assert "May I call" in text.content.text
    ends = editor.person.kind(session, "tool_call_update")
    assert [each.status for each in ends] == ["in_progress", "completed"]
    assert {each.tool_call_id for each in ends} == {call.tool_call_id}
    assert (await questions(client, (await client.transcript(session))[0]["turn"])) == []


@shared
async def test_a_call_is_denied_in_the_editor(editor: Spoken, folder: Path) -> None:
    session = await opened(editor, folder)
    editor.person.choice = "reject_once"
    assert "denied" in await editor.say(session, files("write", "no.txt", text="x"))
    assert not (folder / "no.txt").exists()


@shared
async def test_an_answer_for_the_session_holds_for_the_next_call(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    editor.person.choice = "allow_always"
    for text in ("one", "two"):
        await editor.ask(session, files("write", "again.txt", text=text))
    assert (folder / "again.txt").read_text() == "two"
    assert len(editor.person.asked) == 1
    _, found = await client.call("GET", "/api/grants")
    assert [each["scope"] for each in found["grants"]] == ["session"]


@shared
async def test_an_answer_given_elsewhere_counts_in_the_editor(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(editor.ask(session, files("write", "page.txt", text="x")))
        question = await asked_at(client, editor, session)
        await answer(client, question["id"], "allow")
    assert asking.result()[0] == "end_turn"
    assert (folder / "page.txt").read_text() == "x"


@shared
async def test_a_call_that_the_editor_leaves_open_does_not_hang_and_is_asked_again(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    editor.person.release.set()
    reason, said = await editor.ask(session, files("write", "open.txt", text="x"))
    assert reason == "end_turn"
    assert "This is still open: say /approve" in said

    # Plain words allow nothing. They wait behind the question, which is asked once more.
    assert "still open" in await editor.say(session, "yes")
    assert not (folder / "open.txt").exists()
    editor.person.choice = "allow_once"
    assert 'You said: "and this"' in await editor.say(session, "and this")
    assert (folder / "open.txt").read_text() == "x"
    texts = [each["text"] for each in await client.transcript(session) if each["role"] == "user"]
    assert texts[1:] == ["yes", "and this"]


@shared
async def test_a_command_allows_what_the_editor_left_open(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    editor.person.release.set()
    await editor.ask(session, files("write", "command.txt", text="x"))
    await editor.say(session, "/approve")
    await settled_entries(client, session)
    assert (folder / "command.txt").read_text() == "x"


@shared
async def test_a_question_of_the_agent_is_answered_in_words(editor: Spoken, folder: Path) -> None:
    session = await opened(editor, folder)
    _, said = await editor.ask(session, ask("Which bed?", "north", "south"))
    assert "Which bed?" in said
    assert 'answered: "south"' in await editor.say(session, "south")


@shared
async def test_a_question_of_the_agent_is_a_form_where_the_editor_has_forms(
    client: Client, folder: Path, tmp_path: Path
) -> None:
    home = client.gateway.home
    async with editing(home, tmp_path / "ed", token=client.token, forms=True) as editor:
        session = await opened(editor, folder)
        editor.person.choice = "south"
        said = await editor.say(session, ask("Which bed?", "north", "south"))
    assert said == 'The tool ask answered: "south".'
    (form,) = editor.person.forms
    assert form.requested_schema.properties["answer"].enum == ["north", "south"]


@shared
async def test_a_question_is_asked_again_when_its_conversation_is_loaded(
    client: Client, editor: Spoken, folder: Path
) -> None:
    accepted = await client.say("waits", files("write", "late.txt", text="x"))
    async with asyncio.timeout(WAIT_S):
        while not await questions(client, accepted["turn"]):
            await client.gateway.pause(POLL_S)
    editor.person.choice = "allow_once"
    await editor.connection.load_session(cwd=str(folder), session_id="waits", mcp_servers=[])
    assert (await client.settled(accepted["turn"]))["outcome"] == "done"
    assert (folder / "late.txt").read_text() == "x"


@shared
async def test_a_cancel_stops_the_turn(client: Client, editor: Spoken, folder: Path) -> None:
    session = await opened(editor, folder)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(editor.ask(session, SLOW))
        await editor.person.until(lambda: editor.person.said(session))
        await editor.connection.cancel(session_id=session)
    reason, said = asking.result()
    (_, last) = await client.transcript(session)
    assert (reason, last["outcome"], last["text"]) == ("cancelled", "stopped", said)


@shared
async def test_a_cancel_while_the_person_is_asked_stops_the_turn(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(editor.ask(session, files("write", "never.txt", text="x")))
        await asked_at(client, editor, session)
        await editor.connection.cancel(session_id=session)
        editor.person.release.set()
    assert asking.result()[0] == "cancelled"
    assert (await client.transcript(session))[-1]["outcome"] == "stopped"
    (call,) = editor.person.kind(session, "tool_call")
    ended = editor.person.kind(session, "tool_call_update")[-1]
    assert (ended.tool_call_id, ended.status) == (call.tool_call_id, "failed")
    assert not (folder / "never.txt").exists()


@shared
async def test_a_failed_turn_is_an_error_that_says_why(editor: Spoken, folder: Path) -> None:
    session = await opened(editor, folder)
    with pytest.raises(RequestError, match="provider_error"):
        await editor.ask(session, "demo fail")
    assert await editor.ask(session, "/think high") == ("end_turn", editor.person.said(session))


@shared
async def test_files_and_pictures_of_a_prompt_reach_the_agent(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    blocks: list[Any] = [
        acp.text_block("See "),
        acp.resource_link_block("bed.md", "file:///garden/bed.md"),
        acp.text_block(" and this."),
        acp.resource_block(acp.embedded_text_resource("file:///garden/a%20b.txt", "```beans```")),
        ImageContentBlock(
            type="image", data=base64.b64encode(PIXEL).decode(), mime_type="image/png"
        ),
    ]
    async with asyncio.timeout(WAIT_S):
        await editor.connection.prompt(session_id=session, prompt=blocks)
    message = (await client.transcript(session))[0]
    assert message["text"] == (
        "See [bed.md](file:///garden/bed.md) and this.[a b.txt](file:///garden/a%20b.txt)\n\n"
        "file:///garden/a%20b.txt\n````\n```beans```\n````"
    )
    (picture,) = message["attachments"]
    assert (picture["mime"], picture["size"]) == ("image/png", len(PIXEL))


@shared
async def test_a_name_makes_every_new_session_that_conversation(
    client: Client, folder: Path, tmp_path: Path
) -> None:
    await client.settled((await client.say("garden", "from the page"))["turn"])
    home = client.gateway.home
    async with editing(home, tmp_path / "ed", "garden", token=client.token) as editor:
        assert await opened(editor, folder) == "garden"
        await editor.ask("garden", "from the editor")
    said = [each["text"] for each in await client.transcript("garden") if each["role"] == "user"]
    assert said == ["from the page", "from the editor"]


@shared
async def test_a_session_that_rested_catches_up_with_its_next_message(
    client: Client, editor: Spoken, folder: Path
) -> None:
    session = await opened(editor, folder)
    await editor.ask(session, "first")
    for _ in range(OPEN_MAX + 1):
        await opened(editor, folder)
    await client.settled((await client.say(session, "meanwhile"))["turn"])
    assert "meanwhile" not in editor.person.said(session)

    said = await editor.say(session, "last")
    assert 'You said: "meanwhile"' in said
    assert 'You said: "last"' in said


@shared
async def test_the_command_ends_when_the_editor_closes_its_end(
    editor: Spoken, folder: Path
) -> None:
    await editor.say(await opened(editor, folder), "hello")
    editor.writer.close()
    assert await editor.gone() == 0


async def test_without_an_editor_it_says_who_starts_it(tmp_path: Path) -> None:
    result = await run_command(["acp"], environ={**os.environ, "PERDURE_HOME": str(tmp_path)})
    assert (result.code, result.out) == (2, "")
    assert "an editor starts `perdure acp`" in result.err


async def test_without_a_node_it_says_so_and_goes_on_when_there_is_one(
    gateway_factory: StartGateway, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    async with editing(home, tmp_path / "ed") as editor:
        with pytest.raises(RequestError, match="start one with `perdure serve`"):
            await opened(editor, tmp_path)
        await gateway_factory()
        assert "hello" in await editor.say(await opened(editor, tmp_path), "hello")


async def test_a_killed_gateway_goes_on_with_the_prompt_and_tells_nothing_twice(
    gateway_factory: StartGateway, tmp_path: Path
) -> None:
    gateway = await gateway_factory()
    async with (
        aiohttp.ClientSession() as http,
        editing(gateway.home, tmp_path / "ed") as editor,
        asyncio.TaskGroup() as tasks,
    ):
        session = await opened(editor, tmp_path)
        asking = tasks.create_task(editor.ask(session, BRIEF))
        await editor.person.until(lambda: len(editor.person.said(session)) > 50)
        await gateway.restart()
        reason, said = await asking
        entries = await Client(gateway, http).transcript(session)
    assert reason == "end_turn"
    texts = [each["text"] for each in entries if each["role"] == "assistant"]
    assert len(texts) == 2
    words = [line for line in said.split("\n") if line and not line.startswith(">")]
    assert [each.strip() for each in words] == [each.strip() for each in texts]


@pytest.fixture
def published(new_peer: NewPeer) -> PublishedAcp:
    return new_peer.published_acp()


async def acpx(
    published: PublishedAcp, client: Client, scratch: Path, *words: str
) -> tuple[int | None, str]:
    """Run the client by others once, and return its exit code and what it prints."""
    program = published.acpx(scratch / "acpx", "--agent", " ".join(COMMAND), *words)
    process = await asyncio.create_subprocess_exec(
        *program.command,
        cwd=scratch,
        env={
            **os.environ,
            **TRUSTS_NOBODY,
            **program.environ,
            "PERDURE_HOME": str(client.gateway.home),
            "PERDURE_TOKEN": client.token,
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WAIT_S):
        printed, _ = await process.communicate()
    return process.returncode, printed.decode()


@shared
async def test_acpx_speaks_with_a_conversation_and_allows_or_denies(
    published: PublishedAcp, client: Client, folder: Path, tmp_path: Path
) -> None:
    code, hello = await acpx(published, client, tmp_path, "--approve-all", "exec", "hello there")
    assert code == 0, hello
    assert 'You said: "hello there"' in hello
    assert "end_turn" in hello

    write = files("write", "acpx.txt", text="x")
    # This client says by its exit code that it was asked and has denied.
    code, denied = await acpx(published, client, tmp_path, "--deny-all", "exec", write)
    assert (code, "The person denied this call" in denied) == (5, True), denied
    assert not (folder / "acpx.txt").exists()
    code, allowed = await acpx(published, client, tmp_path, "--approve-all", "exec", write)
    assert (code, "files write acpx.txt" in allowed) == (0, True), allowed
    assert (folder / "acpx.txt").read_text() == "x"

    _, listed = await client.call("GET", "/api/conversations")
    assert len(listed["conversations"]) == 3
