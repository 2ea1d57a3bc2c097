"""Checks the tool `files` on real folders: what it does, what it refuses and in which words, and
that nothing outside of its folders is ever read or written, whatever happens on the disk meanwhile.
"""

import asyncio
import ctypes
import errno
import json
import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import jsonschema
import pytest

from perdure.domain.errors import Rejected
from perdure.domain.ids import CallId, ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.tools.traits import Outlook, Permission, frozen_digest
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.tools.builtin.files.bounds import DEFAULT_BOUNDS, FilesBounds
from perdure.tools.builtin.files.tool import FilesTool
from perdure.tools.toolbox import Toolbox
from perdure.tools.workroom import AT_ONCE, Workroom

CANARY = "canary-5512"
ADA, BOB = PrincipalId("prn_ada"), PrincipalId("prn_bob")
NOBODY = ToolCaller(
    principal=PrincipalId("prn_x"),
    conversation=ConversationId("cnv_x"),
    session=SessionId("ses_x"),
    turn=TurnId("trn_x"),
)
_libc = ctypes.CDLL(None, use_errno=True)
IS_PRIVILEGED = os.geteuid() == 0


class Model:
    """Calls the tool as a model does."""

    def __init__(self, *roots: Path, bounds: FilesBounds = DEFAULT_BOUNDS) -> None:
        self.toolbox = Toolbox([FilesTool(roots, bounds=bounds)])
        self._calls = 0

    def call(self, arguments: str) -> ToolCall:
        self._calls += 1
        repeat = self.toolbox.traits("files", arguments).repeat
        return ToolCall(
            id=CallId(f"call_{self._calls}"), name="files", arguments=arguments, repeat=repeat
        )

    async def calls(self, **arguments: object) -> ToolResult:
        return await self.toolbox.call(self.call(json.dumps(arguments)), NOBODY)

    async def gets(self, **arguments: object) -> str:
        result = await self.calls(**arguments)
        assert result.ending is CallEnding.RETURNED, result.text
        return result.text

    async def fails(self, **arguments: object) -> str:
        result = await self.calls(**arguments)
        assert result.ending is CallEnding.FAILED, result.text
        return result.text

    async def foresees(self, **arguments: object) -> Outlook:
        return await self.toolbox.outlook(self.call(json.dumps(arguments)), NOBODY)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(CANARY)
    return folder


@pytest.fixture
def model(root: Path) -> Model:
    return Model(root)


def everything_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".perdure-*")]


class TestReading:
    async def test_a_file_is_read_whole(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_text("one\n\nthree")

        assert await model.gets(action="read", path="a.txt") == (
            "[a.txt, 10 bytes, lines 1 to 3, the last]\none\n\nthree"
        )

    async def test_pages_join_to_the_whole(self, root: Path) -> None:
        lines = [f"line {number} äß€" for number in range(997)]
        (root / "a.txt").write_text("\n".join(lines) + "\n")
        model = Model(root, bounds=FilesBounds(page_bytes=700))
        found: list[str] = []

        while True:
            page = await model.gets(action="read", path="a.txt", offset=len(found))
            heading, *rest = page.split("\n")
            if heading.endswith("the last]"):
                found += rest
                break
            assert rest[-1] == (
                f"[the file goes on; read with offset {len(found) + len(rest) - 1} for more]"
            )
            found += rest[:-1]
            assert len(page) < 1_000

        assert found == lines

    async def test_a_count_ends_the_page(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_text("1\n2\n3\n4\n")

        assert await model.gets(action="read", path="a.txt", offset=1, count=2) == (
            "[a.txt, 8 bytes, lines 2 to 3]\n2\n3\n[the file goes on; read with offset 3 for more]"
        )
        assert "lines 3 to 4, the last]" in await model.gets(
            action="read", path="a.txt", offset=2, count=2
        )

    async def test_places_beyond_the_end_and_empty_files_are_told(
        self, model: Model, root: Path
    ) -> None:
        (root / "a.txt").write_text("1\n2")
        (root / "empty.txt").touch()

        assert "it has 2 lines, so none after 9" in await model.gets(
            action="read", path="a.txt", offset=9
        )
        assert await model.gets(action="read", path="empty.txt") == (
            "[empty.txt, 0 bytes: it is empty]"
        )

    async def test_a_huge_file_is_never_in_memory(self, model: Model, root: Path) -> None:
        # A file with a hole takes no room on the disk.
        with (root / "huge.txt").open("wb") as file:
            file.write(b"first\n" * 2_000)
            file.truncate(1_000_000_000)
        before = peak_bytes()

        page = await model.gets(action="read", path="huge.txt", count=3)

        assert "1,000,000,000 bytes, lines 1 to 3]\nfirst\nfirst\nfirst\n" in page
        for change in (WRITE, EDIT):
            assert "only files of up to 5,000,000 can be changed" in await model.fails(
                **change, path="huge.txt"
            )
        assert peak_bytes() - before < 100_000_000

    async def test_lines_far_inside_a_large_file_are_reached(
        self, model: Model, root: Path
    ) -> None:
        (root / "log.txt").write_text("".join(f"{number}\n" for number in range(2_000_000)))

        page = await model.gets(action="read", path="log.txt", offset=1_999_990, count=2)

        assert "lines 1,999,991 to 1,999,992]\n1999990\n1999991\n" in page

    async def test_reading_ends_when_it_takes_too_long(self, root: Path) -> None:
        (root / "log.txt").write_text("x\n" * 200_000)
        (root / "line.txt").write_text("x" * 200_000)
        hurried = Model(root, bounds=FilesBounds(seconds=0, line_chars=100))

        assert "because it took too long" in await hurried.gets(
            action="read", path="log.txt", offset=199_000
        )
        page = await hurried.gets(action="read", path="log.txt")
        assert page.endswith("[the file goes on; read with offset 4096 for more]")
        assert "more characters cut]" in await hurried.gets(action="read", path="line.txt")

    async def test_a_long_line_is_cut_visibly(self, model: Model, root: Path) -> None:
        (root / "a.json").write_text("x" * 70_000 + "\nnext")

        page = await model.gets(action="read", path="a.json")

        assert page == (
            "[a.json, 70,005 bytes, lines 1 to 2, the last]\n"
            f"{'x' * 16_000}… [54,000 more characters cut]\nnext"
        )

    @pytest.mark.parametrize(
        ("data", "told"),
        [
            ("\ufeffgrüße\n".encode(), "lines 1 to 1, the last]\ngrüße"),
            ("grüße\n".encode("utf-16"), "encoded as UTF-16, lines 1 to 1, the last]\ngrüße"),
            (b"gr\xfc\xdfe an alle\n", "read as Windows-1252, lines 1 to 1, the last]\ngrüße"),
            (b"a\r\nb\r\n", "lines 1 to 2, the last]\na\nb"),
            (("€" * 5_000).encode(), "lines 1 to 1, the last]\n€€€"),
            ((" " * 8_190 + "€").encode(), "lines 1 to 1, the last]\n  "),
        ],
    )
    async def test_other_encodings_are_read(
        self, model: Model, root: Path, data: bytes, told: str
    ) -> None:
        (root / "a.txt").write_bytes(data)

        assert told in await model.gets(action="read", path="a.txt")


class TestWriting:
    async def test_a_new_file_is_written_with_its_folders(self, model: Model, root: Path) -> None:
        told = await model.gets(action="write", path="a/b/c.txt", text="one\ntwo\n")

        assert (root / "a/b/c.txt").read_text() == "one\ntwo\n"
        assert told == (
            "New file a/b/c.txt, 8 bytes:\n"
            "--- /dev/null\n+++ a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two"
        )
        assert left_over(root) == []

    async def test_a_file_is_replaced_and_keeps_its_mode(self, model: Model, root: Path) -> None:
        file = root / "run.sh"
        file.write_text("old\n")
        file.chmod(0o754)

        told = await model.gets(action="write", path="run.sh", text="new")

        assert file.read_text() == "new"
        assert stat.S_IMODE(file.stat().st_mode) == 0o754
        assert told == (
            "--- run.sh\n+++ run.sh\n@@ -1 +1 @@\n-old\n+new\n\\ No newline at end of file"
        )

    @pytest.mark.skipif(not IS_PRIVILEGED, reason="only a privileged process gives files away")
    async def test_a_file_stays_with_its_owner(self, model: Model, root: Path) -> None:
        file = root / "theirs.txt"
        file.write_text("old")
        os.chown(file, 1234, 5678)

        await model.gets(action="edit", path="theirs.txt", old="old", new="new")

        assert (file.stat().st_uid, file.stat().st_gid) == (1234, 5678)

    async def test_the_same_text_again_changes_nothing(self, model: Model, root: Path) -> None:
        await model.gets(action="write", path="a.txt", text="x")
        before = (root / "a.txt").stat()

        assert "nothing changes" in await model.gets(action="write", path="a.txt", text="x")
        assert (root / "a.txt").stat().st_ino == before.st_ino

    async def test_a_hard_link_outside_keeps_its_text(
        self, model: Model, root: Path, outside: Path
    ) -> None:
        os.link(outside / "secret.txt", root / "linked.txt")

        await model.gets(action="write", path="linked.txt", text="mine")

        assert (outside / "secret.txt").read_text() == CANARY

    async def test_a_binary_file_may_be_replaced_whole(self, model: Model, root: Path) -> None:
        (root / "a.bin").write_bytes(b"\x00\xff\x01")

        told = await model.gets(action="write", path="a.bin", text="text")

        assert told.startswith("All of a.bin (3 bytes, no text in UTF-8) is replaced by 4 bytes:")
        assert (root / "a.bin").read_text() == "text"

    async def test_a_long_difference_is_cut_with_a_count(self, model: Model, root: Path) -> None:
        told = await model.gets(action="write", path="a.txt", text="x\n" * 10_000)

        assert told.endswith("… 9,801 more lines")
        assert len(told) < 2_000

    async def test_what_would_deceive_a_reader_is_shown(self, model: Model) -> None:
        outlook = await model.foresees(
            action="write", path="a.sh", text="rm -rf /\r\u202eecho\x1b[2K hello\x00"
        )

        assert "+rm -rf /<U+000D><U+202E>echo<U+001B>[2K hello<U+0000>" in outlook.preview

    async def test_a_failed_write_leaves_nothing_behind(
        self, model: Model, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "a.txt").write_text("old")

        def full(file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            told = await model.fails(action="write", path="a.txt", text="new")

        assert "the disk is full" in told
        assert everything_below(root) == {"a.txt": b"old"}

    async def test_what_a_crash_left_over_is_not_in_the_way(self, model: Model, root: Path) -> None:
        call = model.call(json.dumps({"action": "write", "path": "a.txt", "text": "new"}))
        with dying_at_the_rename():
            result = await model.toolbox.call(call, NOBODY)
        assert result.ending is CallEnding.FAILED
        (remains,) = left_over(root)
        assert not (root / "a.txt").exists()

        assert (await model.toolbox.call(call, NOBODY)).ending is CallEnding.RETURNED

        assert everything_below(root) == {"a.txt": b"new", remains: b"new"}
        assert await model.gets(action="list") == "[.: entries 1 to 1 of 1]\na.txt, 3 bytes"
        assert await model.gets(action="search", words="new") == "a.txt:1: new"
        assert "temporary file of the gateway" in await model.fails(action="read", path=remains)

    async def test_calls_on_one_file_at_once_lose_nothing(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_text("".join(f"<{number}>\n" for number in range(20)))

        async def mark(number: int) -> None:
            while (
                await model.calls(action="edit", path="a.txt", old=f"<{number}>", new=f"[{number}]")
            ).ending is CallEnding.FAILED:
                pass

        await asyncio.gather(*(mark(number) for number in range(20)))

        assert (root / "a.txt").read_text() == "".join(f"[{number}]\n" for number in range(20))


@contextmanager
def dying_at_the_rename() -> Iterator[None]:
    """Make the process lose everything after the temporary file, as a power failure does."""

    def die(*args: object, **named: object) -> None:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "replace", die)
        patched.setattr(os, "unlink", die_with_os_error)
        yield


def die_with_os_error(*args: object, **named: object) -> None:
    raise OSError


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


class TestEditing:
    async def test_an_exact_text_is_replaced(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_text("one\ntwo\nthree\n")

        told = await model.gets(action="edit", path="a.txt", old="two\nth", new="2\nTh")

        assert (root / "a.txt").read_text() == "one\n2\nThree\n"
        assert told == ("--- a.txt\n+++ a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n-three\n+2\n+Three")

    async def test_every_place_is_replaced_if_asked(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_text("x-x-x")

        await model.gets(action="edit", path="a.txt", old="x", new="", all=True)

        assert (root / "a.txt").read_text() == "--"

    async def test_line_ends_stay_as_they_are(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_bytes(b"one\r\ntwo\r\n")

        await model.gets(action="edit", path="a.txt", old="one\ntwo", new="1\n2\r\n3")

        assert (root / "a.txt").read_bytes() == b"1\r\n2\r\n3\r\n"

    async def test_a_byte_order_mark_stays(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_bytes(b"\xef\xbb\xbfone")

        await model.gets(action="edit", path="a.txt", old="one", new="two")

        assert (root / "a.txt").read_bytes() == b"\xef\xbb\xbftwo"

    async def test_the_nearest_lines_are_named(self, model: Model, root: Path) -> None:
        (root / "a.py").write_text("import os\n\n\ndef total(items):\n    return sum(items)\n")

        told = await model.fails(
            action="edit", path="a.py", old="def total(item):\n  return sum(items)", new="x"
        )

        assert "does not occur in the file exactly so" in told
        assert "5: return sum(items)" in told

    async def test_places_are_counted(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_text("x\ny\nx\nx\n" + "x\n" * 9)
        (root / "b.txt").write_text("aaa")

        assert "occurs 12 times (at lines 1, 3, 4, 5, 6, …)" in await model.fails(
            action="edit", path="a.txt", old="x", new="z"
        )
        assert "at places that overlap (at lines 1, 1)" in await model.fails(
            action="edit", path="b.txt", old="aa", new="z"
        )


class TestForeseeing:
    async def test_the_same_difference_is_told_before_and_after(
        self, model: Model, root: Path
    ) -> None:
        (root / "a.txt").write_text("one\ntwo\n")
        change = {"action": "edit", "path": "a.txt", "old": "two", "new": "2"}

        outlook = await model.foresees(**change)

        assert (root / "a.txt").read_text() == "one\ntwo\n"
        assert outlook.preview == await model.gets(**change)

    async def test_an_approval_ends_when_the_file_changes(self, model: Model, root: Path) -> None:
        arguments = json.dumps({"action": "write", "path": "a.txt", "text": "new"})

        async def digest() -> str:
            outlook = await model.toolbox.outlook(model.call(arguments), NOBODY)
            traits = model.toolbox.traits("files", arguments)
            return frozen_digest("files", arguments, traits, outlook)

        missing = await digest()
        (root / "a.txt").touch()
        empty = await digest()
        (root / "a.txt").write_text("1")
        one = await digest()
        os.utime(root / "a.txt", (1, 1))

        assert len({missing, empty, one}) == 3
        assert await digest() == one

    async def test_a_missing_file_has_no_digest(self, model: Model, root: Path) -> None:
        outlook = await model.foresees(action="write", path="new/a.txt", text="x")

        assert outlook.operands == ""
        assert outlook.preview.startswith("New file new/a.txt, 1 bytes:")
        assert everything_below(root) == {}

    async def test_looking_has_nothing_ahead(self, model: Model, root: Path) -> None:
        assert await model.foresees(action="list") == Outlook()


class TestListing:
    async def test_entries_say_what_they_are(self, model: Model, root: Path, outside: Path) -> None:
        (root / "b").mkdir()
        (root / "a.txt").write_text("x" * 1234)
        (root / "link").symlink_to(outside)
        os.mkfifo(root / "pipe")

        assert await model.gets(action="list") == (
            "[.: entries 1 to 4 of 4]\na.txt, 1,234 bytes\nb/\n"
            "link (a link, which is not opened)\npipe (a pipe, which is not opened)"
        )

    async def test_a_name_that_nobody_can_say_is_shown_escaped(
        self, model: Model, root: Path
    ) -> None:
        (root / "two\nlines").touch()
        (Path(os.fsdecode(os.fsencode(root) + b"/\xff"))).touch()

        told = await model.gets(action="list")

        assert r"'two\nlines' (a file whose name no call can give)" in told
        assert r"'\udcff' (a file whose name no call can give)" in told

    async def test_pages_and_names(self, model: Model, root: Path) -> None:
        for number in range(300):
            (root / f"{number:03}.txt").touch()
        (root / "a.py").touch()

        first = await model.gets(action="list")
        second = await model.gets(action="list", offset=200)

        assert first.endswith("199.txt, 0 bytes\n[list with offset 200 for more]")
        assert second.startswith("[.: entries 201 to 301 of 301]\n200.txt")
        assert await model.gets(action="list", names="*.py") == (
            "[.: entries 1 to 1 of 1 that match *.py]\na.py, 0 bytes"
        )
        assert "no entries that match *.c" in await model.gets(action="list", names="*.c")
        assert "so none after 900" in await model.gets(action="list", offset=900)

    async def test_a_folder_with_too_many_entries_says_so(self, root: Path) -> None:
        for number in range(12):
            (root / f"{number:03}").touch()

        told = await Model(root, bounds=FilesBounds(folder_entries=10)).gets(action="list")

        assert "of 10]" in told
        assert "more than 10 entries, and only so many were looked at" in told

    async def test_a_page_has_a_size(self, root: Path) -> None:
        for number in range(100):
            (root / f"{number:03}{'x' * 200}").touch()

        told = await Model(root, bounds=FilesBounds(page_bytes=5_000)).gets(
            action="list", count=100
        )

        assert len(told) < 5_200
        assert "[list with offset 23 for more]" in told


class TestSearching:
    async def test_lines_are_found_in_all_folders(self, model: Model, root: Path) -> None:
        (root / "deep/er").mkdir(parents=True)
        (root / ".hidden").mkdir()
        (root / "a.txt").write_text("no\nthe KEY is here\nkey key\n")
        (root / "deep/er/b.py").write_text("key = 1")
        (root / ".hidden/c").write_text("key")

        assert await model.gets(action="search", words="Key") == (
            "a.txt:2: the KEY is here\na.txt:3: key key\ndeep/er/b.py:1: key = 1\n.hidden/c:1: key"
        )
        assert await model.gets(action="search", words="key", path="deep") == (
            "deep/er/b.py:1: key = 1"
        )
        assert await model.gets(action="search", words="is here", path="a.txt") == (
            "a.txt:2: the KEY is here"
        )

    @pytest.mark.parametrize(
        ("names", "found"),
        [
            ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
            ("src/*.py", ["src/b.py"]),
            ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
            ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
            ("deep/*", ["src/deep/c.py"]),
        ],
    )
    async def test_files_are_found_by_their_names(
        self, model: Model, root: Path, names: str, found: list[str]
    ) -> None:
        (root / "src/deep").mkdir(parents=True)
        for name in ("a.py", "a.txt", "src/b.py", "src/deep/c.py"):
            (root / name).write_text("x")
        path = "src" if names.startswith("deep") else ""

        assert (await model.gets(action="search", names=names, path=path)).split("\n") == found

    async def test_words_are_no_pattern(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_text("aab\na.*b\n")

        assert await model.gets(action="search", words="a.*b") == "a.txt:2: a.*b"

    async def test_links_binaries_and_pipes_are_left_out(
        self, model: Model, root: Path, outside: Path
    ) -> None:
        (root / "link").symlink_to(outside)
        (root / "link.txt").symlink_to(outside / "secret.txt")
        (root / "a.bin").write_bytes(b"\x00\x01" + CANARY.encode())
        os.mkfifo(root / "pipe")

        told = await model.gets(action="search", words=CANARY)

        assert told == (
            "[no line found; try fewer words, other names, or another folder]\n"
            "[files that were not searched because they are binary: 1]"
        )

    async def test_pages_of_hits(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_text("".join(f"key {number}\n" for number in range(60)))

        first = await model.gets(action="search", words="key")
        second = await model.gets(action="search", words="key", offset=50)

        assert first.endswith(
            "a.txt:50: key 49\n[there are more hits; search with offset 50 for them]"
        )
        assert second.split("\n") == [f"a.txt:{n + 1}: key {n}" for n in range(50, 60)]
        assert "[only 60 hits, so none after 70]" in await model.gets(
            action="search", words="key", offset=70
        )

    @pytest.mark.parametrize(
        ("bounds", "told"),
        [
            (FilesBounds(searched_files=3), "stopped early: 3 files were searched"),
            (FilesBounds(searched_bytes=300), "stopped early: 300 bytes were read"),
            (FilesBounds(seconds=0), "stopped early: 0 seconds are over"),
            (FilesBounds(searched_depth=1), "folders that are too deep"),
            (FilesBounds(folder_entries=2), "folders that are too deep, too large"),
            (FilesBounds(hits=2), "there are more hits; search with offset 2"),
            (FilesBounds(page_bytes=30), "there are more hits; search with offset 2"),
        ],
    )
    async def test_a_search_says_where_it_stops(
        self, root: Path, bounds: FilesBounds, told: str
    ) -> None:
        (root / "b/c").mkdir(parents=True)
        for number in range(5):
            (root / f"{number}.txt").write_text("x" * 100 + "\nkey")
            (root / f"b/c/{number}.txt").write_text("key")

        assert told in await Model(root, bounds=bounds).gets(action="search", words="key")

    async def test_a_file_of_one_line_is_searched_in_pieces(self, model: Model, root: Path) -> None:
        # The words stand where two pieces meet, wherever that is.
        (root / "a.json").write_text("x" * 8_190 + "needle" + "x" * 300_000 + "\nneedle\n")
        (root / "b.json").write_text("x" * (8_192 + 2 * 65_536 - 3) + "needle" + "x" * 100_000)

        hits = (await model.gets(action="search", words="needle")).split("\n")

        assert [hit.partition(" ")[0] for hit in hits] == ["a.json:1:", "a.json:2:", "b.json:1:"]
        assert all("needle" in hit and len(hit) < 400 for hit in hits)

    async def test_hostile_text_takes_linear_time(self, model: Model, root: Path) -> None:
        (root / "a.txt").write_text("a" * 4_000_000)

        begun = time.monotonic()
        await model.gets(action="search", words="a" * 500 + "b")

        assert time.monotonic() - begun < 10


class Refused(NamedTuple):
    """Holds a row of the table: what is asked, what is on the disk, and what the model is told."""

    arguments: Mapping[str, object]
    told: str
    setup: Callable[[Path, Path], object] = lambda root, outside: None


def linked(name: str, target: str) -> Callable[[Path, Path], object]:
    return lambda root, outside: (root / name).symlink_to(outside / target)


def bound_socket(root: Path, outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(root)  # the path of a socket must be short
        try:
            server.bind("socket")
        finally:
            os.chdir(here)


READ: dict[str, object] = {"action": "read"}
WRITE: dict[str, object] = {"action": "write", "text": "x"}
EDIT: dict[str, object] = {"action": "edit", "old": "a", "new": "b"}
REFUSALS = {
    # Arguments that fit nothing.
    "no action": Refused({}, "wrong arguments: Object missing required field `action`; call files"),
    "unknown action": Refused({"action": "delete"}, "Invalid enum value 'delete'"),
    "unknown argument": Refused(READ | {"file": "a"}, "Object contains unknown field `file`"),
    "a number as path": Refused(READ | {"path": 7}, "Expected `str`, got `int` - at `$.path`"),
    "offset below 0": Refused(READ | {"path": "a", "offset": -1}, "Expected `int` >= 0"),
    "too much at once": Refused(READ | {"path": "a", "count": 10**6}, "Expected `int` <= 10000"),
    "read without path": Refused(READ, "read needs the path of a file; list shows"),
    "write without path": Refused(WRITE, "write needs the path of a file; list shows"),
    "write without text": Refused({"action": "write", "path": "a"}, "write needs text"),
    "edit without old": Refused(EDIT | {"path": "a", "old": ""}, "edit needs old, the exact text"),
    "edit without new": Refused(EDIT | {"path": "a", "new": None}, "edit needs new, which may be"),
    "edit into the same": Refused(EDIT | {"path": "a", "new": "a"}, "there is nothing to change"),
    "search for nothing": Refused({"action": "search", "words": " "}, "search needs words, or"),
    "search over lines": Refused({"action": "search", "words": "a\nb"}, "leave the line break"),
    "half a pair": Refused(
        {"action": "write", "path": "a", "text": "\ud800"}, "call again with a JSON"
    ),
    # Paths that lead elsewhere.
    "upwards": Refused(READ | {"path": "../outside/secret.txt"}, "must not hold ..; give it from"),
    "upwards inside": Refused(READ | {"path": "a/../b"}, "must not hold .."),
    "upwards written": Refused(WRITE | {"path": "a/../../b"}, "must not hold .."),
    "absolute": Refused(READ | {"path": "/etc/passwd"}, "outside of the folders that you may use"),
    "beside the root": Refused(READ | {"path": "{root}-2/a"}, "outside of the folders"),
    "at home": Refused(READ | {"path": "~/a"}, "~ has no meaning here"),
    "line break": Refused(READ | {"path": "a\nb"}, "a line break or another character"),
    "zero": Refused(READ | {"path": "a\0b"}, "a line break or another character"),
    "long path": Refused(READ | {"path": "a/" * 3_000}, "more than 4,096 characters"),
    "long name": Refused(READ | {"path": "ä" * 128}, "more than 255 bytes"),
    "our own file": Refused(WRITE | {"path": ".perdure-0a.tmp"}, "a temporary file of the gateway"),
    # What is on the disk.
    "missing": Refused(READ | {"path": "a/b.txt"}, "there is no a; list shows what there is"),
    "missing to edit": Refused(EDIT | {"path": "a.txt"}, "there is no a.txt; list shows what"),
    "missing to list": Refused({"action": "list", "path": "a"}, "there is no a; list"),
    "missing to search": Refused(
        {"action": "search", "path": "a", "words": "x"}, "there is no a; list"
    ),
    "folder read": Refused(
        READ | {"path": "a"}, "a is a folder; list shows", lambda root, _: (root / "a").mkdir()
    ),
    "folder written": Refused(
        WRITE | {"path": "a"}, "a is a folder; list shows", lambda root, _: (root / "a").mkdir()
    ),
    "file listed": Refused(
        {"action": "list", "path": "a"}, "not a folder", lambda root, _: (root / "a").touch()
    ),
    "file as folder": Refused(
        WRITE | {"path": "a/b"}, "not a folder", lambda root, _: (root / "a").touch()
    ),
    "link read": Refused(
        READ | {"path": "a"}, "a is a symbolic link, and links", linked("a", "secret.txt")
    ),
    "link written": Refused(
        WRITE | {"path": "a"}, "a is a symbolic link, and links", linked("a", "secret.txt")
    ),
    "link edited": Refused(
        EDIT | {"path": "a"}, "give the path of what it points to", linked("a", "secret.txt")
    ),
    "broken link written": Refused(
        WRITE | {"path": "a"}, "a is a symbolic link", linked("a", "new.txt")
    ),
    "link inside": Refused(
        READ | {"path": "a"},
        "links are not followed, even inside the folder",
        lambda root, _: (root / "a").symlink_to("b"),
    ),
    "folder by link": Refused(
        READ | {"path": "a/secret.txt"}, "a is a symbolic link", linked("a", "")
    ),
    "folder by link written": Refused(
        WRITE | {"path": "a/new.txt"}, "a is a symbolic link", linked("a", "")
    ),
    "folder by link listed": Refused(
        {"action": "list", "path": "a"}, "a is a symbolic link", linked("a", "")
    ),
    "folder by link searched": Refused(
        {"action": "search", "path": "a", "words": "x"}, "a is a symbolic link", linked("a", "")
    ),
    "pipe": Refused(
        READ | {"path": "a"}, "a is a pipe, not a file", lambda root, _: os.mkfifo(root / "a")
    ),
    "pipe written": Refused(
        WRITE | {"path": "a"}, "a is a pipe, not a file", lambda root, _: os.mkfifo(root / "a")
    ),
    "pipe searched": Refused(
        {"action": "search", "path": "a", "words": "x"},
        "a is a pipe, not a file",
        lambda root, _: os.mkfifo(root / "a"),
    ),
    "socket": Refused(READ | {"path": "socket"}, "socket is a socket, not a file", bound_socket),
    "binary read": Refused(
        READ | {"path": "a"},
        "a is a binary file of 4 bytes, not text",
        lambda root, _: (root / "a").write_bytes(b"\x7fE\0\xff"),
    ),
    "binary edited": Refused(
        EDIT | {"path": "a"},
        "a is not text in UTF-8, so it cannot be edited; write replaces",
        lambda root, _: (root / "a").write_bytes(b"a\0"),
    ),
    "old text missing": Refused(
        EDIT | {"path": "a"},
        "no line is like it; read the file first",
        lambda root, _: (root / "a").write_text("x"),
    ),
    # Sizes.
    "text too large": Refused(
        {"action": "write", "path": "a", "text": "x" * 5_000_001}, "may have 5,000,000 bytes"
    ),
    "too many lines": Refused(
        {"action": "write", "path": "a", "text": "\n" * 250_001}, "250,000 lines; divide it"
    ),
    "file too large": Refused(
        EDIT | {"path": "a"},
        "only files of up to 5,000,000 can be changed",
        lambda root, _: (root / "a").write_text("x" * 5_000_001),
    ),
    "growing too large": Refused(
        EDIT | {"path": "a", "new": "b" * 1_000, "all": True},
        "would grow beyond 5,000,000 bytes",
        lambda root, _: (root / "a").write_text("a" * 10_000),
    ),
}


@pytest.mark.parametrize("row", REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_refusal_says_what_to_do(
    model: Model, root: Path, outside: Path, row: Refused
) -> None:
    row.setup(root, outside)
    before = everything_below(outside), sorted(path.name for path in root.rglob("*"))
    arguments = {
        key: value.replace("{root}", str(root)) if isinstance(value, str) else value
        for key, value in row.arguments.items()
    }

    told = await model.fails(**arguments)

    assert row.told in told
    assert len(told) < 600
    assert CANARY not in told
    assert (everything_below(outside), sorted(path.name for path in root.rglob("*"))) == before


@pytest.mark.skipif(IS_PRIVILEGED, reason="a privileged process may do everything")
async def test_what_the_system_forbids_is_told(model: Model, root: Path) -> None:
    (root / "a.txt").write_text("a")
    (root / "a.txt").chmod(0o400)

    assert "the gateway may not do this with a.txt" in await model.fails(**EDIT, path="a.txt")
    assert (root / "a.txt").read_text() == "a"


class TestTraits:
    @pytest.mark.parametrize(
        ("arguments", "repeat", "permission"),
        [
            (READ | {"path": "a/b.txt"}, Repeat.PURE, Permission.READ),
            ({"action": "list", "path": "a/b.txt"}, Repeat.PURE, Permission.READ),
            ({"action": "search", "path": "a/b.txt", "words": "x"}, Repeat.PURE, Permission.READ),
            (WRITE | {"path": "a/b.txt"}, Repeat.REPEATABLE, Permission.ACT),
            (EDIT | {"path": "a/b.txt"}, Repeat.ONCE, Permission.ACT),
        ],
    )
    def test_each_action_is_known(
        self,
        model: Model,
        root: Path,
        arguments: dict[str, object],
        repeat: Repeat,
        permission: Permission,
    ) -> None:
        traits = model.toolbox.traits("files", json.dumps(arguments))

        assert traits.names == ("files", f"files.{arguments['action']}")
        assert (traits.repeat, traits.permission) == (repeat, permission)
        assert traits.paths == (f"{root}/a/b.txt", "a/b.txt")
        assert traits.folder == str(root)
        assert not traits.problem

    @pytest.mark.parametrize("path", ["a.txt", "./a.txt", "a.txt/", ".//a.txt", "{root}/a.txt"])
    def test_every_spelling_is_one_path(self, model: Model, root: Path, path: str) -> None:
        arguments = json.dumps(READ | {"path": path.replace("{root}", str(root))})

        assert model.toolbox.traits("files", arguments).paths == (f"{root}/a.txt", "a.txt")

    @pytest.mark.parametrize("path", ["", ".", "{root}", "{root}/"])
    def test_the_top_has_a_path(self, model: Model, root: Path, path: str) -> None:
        arguments = json.dumps({"action": "list", "path": path.replace("{root}", str(root))})

        assert model.toolbox.traits("files", arguments).paths == (str(root), ".")

    def test_people_are_told_of_each_action(self, model: Model) -> None:
        (offer,) = model.toolbox.offers()

        assert [each.names[-1] for each in offer.traits] == [
            *("files.read", "files.write", "files.edit", "files.list", "files.search")
        ]

    def test_the_schema_is_plain(self, model: Model) -> None:
        (tool,) = json.loads(model.toolbox.schemas())
        parameters = tool["function"]["parameters"]

        jsonschema.Draft202012Validator.check_schema(parameters)
        assert "anyOf" not in json.dumps(parameters)
        assert parameters["required"] == ["action"]


class TestRoots:
    async def test_other_roots_have_absolute_paths(self, root: Path, outside: Path) -> None:
        model = Model(root, outside)
        (root / "a.txt").write_text("mine")
        given = f"{outside}/secret.txt"

        assert CANARY in await model.gets(action="read", path=given)
        assert await model.gets(action="search", path=str(outside), words=CANARY) == (
            f"{given}:1: {CANARY}"
        )
        assert await model.gets(action="search", words="mine") == "a.txt:1: mine"
        traits = model.toolbox.traits("files", json.dumps(READ | {"path": given}))
        assert traits.paths == (given, "secret.txt")
        assert str(outside) in model.toolbox.schemas()

    async def test_a_root_may_be_given_by_a_link(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "alias").symlink_to(root)
        (root / "a.txt").write_text("text")
        model = Model(tmp_path / "alias")

        for path in ("a.txt", f"{root}/a.txt", f"{tmp_path}/alias/a.txt"):
            assert "text" in await model.gets(action="read", path=path)

    def test_useless_roots_are_refused(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        (root / "sub").mkdir()
        (tmp_path / "alias").symlink_to(root / "sub")

        for roots, told in [
            ([], "has no folder; configure at least one"),
            ([tmp_path / "missing"], "cannot be used"),
            ([tmp_path / "file"], "is not a folder"),
            ([Path("notes")], "is not absolute"),
            ([root, root], "overlap; configure only the outer one"),
            ([root, root / "sub"], "overlap"),
            ([tmp_path / "alias", root], "overlap"),
        ]:
            with pytest.raises(Rejected, match=told):
                FilesTool(roots)

    async def test_a_root_that_is_gone_is_told(self, model: Model, root: Path) -> None:
        root.rmdir()

        for call in (READ, WRITE, EDIT):
            assert f"the folder {root} is gone" in await model.fails(**call, path="a.txt")
        assert "is gone" in (await model.foresees(**WRITE, path="a.txt")).problem

    async def test_a_root_that_became_a_link_is_not_followed(
        self, model: Model, root: Path, outside: Path
    ) -> None:
        root.rmdir()
        root.symlink_to(outside)

        assert CANARY not in await model.fails(action="read", path="secret.txt")
        assert CANARY not in await model.fails(action="search", words="canary")


class Swapping:
    """Exchanges a folder and a file for links to the outside and back, as fast as a thread can."""

    def __init__(self, root: Path, outside: Path) -> None:
        self._root = root
        self._outside = outside
        self._is_over = threading.Event()
        self.rounds: Counter[str] = Counter()

    def prepare(self) -> None:
        """Make what is exchanged."""
        (self._root / "folder/deep").mkdir(parents=True)
        (self._root / "folder/secret.txt").write_text("inside\n")
        (self._root / "folder/deep/secret.txt").write_text("inside\n")
        (self._root / "file.txt").write_text("inside\n")
        (self._root / "folder-link").symlink_to(self._outside)
        (self._root / "file-link").symlink_to(self._outside / "secret.txt")

    def run(self, name: str, link: str) -> None:
        """Swap until it is over."""
        while not self._is_over.is_set():
            exchange(self._root / name, self._root / link)
            self.rounds[name] += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Swap while the block runs."""
        pairs = [("folder", "folder-link"), ("file.txt", "file-link")]
        threads = [threading.Thread(target=self.run, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()


def exchange(one: Path, other: Path) -> None:
    """Exchange two names in one moment, so that neither is ever missing."""
    at_cwd, swap = -100, 2
    failed = _libc.renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), swap)
    assert not failed, os.strerror(ctypes.get_errno())


async def test_nothing_outside_is_touched_while_links_are_swapped_in(
    model: Model, root: Path, outside: Path
) -> None:
    (outside / "deep").mkdir()
    (outside / "deep/secret.txt").write_text(CANARY)
    before = everything_below(outside)
    swapping = Swapping(root, outside)
    swapping.prepare()
    calls: list[Mapping[str, object]] = [
        {"action": "read", "path": "folder/secret.txt"},
        *[READ | {"path": "file.txt"}] * 6,
        {"action": "read", "path": "folder/deep/secret.txt"},
        *({"action": "list", "path": path} for path in ("folder", "folder/deep")),
        {"action": "search", "words": "canary"},
        {"action": "search", "words": "canary", "path": "folder"},
        {"action": "search", "words": "canary", "path": "file.txt"},
        {"action": "write", "path": "folder/secret.txt", "text": "written"},
        {"action": "write", "path": "folder/new/er.txt", "text": "written"},
        {"action": "write", "path": "file.txt", "text": "written"},
        {"action": "edit", "path": "folder/deep/secret.txt", "old": "i", "new": "i"},
        {"action": "edit", "path": "file.txt", "old": "inside", "new": "INSIDE"},
        {"action": "edit", "path": "folder/secret.txt", "old": CANARY, "new": "stolen"},
    ]
    told: list[str] = []
    endings: set[CallEnding] = set()

    with swapping.going_on():
        for _ in range(100):
            for result in await asyncio.gather(*(model.calls(**call) for call in calls)):
                told.append(result.text)
                endings.add(result.ending)
            told += [(await model.foresees(**call)).preview for call in calls[-6:]]

    assert min(swapping.rounds.values()) > 100
    assert endings == {CallEnding.RETURNED, CallEnding.FAILED}
    assert any("links are not followed" in text for text in told)
    assert not [text for text in told if CANARY in text]
    assert everything_below(outside) == before
    assert left_over(root) == []


@pytest.mark.parametrize("moment", range(10))
async def test_a_link_that_appears_just_before_a_name_is_opened_is_refused(
    model: Model, root: Path, outside: Path, moment: int
) -> None:
    before = everything_below(outside)
    Swapping(root, outside).prepare()
    pairs = [("folder", "folder-link"), ("file.txt", "file-link")]
    opens, opened = count(), os.open

    def swap_and_open(path: str, flags: int, mode: int = 0o777, **named: int) -> int:
        if next(opens) == moment:
            for pair in pairs:
                exchange(*(root / name for name in pair))
        return opened(path, flags, mode, **named)

    for path in ("file.txt", "folder/secret.txt"):
        for call in (READ, WRITE, EDIT | {"old": "inside"}, {"action": "search", "words": "can"}):
            opens = count()
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(os, "open", swap_and_open)
                result = await model.calls(**call, path=path)
            if (root / "folder").is_symlink():
                for pair in pairs:
                    exchange(*(root / name for name in pair))

            assert CANARY not in result.text
            assert everything_below(outside) == before


class TestThreads:
    async def test_the_loop_goes_on_while_the_disk_is_slow(self) -> None:
        is_free = threading.Event()
        room = Workroom()
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(room.run(lambda _: is_free.wait(30), who=ADA))
            # The loop runs this although the work has not ended.
            is_free.set()
        assert work.result()

    async def test_only_a_few_work_at_once(self) -> None:
        room = Workroom()
        lock = threading.Lock()
        working, most = 0, 0
        is_crowded, is_free = threading.Event(), threading.Event()

        def work(is_unwanted: threading.Event) -> None:
            nonlocal working, most
            with lock:
                working += 1
                most = max(most, working)
                if working == AT_ONCE:
                    is_crowded.set()
            is_free.wait(30)
            with lock:
                working -= 1

        async with asyncio.TaskGroup() as tasks:
            for number in range(3 * AT_ONCE):
                tasks.create_task(room.run(work, who=PrincipalId(f"prn_{number}")))
            assert await asyncio.to_thread(is_crowded.wait, 30)
            is_free.set()
        assert most == AT_ONCE

    async def test_a_cancelled_call_ends_its_work_and_keeps_its_place_until_then(self) -> None:
        room = Workroom(at_once=1)
        has_begun, has_ended = threading.Event(), threading.Event()

        def work(is_unwanted: threading.Event) -> None:
            has_begun.set()
            assert is_unwanted.wait(30)
            has_ended.set()
            raise OSError("nobody hears of it")

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(room.run(work, who=ADA))
            assert await asyncio.to_thread(has_begun.wait, 30)
            running.cancel()
        assert await room.run(lambda _: has_ended.is_set(), who=ADA)

    async def test_a_disk_that_does_not_answer_one_person_holds_up_nobody_else(self) -> None:
        room = Workroom()
        begun, is_free = threading.Semaphore(0), threading.Event()

        def hang(is_unwanted: threading.Event) -> None:
            begun.release()
            is_free.wait(30)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(8 * AT_ONCE):
                tasks.create_task(room.run(hang, who=ADA))
            for _ in range(AT_ONCE - 1):
                assert await asyncio.to_thread(begun.acquire, timeout=30)
            async with asyncio.timeout(5):
                assert await room.run(lambda _: "read", who=BOB) == "read"
            assert not begun.acquire(blocking=False), "one place is kept for others"
            is_free.set()

    async def test_a_cancelled_write_does_not_come_late(
        self, model: Model, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        is_synced, may_go_on, has_ended = (threading.Event() for _ in range(3))
        unlink = os.unlink

        def sync(file: int) -> None:
            is_synced.set()
            may_go_on.wait(30)

        def removed(*args: object, **named: object) -> None:
            unlink(*args, **named)  # type: ignore[arg-type]
            has_ended.set()

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", sync)
            patched.setattr(os, "unlink", removed)
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(model.calls(action="write", path="a.txt", text="x"))
                assert await asyncio.to_thread(is_synced.wait, 30)
                writing.cancel()
            may_go_on.set()
            assert await asyncio.to_thread(has_ended.wait, 30)
        assert everything_below(root) == {}

    async def test_no_descriptor_is_left_open(self, model: Model, root: Path) -> None:
        (root / "a/b").mkdir(parents=True)
        (root / "a/b/c.txt").write_text("key\n" * 100)
        calls: list[Mapping[str, object]] = [
            READ | {"path": "a/b/c.txt", "count": 1},
            READ | {"path": "a/b/missing"},
            READ | {"path": "a/b/c.txt/d"},
            WRITE | {"path": "a/b/d.txt"},
            EDIT | {"path": "a/b/c.txt"},
            {"action": "search", "words": "key", "count": 1},
            {"action": "list", "path": "a"},
        ]
        for call in calls:
            await model.calls(**call)
        before = len(list(Path("/proc/self/fd").iterdir()))

        for call in 5 * calls:
            await model.calls(**call)

        assert len(list(Path("/proc/self/fd").iterdir())) <= before


async def test_a_search_does_not_look_at_what_a_rule_denies(root: Path) -> None:
    (root / "keys").mkdir()
    (root / "keys" / "a.txt").write_text("the canary sings")
    (root / "b.txt").write_text("the canary sleeps")
    model = Model(root, bounds=FilesBounds(hidden=("keys/**",)))

    found = await model.gets(action="search", words="canary")

    assert "sleeps" in found
    assert "sings" not in found
