"""Checks the tool `files` against a plain model: what was written is read and found again, and each
difference that is shown turns the old text into the new one."""

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.domain.ids import CallId, ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding
from perdure.domain.tools.diffs import DiffBounds, unified_diff
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.builtin.files.tool import FilesTool
from perdure.tools.toolbox import Toolbox

ENDLESS = DiffBounds(lines=10**9, line_chars=10**9, chars=10**9)
NOBODY = ToolCaller(
    principal=PrincipalId("prn_x"),
    conversation=ConversationId("cnv_x"),
    session=SessionId("ses_x"),
    turn=TurnId("trn_x"),
)
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")

# Few different lines, so that many are equal.
texts = st.lists(st.sampled_from(["a", "b", "c", "d", "", "ä€"]), max_size=30).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "".join(f"{line}\n" for line in lines)])
)


def patched(before: str, diff: str) -> str:
    """Return the text that a unified diff makes of another one, and check that the diff fits."""
    old, new, at = lines_of(before), [], 0
    for place, line in enumerate(rows := diff.split("\n")[2:]):
        is_last = rows[place + 1 : place + 2] == ["\\ No newline at end of file"]
        text = line[1:] + ("" if is_last else "\n")
        if hunk := HUNK.fullmatch(line):
            begin = int(hunk[1]) - (hunk[2] != "0")
            new += old[at:begin]
            at = begin
            assert int(hunk[3]) - (hunk[4] != "0") == len(new)
        elif line[0] in " -":
            assert old[at] == text
            at += 1
        if line[0] in " +":
            new.append(text)
    return "".join(new + old[at:])


def lines_of(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


@given(before=texts, after=texts)
@example(before="", after="a")
@example(before="a", after="")
@example(before="a\n", after="a")
@example(before="a\n" * 8, after="b\n" + "a\n" * 8)
def test_a_difference_turns_the_old_text_into_the_new_one(before: str, after: str) -> None:
    diff = unified_diff(before, after, "a.txt", ENDLESS)

    assert (diff == "") is (before == after)
    if diff:
        assert patched(before, diff) == after


def test_a_difference_shows_little_more_than_what_changed() -> None:
    before = [f"line {number}\n" for number in range(1_000)]
    after = [*before[:100], "new\n", *before[100:500], *before[503:]]

    diff = unified_diff("".join(before), "".join(after), "a.txt", ENDLESS).split("\n")

    assert [line for line in diff[2:] if line[0] in "+-"] == [
        *("+new", "-line 500", "-line 501", "-line 502")
    ]
    assert len(diff) == 20


def test_hostile_texts_are_compared_in_linear_time() -> None:
    def took_s(before: Sequence[str], after: Sequence[str]) -> float:
        begun = time.thread_time()
        unified_diff("\n".join(before), "\n".join(after), "a.txt", DiffBounds())
        return time.thread_time() - begun

    size = 200_000
    numbers = [str(number) for number in range(size)]
    repeated = [str(number % 300) for number in range(size)]
    assert took_s(numbers, numbers[::-1]) < 20
    assert took_s(repeated, repeated[1:] + repeated[:1]) < 20
    assert took_s(numbers[::2] + repeated, repeated + numbers) < 20


class Step(msgspec.Struct, frozen=True):
    """Holds one call of a walk."""

    action: str
    path: str
    one: str
    two: str
    is_all: bool


paths = st.sampled_from(["a.txt", "b/c.txt", "b/d/e.txt", "a.txt/f.txt", "b"])
words = st.text("ab\n", max_size=4)
steps = st.builds(
    Step, st.sampled_from(["write", "edit", "edit", "read"]), paths, words, words, st.booleans()
)


class Twin:
    """Holds files in a dictionary, as the tool holds them on a disk."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def does(self, step: Step) -> bool:
        """Do a step. Tells whether it is allowed."""
        if any(f"{known}/" in f"{step.path}/" and known != step.path for known in self.files):
            return False  # a file stands where a folder must be
        if any(known.startswith(f"{step.path}/") for known in self.files):
            return False  # the path names a folder
        known = self.files.get(step.path)
        if step.action == "write":
            self.files[step.path] = step.one
            return True
        if known is None or step.action == "read":
            return known is not None
        return self._edits(step, known)

    def _edits(self, step: Step, known: str) -> bool:
        places = [at for at in range(len(known)) if known.startswith(step.one, at)]
        if not step.one or step.one == step.two or not places:
            return False
        if len(places) > 1 and not step.is_all:
            return False
        self.files[step.path] = known.replace(step.one, step.two)
        return True


def arguments_of(step: Step) -> dict[str, object]:
    named = {"write": {"text": step.one}, "read": {}}.get(
        step.action, {"old": step.one, "new": step.two, "all": step.is_all}
    )
    return {"action": step.action, "path": step.path, **named}


async def calls(tools: Toolbox, number: int, **arguments: object) -> ToolResult:
    call = ToolCall(id=CallId(f"call_{number}"), name="files", arguments=json.dumps(arguments))
    return await tools.call(call, NOBODY)


async def walk(root: Path, taken: Sequence[Step]) -> None:
    tools, twin = Toolbox([FilesTool([root])]), Twin()
    for number, step in enumerate(taken):
        is_allowed = twin.does(step)
        result = await calls(tools, number, **arguments_of(step))
        assert (result.ending is CallEnding.RETURNED) is is_allowed, (step, result.text)
        if step.action == "read" and is_allowed:
            assert shown_of(result.text) == shown_lines(twin.files[step.path])
    on_disk = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    assert {name: path.read_text() for name, path in on_disk.items()} == twin.files
    found = (await calls(tools, -1, action="search", words="ab", count=10_000)).text.split("\n")
    expected = {
        f"{name}:{number}: {line}"
        for name, text in twin.files.items()
        for number, line in enumerate(text.split("\n"), start=1)
        if "ab" in line
    }
    assert {line for line in found if not line.startswith("[")} == expected


def shown_of(page: str) -> list[str]:
    return page.split("\n")[1:]


def shown_lines(text: str) -> list[str]:
    return [line.removesuffix("\n") for line in lines_of(text)]


@given(taken=st.lists(steps, max_size=25))
def test_the_disk_is_like_the_model(taken: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(walk(Path(folder), taken))


@given(
    lines=st.lists(st.text("ab€ ", max_size=9), max_size=40),
    page_bytes=st.integers(1, 60),
    count=st.integers(0, 7),
)
def test_pages_join_to_the_whole_text(lines: list[str], page_bytes: int, count: int) -> None:
    async def read_all(root: Path) -> list[str]:
        tools = Toolbox([FilesTool([root], bounds=FilesBounds(page_bytes=page_bytes))])
        found: list[str] = []
        while True:
            page = await calls(
                tools, 0, action="read", path="a.txt", offset=len(found), count=count
            )
            heading, *rest = page.text.split("\n")
            if "lines" not in heading:
                return found
            is_last = heading.endswith("the last]")
            found += rest if is_last else rest[:-1]
            if is_last:
                return found

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.txt").write_text("".join(f"{line}\n" for line in lines))
        assert asyncio.run(read_all(Path(folder))) == lines
