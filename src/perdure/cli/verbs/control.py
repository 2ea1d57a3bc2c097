"""Implements `perdure status`, `stop`, `drain`, `restart` and `turns`."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

from perdure.app.operate.client import UNREACHABLE, NodeClient, node_client, store_trouble
from perdure.app.operate.node_process import drain_by_signal, is_alive, lock_of, silent_node
from perdure.app.wiring.system import SystemClock
from perdure.cli.agents.words import agent_lines
from perdure.cli.exits import FAILED
from perdure.cli.mcp.words import server_lines
from perdure.cli.printing import clean, lasting, print_json
from perdure.cli.target import CommandTarget, answering, running, unanswered
from perdure.cli.verbs.logs import left_behind
from perdure.domain.errors import PerdureError, Rejected
from perdure.ports.gateway import AgentView
from perdure.ports.records.occasions import HookFailures
from perdure.web import wire
from perdure.web.api import native
from perdure.web.ops import node as endpoints

LOOK_EVERY_S: Final = 0.2
# How long a node may take from its last answer to its end. It only has files to close by then.
CLOSING_S: Final = 30.0
# How long a restart may take. The next process may have to read a long journal, or its supervisor
# may be slow.
STARTING_S: Final = 60.0


async def status(target: CommandTarget) -> int | None:
    """Print how the node is. Returns the code of a failure if it runs and its store does not
    work."""
    node = await node_client(target.home, target.environ)
    if node is None:
        pid = silent_node(target.home, target.environ)
        trouble = "" if pid is None else await store_trouble(target.home, target.environ)
        if target.is_json:
            print_json(_silence(target, pid, trouble))
        raise unanswered(target, pid, trouble)
    found = await node.status()
    if target.is_json:
        print_json(found)
    else:
        _show(target, node.url, found)
    return None if found.store.is_up else FAILED


def _show(target: CommandTarget, url: str, found: wire.StatusOut) -> None:
    up_s = (SystemClock().now_ms() - found.started_at) / 1000
    agents = ", ".join(map(_agent, found.agents))
    print(f"Perdure {found.version} is {found.state}, up {lasting(up_s)}")
    if not found.store.is_up:
        print(f"It is running, but its store refuses writes: {clean(found.store.reason)}")
    print(f"  node    {found.node}, process {found.pid}")
    print(f"  url     {url}")
    print(f"  home    {target.home}")
    print(f"  agents  {clean(agents)}")
    print(f"  turns   {_counts(found.turns)}")
    print(f"  outbox  {_counts(found.outbox)}")
    if any(found.refused.values()):
        print(f"  refused {_counts(found.refused)}, for quotas")
    for adapter in found.adapters:
        print(f"  {_adapter(adapter)}")
    for line in (*agent_lines(found.programs), *server_lines(found.tool_servers)):
        print(f"  {clean(line)}")
    for line in _hooks(found.hooks):
        print(f"  {clean(line)}")
    if found.boot:
        print(f"  boot    {clean(found.boot)}")


def _silence(target: CommandTarget, pid: int | None, trouble: str) -> dict[str, object]:
    """Return the JSON for a node that did not answer."""
    if pid is None:
        return {"state": "stopped", "home": str(target.home)}
    if trouble:
        store = wire.StoreOut(is_up=False, reason=trouble)
        return {"state": "degraded", "home": str(target.home), "pid": pid, "store": store}
    return {"state": "unreachable", "home": str(target.home), "pid": pid}


def _agent(agent: AgentView) -> str:
    window = f", window of {agent.window:,} tokens" if agent.window else ""
    return f"{agent.name} ({agent.kind}{window})"


def _adapter(adapter: wire.AdapterOut) -> str:
    account = f" as {adapter.account}" if adapter.account else ""
    error = f": {adapter.error}" if adapter.error else ""
    return clean(f"{adapter.name}{account} is {adapter.health}{error}")


def _hooks(failed: HookFailures) -> Iterator[str]:
    """Yield what is wrong with the hooks, a line for each kind of trouble."""
    if failed.count:
        times = "once" if failed.count == 1 else f"{failed.count:,} times"
        yield f"hooks   failed {times}; last {failed.hook} on {failed.event}: {failed.problem}"
    if failed.dropped:
        yield f"hooks   are too slow: {failed.dropped:,} events were not told"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "not known now"


async def stop(target: CommandTarget) -> int | None:
    """Ask the node to drain, and wait until it is gone. The node itself limits how long that takes.
    Raises `Rejected` if its process remains after it has stopped serving."""
    since_ms = SystemClock().now_ms()
    node = await node_client(target.home, target.environ)
    if node is None:
        await _until_gone(_signalled(target))
        _say_stopped(target, since_ms=since_ms)
        return None
    was_visible = is_alive(node.pid)
    await node.ask(endpoints.drain)
    await _until_silent(node)
    is_gone = not was_visible or await _is_gone(node.pid)
    if not is_gone:
        raise Rejected(
            f"the node has stopped serving, but its process {node.pid} is still there; "
            "see `perdure logs`",
            code="still_there",
        )
    _say_stopped(target, since_ms=since_ms)
    return None


def _say_stopped(target: CommandTarget, *, since_ms: int) -> None:
    """Say that the node has stopped, and what it left for the next start, as its log says."""
    left = left_behind(target.home, since_ms=since_ms)
    if left:
        print(left, file=sys.stderr)
    _say(target, "stopped")


async def drain(target: CommandTarget) -> None:
    """Ask the node to drain, and do not wait."""
    node = await node_client(target.home, target.environ)
    if node is None:
        _signalled(target)
    else:
        await node.ask(endpoints.drain)
    _say(target, "draining")


def _signalled(target: CommandTarget) -> int:
    """Send SIGTERM to a node that holds the store and cannot be asked over HTTP. Returns its
    process id. Raises `Rejected` if there is none, or if it cannot be signalled."""
    pid = silent_node(target.home, target.environ)
    if pid is None:
        raise unanswered(target, pid)
    if not drain_by_signal(pid, lock_of(target.home)):
        raise Rejected(
            f"the node of {target.home} does not answer, and its process {pid or ''} cannot be "
            "signalled from here; end it where it runs",
            code="unreachable",
        )
    print(f"nothing answers; sent SIGTERM to process {pid}", file=sys.stderr)
    return pid


async def _until_gone(pid: int) -> None:
    """Wait until a process ends, without a time limit: only the node knows how long its turns may
    take."""
    while is_alive(pid):
        await SystemClock().sleep(LOOK_EVERY_S)


async def stop_turn(target: CommandTarget, *, turn: str) -> None:
    """Stop a turn, in the running node or in the store."""
    async with answering(target) as answers:
        found = await answers.ask(native.stop_turn, turn)
    if target.is_json:
        print_json(found)
    else:
        print(f"{found.id} is {found.outcome or found.state}")


async def restart(target: CommandTarget) -> None:
    """Ask the node to restart, and wait until the new one is ready. Raises `Rejected` if it does
    not return."""
    node = await running(target)
    last = (await node.status()).node
    await node.ask(endpoints.restart)
    await _until_silent(node, last)
    found = await _next_life(node, last)
    if target.is_json:
        print_json({"state": "restarted", "pid": found.pid, "url": node.url})
    else:
        print(f"restarted, process {found.pid} at {node.url}")


async def _next_life(node: NodeClient, last: str) -> wire.StatusOut:
    """Wait until a node answers that is not the last one."""
    clock = SystemClock()
    print("starting", file=sys.stderr)
    deadline = clock.monotonic_s() + STARTING_S
    while clock.monotonic_s() < deadline:
        with contextlib.suppress(PerdureError):
            if await node.look_again():
                found = await node.status()
                if found.node != last:
                    return found
        await clock.sleep(LOOK_EVERY_S)
    raise Rejected(
        "the node has stopped and did not come back; see `perdure logs`, and start it with "
        "`perdure serve`",
        code="gone",
    )


def _say(target: CommandTarget, state: str) -> None:
    if target.is_json:
        print_json({"state": state})
    else:
        print(state)


async def _until_silent(node: NodeClient, life: str | None = None) -> None:
    """Wait until the process, or this life of it, no longer answers. Prints how many turns still
    run."""
    told = ""
    while (found := await _status(node)) is not None and life in (None, found.node):
        count = found.turns.get("running", 0)
        news = f"draining: {count} turn{'' if count == 1 else 's'} running"
        if count and news != told:
            print(news, file=sys.stderr)
            told = news
        await SystemClock().sleep(LOOK_EVERY_S)


async def _status(node: NodeClient) -> wire.StatusOut | None:
    """Ask until there is an answer. Returns None if the node is gone."""
    while True:
        try:
            found = await node.status()
        except PerdureError as error:
            # A node whose store is down also answers with an error, and is still there.
            if error.code == UNREACHABLE or not is_alive(node.pid):
                return None
            await SystemClock().sleep(LOOK_EVERY_S)
        else:
            # Another node may have taken over the address at once. Then ours is gone.
            return found if found.pid == node.pid else None


async def _is_gone(pid: int) -> bool:
    """Wait until a process ends. Returns False if it takes longer than `CLOSING_S`."""
    clock = SystemClock()
    deadline = clock.monotonic_s() + CLOSING_S
    while is_alive(pid):
        if clock.monotonic_s() > deadline:
            return False
        await clock.sleep(LOOK_EVERY_S)
    return True
