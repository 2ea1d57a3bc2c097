"""Checks where the socket of a home stands, who may have made it, and which servers are
believed."""

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from perdure.app.operate.local_socket import NAME, PATH_BYTES_MAX, bound_socket, places, proven

SOMEBODY_ELSE = 65_534
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def listening(home: Path) -> Iterator[Path]:
    with bound_socket(home, {}) as one:
        assert one is not None
        one.listen()
        yield home / NAME


def test_the_node_of_a_home_is_known_by_its_socket(home: Path, listening: Path) -> None:
    assert proven(home, str(listening)) == proven(home, "") == listening
    assert listening.stat().st_mode & 0o777 == 0o600


def test_what_a_dead_node_left_is_nobody_and_is_replaced(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home / NAME))
    assert proven(home, str(home / NAME)) is None

    with bound_socket(home, {}) as one:
        assert one is not None
        one.listen()
        assert proven(home, "") == home / NAME
    assert not (home / NAME).exists()


def test_a_socket_that_another_node_has_put_there_is_left_alone(home: Path) -> None:
    # Nodes of one home may share a store; clients speak to the one that bound the socket last.
    with ExitStack() as second:
        with bound_socket(home, {}):
            second.enter_context(bound_socket(home, {}))
            there = (home / NAME).stat()
        assert os.path.samestat((home / NAME).stat(), there)
    assert not (home / NAME).exists()


@only_root
@pytest.mark.parametrize("whose", ["socket", "folder"])
def test_a_socket_of_somebody_else_is_not_believed(home: Path, listening: Path, whose: str) -> None:
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    moved = listening.rename(elsewhere / "s")
    assert proven(home, str(moved)) == moved

    os.chown(moved if whose == "socket" else elsewhere, SOMEBODY_ELSE, -1)
    assert proven(home, str(moved)) is None


@only_root
def test_somebody_else_who_listens_is_not_believed(home: Path) -> None:
    # The system tells who listens, and that counts, whoever owns the file.
    path = home / NAME
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
        os.seteuid(SOMEBODY_ELSE)
        try:
            one.listen()
        finally:
            os.seteuid(0)
        assert proven(home, str(path)) is None


def test_a_folder_that_others_write_to_is_not_believed(home: Path, listening: Path) -> None:
    shared = home.parent / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    moved = listening.rename(shared / "s")

    assert proven(home, str(moved)) is None


@pytest.mark.parametrize("length", [PATH_BYTES_MAX, PATH_BYTES_MAX + 1])
def test_a_home_with_a_long_path_has_its_socket_in_the_runtime_folder(
    tmp_path: Path, length: int
) -> None:
    room = length - len(os.fsencode(tmp_path)) - len(f"//{NAME}")
    home = tmp_path / ("h" * room)
    home.mkdir(mode=0o700)
    with (
        tempfile.TemporaryDirectory() as runtime,
        bound_socket(home, {"XDG_RUNTIME_DIR": runtime}) as one,
    ):
        assert one is not None
        one.listen()
        path = Path(one.getsockname())
        assert path.parent == (home if length <= PATH_BYTES_MAX else Path(runtime))
        assert proven(home, str(path)) == path
        assert list(places(home, {})) != list(places(home.parent / "other", {}))
    assert not path.exists()


def test_a_runtime_folder_that_others_can_read_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / ("h" * PATH_BYTES_MAX)
    home.mkdir(mode=0o700)
    with tempfile.TemporaryDirectory() as runtime:
        Path(runtime).chmod(0o755)
        with bound_socket(home, {"XDG_RUNTIME_DIR": runtime}) as one:
            assert one is None or Path(one.getsockname()).parent != Path(runtime)
            assert not list(Path(runtime).iterdir())
