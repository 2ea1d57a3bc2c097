"""Checks the tools `todo`, `ask` and `result` on a real store: what they keep, for whom, and which
calls they refuse."""

import json
from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.errors import Rejected
from perdure.domain.ids import CallId
from perdure.domain.journal.events import NoticePosted, ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.tools.asking import CHOICE_LENGTH_MAX, CHOICES_MAX, QUESTION_LENGTH_MAX
from perdure.domain.tools.todo import ITEMS_MAX, TEXT_MAX
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person
from perdure.tools.builtin.ask import AskTool
from perdure.tools.builtin.result import COUNT_MAX, ResultTool
from perdure.tools.builtin.todo import TodoTool
from perdure.tools.toolbox import Toolbox

OpenStore = Callable[[], Awaitable[Store]]
LONG = "ä whole result. " * 2_000


class Agent:
    """Calls tools on behalf of a person, in one of their conversations."""

    def __init__(self, store: Store, caller: ToolCaller) -> None:
        self._tools = Toolbox([TodoTool(store.todos), ResultTool(store.media)])
        self.caller = caller

    async def calls(self, name: str, **arguments: object) -> ToolResult:
        call = ToolCall(
            id=CallId("call_1"),
            name=name,
            arguments=json.dumps(arguments),
            repeat=Repeat.REPEATABLE,
        )
        return await self._tools.call(call, self.caller)

    async def gets(self, name: str, **arguments: object) -> str:
        result = await self.calls(name, **arguments)
        assert result.ending is CallEnding.RETURNED, result.text
        return result.text


async def agent_of(store: Store, person: Person) -> Agent:
    accepted = await person.says("hello")
    assert accepted.turn is not None
    caller = ToolCaller(
        principal=person.id,
        conversation=accepted.conversation,
        session=accepted.session,
        turn=accepted.turn,
    )
    return Agent(store, caller)


# The list.


async def test_a_list_survives_a_restart_and_each_session_has_its_own(
    store: Store, ada: Person, bob: Person, restart: OpenStore
) -> None:
    hers, his = await agent_of(store, ada), await agent_of(store, bob)
    items = [{"text": "sow", "state": "done"}, {"text": "water"}]

    said = await hers.gets("todo", items=items)
    again = Agent(await restart(), hers.caller)

    assert "1 of 2 done" in said
    assert await again.gets("todo") == said
    assert "nothing" in await Agent(await restart(), his.caller).gets("todo")


async def test_a_list_is_shown_when_it_changes_and_not_when_it_does_not(
    store: Store, ada: Person
) -> None:
    agent = await agent_of(store, ada)
    shown = []
    for state in ("open", "doing", "doing", "done"):
        result = await agent.calls("todo", items=[{"text": "sow", "state": state}])
        shown += [r.event.text for r in result.recorded if isinstance(r.event, NoticePosted)]

    assert len(shown) == 3
    assert "0 of 1 done" in shown[0]
    assert "1 of 1 done" in shown[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"items": [{"text": "x"}] * (ITEMS_MAX + 1)}, f"it may have {ITEMS_MAX}"),
        ({"items": [{"text": "x" * (TEXT_MAX + 1)}]}, f"length <= {TEXT_MAX}"),
        ({"items": [{"text": ""}]}, "length >= 1"),
        ({"items": [{"text": "x", "state": "later"}]}, "later"),
        ({"items": [{"text": "x", "who": "bob"}]}, "who"),
        ({"items": [{}]}, "text"),
        ({"items": "sow"}, "array"),
        ({"list": []}, "list"),
    ],
)
async def test_a_list_that_cannot_be_kept_is_refused_in_words_and_changes_nothing(
    store: Store, ada: Person, arguments: dict[str, object], said: str
) -> None:
    agent = await agent_of(store, ada)
    before = await agent.gets("todo", items=[{"text": "water"}])

    assert said in (await agent.calls("todo", **arguments)).text
    assert await agent.gets("todo") == before


# Questions.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"question": " \n"}, "the question is empty"),
        ({}, "question"),
        ({"question": "x" * (QUESTION_LENGTH_MAX + 1)}, f"length <= {QUESTION_LENGTH_MAX}"),
        ({"question": "?", "choices": ["yes", " YES "]}, "two of the choices are the same"),
        ({"question": "?", "choices": [str(n) for n in range(CHOICES_MAX + 1)]}, "length"),
        ({"question": "?", "choices": [""]}, "length >= 1"),
        ({"question": "?", "choices": ["x" * (CHOICE_LENGTH_MAX + 1)]}, "length"),
        ({"question": "?", "choices": "yes"}, "array"),
        ({"question": ["?"]}, "str"),
        ({"question": "?", "to": "bob"}, "to"),
    ],
)
def test_what_is_no_question_is_refused_before_anybody_is_asked(
    arguments: dict[str, object], said: str
) -> None:
    with pytest.raises(Rejected):
        AskTool().traits(json.dumps(arguments))

    assert said in Toolbox([AskTool()]).traits("ask", json.dumps(arguments)).problem


# Long results.


async def kept(store: Store, owner: Person, data: bytes, mime: str = "text/plain") -> str:
    media = await store.media.put(
        data, mime=mime, name="result.txt", principal=owner.id, is_loose=False
    )
    return media.id


async def test_the_pages_of_a_long_result_join_to_the_whole(store: Store, ada: Person) -> None:
    agent, handle = await agent_of(store, ada), await kept(store, ada, LONG.encode())
    pages, offset = [], 0
    while offset < len(LONG):
        page = await agent.gets("result", handle=handle, offset=offset, count=7_001)
        text, _, left = page.partition("\n[")
        pages.append(text)
        offset += len(text)
        assert left.startswith(f"{len(LONG) - offset:,} more") or offset == len(LONG)

    assert "".join(pages) == LONG
    assert "nothing at" in await agent.gets("result", handle=handle, offset=offset)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"offset": -1}, "offset"),
        ({"count": 0}, "count"),
        ({"count": COUNT_MAX + 1}, "count"),
        ({"handle": "med_nothing"}, "there is no result"),
        ({"handle": "../../etc/passwd"}, "there is no result"),
        ({"handle": "x" * 101}, "handle"),
    ],
)
async def test_a_page_that_is_none_is_refused_in_words(
    store: Store, ada: Person, more: dict[str, object], said: str
) -> None:
    agent, handle = await agent_of(store, ada), await kept(store, ada, LONG.encode())

    refused = await agent.calls("result", **{"handle": handle, **more})

    assert refused.ending is CallEnding.FAILED
    assert said in refused.text


async def test_nobody_reads_the_result_of_another_person_or_a_picture(
    store: Store, ada: Person, bob: Person
) -> None:
    his = await agent_of(store, bob)
    hers = await kept(store, ada, LONG.encode())
    picture = await kept(store, bob, b"\x89PNG", "image/png")

    foreign = await his.calls("result", handle=hers)
    unknown = await his.calls("result", handle="med_nothing")

    assert foreign.text.replace(hers, "") == unknown.text.replace("med_nothing", "")
    assert "not a long result" in (await his.calls("result", handle=picture)).text
