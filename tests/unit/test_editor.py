"""Checks what `perdure acp` does by itself: it reads lines and the changes of files, and tells each
piece of news once."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.app.editor.calls import call_seen
from perdure.app.editor.edits import edits_in
from perdure.app.editor.link import LINE_BYTES_MAX, EditorLink
from perdure.app.editor.prompts import message_of
from perdure.app.editor.retelling import Retelling
from perdure.app.editor.shapes import (
    AgentChunk,
    BlockGiven,
    CallChanged,
    CallShown,
    EditShown,
    TextShown,
)
from perdure.domain.errors import Rejected
from perdure.domain.ids import CallId, MessageId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.journal.transcript import Entry
from perdure.domain.outcomes import Outcome
from perdure.domain.tools.diffs import unified_diff
from perdure.domain.tools.todo import TodoItem, TodoState, todo_items, todo_text
from perdure.domain.turn.watching import Delta, OutcomeNews, ToolNews

WAIT_S = 20.0
TURN = TurnId("trn_1")
LINES = st.lists(st.sampled_from(["a", "b", "", " ", "-- c", "++ d", "@@ -1 +1 @@", "`"]))


def fenced(diff: str) -> str:
    return f"May I?\n\n````diff\nAll of it changes:\n{diff}\n````\n\nPlease."


def places_of(part: str, text: str, at: int) -> list[int]:
    """Return where a part of a text may stand, from `at` on."""
    if not part:
        return [at]
    return [start for start in range(at, len(text)) if text.startswith(part, start)]


@given(LINES, LINES, st.booleans(), st.booleans())
@example(["a"] * 5, ["a"] * 4, False, True)
def test_the_changes_of_a_diff_lead_from_the_old_text_to_the_new(
    old: list[str], new: list[str], old_ends: bool, new_ends: bool
) -> None:
    before = "\n".join(old) + "\n" * old_ends
    after = "\n".join(new) + "\n" * new_ends
    # The same lines may stand in several places, and a change does not say in which.
    rebuilt = {("", 0)}
    for edit in edits_in(fenced(unified_diff(before, after, "a.txt"))):
        assert edit.old is not None
        rebuilt = {
            (text + before[at:start] + edit.new, start + len(edit.old))
            for text, at in rebuilt
            for start in places_of(edit.old, before, at)
        }
    assert after in {text + before[at:] for text, at in rebuilt}


def test_a_new_file_has_no_old_text_and_what_is_cut_is_not_shown() -> None:
    (edit,) = edits_in(fenced(unified_diff(None, "one\ntwo", "dir/a.txt")))
    assert (edit.path, edit.old, edit.new) == ("dir/a.txt", None, "one\ntwo")
    assert edits_in(fenced(unified_diff("", "line\n" * 9_000, "a.txt"))) == ()
    assert edits_in(fenced(unified_diff("", "x" * 90_000, "a.txt"))) == ()
    assert edits_in("```diff\n--- a\n+++ b\n@@ -1 +1 @@\n") == ()


@given(
    st.lists(
        st.builds(
            TodoItem,
            text=st.text("ab ☐-▶️\n", min_size=1).filter(lambda text: "\n- " not in text),
            state=st.sampled_from(TodoState),
        )
    )
)
def test_a_list_is_read_as_it_was_shown(items: list[TodoItem]) -> None:
    assert todo_items(todo_text(tuple(items))) == tuple(items)


def test_other_texts_are_no_list() -> None:
    assert todo_items("📋 a list\n- ☐ a") is None


def test_titles_say_what_a_call_is_about() -> None:
    asked = {
        "tool": "Edit",
        "kind": "edit",
        "path": "/a.py",
        "change": {"path": "/a.py", "new": "x"},
    }
    seen = call_seen("permission", json.dumps(asked))
    assert (seen.title, seen.kind) == ("Edit /a.py", "edit")
    assert [(each.path, each.old, each.new) for each in seen.edits] == [("/a.py", None, "x")]
    shell = call_seen("shell", '{"command": ["ls", "-l"]}')
    assert (shell.title, shell.kind) == ("shell ls -l", "execute")
    assert call_seen("files", "not json").raw_input == "not json"
    assert len(call_seen("fetch", json.dumps({"url": "u" * 999})).title) <= 120


def test_a_piece_that_is_not_in_base64_is_refused() -> None:
    with pytest.raises(Rejected, match="base64"):
        message_of([BlockGiven(type="image", data="!", mime_type="image/png")])
    with pytest.raises(Rejected, match="type 'dance'"):
        message_of([BlockGiven(type="dance")])


def told(updates: list[Any]) -> str:
    contents = [each.content for each in updates if isinstance(each, AgentChunk)]
    return "".join(each.text for each in contents if isinstance(each, TextShown))


def test_a_text_is_told_once_however_often_it_comes() -> None:
    telling = Retelling(folder="/w", media="http://x/api/media")
    said = Entry(id="msg_1", role="assistant", text="one two", turn=TURN, at=1)
    updates = telling.retold(said, may_grow=True)
    for offset, text in ((0, "one two"), (4, "two three"), (13, " four")):
        updates += telling.retold(
            Delta(turn=TURN, message=MessageId("msg_1"), offset=offset, text=text)
        )
    whole = msgspec.structs.replace(said, text="one two three four five")
    updates += telling.retold(whole) + telling.retold(whole)
    assert told(updates) == "one two three four five"
    after = telling.retold(msgspec.structs.replace(said, id="msg_2", text="next"))
    assert told(after) == "\n\nnext"


def test_a_call_that_an_agent_makes_by_itself_is_told_from_its_beginning() -> None:
    telling = Retelling(folder="/w", media="")
    began = ToolNews(turn=TURN, call="call_1", name="Bash", state="progress", text="Bash")
    call = ToolCall(id=CallId("call_1"), name="Bash", arguments='{"command": "ls"}')
    said = Entry(id="m", role="assistant", text="", turn=TURN, at=1, tool_calls=(call,))
    diff = fenced(unified_diff("a\n", "b\n", "src/x.py"))
    ended = ToolNews(turn=TURN, call="call_1", name="Bash", state="finished", result=diff)
    updates = [each for news in (began, said, ended) for each in telling.retold(news)]
    assert [type(each) for each in updates] == [CallShown, CallChanged, CallChanged, CallChanged]
    assert [getattr(each, "title", "") for each in updates] == ["Bash", "", "Bash ls", ""]
    last = updates[-1]
    assert isinstance(last, CallChanged)
    assert last.content[0] == EditShown(path="/w/src/x.py", old_text="a\n", new_text="b\n")


@pytest.mark.parametrize(
    ("state", "ended", "status"),
    [
        ("finished", "", "completed"),
        ("finished", "failed", "failed"),
        ("finished", "refused", "failed"),
        ("unknown", "", "failed"),
    ],
)
def test_a_call_is_told_as_it_has_ended(state: str, ended: str, status: str) -> None:
    telling = Retelling(folder="/w", media="")
    news = ToolNews(turn=TURN, call="call_1", name="fetch", state=state, ended=ended, result="x")
    last = telling.retold(news)[-1]
    assert isinstance(last, CallChanged)
    assert last.status == status


def test_a_turn_that_ends_leaves_no_call_open() -> None:
    telling = Retelling(folder="/w", media="")
    telling.retold(ToolNews(turn=TURN, call="call_1", name="fetch", state="started"))
    ended = telling.retold(OutcomeNews(turn=TURN, outcome=Outcome.STOPPED))
    assert ended == [CallChanged(tool_call_id="call_1", status="failed")]


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Provide the editor's end of a link whose other end says back what it is called with."""

    async def answer(method: str, params: msgspec.Raw) -> object:
        if method == "ask":
            return await link.ask("back", {"x": 1}, dict[str, int])
        return [method, params]

    ours, theirs = socket.socketpair()
    hears, tells = await asyncio.open_connection(sock=ours)
    link = EditorLink(hears, tells)
    serving = asyncio.ensure_future(link.serve(answer))
    reader, writer = await asyncio.open_connection(sock=theirs, limit=1 << 20)
    yield reader, writer
    writer.close()
    async with asyncio.timeout(WAIT_S):
        await serving
    tells.close()


async def heard(reader: asyncio.StreamReader) -> Any:
    async with asyncio.timeout(WAIT_S):
        return json.loads(await reader.readline())


async def test_a_line_that_cannot_be_read_is_told_and_the_next_one_is_answered() -> None:
    async with linked() as (reader, writer):
        writer.write(b"\n[1]\n\xff\n")
        assert (await heard(reader))["error"]["code"] == -32700
        assert (await heard(reader))["error"]["code"] == -32700
        writer.write(b"x" * (LINE_BYTES_MAX + 2**20) + b"\n")
        await writer.drain()
        assert (await heard(reader))["error"]["code"] == -32700
        writer.write(b'{"jsonrpc":"2.0","id":"a","method":"hello","params":{"n":[1]}}\n')
        assert await heard(reader) == {
            "jsonrpc": "2.0",
            "id": "a",
            "result": ["hello", {"n": [1]}],
        }


async def test_characters_that_nothing_can_hold_are_replaced() -> None:
    async with linked() as (reader, writer):
        for text in (b"a\\ud83dz", b"a\xffz"):
            writer.write(b'{"id":1,"method":"hello","params":["' + text + b'"]}\n')
            assert (await heard(reader))["result"] == ["hello", ["a\ufffdz"]]
        writer.write(b'{"id":1,"method":"hello","params":' + b"[" * 200_000 + b"}\n")
        assert (await heard(reader))["error"]["code"] == -32700


async def test_answers_find_their_questions_and_refusals_are_errors() -> None:
    async with linked() as (reader, writer):
        writer.write(b'{"id":7,"method":"ask"}\n')
        back = await heard(reader)
        assert (back["method"], back["params"]) == ("back", {"x": 1})
        writer.write(json.dumps({"id": 99, "result": {}}).encode() + b"\n")
        writer.write(json.dumps({"id": back["id"], "result": {"y": 2}}).encode() + b"\n")
        assert (await heard(reader))["result"] == {"y": 2}
        for said in ({"error": {"code": 1, "message": "no"}}, {"result": "no object"}):
            writer.write(b'{"id":8,"method":"ask"}\n')
            again = (await heard(reader))["id"]
            writer.write(json.dumps({"id": again, **said}).encode() + b"\n")
            assert (await heard(reader))["error"]["data"] == {"code": "invalid"}


async def test_an_editor_that_leaves_ends_what_waits_for_it() -> None:
    async with linked() as (reader, writer):
        writer.write(b'{"id":7,"method":"ask"}\n')
        await heard(reader)
