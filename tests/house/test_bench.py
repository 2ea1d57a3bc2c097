"""Checks that the benches which write rows straight into the file follow the current schema."""

from pathlib import Path

import apsw
import pytest
from bench import recovery, steering

from perdure.domain.checking.checker import violations
from perdure.domain.ids import SessionId


async def test_a_long_past_is_one_that_could_have_been(tmp_path: Path) -> None:
    await steering._past(tmp_path / "short", 20)

    async with steering._opened(tmp_path / "short") as store:
        record = await store.diagnostics.record(SessionId("ses_short"))
    assert len(record.turns) == 20
    assert violations(record) == []


async def test_many_sessions_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three = [each.replace(f"LIMIT {recovery.SESSIONS}", "LIMIT 3") for each in recovery.MILLION]
    monkeypatch.setattr(recovery, "MILLION", three)

    await recovery._fill(tmp_path / "million")

    file = apsw.Connection(str(tmp_path / "million" / "perdure.db"))
    assert file.execute("SELECT count(*) FROM turns").fetchall() == [(3,)]
    file.close()
