"""Checks an external agent as the engine sees it: a real program that speaks ACP, well and badly,
in a real pool, with the real bridge."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.contract.test_bridge import over_http, said

from perdure.agents.acp.agent import AcpAgent, AcpTerms
from perdure.agents.acp.pool.pool import ProcessPool
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.agents.acp.programs.presets import OTHER, Preset
from perdure.agents.acp.programs.program import AgentProgram
from perdure.app.children.children import LaunchedChildren
from perdure.app.wiring.system import SystemClock
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import Recorded, TurnSettled
from perdure.domain.journal.model.agent_state import AgentState
from perdure.domain.outcomes import Interruption, Outcome, StopReason
from perdure.domain.prompt.prompt import (
    CallBlock,
    ModelRequest,
    PromptBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    Window,
    assemble,
    extend,
)
from perdure.domain.turn.stream import (
    AgentActed,
    AgentCall,
    AgentEvent,
    AgentKept,
    AgentPlan,
    AgentText,
    AgentThoughts,
    AgentTimed,
    AgentTold,
    Stopped,
)
from perdure.testkit.peers.acp.hostile_acp import HostileAcp
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief
from perdure.testkit.simulator.agent import LooseWork
from perdure.web.bridge.bridge import ToolBridge

pytestmark = pytest.mark.timeout(60)
WAIT_S = 30.0
QUICK = PoolSettings(
    has_prewarm=False, start_s=10, session_s=10, bridge_s=20, close_s=1, room_s=5, cancel_s=1
)
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}
TOOLS = json.dumps(
    [
        {"type": "function", "function": {"name": n, "description": n, "parameters": SCHEMA}}
        for n in ("mail", "look")
    ]
)


class Conversation(LooseWork):
    """Plays the engine for one conversation: makes its requests, and journals its answers."""

    def __init__(self, agent: AcpAgent, session: str = "ses_one") -> None:
        self.session = SessionId(session)
        self._agent = agent
        self._messages: list[PromptMessage] = []
        self._parents: list[list[Recorded]] = []
        self.turn = TurnId("")
        self.heard: list[AgentEvent] = []
        self._turns = 0
        self._tools = ""
        self.instructions = "Be kind."

    async def chain(self, *, limit: int) -> list[list[Recorded]]:
        return self._parents[-limit:]

    async def ask(self, text: str, tools: str = "") -> Stopped:
        """Begin a turn with a message, and run the agent once."""
        self._tools = tools
        self._turns += 1
        self.turn = TurnId(f"trn_{self.session}_{self._turns}")
        self._add(Role.USER, TextBlock(text))
        return await self._run()

    async def results(self, *results: tuple[str, bool], words: str = "") -> Stopped:
        """Run the agent again, with the results of its calls: each a text, and whether it is an
        error."""
        blocks: list[PromptBlock] = [
            ResultBlock(call=f"c{number}", text=text, is_error=is_error)
            for number, (text, is_error) in enumerate(results)
        ]
        self._add(Role.USER, *blocks, *([TextBlock(words)] if words else []))
        return await self._run()

    async def _run(self) -> Stopped:
        self.heard = []
        async with asyncio.timeout(WAIT_S):
            async for event in self._agent.run(self.request(), self):
                self.heard.append(event)
        stopped = self.heard[-1]
        assert isinstance(stopped, Stopped)
        assert sum(isinstance(event, Stopped) for event in self.heard) == 1
        calls = [
            CallBlock(id=f"c{number}", name=call.name, arguments=call.arguments)
            for number, call in enumerate(self.kinds(AgentCall))
        ]
        if self.text or calls:
            self._add(Role.ASSISTANT, *([TextBlock(self.text)] if self.text else []), *calls)
        return stopped

    def settle(self) -> None:
        """End the turn well."""
        names = [event.session for event in self.kinds(AgentKept)]
        settled = TurnSettled(
            turn=self.turn, outcome=Outcome.DONE, agent_session=names[-1] if names else ""
        )
        self._parents.append([Recorded(session=self.session, seq=1, at=1, event=settled)])
        self._agent.let_go(self.turn)

    def undo(self) -> None:
        """Take the last turn back."""
        self._parents.pop()
        del self._messages[-2:]

    def request(self) -> ModelRequest:
        window = extend(Window(), self._messages[:-1], encode=self._agent.encode)
        return assemble(
            window, self._messages[-1:], instructions=self.instructions, tools=self._tools
        )

    def _add(self, role: Role, *blocks: PromptBlock) -> None:
        self._messages.append(PromptMessage(role=role, blocks=blocks))

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.kinds(AgentText))

    def kinds(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.heard if isinstance(event, kind)]


class Rig:
    """Makes agents in one home, and ends them."""

    def __init__(self, hostile: HostileAcp, home: Path) -> None:
        self._hostile = hostile
        self.home = home
        self.children = LaunchedChildren()
        self.bridge = ToolBridge()
        self.mischief = Mischief(calls=home / "calls")
        self._agents: list[AcpAgent] = []

    def agent(
        self,
        *names: str,
        amount: int = 0,
        silence_s: float = 20,
        bridge_s: float = 20,
        once: Path | None = None,
        preset: Preset = OTHER,
    ) -> AcpAgent:
        mischief = Mischief(*names, amount=amount, calls=self.home / "calls")
        program = AgentProgram(
            agent="tester",
            base=self.home / "agents",
            preset=preset,
            command=tuple(self._hostile.command(mischief, once=once, keep=self.home / "kept")),
            has_sandbox=False,
            share=True,
        )
        clock = SystemClock()
        settings = msgspec.structs.replace(QUICK, bridge_s=bridge_s)
        pool = ProcessPool(program, settings, children=self.children, clock=clock)
        terms = AcpTerms(name="tester", silence_s=silence_s)
        agent = AcpAgent(
            terms, pool=pool, bridge=self.bridge, clock=clock, notes=self.home / "notes"
        )
        self._agents.append(agent)
        return agent

    def ran(self, name: str) -> list[Any]:
        return [call for call in self.mischief.ran() if call.tool == name]

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for agent in self._agents:
            await agent.close()
        await self.bridge.close()
        await self.children.close()


@pytest.fixture
async def rig(new_peer: NewPeer, tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(new_peer.hostile_acp(), tmp_path)
    yield made
    await made.close()


def reasons(*stopped: Stopped) -> Sequence[StopReason]:
    return [each.reason for each in stopped]


async def test_a_conversation_stays_in_its_session(rig: Rig) -> None:
    talk = Conversation(rig.agent())
    assert (await talk.ask("[[SAY hello]]")).reason is StopReason.STOP
    assert talk.text == "hello"
    (timed,) = talk.kinds(AgentTimed)
    assert timed.timings.transport == "cold"
    assert timed.timings.spawn > 0
    talk.settle()
    await talk.ask("[[HISTORY]]")
    told = json.loads(talk.text.removeprefix("HISTORY<").removesuffix(">"))
    assert told[0][1].startswith("[Instructions for this conversation:]\nBe kind.")
    assert [each[0] for each in told] == ["user", "agent"]
    (timed,) = talk.kinds(AgentTimed)
    assert (timed.timings.transport, timed.timings.spawn) == ("pool", 0)
    talk.settle()
    talk.instructions = "Be brief."
    await talk.ask("[[HISTORY]]")
    assert len(rig.ran("session/new")) == 1


async def test_sessions_of_one_process_have_a_state_of_their_own(rig: Rig) -> None:
    agent = rig.agent()
    ada, bob = Conversation(agent), Conversation(agent, "ses_two")
    look = json.dumps([each for each in json.loads(TOOLS) if each["function"]["name"] == "look"])
    # Each has its own session, tools and times.
    for talk, tools, transport in ((ada, TOOLS, "cold"), (bob, look, "pool")):
        await talk.ask("[[TOOLS]]", tools)
        assert ("mail" in talk.text, "look" in talk.text) == (tools is TOOLS, True)
        assert [each.timings.transport for each in talk.kinds(AgentTimed)] == [transport]
        assert (talk.kinds(AgentTimed)[0].timings.spawn > 0) == (transport == "cold")
    names = [each.session for talk in (ada, bob) for each in talk.kinds(AgentKept)]
    assert len(set(names)) == 2
    ada.settle()
    bob.settle()
    # Other tools of one are nothing to the other, and neither is its end.
    await ada.ask("[[TOOLS]]", look)
    assert "mail" not in ada.text
    ada.settle()
    for talk in (ada, bob):
        assert (await talk.ask("[[TOOL look {}]]", look)).reason is StopReason.TOOL_CALLS
    agent.let_go(ada.turn)
    await bob.results(("seen", False))
    assert bob.text == "TOOLRESULT<seen>"
    assert len(rig.ran("session/new")) == 2
    assert len(agent_processes(agent)) == 1


async def test_what_the_agent_does_by_itself_is_told(rig: Rig) -> None:
    talk = Conversation(rig.agent())
    await talk.ask("[[THINK hm]][[PLAN one|two]][[EDIT /a.md new]][[SAY x]]")
    (plan,), (acted,) = talk.kinds(AgentPlan), talk.kinds(AgentActed)
    assert [item.text for item in plan.items] == ["one", "two"]
    assert "-before\n+new" in acted.text
    assert "hm" not in talk.text


async def test_thoughts_are_kept_with_what_they_led_to(rig: Rig) -> None:
    talk = Conversation(rig.agent())
    long = "x" * 30_000
    await talk.ask(f"[[THINK hm]][[EDIT /a.md new]][[THINK {long}]][[TOOL mail {{}}]]", TOOLS)
    kinds = [
        type(each)
        for each in talk.heard
        if isinstance(each, AgentThoughts | AgentActed | AgentCall)
    ]
    assert kinds == [AgentThoughts, AgentActed, AgentThoughts, AgentCall]
    first, second = talk.kinds(AgentThoughts)
    assert json.loads(first.thoughts.bodies) == "hm"
    assert json.loads(second.thoughts.bodies) == "x" * 20_000
    # What was thought before the last words led to nothing else, and is not kept.
    await talk.results(("sent", False))
    assert talk.kinds(AgentThoughts) == []


async def test_what_an_agent_tells_of_its_session_is_told_when_it_is_new(rig: Rig) -> None:
    talk = Conversation(rig.agent())

    async def told(words: str) -> list[AgentState]:
        await talk.ask(words)
        talk.settle()
        return [each.state for each in talk.kinds(AgentTold)]

    assert await told("[[SAY one]]") == [AgentState(mode="ask", commands=("compact",))]
    assert await told("[[SAY two]]") == []
    assert await told("[[MODE code]]") == [AgentState(mode="code", commands=("compact",))]
    many = [{"name": f"{n} {'x' * 500}", "description": "d"} for n in range(1000)]
    update = {"sessionUpdate": "available_commands_update", "availableCommands": many}
    (state,) = await told(f"[[UPDATE {json.dumps(update)} ]]")
    assert len(state.commands) == 100
    assert max(map(len, state.commands)) == 100


async def test_a_call_of_a_tool_stays_in_flight_until_its_result_comes(rig: Rig) -> None:
    talk = Conversation(rig.agent())
    stopped = await talk.ask('[[SAY Look: ]][[TOOL mail {"to": "ada"}]]', TOOLS)
    assert stopped.reason is StopReason.TOOL_CALLS
    (call,) = talk.kinds(AgentCall)
    assert (call.name, json.loads(call.arguments)) == ("mail", {"to": "ada"})
    # People take their time, and nobody listens meanwhile.
    stopped = await talk.results(("sent", False), words="And one more thing.")
    assert stopped.reason is StopReason.STOP
    assert talk.text == "TOOLRESULT<sent\n\nAnd one more thing.>"
    assert talk.kinds(AgentActed) == []  # it is ours, and journalled as such
    talk.settle()
    await talk.ask("[[SAY on]]", TOOLS)
    assert (talk.text, len(rig.ran("session/new"))) == ("on", 1)


async def test_a_tool_is_called_once_over_either_way(rig: Rig) -> None:
    talk = Conversation(rig.agent("no_http"))
    stopped = await talk.ask("[[TOOL mail {}]]", TOOLS)
    assert (stopped.reason, len(talk.kinds(AgentCall))) == (StopReason.TOOL_CALLS, 1)
    assert (await talk.results(("by the relay", False))).reason is StopReason.STOP
    assert talk.text == "TOOLRESULT<by the relay>"


async def test_an_agent_that_takes_no_tools_is_offered_none(rig: Rig) -> None:
    agent = rig.agent("no_mcp", preset=Preset(takes_tools=False))
    talk = Conversation(agent)
    assert (await talk.ask("[[TOOLS]]", TOOLS)).reason is StopReason.STOP
    assert talk.text == "TOOLS<>"
    assert not agent._pool.takes_tools


async def test_a_session_that_began_without_tools_gives_way_to_one_that_has_them(rig: Rig) -> None:
    agent = rig.agent()
    talk = Conversation(agent)
    await talk.ask("[[TOOLS]]")
    assert talk.text == "TOOLS<>"
    talk.settle()
    await talk.ask("[[SAY the same session]]")
    assert len(rig.ran("session/new")) == 1
    talk.settle()
    await talk.ask("[[TOOLS]]", TOOLS)
    assert "mail" in talk.text
    talk.settle()
    # One with tools goes on whether there are any now or not.
    opened = len(rig.ran("session/new")) + len(rig.ran("session/load"))
    await talk.ask("[[SAY without]]")
    talk.settle()
    await talk.ask("[[SAY with]]", TOOLS)
    assert len(rig.ran("session/new")) + len(rig.ran("session/load")) == opened


async def test_tools_are_called_during_an_answer_only(rig: Rig) -> None:
    agent = rig.agent()
    talk = Conversation(agent)
    await talk.ask("[[TOOLS]]", TOOLS)
    talk.settle()
    calls = agent._bound[talk.session]._calls
    assert calls.bridge is not None
    async with over_http(calls.bridge.address) as client:
        assert "no answer of yours is under way" in await said(client, "mail", to="ada")
    stopped = await talk.ask("[[TOOL mail {}]]", TOOLS)
    assert (stopped.reason, len(talk.kinds(AgentCall))) == (StopReason.TOOL_CALLS, 1)


async def test_an_agent_that_dies_while_a_person_is_asked_hangs_nobody(rig: Rig) -> None:
    agent = rig.agent()
    talk = Conversation(agent)
    assert (await talk.ask("[[ASK rm -rf x]]")).reason is StopReason.TOOL_CALLS
    losing = asyncio.create_task(agent.lost(talk.turn))
    os.kill(rig.ran("start")[0].pid, signal.SIGKILL)
    async with asyncio.timeout(WAIT_S):
        assert await losing
    # Whatever the person says now ends the attempt, and the old session gets nothing.
    stopped = await talk.results(("allowed", False), words="[[SAY went on]]")
    assert stopped.interruption is Interruption.AGENT_LOST
    assert not await agent.lost(talk.turn)
    # The next attempt is told the record in a new session.
    stopped = await talk._run()
    assert (stopped.reason, talk.text) == (StopReason.STOP, "went on")
    assert len(rig.ran("session/new")) == 2


async def test_no_agent_is_lost_whose_answer_was_given_up(rig: Rig) -> None:
    agent = rig.agent()
    talk = Conversation(agent)
    assert not await agent.lost(talk.turn)
    await talk.ask("[[ASK rm -rf x]]")
    losing = asyncio.create_task(agent.lost(talk.turn))
    await rig.until(lambda: rig.ran("session/request_permission"))
    assert not losing.done()
    agent.let_go(talk.turn)
    async with asyncio.timeout(WAIT_S):
        assert not await losing
    # A later death of the process is nothing to the turn that was let go.
    os.kill(rig.ran("start")[0].pid, signal.SIGKILL)
    assert not await agent.lost(talk.turn)


async def test_a_question_for_permission_is_a_call_whose_result_is_the_answer(rig: Rig) -> None:
    talk = Conversation(rig.agent())
    for result, expected in ((("allowed", False), "once"), (("denied", True), "no")):
        stopped = await talk.ask("[[ASK rm -rf x]]")
        assert stopped.reason is StopReason.TOOL_CALLS
        (call,) = talk.kinds(AgentCall)
        assert call.name == "permission"
        assert json.loads(call.arguments)["tool"] == "rm -rf x"
        await talk.results(result)
        assert talk.text == f"ASKED<{expected}>"
        talk.settle()


async def test_undo_edits_and_retries_make_a_new_session(rig: Rig) -> None:
    talk = Conversation(rig.agent())
    await talk.ask("[[SAY one]]")
    talk.settle()
    await talk.ask("[[SAY two]]")
    talk.settle()
    talk.undo()
    await talk.ask("[[HISTORY]]")
    assert len(rig.ran("session/new")) == 2
    assert "two" not in talk.text
    assert talk.text == "HISTORY<[]>"  # the record came with the message


async def test_a_lost_session_is_resumed_after_a_restart(rig: Rig) -> None:
    before = rig.agent()
    talk = Conversation(before)
    await talk.ask("[[SAY one]]")
    talk.settle()
    await before.close()

    talk._agent = rig.agent()
    await talk.ask("[[HISTORY]]")
    assert "[[SAY one]]" in talk.text
    assert (len(rig.ran("session/new")), len(rig.ran("session/resume"))) == (1, 1)


async def test_a_session_that_has_gone_on_without_the_journal_is_not_resumed(rig: Rig) -> None:
    before = rig.agent()
    talk = Conversation(before)
    await talk.ask("[[SAY one]]")
    talk.settle()
    await talk.ask("[[SAY two]]")
    talk.settle()
    talk.undo()
    await before.close()

    talk._agent = rig.agent()
    await talk.ask("[[SAY three]]")
    assert (talk.text, len(rig.ran("session/new"))) == ("three", 2)


async def test_a_session_that_the_agent_has_forgotten_is_told_the_record(rig: Rig) -> None:
    before = rig.agent()
    talk = Conversation(before)
    await talk.ask("[[SAY one]]")
    talk.settle()
    await before.close()

    talk._agent = rig.agent("forgets_sessions")
    assert (await talk.ask("[[SAY two]]")).reason is StopReason.STOP
    assert talk.text == "two"
    assert len(rig.ran("session/new")) == 2
    assert "[[SAY one]]" in str(rig.ran("session/prompt")[-1].arguments)


async def test_a_crash_in_a_tool_is_made_again_with_the_result(rig: Rig) -> None:
    agent = rig.agent("dies_in_tool", once=rig.home / "died")
    talk = Conversation(agent)
    await talk.ask('[[TOOL mail {"to": "ada"}]]', TOOLS)
    await rig.until(lambda: not any(each.is_usable for each in agent_processes(agent)))
    stopped = await talk.results(("sent", False), words="[[SAY made again]]")
    assert stopped.interruption is Interruption.AGENT_LOST
    stopped = await talk._run()
    assert (stopped.reason, talk.text) == (StopReason.STOP, "made again")
    assert len(rig.ran("session/new")) == 2
    assert len(rig.ran("mail")) == 1


def agent_processes(agent: AcpAgent) -> Sequence[Any]:
    pool: Any = agent._pool
    processes: Sequence[Any] = pool._members.processes
    return processes


async def test_a_stop_frees_the_agent_and_its_calls(rig: Rig) -> None:
    agent = rig.agent()
    talk = Conversation(agent)
    await talk.ask("[[TOOL mail {}]]", TOOLS)
    agent.let_go(talk.turn)
    other = Conversation(agent, "ses_two")
    assert (await other.ask("[[SAY still here]]")).reason is StopReason.STOP
    assert len(agent_processes(agent)) == 1


async def beside(rig: Rig, agent: AcpAgent, words: str) -> tuple[Conversation, Stopped]:
    """Stop a turn that waits for a person while another conversation holds, and return how that
    one ended."""
    ada, bob = Conversation(agent), Conversation(agent, "ses_two")
    go = rig.home / "go"
    assert (await ada.ask("[[ASK rm x]]")).reason is StopReason.TOOL_CALLS
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(bob.ask(f"[[HOLD {go}]]{words}"))
        await rig.until(lambda: rig.ran("hold"))
        agent.let_go(ada.turn)
        await rig.until(lambda: rig.ran("session/cancel"))
        go.touch()
    # Whatever became of the other one, the conversation that was stopped goes on.
    gone_on = await ada.results(("stopped", True), words="[[SAY again]]")
    assert (gone_on.reason, ada.text) == (StopReason.STOP, "again")
    return bob, asking.result()


@pytest.mark.parametrize(
    "mischief", ["cancelled_as_end", "cancelled_as_error", "keeps_cancel", "waits_for_answer"]
)
async def test_a_stop_costs_no_other_prompt_however_it_is_answered(rig: Rig, mischief: str) -> None:
    bob, stopped = await beside(rig, rig.agent(mischief), "[[SAY whole]]")
    assert (stopped.reason, bob.text) == (StopReason.STOP, "whole")


async def test_an_agent_that_cancels_everybody_says_so_to_the_others(rig: Rig) -> None:
    agent = rig.agent("cancels_all")
    bob, stopped = await beside(rig, agent, "[[SAY whole]]")
    assert stopped.reason is StopReason.PROVIDER_CUT
    assert "has cancelled the answer by itself" in stopped.detail
    bob.settle()
    await bob.ask("[[SAY again]]")
    assert bob.text.endswith("again")


async def test_an_agent_that_dies_of_a_stop_is_started_again_for_the_others(rig: Rig) -> None:
    agent = rig.agent("dies_when_cancelled", once=rig.home / "died")
    bob, stopped = await beside(rig, agent, "[[SAY whole]]")
    assert stopped.interruption in (Interruption.AGENT_LOST, Interruption.AGENT_LOST_BESIDE)
    await bob._run()
    assert bob.text == "whole"
    assert len(rig.ran("start")) == 2


MID_PROMPT = ["dies_mid_prompt", "exits_mid_prompt", "closes_output", "dies_after_words"]


@pytest.mark.parametrize("name", MID_PROMPT)
async def test_an_agent_that_dies_interrupts_its_turn(rig: Rig, name: str) -> None:
    agent = rig.agent(name, once=rig.home / "died")
    talk = Conversation(agent)
    stopped = await talk.ask("[[SAY some words of it]]")
    assert stopped.reason is StopReason.PROVIDER_CUT
    assert stopped.interruption is Interruption.AGENT_LOST
    again = await talk.ask("[[SAY well]]")
    assert (again.reason, talk.text) == (StopReason.STOP, "well")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("http_error", StopReason.PROVIDER_ERROR),
        ("model_fails", StopReason.PROVIDER_ERROR),
        ("dies_in_new", StopReason.PROVIDER_UNREACHABLE),
        ("dies_in_initialize", StopReason.PROVIDER_UNREACHABLE),
        ("exits", StopReason.PROVIDER_UNREACHABLE),
        ("wrong_version", StopReason.PROVIDER_UNREACHABLE),
    ],
)
async def test_what_fails_before_a_word_is_told_and_leaves_nothing(
    rig: Rig, name: str, expected: StopReason
) -> None:
    talk = Conversation(rig.agent(name))
    stopped = await talk.ask("[[SAY x]]")
    assert stopped.reason is expected, stopped
    assert stopped.detail
    assert talk.text == ""


@pytest.mark.parametrize(
    "name",
    [
        *("answers_strangers", "answers_twice", "floods_errors", "garbage", "late_updates"),
        *("result_first", "unknown_session", "unknown_stop", "unknown_update", "no_close"),
        *("replays_on_resume", "no_resume", "big_line", "asks_for_unknown_session"),
    ],
)
async def test_what_is_odd_costs_no_word(rig: Rig, name: str) -> None:
    amount = 100_000 if name == "big_line" else 0
    talk = Conversation(rig.agent(name, amount=amount))
    stopped = await talk.ask("[[SAY all words are there]]")
    assert stopped.reason is StopReason.STOP, stopped
    assert talk.text.endswith("all words are there")


async def test_a_flood_of_updates_is_heard_in_order(rig: Rig) -> None:
    talk = Conversation(rig.agent("floods_updates", amount=5_000))
    await talk.ask("[[SAY end]]")
    assert talk.text.split()[:5_000] == [str(number) for number in range(5_000)]
    assert talk.text.endswith("end")


@pytest.mark.parametrize("name", ["hangs_prompt", "never_ends"])
async def test_an_agent_that_says_nothing_is_given_up(rig: Rig, name: str) -> None:
    talk = Conversation(rig.agent(name, silence_s=0.3))
    stopped = await talk.ask("[[SAY words]]")
    assert stopped.reason is StopReason.PROVIDER_TIMEOUT
    assert talk.text == ("" if name == "hangs_prompt" else "words")


async def test_a_message_that_looks_like_a_command_reaches_the_model(rig: Rig) -> None:
    talk = Conversation(rig.agent("slash_commands"))
    talk.instructions = ""
    await talk.ask("/status")
    assert talk.text == "echo: \u200b/status"


async def test_an_agent_that_takes_no_tools_of_ours_fails_visibly(rig: Rig) -> None:
    talk = Conversation(rig.agent("bridge_never", bridge_s=0.5))
    stopped = await talk.ask("[[SAY x]]", TOOLS)
    assert stopped.reason is StopReason.PROVIDER_UNREACHABLE
    assert "tool" in stopped.detail
