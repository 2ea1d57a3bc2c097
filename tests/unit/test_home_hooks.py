"""Checks that hooks run as real programs, and that none of them harms another one."""

import json
import time
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from perdure.app.children.children import LaunchedChildren
from perdure.app.hooks.hooks import HomeHooks, functions_of, programs_in
from perdure.app.wiring.system import SystemClock
from perdure.domain.hooks.occasions import HookCall, Occasion
from perdure.domain.ids import NodeId, SessionId, TurnId

SETTLED = HookCall(
    event=Occasion.TURN_SETTLED,
    at=1_700_000_000_000,
    node=NodeId("nod_1"),
    conversation="telegram:123",
    session=SessionId("ses_1"),
    turn=TurnId("trn_1"),
    outcome="done",
    reason="stop",
)


@pytest.fixture
async def children() -> AsyncIterator[LaunchedChildren]:
    started = LaunchedChildren()
    yield started
    await started.close()


def hook(home: Path, name: str, script: str, *, event: str = "turn_settled") -> Path:
    file = home / "hooks" / event / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o700)
    return file


async def found(home: Path, children: LaunchedChildren, time_limit_s: float = 20) -> HomeHooks:
    hooks = HomeHooks(home, children=children, clock=SystemClock(), time_limit_s=time_limit_s)
    await hooks.find()
    return hooks


async def test_a_program_is_given_one_object_and_no_secret(
    tmp_path: Path, children: LaunchedChildren, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-4711")
    hook(tmp_path, "note", f"cat > {tmp_path}/told; env > {tmp_path}/env")
    hooks = await found(tmp_path, children)
    await hooks.call(SETTLED)

    assert json.loads((tmp_path / "told").read_text()) == {
        "event": "turn_settled",
        "at": 1_700_000_000_000,
        "node": "nod_1",
        "conversation": "telegram:123",
        "session": "ses_1",
        "turn": "trn_1",
        "outcome": "done",
        "reason": "stop",
    }
    assert "canary" not in (tmp_path / "env").read_text()
    assert hooks.failures.count == 0


async def test_only_the_hooks_of_an_occasion_run(
    tmp_path: Path, children: LaunchedChildren
) -> None:
    hook(tmp_path, "other", f"touch {tmp_path}/other", event="started")
    hook(tmp_path, "this", f"touch {tmp_path}/this")
    hooks = await found(tmp_path, children)
    await hooks.call(SETTLED)
    assert (tmp_path / "this").exists()
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo broken >&2; exit 3", "it ended with exit code 3: broken"),
        ("kill -9 $$", "it was ended by signal 9"),
        ("exec sleep 60", "it took longer than 1 s and was ended"),
        ("yes; exit 1", "it printed more than 10,000,000 bytes and was ended"),
        ("yes >&2; exit 1", "it took longer than 1 s and was ended"),
        ("sleep 60 & sleep 60", "it took longer than 1 s and was ended"),
    ],
    ids=["fails", "is killed", "hangs", "floods", "floods errors", "forks and hangs"],
)
async def test_what_one_hook_does_harms_no_other(
    tmp_path: Path, children: LaunchedChildren, script: str, problem: str
) -> None:
    hook(tmp_path, "bad", script)
    hook(tmp_path, "good", f"touch {tmp_path}/good")
    # Printing so much may take a while on a busy machine.
    hooks = await found(tmp_path, children, time_limit_s=15 if "printed" in problem else 1)
    began = time.monotonic()
    await hooks.call(SETTLED)

    assert (tmp_path / "good").exists()
    assert time.monotonic() - began < 20
    failed = hooks.failures
    assert (failed.count, failed.hook, failed.event) == (1, "bad", "turn_settled")
    assert failed.problem == problem


async def test_a_program_that_reads_nothing_is_no_failure(
    tmp_path: Path, children: LaunchedChildren
) -> None:
    hook(tmp_path, "deaf", "exec <&-; exit 0")
    hooks = await found(tmp_path, children)
    await hooks.call(SETTLED)
    assert hooks.failures.count == 0


async def test_events_that_nobody_was_told_are_counted_and_logged_once(
    tmp_path: Path, children: LaunchedChildren, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks = await found(tmp_path, children)
    for _ in range(3):
        hooks.dropped(SETTLED)
    assert (hooks.failures.dropped, hooks.failures.count) == (3, 0)
    assert capsys.readouterr().out.count("hooks are too slow") == 1


def test_what_can_never_run_is_told_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook(tmp_path, "fine", "exit 0")
    hook(tmp_path, "closed", "exit 0").chmod(0o600)
    hook(tmp_path, "open", "exit 0").chmod(0o777)
    hook(tmp_path, "mistyped", "exit 0", event="turn_setled")
    (tmp_path / "hooks" / "turn_settled" / "folder").mkdir()
    hook(tmp_path, ".hidden", "exit 0")

    programs = programs_in(tmp_path)
    assert {event: [each.name for each in files] for event, files in programs.items()} == {
        Occasion.TURN_SETTLED: ["fine"]
    }
    told = capsys.readouterr().out
    assert "chmod +x" in told
    assert "chmod o-w" in told
    assert "meant='turn_settled'" in told


def test_a_home_without_hooks_has_none(tmp_path: Path) -> None:
    assert programs_in(tmp_path) == {}


async def test_a_function_of_a_package_is_called_and_a_broken_one_is_left_out(
    tmp_path: Path, children: LaunchedChildren, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hooks_of_a_package.py").write_text(
        "heard = []\nasync def note(call):\n    heard.append(call)\n"
        "async def fail(call):\n    raise ValueError('no')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    points = [
        EntryPoint("turn_settled.note", "hooks_of_a_package:note", "perdure.hooks"),
        EntryPoint("turn_settled.fail", "hooks_of_a_package:fail", "perdure.hooks"),
        EntryPoint("turn_settled", "hooks_of_a_package:missing", "perdure.hooks"),
        EntryPoint("tea_time", "hooks_of_a_package:note", "perdure.hooks"),
    ]
    functions = await functions_of(points)
    assert [name for name, _ in functions[Occasion.TURN_SETTLED]] == [
        "hooks_of_a_package:note",
        "hooks_of_a_package:fail",
    ]
    assert list(functions) == [Occasion.TURN_SETTLED]

    hooks = HomeHooks(tmp_path, children=children, clock=SystemClock())
    hooks.use(functions)
    await hooks.call(SETTLED)
    assert __import__("hooks_of_a_package").heard == [SETTLED]
    assert hooks.failures.problem == "ValueError: no"
