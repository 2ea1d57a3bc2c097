"""Checks that the scripted agent of the tests is bad in the ways it says, as far as the client of
the official package shows it, so that a gateway's test never passes because it was harmless."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from acp.exceptions import RequestError
from acp.schema import McpServerStdio
from tests.contract.acp_client import Spoken, spoken
from tests.peers import hostile_acp

from perdure.testkit.peers.acp.hostile_acp import HostileAcp
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief

SOON_S = 0.3


@pytest.fixture
def hostile(new_peer: NewPeer) -> HostileAcp:
    return new_peer.hostile_acp()


@pytest.fixture
def bridge(new_peer: NewPeer) -> McpServerStdio:
    program, *words = new_peer.hostile_mcp().command()
    return McpServerStdio(name="gw", command=program, args=words, env=[])


@asynccontextmanager
async def bad(
    hostile: HostileAcp, folder: Path, *kinds: str, amount: int = 0
) -> AsyncIterator[tuple[Spoken, str]]:
    """Start a bad agent, and make a session."""
    mischief = Mischief(*kinds, amount=amount, calls=folder / "calls")
    async with spoken(hostile.command(mischief, keep=folder / "kept"), folder / "home") as agent:
        await agent.greet()
        yield agent, await agent.new(folder)


def ran(folder: Path, *names: str) -> list[str]:
    """Return what really happened, in order, of some kinds."""
    done = [each.tool for each in Mischief(calls=folder / "calls").ran()]
    return [each for each in done if not names or each in names]


def test_every_mischief_is_tried_here() -> None:
    source = Path(__file__).read_text("utf-8")
    assert [name for name in hostile_acp.MISCHIEF if f'"{name}"' not in source] == []


def test_an_agent_that_ends_at_once_says_why(hostile: HostileAcp) -> None:
    ended = subprocess.run(hostile.command(Mischief("exits")), capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert b"TOKEN is missing" in ended.stderr


@pytest.mark.parametrize(
    ("kind", "said", "status"),
    [
        ("dies_in_initialize", None, -signal.SIGKILL),
        ("dies_in_new", None, -signal.SIGKILL),
        ("dies_in_load", "", -signal.SIGKILL),
        ("dies_before_words", "", -signal.SIGKILL),
        ("dies_mid_prompt", "one two thre", -signal.SIGKILL),
        ("dies_after_words", "one two three four", -signal.SIGKILL),
        ("exits_mid_prompt", "one two thre", 7),
    ],
)
async def test_it_dies_in_each_phase(
    hostile: HostileAcp, tmp_path: Path, kind: str, said: str | None, status: int
) -> None:
    sessions: list[str] = []

    async def live(agent: Spoken) -> None:
        await agent.greet()
        sessions.append(session := await agent.new(tmp_path))
        if kind == "dies_in_load":
            await agent.connection.load_session(
                session_id=session, cwd=str(tmp_path), mcp_servers=[]
            )
        await agent.ask(session, "[[SAY one two three four]]")

    async with spoken(hostile.command(Mischief(kind)), tmp_path / "home") as agent:
        with pytest.raises(ConnectionError):
            await live(agent)
        assert (await agent.gone(), bool(sessions)) == (status, said is not None)
        assert "".join(map(agent.person.said, sessions)) == (said or "")
        assert ("out of cheese" in agent.errors.read_text()) is (kind == "exits_mid_prompt")


@pytest.mark.parametrize(
    "kind", ["hangs_initialize", "hangs_new", "hangs_prompt", "hangs_load", "hangs_close"]
)
async def test_it_hangs_in_each_phase(hostile: HostileAcp, tmp_path: Path, kind: str) -> None:
    async def live(agent: Spoken) -> None:
        await agent.greet()
        session = await agent.new(tmp_path)
        if kind == "hangs_prompt":
            await agent.ask(session, "[[SAY x]]")
        if kind == "hangs_load":
            await agent.connection.load_session(
                session_id=session, cwd=str(tmp_path), mcp_servers=[]
            )
        await agent.connection.close_session(session_id=session)

    async with spoken(hostile.command(Mischief(kind)), tmp_path / "home") as agent:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_S):
                await live(agent)
        assert agent.is_running


async def test_a_prompt_that_hangs_can_be_cancelled(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "hangs_prompt") as (agent, session):
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(agent.ask(session, "[[SAY x]]"))
            await until_ran(tmp_path, "session/prompt")
            await agent.connection.cancel(session_id=session)
        assert asking.result() == ("cancelled", "")


async def until_ran(folder: Path, name: str) -> None:
    """Wait until something is among what really happened."""
    async with asyncio.timeout(20):
        while not ran(folder, name):
            await asyncio.sleep(0.01)


async def test_a_cancel_goes_wrong(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "ignores_cancel") as (agent, session):
        whole = "".join(f"y{at:03}...." for at in range(5))
        assert await agent.cancel(session, "[[SLOW 5 y]]") == ("end_turn", whole)
    hold = f"[[HOLD {tmp_path / 'go'}]]"
    async with bad(hostile, tmp_path, "cancelled_as_end") as (agent, session):
        assert await agent.cancel(session, hold) == ("end_turn", "")
    async with bad(hostile, tmp_path, "cancelled_as_error") as (agent, session):
        with pytest.raises(ExceptionGroup) as caught:
            await agent.cancel(session, hold)
        assert caught.group_contains(RequestError, match="aborted")


async def test_a_cancel_ends_the_wrong_prompt(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "cancels_all") as (agent, session):
        other = await agent.new(tmp_path)
        async with asyncio.TaskGroup() as tasks:
            beside = tasks.create_task(agent.ask(other, f"[[HOLD {tmp_path / 'go'}]]"))
            await until_ran(tmp_path, "hold")
            await agent.cancel(session, "[[SLOW 1000 x]]")
        assert beside.result()[0] == "cancelled"
    async with bad(hostile, tmp_path, "keeps_cancel") as (agent, session):
        await agent.connection.cancel(session_id=session)
        assert await agent.ask(session, "[[SAY next]]") == ("cancelled", "")
        assert await agent.ask(session, "[[SAY after]]") == ("end_turn", "after")


async def test_a_cancelled_question_goes_wrong(hostile: HostileAcp, tmp_path: Path) -> None:
    async with (
        bad(hostile, tmp_path, "waits_for_answer") as (agent, session),
        asyncio.TaskGroup() as tasks,
    ):
        asking = tasks.create_task(agent.ask(session, "[[ASK May I?]]"))
        await agent.person.until(lambda: agent.person.asked)
        await agent.connection.cancel(session_id=session)
        await asyncio.sleep(SOON_S)
        assert not asking.done()
        agent.person.release.set()
        assert (await asking)[0] == "cancelled"
    async with bad(hostile, tmp_path, "dies_when_cancelled") as (agent, session):
        with pytest.raises(ExceptionGroup) as caught:
            await cancel_the_question(agent, session)
        assert caught.group_contains(ConnectionError)
        agent.person.release.set()


async def cancel_the_question(agent: Spoken, session: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(agent.ask(session, "[[ASK May I?]]"))
        await agent.person.until(lambda: agent.person.asked)
        await agent.connection.cancel(session_id=session)


async def test_an_answer_for_always_leaks(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "remembers_always") as (agent, session):
        agent.person.choice = "allow_always"
        assert await agent.say(session, "[[ASK May I?]]") == "ASKED<always>"
        other = await agent.new(tmp_path)
        assert await agent.say(other, "[[ASK May I?]]") == "ASKED<always before>"
    async with bad(hostile, tmp_path) as (agent, session):
        agent.person.choice = "allow_always"
        assert await agent.say(session, "[[ASK May I?]]") == "ASKED<always>"
        assert await agent.say(session, "[[ASK May I?]]") == "ASKED<always before>"
        assert await agent.say(await agent.new(tmp_path), "[[ASK May I?]]") == "ASKED<always>"


async def test_it_asks_in_a_session_that_nobody_made(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "asks_for_unknown_session") as (agent, session):
        agent.person.choice = "reject_once"
        assert await agent.say(session, "[[SAY x]]") == "x"
        assert [each for each, _ in agent.person.asked] == ["ses-nobody"]
    assert ran(tmp_path, "nobody")


@pytest.mark.parametrize(
    ("kind", "amount"),
    [
        ("garbage", 0),
        ("answers_strangers", 0),
        ("answers_twice", 0),
        ("floods_errors", 2000),
        ("floods_updates", 2000),
        ("big_line", 0),
        ("unknown_session", 0),
        ("unknown_update", 0),
    ],
)
async def test_noise_loses_no_answer(
    hostile: HostileAcp, tmp_path: Path, kind: str, amount: int
) -> None:
    async with bad(hostile, tmp_path, kind, amount=amount) as (agent, session):
        reason, said = await agent.ask(session, "[[SAY clear]]")
        assert (reason, said[-5:]) == ("end_turn", "clear")
        flood = len(agent.person.kind(session, "agent_message_chunk"))
        assert (flood > 2000) is (kind == "floods_updates")
        assert (len(said) > 8_000_000) is (kind == "big_line")
        assert agent.person.said("ses-nobody") == (
            "for nobody" if kind == "unknown_session" else ""
        )
        assert (agent.errors.stat().st_size >= 2000 * 1024) is (kind == "floods_errors")


def test_noise_is_on_the_wire(hostile: HostileAcp) -> None:
    """Look at what the client of the package keeps to itself."""
    wanted = {
        "garbage": b'\xff\xfe\x00\n{"half": \n',
        "answers_strangers": b'"id": 987654',
        "answers_twice": b'{"stopReason": "end_turn"}}\n{"jsonrpc": "2.0", "id": 2, "result"',
        "unknown_update": b'"sessionUpdate": "dance"',
        "non_object": b'[1, 2]\n"text"\nnull\n7\n',
        "endless_line": b"z" * 1000 + b'{"jsonrpc"',
        "wrong_id": b'"id": "wrong-2"',
        "changes_ids": b'ses-1-changed", "update": {"sessionUpdate": "agent_message_chunk"',
    }
    for kind, words in wanted.items():
        printed = printed_by(hostile, kind, last=b"stopReason")
        assert words in printed, (kind, printed[-500:])


@pytest.mark.parametrize(
    ("kind", "late"), [("late_updates", b'"text": "late"'), ("result_first", b'"text": "x"')]
)
def test_words_come_after_the_answer(hostile: HostileAcp, kind: str, late: bytes) -> None:
    assert late in printed_by(hostile, kind, last=late).partition(b"stopReason")[2]


def printed_by(hostile: HostileAcp, kind: str, *, last: bytes) -> bytes:
    """Return the lines of an agent that answers one prompt, up to the one that holds some words."""
    mischief = Mischief(kind, "same_session", amount=1000)
    with subprocess.Popen(
        hostile.command(mischief), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        send(process, 1, "session/new", {"cwd": "/", "mcpServers": []})
        printed = read_until(process, b"available_commands")
        prompt = [{"type": "text", "text": "[[SAY x]]"}]
        send(process, 2, "session/prompt", {"sessionId": "ses-1", "prompt": prompt})
        printed += read_until(process, last)
        process.stdin.close()  # type: ignore[union-attr]
        return printed + process.stdout.read()


def send(process: "subprocess.Popen[bytes]", identity: int, method: str, params: object) -> None:
    assert process.stdin is not None
    message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def read_until(process: "subprocess.Popen[bytes]", words: bytes) -> bytes:
    assert process.stdout is not None
    printed = b""
    for line in process.stdout:
        printed += line
        if words in line:
            break
    return printed


@pytest.mark.parametrize("kind", ["non_object", "closes_output"])
async def test_a_broken_wire_breaks_the_connection(
    hostile: HostileAcp, tmp_path: Path, kind: str
) -> None:
    async with bad(hostile, tmp_path, kind) as (agent, session):
        with pytest.raises((ConnectionError, ValueError)):
            await agent.ask(session, "[[SAY x]]")
        assert agent.is_running


@pytest.mark.parametrize("kind", ["stops_itself", "closes_input", "never_ends", "wrong_id"])
async def test_it_lives_and_never_answers(hostile: HostileAcp, tmp_path: Path, kind: str) -> None:
    whole = "one two three four" if kind in {"never_ends", "wrong_id"} else "one two thre"
    async with bad(hostile, tmp_path, kind) as (agent, session), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(agent.ask(session, "[[SAY one two three four]]"))
        await agent.person.until(lambda: agent.person.said(session) == whole)
        await asyncio.sleep(SOON_S)
        assert not asking.done()
        assert agent.person.said(session) == whole
        assert agent.is_running
        stopped = psutil.Process(agent.process.pid).status() == psutil.STATUS_STOPPED
        assert stopped is (kind == "stops_itself")
        asking.cancel()


async def test_a_prompt_right_after_an_error_is_lost(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "deaf_after_error") as (agent, session):
        with pytest.raises(RequestError, match="refused"):
            await agent.ask(session, "[[ERR 500]]")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_S):
                await agent.ask(session, "[[SAY lost]]")
        assert await agent.say(session, "[[SAY heard]]") == "heard"


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [("http_error", 429, "answered so"), ("model_fails", -32603, "Internal error")],
)
async def test_a_prompt_fails(
    hostile: HostileAcp, tmp_path: Path, kind: str, code: int, words: str
) -> None:
    async with bad(hostile, tmp_path, kind) as (agent, session):
        with pytest.raises(RequestError, match=words) as caught:
            await agent.ask(session, "[[SAY x]]")
        assert caught.value.code == code


async def test_an_end_says_nothing_true(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "error_as_text") as (agent, session):
        reason, said = await agent.ask(session, "[[SAY x]]")
        assert (reason, said[:10]) == ("end_turn", "API Error:")
    async with bad(hostile, tmp_path, "unknown_stop") as (agent, session):
        with pytest.raises(ValueError, match="exhausted"):
            await agent.ask(session, "[[SAY x]]")
    async with bad(hostile, tmp_path, "slash_commands") as (agent, session):
        assert await agent.say(session, "/etc [[SAY x]]") == "Unknown command: /etc [[SAY x]]"
        assert await agent.say(session, "see /etc [[SAY x]]") == "x"


async def test_updates_carry_another_id(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "changes_ids") as (agent, session):
        assert await agent.ask(session, "[[SAY x]]") == ("end_turn", "")
        assert agent.person.said(f"{session}-changed") == "x"
    async with bad(hostile, tmp_path, "same_session") as (agent, session):
        assert await agent.new(tmp_path) == session


async def test_children_outlive_it(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "forks") as (agent, session):
        await agent.say(session, "[[SAY x]]")
        group = os.getpgid(agent.process.pid)
        agent.writer.close()
        await agent.gone()
    (forked,) = [each for each in Mischief(calls=tmp_path / "calls").ran() if each.tool == "fork"]
    assert isinstance(forked.arguments, dict)
    child = psutil.Process(forked.arguments["pid"])
    try:
        assert child.is_running()
        assert os.getpgid(child.pid) != group
    finally:
        child.kill()


@pytest.mark.parametrize(
    ("kind", "ends_by"), [("", "input"), ("outlives_input", "TERM"), ("refuses_to_end", "KILL")]
)
async def test_it_does_not_want_to_end(
    hostile: HostileAcp, tmp_path: Path, kind: str, ends_by: str
) -> None:
    async with bad(hostile, tmp_path, *([kind] if kind else [])) as (agent, _):
        for way in ("input", "TERM", "KILL"):
            if way == "input":
                agent.writer.close()
            else:
                agent.process.send_signal(getattr(signal, f"SIG{way}"))
            if way == ends_by:
                await agent.gone()
                break
            await asyncio.sleep(SOON_S)
            assert agent.is_running


async def test_its_handshake_says_what_it_lacks(hostile: HostileAcp, tmp_path: Path) -> None:
    kinds = ("wrong_version", "no_load", "no_resume", "no_close", "no_http")
    async with spoken(hostile.command(Mischief(*kinds)), tmp_path / "home") as agent:
        known = await agent.greet()
        session = await agent.new(tmp_path)
        connection, where = agent.connection, {"cwd": str(tmp_path), "mcp_servers": []}
        for call in (
            connection.load_session(session_id=session, **where),  # type: ignore[arg-type]
            connection.resume_session(session_id=session, **where),  # type: ignore[arg-type]
            connection.close_session(session_id=session),
        ):
            with pytest.raises(RequestError) as caught:
                await call
            assert caught.value.code == -32601
    capabilities = known.agent_capabilities
    assert known.protocol_version == 999
    assert capabilities is not None
    assert capabilities.load_session is False
    assert capabilities.session_capabilities is not None
    assert capabilities.session_capabilities.close is None
    assert capabilities.session_capabilities.resume is None
    assert capabilities.mcp_capabilities is not None
    assert capabilities.mcp_capabilities.http is False


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [("", 3, 3), ("replays_late", 1, 3), ("null_load", 3, 3), ("replays_on_resume", 3, 3)],
)
async def test_a_session_comes_back_strangely(
    hostile: HostileAcp, tmp_path: Path, kind: str, before: int, after: int
) -> None:
    """Count the updates that repeat what was said, before the answer and in all."""
    async with bad(hostile, tmp_path) as (agent, session):
        await agent.say(session, "[[SAY kept]]")
        await agent.say(session, "[[THINK x]]")
    mischief = Mischief(*([kind] if kind else []))
    async with spoken(hostile.command(mischief, keep=tmp_path / "kept"), tmp_path) as agent:
        await agent.greet()
        connection, is_resume = agent.connection, kind == "replays_on_resume"
        revive = connection.resume_session if is_resume else connection.load_session
        await revive(session_id=session, cwd=str(tmp_path), mcp_servers=[])

        def repeated() -> int:
            kinds = ("user_message_chunk", "agent_message_chunk")
            return len([u for u in agent.person.kind(session, *kinds) if u.content.text])

        assert repeated() >= before
        if kind != "replays_late":
            assert repeated() == after
        await agent.person.until(lambda: repeated() == after)


async def test_it_forgets_sessions(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "forgets_sessions") as (agent, session):
        with pytest.raises(RequestError) as caught:
            await agent.connection.load_session(
                session_id=session, cwd=str(tmp_path), mcp_servers=[]
            )
        assert caught.value.data == {"details": "No previous sessions found"}


async def test_sessions_at_once_are_slow(hostile: HostileAcp, tmp_path: Path) -> None:
    async with bad(hostile, tmp_path, "slow_new", amount=100) as (agent, _):
        await asyncio.gather(*(agent.new(tmp_path) for _ in range(3)))
    made = [each for each in Mischief(calls=tmp_path / "calls").ran() if each.tool == "session/new"]
    at_once = [each.arguments["at_once"] for each in made if isinstance(each.arguments, dict)]
    assert sorted(at_once) == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "tools"), [("", True), ("no_mcp", False), ("bridge_never", False)]
)
async def test_the_bridge_is_used_or_not(
    hostile: HostileAcp, bridge: McpServerStdio, tmp_path: Path, kind: str, tools: bool
) -> None:
    async with bad(hostile, tmp_path, *([kind] if kind else [])) as (agent, _):
        session = await agent.new(tmp_path, bridge)
        assert ("echo" in await agent.say(session, "[[TOOLS]]")) is tools


async def test_the_bridge_is_connected_late_or_hangs(
    hostile: HostileAcp, bridge: McpServerStdio, tmp_path: Path
) -> None:
    async with bad(hostile, tmp_path, "bridge_late", amount=1000) as (agent, _):
        session = await agent.new(tmp_path, bridge)
        assert await agent.say(session, "[[TOOLS]]") == "TOOLS<>"
        async with asyncio.timeout(20):
            while "echo" not in await agent.say(session, "[[TOOLS]]"):
                await asyncio.sleep(0.02)
    async with bad(hostile, tmp_path, "hangs_in_bridge") as (agent, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_S):
                await agent.new(tmp_path, bridge)


async def test_it_asks_before_tools_and_dies_in_them(
    hostile: HostileAcp, bridge: McpServerStdio, tmp_path: Path
) -> None:
    async with bad(hostile, tmp_path, "asks") as (agent, _):
        session = await agent.new(tmp_path, bridge)
        agent.person.choice = "reject_once"
        assert await agent.say(session, '[[TOOL echo {"text": "a"}]]') == "DENIED<no>"
        agent.person.choice = "allow_once"
        assert await agent.say(session, '[[TOOL echo {"text": "a"}]]') == "TOOLRESULT<a>"
    assert ran(tmp_path, "echo") == ["echo"]
    async with bad(hostile, tmp_path, "dies_in_tool") as (agent, _):
        session = await agent.new(tmp_path, bridge)
        with pytest.raises(ConnectionError):
            await agent.ask(session, '[[TOOL slow {"seconds": 9}]]')
        assert await agent.gone() == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["", "abandons_tools"])
async def test_a_cancelled_tool_is_told_or_not(
    hostile: HostileAcp, bridge: McpServerStdio, tmp_path: Path, kind: str
) -> None:
    go = tmp_path / "go"
    words = f"[[TOOL hold {json.dumps({'path': str(go)})}]]"
    async with bad(hostile, tmp_path, *([kind] if kind else [])) as (agent, _):
        session = await agent.new(tmp_path, bridge)
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(agent.ask(session, words))
            await agent.person.until(lambda: agent.person.kind(session, "tool_call"))
            await agent.connection.cancel(session_id=session)
            if kind == "abandons_tools":
                await asyncio.sleep(SOON_S)
                assert not asking.done()
                go.touch()
        assert asking.result() == ("cancelled", "")
