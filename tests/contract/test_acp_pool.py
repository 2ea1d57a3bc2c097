"""Checks the pool of an agent's processes with a real program that speaks ACP, well and badly."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.contract.acp_pooled import WAIT_S, Pooled, Prompt, lives

from perdure.agents.acp.pool.pool import ProcessPool
from perdure.agents.acp.pool.seam import (
    AgentLost,
    PromptEnded,
    PromptFailed,
)
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.agents.acp.programs.presets import Preset
from perdure.agents.acp.programs.program import AgentProgram
from perdure.app.children.children import LaunchedChildren
from perdure.app.children.launcher import descendants
from perdure.app.wiring.system import SystemClock
from perdure.domain.errors import NotFound, PerdureError, Rejected, Transient
from perdure.testkit.peers.acp.hostile_acp import HostileAcp
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief

QUICK = PoolSettings(
    has_prewarm=False,
    start_s=10,
    session_s=10,
    bridge_s=10,
    close_s=2,
    room_s=5,
    cancel_s=2,
    ignored_s=5,
)


Make = Callable[..., Pooled]


def unclosable_above(pool: Pooled, number: int) -> bool:
    return pool.pool.counts.unclosable > number


@pytest.fixture
async def make(new_peer: NewPeer, tmp_path: Path) -> AsyncIterator[Make]:
    """Provide pools of the hostile agent. They end with the test, and so do all processes."""
    hostile: HostileAcp = new_peer.hostile_acp()
    children = LaunchedChildren()
    made: list[Pooled] = []
    calls = tmp_path / "told" / "calls"
    calls.parent.mkdir()

    def pool(*mischief: str, settings: PoolSettings = QUICK, **more: Any) -> Pooled:
        words = {name: more.pop(name) for name in ("once", "keep") if name in more}
        bad = Mischief(
            *mischief, calls=calls, **({"amount": more.pop("amount")} if "amount" in more else {})
        )
        program = AgentProgram(
            **{
                "agent": "hostile",
                "base": tmp_path / "agents",
                "command": tuple(hostile.command(bad, **words)),
                "search_path": os.environ["PATH"],
                "has_sandbox": False,
                "share": True,
                **more,
            }
        )
        kept = Pooled(ProcessPool(program, settings, children=children, clock=SystemClock()), calls)
        made.append(kept)
        return kept

    yield pool
    async with asyncio.timeout(WAIT_S):
        for each in made:
            await each.pool.close()
            await each.pool.close()
        await children.close()
    for each in made:
        # In a sandbox a process does not know its own number.
        if not each.pool.program.has_sandbox:
            assert not [pid for pid in each.pids() if lives(pid)]


async def test_a_session_answers_prompts(make: Make) -> None:
    pool = make()
    session = await pool.session()
    assert await pool.say(session, "hello") == "echo: hello"
    assert await pool.say(session, "[[SAY again]]") == "again"
    assert session.times.is_cold
    assert session.times.spawn > 0
    other = await pool.session()
    assert not other.times.is_cold
    assert await pool.say(other, "[[HISTORY]]") == "HISTORY<[]>"
    assert len(pool.pids()) == 1


async def test_concurrent_misses_join_one_start(make: Make) -> None:
    pool = make()
    sessions = await asyncio.gather(*(pool.session(name=f"{n}") for n in range(8)))
    said = await asyncio.gather(
        *(pool.say(each, f"[[SAY canary-{n}]]") for n, each in enumerate(sessions))
    )
    assert said == [f"canary-{n}" for n in range(8)]
    assert len(pool.pids()) == 1
    assert pool.pool.counts.starts == 1


async def test_who_is_cancelled_while_a_process_starts_cancels_nobody_else(make: Make) -> None:
    pool = make()
    first = asyncio.create_task(pool.session())
    second = asyncio.create_task(pool.session())
    await asyncio.sleep(0)
    await pool.until(lambda: pool.pool.counts.starts)
    first.cancel()
    assert await pool.say(await second, "[[SAY on]]") == "on"
    with pytest.raises(asyncio.CancelledError):
        await first
    await pool.until(lambda: pool.pool.view().processes[0].sessions == 1)


async def test_a_failed_start_frees_its_place(make: Make, tmp_path: Path) -> None:
    pool = make("exits", once=tmp_path / "once")
    with pytest.raises(Transient, match="ended with exit code"):
        await pool.session()
    assert await pool.say(await pool.session(), "[[SAY up]]") == "up"


async def test_a_program_that_is_not_there_is_named(make: Make) -> None:
    with pytest.raises(Rejected, match="no program 'no-such-agent'"):
        await make(command=("no-such-agent",)).session()


@pytest.mark.parametrize(
    ("mischief", "why"),
    [
        ("hangs_initialize", "has not answered within 0.5 s"),
        ("dies_in_initialize", "was ended by signal 9"),
        ("wrong_version", "speaks version 999"),
    ],
)
async def test_a_bad_start_is_told_in_words(make: Make, mischief: str, why: str) -> None:
    pool = make(mischief, settings=PoolSettings(has_prewarm=False, start_s=0.5))
    with pytest.raises(Transient, match=why):
        await pool.session()


async def test_groups_never_share_a_process(make: Make) -> None:
    pool = make(share=False)
    for person in ("ada", "bob"):
        session = await pool.session(person)
        await pool.say(session, "[[SAY x]]")
    assert len(pool.pids()) == 2


async def test_what_is_configured_reaches_the_process_and_no_other(make: Make) -> None:
    pools = [make(agent=name, env={"KEY": f"canary-{name}"}) for name in ("a", "b")]
    for each, own, other in zip(pools, "ab", "ba", strict=True):
        session = await each.session()
        told = await each.say(session, "[[WHOAMI]]")
        assert f'"KEY": "canary-{own}"' in told
        assert f"canary-{other}" not in told
        assert str(each.pool.program.home("", 0)) in told
        assert str(each.pool.folder("", "a")) in told


async def test_many_sessions_of_one_process_never_meet(make: Make) -> None:
    pool = make(settings=PoolSettings(has_prewarm=False, sessions=64))
    sessions = await asyncio.gather(*(pool.session(name=f"{n}") for n in range(64)))
    said = await asyncio.gather(
        *(pool.say(each, f"[[SLOW 10 {n}-]]") for n, each in enumerate(sessions))
    )
    assert said == ["".join(f"{n}-{at:03}".ljust(8, ".") for at in range(10)) for n in range(64)]
    assert len(pool.pids()) == 1


async def test_sessions_are_made_one_at_a_time(make: Make) -> None:
    pool = make("slow_new", amount=20)
    await asyncio.gather(*(pool.session(name=f"{n}") for n in range(6)))
    made = pool.told("session/new", "at_once")
    assert made == [1] * 6


async def test_the_least_loaded_process_is_taken(make: Make) -> None:
    settings = PoolSettings(has_prewarm=False, processes=2, sessions=2)
    pool = make(settings=settings)
    sessions = [await pool.session(name=f"{n}") for n in range(4)]
    assert len({each.process for each in sessions}) == 2


async def test_the_session_that_is_idle_for_longest_makes_room(make: Make) -> None:
    pool = make(settings=PoolSettings(has_prewarm=False, sessions=2))
    first, second = await pool.session(), await pool.session()
    await pool.say(first, "[[SAY x]]")
    third = await pool.session()
    assert (first.is_usable, second.is_usable, third.is_usable) == (True, False, True)


async def test_without_room_a_call_waits_and_is_told(make: Make, tmp_path: Path) -> None:
    settings = PoolSettings(has_prewarm=False, sessions=1, room_s=0.2)
    pool = make(settings=settings)
    busy = Prompt(await pool.session(), f"[[THINK x]][[HOLD {tmp_path / 'go'}]][[SAY done]]")
    await busy.begun()
    waiting = asyncio.create_task(pool.session())
    with pytest.raises(Transient, match="all sessions"):
        await waiting
    waiting = asyncio.create_task(pool.session())
    (tmp_path / "go").touch()
    await busy.end()
    assert busy.said == "done"
    assert (await waiting).is_usable


async def test_a_permission_is_answered_once_only(make: Make) -> None:
    pool = make("remembers_always")
    session = await pool.session()
    for is_allowed, answer in ((True, "once"), (False, "no"), (True, "once")):
        prompt = Prompt(session, "[[ASK May I?]]")
        asked = await prompt.asked()
        assert asked.tool.title == "May I?"
        session.answer(asked.key, is_allowed=is_allowed)
        await prompt.end()
        assert prompt.said == f"ASKED<{answer}>"


@pytest.mark.parametrize("asks", ["READ {file}", "WRITE {file} changed", "SHELL touch {made}"])
async def test_no_files_and_no_terminals_are_given_past_the_tools(
    make: Make, tmp_path: Path, asks: str
) -> None:
    pool = make()
    session = await pool.session()
    file, made = tmp_path / "file", tmp_path / "made"
    file.write_text("canary")
    said = await pool.say(session, f"[[{asks.format(file=file, made=made)}]]")
    assert "Perdure offers no files and no terminals" in said
    assert (file.read_text(), made.exists()) == ("canary", False)


async def test_a_question_for_an_unknown_session_is_answered(make: Make) -> None:
    pool = make("asks_for_unknown_session")
    await pool.hear(await pool.session(), "[[SAY x]]")


@pytest.mark.parametrize("mischief", ["", "waits_for_answer", "cancelled_as_error"])
async def test_a_released_session_is_cancelled_and_its_siblings_go_on(
    make: Make, tmp_path: Path, mischief: str
) -> None:
    pool = make(*([mischief] if mischief else []))
    session, sibling = await pool.session(), await pool.session()
    asked = Prompt(session, "[[ASK May I?]]")
    await asked.begun()
    other = Prompt(sibling, f"[[THINK x]][[HOLD {tmp_path / 'go'}]][[SAY whole]]")
    await other.begun()
    session.release()
    session.release()
    assert not session.is_usable
    await pool.until(lambda: pool.pool.counts.closed)
    (tmp_path / "go").touch()
    await other.end()
    assert other.said == "whole"
    with pytest.raises(Transient):
        await pool.say(session, "x")
    assert [each.leaving for each in pool.pool.view().processes] == [""]


async def test_a_process_that_ignores_cancel_ends_with_its_siblings_prompts(
    make: Make, tmp_path: Path
) -> None:
    settings = PoolSettings(has_prewarm=False, cancel_s=0.2, ignored_s=WAIT_S, processes=1)
    pool = make("ignores_cancel", settings=settings)
    session, sibling = await pool.session(), await pool.session()
    bad = Prompt(session, "[[THINK x]][[SLOW 10000 x]]")
    await bad.begun()
    other = Prompt(sibling, f"[[THINK x]][[HOLD {tmp_path / 'go'}]][[SAY whole]]")
    await other.begun()
    session.release()
    await pool.until(lambda: pool.pool.view().processes[0].leaving)
    fresh = await pool.session()
    assert await pool.say(fresh, "[[SAY new]]") == "new"
    assert len(pool.pids()) == 2
    (tmp_path / "go").touch()
    await other.end()
    assert other.said == "whole"


async def test_a_process_that_ignores_cancel_ends_in_time(make: Make) -> None:
    settings = PoolSettings(has_prewarm=False, cancel_s=0.2, ignored_s=0.4)
    pool = make("ignores_cancel", settings=settings)
    session = await pool.session()
    sibling = Prompt(await pool.session(), "[[THINK x]][[SLOW 10000 x]]")
    bad = Prompt(session, "[[THINK x]][[SLOW 10000 x]]")
    await bad.begun()
    await sibling.begun()
    session.release()
    with pytest.raises(AgentLost) as lost:
        await sibling.end()
    assert not lost.value.was_alone


@pytest.mark.parametrize(
    "mischief",
    [
        *("dies_before_words", "dies_mid_prompt", "dies_after_words", "exits_mid_prompt"),
        "closes_output",
    ],
)
async def test_a_prompt_whose_process_dies_is_lost_and_the_next_one_runs(
    make: Make, tmp_path: Path, mischief: str
) -> None:
    pool = make(mischief, once=tmp_path / "once")
    session = await pool.session()
    prompt = Prompt(session, "[[SAY first]]")
    with pytest.raises(AgentLost, match="the agent's process") as lost:
        await prompt.end()
    assert lost.value.was_alone
    assert prompt.said == ("" if mischief == "dies_before_words" else "first")
    assert not session.is_usable
    assert await pool.say(await pool.session(), "[[SAY up]]") == "up"


async def test_a_process_that_dies_takes_all_its_prompts_and_nobody_elses(make: Make) -> None:
    pool = make(share=False)
    first, second = await pool.session("ada"), await pool.session("ada")
    other = await pool.session("bob")
    both = [Prompt(each, "[[THINK x]][[SLOW 10000 x]]") for each in (first, second)]
    for each in both:
        await each.begun()
    os.kill(pool.pids()[0], signal.SIGKILL)
    for each in both:
        with pytest.raises(AgentLost) as lost:
            await each.end()
        assert not lost.value.was_alone
    assert await pool.say(other, "[[SAY alive]]") == "alive"


async def test_a_stopped_process_is_noticed(make: Make) -> None:
    settings = PoolSettings(has_prewarm=False, silence_s=0.2, ping_s=0.4)
    pool = make("stops_itself", settings=settings)
    prompt = Prompt(await pool.session(), "[[SAY x]]")
    with pytest.raises(AgentLost, match="did not answer any more"):
        await prompt.end()


async def test_silence_is_no_death(make: Make, tmp_path: Path) -> None:
    settings = PoolSettings(has_prewarm=False, silence_s=0.05, ping_s=5)
    pool = make(settings=settings)
    session = await pool.session()
    prompt = Prompt(session, f"[[THINK x]][[HOLD {tmp_path / 'go'}]][[SAY late]]")
    await prompt.begun()
    await asyncio.sleep(0.5)
    (tmp_path / "go").touch()
    await prompt.end()
    assert prompt.said == "late"


@pytest.mark.parametrize(
    ("mischief", "said"),
    [
        ("garbage", "words"),
        ("non_object", "words"),
        ("big_line", None),
        ("endless_line", ""),
        ("floods_updates", None),
        ("floods_errors", "words"),
        ("answers_strangers", "words"),
        ("answers_twice", "words"),
        ("late_updates", "words"),
        ("result_first", "words"),
        ("unknown_update", "words"),
        ("unknown_session", "words"),
        ("changes_ids", ""),
    ],
)
async def test_what_a_bad_agent_prints_harms_nothing(
    make: Make, mischief: str, said: str | None
) -> None:
    pool = make(mischief)
    session = await pool.session()
    heard, end = await pool.hear(session, "[[SAY words]]")
    assert isinstance(end, PromptEnded)
    assert heard.endswith("words") if said is None else heard == said
    heard, end = await pool.hear(session, "[[SAY words]]")
    assert isinstance(end, PromptEnded)


async def test_an_end_for_an_unknown_reason_is_told_as_it_is(make: Make) -> None:
    pool = make("unknown_stop")
    _, end = await pool.hear(await pool.session(), "[[SAY x]]")
    assert isinstance(end, PromptEnded)
    assert end.reason not in {"end_turn", "unknown"}


async def test_an_error_is_told_and_the_session_used_no_more(make: Make) -> None:
    pool = make("http_error")
    session = await pool.session()
    _, end = await pool.hear(session, "x")
    assert isinstance(end, PromptFailed)
    assert end.code == 429
    assert not session.is_usable


async def test_what_nobody_reads_is_bounded(make: Make) -> None:
    settings = PoolSettings(has_prewarm=False, said_items=100)
    pool = make("floods_updates", settings=settings)
    session = await pool.session()
    prompt = Prompt(session, "[[SAY x]]")
    await prompt.begun()
    await pool.until(lambda: not session.is_usable and pool.pool.counts.closed)
    await prompt.end()
    assert isinstance(prompt.heard[-1], PromptFailed)


async def test_sessions_that_cannot_be_closed_end_their_process(make: Make) -> None:
    pool = make("no_close", preset=Preset(unclosable=3))
    for number in range(4):
        session = await pool.session()
        await pool.say(session, "[[SAY x]]")
        session.release()
        await pool.until(partial(unclosable_above, pool, number))
    assert pool.pool.counts.retired.get("it keeps sessions that it cannot close") == 1


async def test_an_id_that_is_given_twice_reaches_nobody_else(make: Make) -> None:
    pool = make("same_session")
    first = await pool.session()
    second = await pool.session()
    assert first.process != second.process
    assert not first.is_usable


async def test_a_session_that_is_never_made_ends_the_wait(make: Make) -> None:
    pool = make("hangs_new", settings=PoolSettings(has_prewarm=False, session_s=0.3))
    with pytest.raises(Transient, match="has made no session within"):
        await pool.session()
    await pool.until(lambda: not pool.pool.view().processes)


async def test_a_process_that_dies_while_a_session_is_made_is_tried_once_more(
    make: Make, tmp_path: Path
) -> None:
    pool = make("dies_in_new", once=tmp_path / "once")
    assert await pool.say(await pool.session(), "[[SAY up]]") == "up"
    pool = make("dies_in_new")
    with pytest.raises(Transient, match="signal 9"):
        await pool.session()


async def test_crashes_in_a_row_let_the_agent_rest(make: Make) -> None:
    pool = make("exits")
    for _ in range(3):
        with pytest.raises(Transient, match="exit code"):
            await pool.session()
    with pytest.raises(Transient, match="rests for") as resting:
        await pool.session()
    assert resting.value.retry_after_s
    assert pool.pool.counts.starts == 3


async def test_a_session_outlives_its_process(make: Make, tmp_path: Path) -> None:
    pool = make(keep=tmp_path / "kept")
    session = await pool.session()
    await pool.say(session, "[[SAY kept]]")
    os.kill(pool.pids()[0], signal.SIGKILL)
    await pool.until(lambda: not session.is_usable)
    again = await pool.session(kept_as=session.kept_as)
    assert "kept" in await pool.say(again, "[[HISTORY]]")
    with pytest.raises(NotFound):
        await pool.session(kept_as=session.kept_as)
    for wrong in ("0:ses-unknown", "x", "7:ses-1"):
        with pytest.raises(NotFound):
            await pool.session(kept_as=wrong)


@pytest.mark.parametrize(
    "mischief",
    [
        ("replays_on_resume",),
        ("no_resume",),
        ("no_resume", "replays_late"),
        ("no_resume", "null_load"),
    ],
)
async def test_a_history_is_never_taken_for_an_answer(
    make: Make, tmp_path: Path, mischief: tuple[str, ...]
) -> None:
    pool = make(*mischief, keep=tmp_path / "kept", preset=Preset(is_load_safe=True))
    session = await pool.session()
    await pool.say(session, "[[SAY kept]]")
    session.release()
    await pool.until(lambda: pool.pool.counts.closed)
    again = await pool.session(kept_as=session.kept_as)
    assert await pool.say(again, "[[SAY new]]") == "new"


async def test_an_agent_that_forgets_is_told_so(make: Make, tmp_path: Path) -> None:
    for mischief in ("forgets_sessions", "no_resume"):
        pool = make(mischief, keep=tmp_path / "kept")
        session = await pool.session()
        await pool.say(session, "[[SAY x]]")
        session.release()
        with pytest.raises(NotFound):
            await pool.session(kept_as=session.kept_as)
        await pool.pool.close()


async def test_another_version_replaces_the_process(make: Make, tmp_path: Path) -> None:
    installed = tmp_path / "agent"
    hostile = make().pool.program.command
    installed.write_text(f"#!/bin/sh\nexec {' '.join(hostile)}\n")
    installed.chmod(0o755)
    pool = make(command=(str(installed),))
    old = await pool.session()
    busy = Prompt(old, f"[[THINK x]][[HOLD {tmp_path / 'go'}]][[SAY whole]]")
    await busy.begun()
    installed.write_text(installed.read_text() + "\n")
    fresh = await pool.session()
    assert fresh.process != old.process
    (tmp_path / "go").touch()
    await busy.end()
    assert busy.said == "whole"
    await pool.until(lambda: len(pool.pool.view().processes) == 1)


async def test_idle_sessions_and_processes_are_ended(make: Make) -> None:
    pool = make(settings=PoolSettings(has_prewarm=False, idle_s=0.3))
    session = await pool.session()
    assert await pool.say(session, "[[SAY x]]") == "x"
    await pool.until(lambda: not pool.pool.view().processes)
    assert not session.is_usable
    assert pool.pool.counts.crashes == 0


async def test_an_old_process_is_replaced_and_the_next_one_is_warm(make: Make) -> None:
    pool = make(settings=PoolSettings(has_prewarm=True, age_s=0.5))
    await pool.pool.warm("")
    first = pool.pool.view().processes[0].pid
    await pool.until(lambda: [p for p in pool.pool.view().processes if p.pid != first])


async def test_a_crash_is_followed_by_a_warm_process(make: Make) -> None:
    pool = make(settings=PoolSettings(has_prewarm=True))
    await pool.pool.warm("")
    await pool.pool.warm("")
    first = pool.pool.view().processes[0].pid
    os.kill(first, signal.SIGKILL)
    await pool.until(lambda: [p for p in pool.pool.view().processes if p.pid != first])
    session = await pool.session()
    assert not session.times.is_cold


async def test_a_memory_hog_is_replaced(make: Make) -> None:
    pool = make(preset=Preset(memory_bytes=1_000))
    session = await pool.session()
    await pool.until(lambda: not session.is_usable)
    assert pool.pool.counts.retired["it holds too much memory"] == 1


async def test_after_the_end_nothing_starts_and_what_runs_is_told(make: Make) -> None:
    pool = make()
    prompt = Prompt(await pool.session(), "[[THINK x]][[SLOW 10000 x]]")
    await prompt.begun()
    starting = asyncio.create_task(pool.session("other"))
    await pool.until(lambda: pool.pool.counts.starts == 2)
    await asyncio.gather(pool.pool.close(), pool.pool.close())
    with pytest.raises(AgentLost):
        await prompt.end()
    with pytest.raises(PerdureError):
        await starting
    with pytest.raises(Transient, match="is stopping"):
        await pool.session()


async def test_a_session_may_be_given_back_after_the_end(make: Make) -> None:
    pool = make()
    session = await pool.session()
    await pool.pool.close()
    session.release()
    session.release()
    assert not session.is_usable


GATEWAY = """
import asyncio, os, sys
from pathlib import Path
from perdure.agents.acp.pool.pool import ProcessPool
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.agents.acp.programs.program import AgentProgram
from perdure.app.children.children import LaunchedChildren
from perdure.app.children.launcher import descendants
from perdure.app.wiring.system import SystemClock
async def main():
    has_sandbox, base, *command = sys.argv[1:]
    program = AgentProgram(
        agent="a", base=Path(base), command=tuple(command), search_path=os.environ["PATH"],
        has_sandbox=has_sandbox == "True", roots=(Path(base),),
    )
    clock = SystemClock()
    pool = ProcessPool(program, PoolSettings(), children=LaunchedChildren(), clock=clock)
    session = await pool.session("ada", cwd=pool.folder("ada", "a"), bridge=None)
    import acp
    async for each in session.prompt([acp.text_block("[[THINK x]][[SLOW 10000 x]]")]):
        print(pool.view().processes[0].pid, flush=True)
asyncio.run(main())
"""


async def first_number(lines: asyncio.StreamReader) -> int:
    """Return the first line that is a number. The log may come before it."""
    while line := await lines.readline():
        if line.strip().isdigit():
            return int(line)
    pytest.fail("the gateway has ended by itself")


@pytest.mark.parametrize("has_sandbox", [True, False])
async def test_a_killed_gateway_leaves_no_agent_behind(
    new_peer: NewPeer, tmp_path: Path, *, has_sandbox: bool
) -> None:
    new_peer.bubblewrap()
    bad = Mischief("refuses_to_end", "forks", calls=tmp_path / "calls")
    command = new_peer.hostile_acp().command(bad)
    gateway = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", GATEWAY, str(has_sandbox), str(tmp_path), *command),
        stdout=asyncio.subprocess.PIPE,
    )
    assert gateway.stdout is not None
    try:
        async with asyncio.timeout(WAIT_S):
            pid = await first_number(gateway.stdout)
            while not (below := descendants(pid)):
                await asyncio.sleep(0.01)
    finally:
        gateway.kill()
        await gateway.wait()
    async with asyncio.timeout(WAIT_S):
        while any(map(lives, [pid, *below])):
            await asyncio.sleep(0.01)


CANARY = "canary-of-the-gateway"


async def test_an_agent_in_a_sandbox_sees_its_folders_and_nothing_of_the_gateway(
    make: Make, new_peer: NewPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_peer.bubblewrap()
    monkeypatch.setenv("GATEWAY_TOKEN", CANARY)
    home, root = tmp_path / "home", tmp_path / "root"
    home.mkdir()
    root.mkdir()
    (home / "token").write_text(CANARY)
    (root / "file").write_text("of the root")
    pool = make(
        base=home / "agents",
        hidden=home,
        # The test reads what the agent has written down.
        roots=(root, tmp_path / "told"),
        # As if the gateway were installed in a folder that holds its home as well.
        sees=(tmp_path,),
        has_sandbox=True,
        share=False,
    )
    ada, bob = await pool.session("ada"), await pool.session("bob")
    await pool.say(ada, "[[SAY x]]")
    (pool.pool.folder("ada", "a") / "letter").write_text("of ada")
    (pool.pool.folder("bob", "a") / "letter").write_text("of bob")
    seen = {
        path: await pool.say(ada, f"[[PEEK {path}]]")
        for path in (
            root / "file",
            pool.pool.folder("ada", "a") / "letter",
            home / "token",
            pool.pool.folder("bob", "a") / "letter",
            pool.pool.program.home("bob", 0),
        )
    }
    assert list(seen.values()) == [
        *("PEEK<of the root>", "PEEK<of ada>", "PEEK<FileNotFoundError>"),
        *("PEEK<FileNotFoundError>", "PEEK<FileNotFoundError>"),
    ]
    assert await pool.say(ada, f"[[PEEK {home}]]") == "PEEK<agents>"
    assert CANARY not in await pool.say(ada, "[[WHOAMI]]")
    assert CANARY not in await pool.say(ada, "[[PEEK /proc/1/environ]]")
    assert "letter" in await pool.say(bob, f"[[PEEK {pool.pool.folder('bob', 'a')}]]")
    assert all(each.has_sandbox for each in pool.pool.view().processes)


async def test_where_no_sandbox_starts_the_agent_runs_without_and_people_are_told(
    make: Make,
) -> None:
    pool = make(has_sandbox=True, search_path="/nowhere")
    assert await pool.say(await pool.session(), "[[SAY x]]") == "x"
    assert "no program bwrap" in pool.pool.view().no_sandbox
    assert not pool.pool.view().processes[0].has_sandbox


@pytest.mark.parametrize("mischief", ["refuses_to_end", "forks", "outlives_input"])
async def test_no_process_survives_the_end(make: Make, mischief: str) -> None:
    pool = make(mischief)
    session = await pool.session()
    await pool.say(session, "[[SAY x]]")
    await pool.pool.close()
    started = pool.told("fork", "pid")
    assert mischief != "forks" or started
    assert not [pid for pid in [*pool.pids(), *started] if lives(pid)]
