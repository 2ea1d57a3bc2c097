"""Checks how what a node reads of itself is written as metrics."""

import msgspec

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import Recorded, TurnSettled
from perdure.domain.journal.model.timings import Timings
from perdure.domain.outcomes import Outcome
from perdure.ports.agents.programs import AgentStanding, ProcessView, ProgramView
from perdure.ports.turns.servers import ServerState, ToolServerView
from perdure.web.measuring.metrics import MetricsReading, exposed
from perdure.web.measuring.tally import Tally


def reading(*servers: ToolServerView) -> MetricsReading:
    return MetricsReading(
        version="1",
        counts=None,
        tally=Tally(),
        running=0,
        platforms=(),
        is_ready=True,
        is_store_up=True,
        store_refusals=0,
        quota_refusals={},
        tool_servers=servers,
    )


def settled(step_ms: int, transport: str) -> Recorded:
    timings = Timings(transport=transport, first_token=step_ms)
    turn = TurnId(f"trn_{step_ms}")
    event = TurnSettled(turn=turn, outcome=Outcome.DONE, agent="gemini", timings=timings)
    return Recorded(session=SessionId("ses_1"), seq=1, at=1, event=event)


def test_where_the_time_of_an_agent_went_is_a_histogram() -> None:
    tally = Tally()
    for ms in (4, 5, 90, 200_000):
        tally.observe(settled(ms, "pool"))
    tally.observe(settled(1_400, "cold"))

    lines = exposed(msgspec.structs.replace(reading(), tally=tally)).decode().splitlines()

    name = "perdure_agent_step_seconds"
    pool = 'agent="gemini",step="first_token",transport="pool"'
    shown = {
        end: float(line.rpartition(" ")[2])
        for line in lines
        for end in ("0.005", "0.1", "120", "+Inf")
        if line.startswith(f"{name}_bucket")
        and 'transport="pool"' in line
        and f'le="{end}"' in line
    }
    assert shown == {"0.005": 2, "0.1": 3, "120": 3, "+Inf": 4}
    assert f"{name}_count{{{pool}}} 4.0" in lines
    assert f"{name}_sum{{{pool}}} 200.099" in lines
    assert f'{name}_count{{agent="gemini",step="first_token",transport="cold"}} 1.0' in lines
    assert not any('step="spawn"' in line for line in lines), "what took no time is not counted"


def test_the_processes_and_the_calls_of_agents_are_counted() -> None:
    process = ProcessView(
        name="gemini-1",
        pid=7,
        group="all",
        server="gemini 1",
        sessions=3,
        prompts=1,
        unclosable=0,
        age_s=1,
        memory_bytes=1000,
        has_sandbox=True,
    )
    program = ProgramView(
        processes=(process, process),
        starting=0,
        resting_s=0,
        takes_tools=True,
        is_shared=True,
        starts=5,
        crashes=2,
        opened=9,
    )
    gemini = AgentStanding(name="gemini", kind="acp", calls=1, waiting=4, program=program)
    agents = (gemini, AgentStanding(name="main", kind="chat"))

    lines = exposed(msgspec.structs.replace(reading(), agents=agents)).decode().splitlines()

    assert {
        'perdure_agent_calls{agent="gemini",state="calling"} 1.0',
        'perdure_agent_calls{agent="gemini",state="waiting"} 4.0',
        'perdure_agent_calls{agent="main",state="calling"} 0.0',
        'perdure_agent_processes{agent="gemini"} 2.0',
        'perdure_agent_sessions{agent="gemini"} 6.0',
        'perdure_agent_memory_bytes{agent="gemini"} 2000.0',
        'perdure_agent_starts_total{agent="gemini"} 5.0',
        'perdure_agent_crashes_total{agent="gemini"} 2.0',
        'perdure_agent_sessions_opened_total{agent="gemini"} 9.0',
    } <= set(lines)
    assert not any('processes{agent="main"}' in line for line in lines)


def test_a_tool_server_is_in_exactly_one_state() -> None:
    clock = ToolServerView(
        name="time", kind="program", state=ServerState.DOWN, is_shared=True, calls=17, failures=3
    )
    board = ToolServerView(name="board", kind="address", state=ServerState.READY, is_shared=False)

    lines = exposed(reading(clock, board)).decode().splitlines()

    states = [line for line in lines if line.startswith("perdure_tool_servers{")]
    assert len(states) == 2 * len(ServerState)
    assert [line for line in states if line.endswith(" 1.0")] == [
        'perdure_tool_servers{server="time",state="down"} 1.0',
        'perdure_tool_servers{server="board",state="ready"} 1.0',
    ]
    assert 'perdure_tool_server_calls_total{server="time"} 17.0' in lines
    assert 'perdure_tool_server_failures_total{server="time"} 3.0' in lines
    assert 'perdure_tool_server_calls_total{server="board"} 0.0' in lines


def test_a_node_without_tool_servers_has_no_numbers_of_them() -> None:
    assert b"perdure_tool_servers{" not in exposed(reading())
