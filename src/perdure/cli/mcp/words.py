"""Says in words how tool servers are. Apart from the tables, so that `perdure status` does not load
rich."""

from collections import Counter
from collections.abc import Iterator, Sequence

from perdure.ports.turns.servers import ServerState, ToolServerView


def state_in_words(state: ServerState) -> str:
    """Return a state as people read it."""
    return state.replace("_", " ")


def server_lines(views: Sequence[ToolServerView]) -> Iterator[str]:
    """Yield a line that counts the tool servers by their state, and one for each that is down or
    has not answered a call."""
    if not views:
        return
    states = Counter(view.state for view in views)
    counts = (f"{states[state]} {state_in_words(state)}" for state in ServerState if states[state])
    yield f"servers {', '.join(counts)}"
    for view in views:
        if view.state is ServerState.DOWN or view.failures:
            failed = f"; {view.failures} of {view.calls} calls were not answered"
            told = view.why or f"it is {state_in_words(view.state)}"
            yield f"mcp.{view.name}: {told}{failed if view.failures else ''}"
