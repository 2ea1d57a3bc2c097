"""Checks how what a node reads of itself is written as metrics."""

from perdure.ports.turns.servers import ServerState, ToolServerView
from perdure.web.ops.metrics import MetricsReading, exposed
from perdure.web.ops.tally import Tally


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
