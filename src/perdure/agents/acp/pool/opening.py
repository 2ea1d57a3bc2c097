"""Opens sessions in a process: new ones, and those of a process that was there before."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from acp import RequestError, schema
from pydantic import ValidationError

from perdure.agents.acp.pool.process import AgentProcess
from perdure.agents.acp.pool.seam import SessionTimes
from perdure.agents.acp.pool.session import ProcessSession
from perdure.agents.acp.states import first_state
from perdure.domain.errors import NotFound, Permanent, Rejected, Transient
from perdure.domain.journal.model.agent_state import UNTOLD
from perdure.ports.agents.bridge import BridgeAddress
from perdure.ports.system.time_limits import time_limit

T = TypeVar("T")
_Opened = tuple[str, schema.SessionModeState | None]
_NEEDS_LOGIN: Final = -32000
_WORDS_CHARS: Final = 500
# A loaded session may say more of its history after it is loaded; none of it belongs to an answer.
REPLAY_S: Final = 0.2


class SessionWish(msgspec.Struct, frozen=True, kw_only=True):
    """Says which session is opened. An empty `identity` is a new one."""

    cwd: Path
    bridge: BridgeAddress | None
    identity: str = ""
    is_cold: bool = False
    may_load: bool = False
    meta: Mapping[str, Any] = {}


async def opened_session(
    process: AgentProcess, wish: SessionWish, lock: asyncio.Lock
) -> ProcessSession:
    """Open a session. Only one is opened at a time in a home: agents lock their files, and wait
    exponentially. Raises `NotFound` if a session cannot be brought back, `Transient` if none can be
    opened, and `Rejected` if the agent wants a login."""
    clock = process.clock
    async with lock:
        began_s = clock.monotonic_s()
        identity, modes = await (_revived if wish.identity else _made)(process, wish)
        if identity in process.sessions:
            process.retire("it has given two sessions one id", process.settings.ignored_s)
            raise Transient("the agent has given two sessions the same id; it is started again")
        times = SessionTimes(
            is_cold=wish.is_cold,
            spawn=process.spawn_ms if wish.is_cold else 0,
            session=_ms(clock.monotonic_s() - began_s),
        )
        session = process.sessions[identity] = ProcessSession(
            process, identity, times, cwd=str(wish.cwd)
        )
        # Some agents tell of a session before the gateway knows it.
        session.state = first_state(modes, process.early.pop(identity, UNTOLD))
    began_s = clock.monotonic_s()
    try:
        await _connected(process, wish.bridge)
    except BaseException:
        session.release()
        raise
    session.times = msgspec.structs.replace(times, bridge=_ms(clock.monotonic_s() - began_s))
    return session


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


async def _made(process: AgentProcess, wish: SessionWish) -> _Opened:
    async def make() -> schema.NewSessionResponse:
        return await process.connection.new_session(
            cwd=str(wish.cwd), mcp_servers=_servers(process, wish.bridge), **wish.meta
        )

    made = await _answered(process, make, "has made no session")
    if made.modes is not None:
        process.modes = tuple(each.id for each in made.modes.available_modes)
    process.counts.sessions += 1
    return made.session_id, made.modes


async def _revived(process: AgentProcess, wish: SessionWish) -> _Opened:
    """Bring back a session that another process has had in this home."""
    if wish.identity in process.sessions:
        raise NotFound("somebody else uses this session of the agent")
    can = process.capabilities.session_capabilities
    servers = _servers(process, wish.bridge)
    connection, identity, cwd = process.connection, wish.identity, str(wish.cwd)
    is_load = can is None or can.resume is None
    if is_load and not (wish.may_load and process.capabilities.load_session):
        raise NotFound("this agent cannot bring back a session")

    async def revive() -> schema.LoadSessionResponse | schema.ResumeSessionResponse | None:
        # The updates of a session that has no prompt are dropped, and so is a history.
        if is_load:
            return await connection.load_session(
                cwd=cwd, session_id=identity, mcp_servers=servers, **wish.meta
            )
        return await connection.resume_session(
            cwd=cwd, session_id=identity, mcp_servers=servers, **wish.meta
        )

    try:
        revived = await _answered(process, revive, "has not brought back a session")
    except (Transient, Rejected) as error:
        raise NotFound(error.message) from error
    if is_load:
        await process.clock.sleep(REPLAY_S)
    process.counts.resumed += 1
    return identity, revived.modes if revived is not None else None


async def _answered(process: AgentProcess, call: Callable[[], Awaitable[T]], fault: str) -> T:
    """Return what a call returns that opens a session."""
    limit_s = process.settings.session_s
    try:
        async with time_limit(limit_s):
            return await call()
    except TimeoutError as error:
        # It may still come, and then nobody could close it.
        process.retire(f"it {fault} in time", process.settings.ignored_s)
        raise Transient(f"the agent {fault} within {limit_s:g} s; it is started again") from error
    except ConnectionError as error:
        raise Transient(f"the agent's process {await process.gone()}") from error
    except ValidationError as error:
        raise Transient(f"the agent {fault}: its answer is none of ACP") from error
    except RequestError as error:
        words = f"{error} {error.data or ''}".strip()[:_WORDS_CHARS]
        if error.code == _NEEDS_LOGIN:
            raise Rejected(f"the agent wants a login: {words}; add its key to env") from error
        raise Transient(f"the agent {fault}: {words}") from error


async def _connected(process: AgentProcess, bridge: BridgeAddress | None) -> None:
    """Wait until the agent has fetched its tools. Raises `Transient`: agents say nothing about
    tools that they cannot reach."""
    if bridge is None:
        return
    waiting = process.start(bridge.connected.wait(), name="wait for the tools")
    lost = process.start(process.wait(), name="wait for the end")
    try:
        with contextlib.suppress(TimeoutError):
            async with time_limit(process.settings.bridge_s):
                await asyncio.wait({waiting, lost}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        lost.cancel()
    if bridge.connected.is_set():
        return
    if process.is_over:
        raise Transient(f"the agent's process {await process.gone()}")
    raise Transient(
        f"the agent has not fetched its tools within {process.settings.bridge_s:g} s; "
        "its log may say why"
    )


def _servers(process: AgentProcess, bridge: BridgeAddress | None) -> list[Any]:
    """Return how the agent reaches its tools: over HTTP if it can do that."""
    if bridge is None:
        return []
    if bridge.url and process.has_http:
        bearer = schema.HttpHeader(name="Authorization", value=f"Bearer {bridge.token}")
        return [
            schema.HttpMcpServer(type="http", name=bridge.name, url=bridge.url, headers=[bearer])
        ]
    if bridge.argv:
        env = [schema.EnvVariable(name=name, value=text) for name, text in bridge.env.items()]
        command, *args = bridge.argv
        return [schema.McpServerStdio(name=bridge.name, command=command, args=args, env=env)]
    raise Permanent("the agent reaches tools in no way that the gateway offers")
